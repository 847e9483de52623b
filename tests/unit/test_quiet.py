"""What Java says while it starts is held back, and what it says later is passed on."""

import io
import os
import sys

import pytest

from sojourn.engine.spark.quiet import Voice, say


class Said:
    """A voice and what it reads from."""

    def __init__(self) -> None:
        read, self.pipe = os.pipe()
        self.voice = Voice(read)
        self.voice.start()

    def says(self, data: bytes) -> None:
        os.write(self.pipe, data)

    def ends(self) -> None:
        os.close(self.pipe)
        self.voice.join()


def stand_in(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """For standard error."""
    made = io.StringIO()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_what_is_said_at_the_start_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stand_in(monkeypatch)
    said = Said()
    said.says(b"WARNING: Using incubator modules\n")
    said.voice.release(show=False)
    said.says("prices: 3 €\n".encode())
    said.ends()
    assert out.getvalue() == "prices: 3 €\n"


def test_what_nobody_has_read_yet_is_dropped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stand_in(monkeypatch)
    read, pipe = os.pipe()
    voice = Voice(read)  # it gets a turn only later
    os.write(pipe, b"WARNING: Using incubator modules\n" * 1000)
    voice.release(show=False)
    voice.start()
    os.write(pipe, b"prices: 3\n")
    os.close(pipe)
    voice.join()
    assert out.getvalue() == "prices: 3\n"


def test_a_java_that_has_ended_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stand_in(monkeypatch)
    said = Said()
    said.says(b"Unrecognized VM option\n")
    said.ends()
    said.voice.release(show=True)
    assert out.getvalue() == "Unrecognized VM option\n"


def test_it_is_shown_where_the_start_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stand_in(monkeypatch)
    said = Said()
    said.says(b"Unrecognized VM option\n")
    assert out.getvalue() == ""
    said.voice.release(show=True)
    said.ends()
    assert out.getvalue() == "Unrecognized VM option\n"


def test_a_letter_that_comes_in_two_parts_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stand_in(monkeypatch)
    said = Said()
    said.voice.release(show=False)
    data = "€".encode()
    said.says(data[:1])
    said.says(data[1:])
    said.ends()
    assert out.getvalue() == "€"


def test_without_a_stand_in_it_goes_to_the_real_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for nowhere in (None, io.StringIO()):
        if nowhere is not None:
            nowhere.close()
        monkeypatch.setattr(sys, "stderr", nowhere)
        say("told\n")
        monkeypatch.undo()
        assert capfd.readouterr().err == "told\n"
