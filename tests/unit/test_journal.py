"""A journal stays small enough to keep, and what is left of it is decided anew."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from test_control import SHAPE, FakeEngine, OnePool

from sojourn.cli.replay import replay as replay_command
from sojourn.control.controller import Record
from sojourn.control.journal import WARM_UP, Journal, read_journal, replay
from sojourn.control.loop import ControlLoop
from sojourn.control.negotiator import Negotiator
from sojourn.errors import InputError
from sojourn.linefile import MAX_BYTES, MAX_PARTS, LineFile, check_new
from sojourn.settings import ControlSettings


def written(path: Path, intervals: int, max_bytes: int) -> list[Record]:
    """The records of a run under changing load, whose journal is in files of that size."""
    engine = FakeEngine(rate=50, noise=0.03)
    journal = Journal(path, SHAPE, max_bytes)
    settings = ControlSettings(max_sojourn_s=0.1)
    control = ControlLoop(engine, SHAPE, settings, Negotiator(OnePool()), [journal])
    records = []
    for number in range(intervals):
        engine.rate = (50, 110, 40)[number // 10 % 3]
        records.append(control.tick())
    journal.close()
    return records


def numbers(path: Path) -> list[int]:
    return [record.number for record in read_journal(path)[1]]


def test_a_journal_is_continued_in_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    size = 20_000
    records = written(path, 31, size)
    names = [f"journal.jsonl.{n}" for n in range(len(list(tmp_path.iterdir())) - 1, 0, -1)]
    parts = [*(tmp_path / name for name in names), path]
    assert sorted(tmp_path.iterdir()) == sorted(parts)
    assert len(parts) > 3
    assert all(part.stat().st_size <= size for part in parts)
    older = [number for part in parts[:-1] for number in numbers(part)]  # each has a header
    assert older == list(range(1, 1 + len(older)))
    assert numbers(path) == list(range(1, 32))
    shape, found = read_journal(path)
    again = list(replay(shape, found, {}))
    assert [r.record.decision for r in again] == [r.decision for r in records]
    assert [r.record.number for r in again if r.differs or r.warm_up] == []


def test_a_record_larger_than_a_file_has_one_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, 5, max_bytes=10)
    assert len(list(tmp_path.iterdir())) == 5
    assert numbers(path) == [1, 2, 3, 4, 5]


def test_a_journal_that_cannot_be_written_is_refused_and_nothing_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    check_new(tmp_path / "new" / "er" / "journal")
    rule = rf"cannot be written, as {file} must be a directory that .*; name another journal"
    for path in (file / "journal", file / "new" / "journal"):
        with pytest.raises(InputError, match=rule):
            check_new(path)
    for path in (file, tmp_path, Path()):
        with pytest.raises(InputError, match="exists; name another journal"):
            check_new(path)
    with pytest.raises(InputError, match="cannot be written: File name too long; name another"):
        check_new(tmp_path / ("long" * 100))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=f"as {tmp_path} must be a directory that you may write"):
        check_new(tmp_path / "new" / "journal")
    assert list(tmp_path.iterdir()) == [file]


def test_the_oldest_files_go(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, 30, max_bytes=10)
    assert {part.name for part in tmp_path.iterdir()} == {
        "journal.jsonl",
        *(f"journal.jsonl.{n}" for n in range(1, MAX_PARTS + 1)),
    }
    assert numbers(path) == list(range(30 - MAX_PARTS, 31))
    assert (MAX_BYTES, MAX_PARTS) == (64 << 20, 10)


def test_where_the_beginning_is_gone_the_first_intervals_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, 700, max_bytes=200_000)
    first = numbers(path)[0]
    assert 1 < first < 700 - 2 * WARM_UP
    shape, records = read_journal(path)
    again = list(replay(shape, records, {}))
    assert [r.warm_up for r in again[: WARM_UP + 1]] == [True] * WARM_UP + [False]
    assert [r.record.number for r in again if r.differs] == []
    shape, records = read_journal(path)
    stricter = [r for r in replay(shape, records, {"max_sojourn_s": 0.055}) if r.differs]
    assert stricter
    alone = tmp_path / "journal.jsonl.1"
    shape, records = read_journal(alone)
    assert all(r.warm_up and not r.differs for r in replay(shape, records, {}))
    replay_command(path)
    assert capsys.readouterr().out == (
        f"chain: {701 - first} intervals, none decided differently\n"
        f"  the first {WARM_UP} are not compared: the journal lacks what came before them\n"
    )


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, 3, MAX_BYTES)
    path.write_bytes(path.read_bytes()[:-20])
    assert numbers(path) == [1, 2]


def test_a_journal_that_ended_while_a_new_file_began_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, 5, max_bytes=10)
    path.unlink()
    assert numbers(path) == [1, 2, 3, 4]


def test_a_file_that_cannot_be_begun_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    records = written(tmp_path / "other", 4, MAX_BYTES)
    journal = Journal(path, SHAPE, max_bytes=10)
    journal(records[0])
    (tmp_path / "journal.jsonl.9").mkdir()
    (tmp_path / "journal.jsonl.10" / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="not empty"):
        journal(records[1])
    shutil.rmtree(tmp_path / "journal.jsonl.9")
    shutil.rmtree(tmp_path / "journal.jsonl.10")
    journal(records[2])
    journal(records[3])
    journal.close()
    assert numbers(path) == [1, 3, 4]


def test_files_of_another_run_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, 3, max_bytes=10)
    path.unlink()
    with pytest.raises(InputError, match=r"journal.jsonl.2: exists; name another"):
        Journal(path, SHAPE)
    Journal(tmp_path / "other", replace(SHAPE, name="other")).close()
    (tmp_path / "other").rename(path)
    with pytest.raises(
        InputError, match=r"jsonl.2: must be a journal of the same topology .*; move it away"
    ):
        read_journal(path)


def test_a_journal_whose_first_line_cannot_be_written_can_be_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: LineFile, _line: bytes) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "j.jsonl"
    monkeypatch.setattr(LineFile, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        LineFile(path, b"first\n")
    monkeypatch.undo()
    LineFile(path, b"first\n").close()
    assert path.read_bytes() == b"first\n"
