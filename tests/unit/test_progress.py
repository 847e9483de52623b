"""What is said while something goes on: at once or not at all, on a terminal and elsewhere."""

import io
import threading

import pytest
from rich.console import Console

from sojourn.cli.progress import bar, busy


class Heard(io.StringIO):
    """What a terminal gets. `told` is set as soon as a word is in it."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word, self.told = word, threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.word in self.getvalue():
            self.told.set()
        return written


def test_what_is_soon_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True)
    for console in (None, terminal):
        with busy("solving", after_s=600.0, console=console):
            pass
    assert capsys.readouterr() == ("", "")
    assert terminal.file.getvalue() == ""  # type: ignore[attr-defined]


def test_what_takes_long_is_told_once_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    with busy("starting Spark", after_s=0.0):
        assert capsys.readouterr().err == "starting Spark …\n"
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("typer.echo", lambda *_, **__: told.set())
    with busy("solving", after_s=0.001):
        assert told.wait(60)


@pytest.mark.parametrize("after_s", [0.0, 0.001])
def test_a_terminal_shows_how_long_it_takes_and_forgets_it(after_s: float) -> None:
    out = Heard("solving …")
    with busy("solving", after_s, Console(file=out, force_terminal=True, _environ={})):
        assert out.told.wait(60)
    assert "0:00:0" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K"), "the line is gone"


def test_it_is_over_when_what_went_on_has_failed() -> None:
    out = Heard("solving …")
    with (
        pytest.raises(ValueError, match="no"),
        busy("solving", 0.0, Console(file=out, force_terminal=True, _environ={})),
    ):
        raise ValueError("no")
    assert out.getvalue().endswith("\x1b[2K")


def test_a_bar_is_a_line_every_tenth_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("simulating") as told:
        for part in range(101):
            told(part / 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"simulating: {tenth * 10} %" for tenth in range(1, 11)]
