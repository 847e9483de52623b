"""Sinks: file sinks show each committed result once, and nothing else, whatever was cut short."""

import contextlib
import itertools
import os
import pickle
import stat
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sojourn import sinks
from sojourn.errors import InputError
from sojourn.sinks import Sink, Staged, columns, files
from sojourn.sinks import sink as sink_module
from sojourn.sinks.columns import Parquet

MAKERS = pytest.mark.parametrize("kind", ["jsonl", "parquet"])


def made(
    kind: str, directory: Path, epoch: int = 1, held: Iterable[str] = (), part: int = 0
) -> Sink:
    sink = sinks.jsonl(directory) if kind == "jsonl" else sinks.parquet(directory)
    return opened(sink, epoch, held, part)


def opened(sink: Sink, epoch: int = 1, held: Iterable[str] = (), part: int = 0) -> Sink:
    sink.run = "3fb2a1"
    sink.open(part, epoch, tuple(held))
    return sink


def write(sink: Sink, *values: Any) -> None:
    for value in values:
        sink.write({"v": value})


def stage(sink: Sink, *values: Any, last: bool = False) -> Staged:
    """All of a commit but its record."""
    write(sink, *values)
    return sink.cut(last)()


def commit(sink: Sink, *values: Any, last: bool = False) -> Staged:
    staged = stage(sink, *values, last=last)
    sinks.publish(staged.publish)
    return staged


def rows(path: Path | str) -> list[Any]:
    if str(path).endswith(".parquet"):
        with pq.ParquetFile(path) as file:
            return list(file.read().to_pylist())
    text = Path(path).read_bytes()
    assert text.endswith(b"\n")
    return [msgspec.json.decode(line) for line in text.splitlines()]


def shown(directory: Path) -> dict[str, list[Any]]:
    files = (path for path in sorted(directory.iterdir()) if path.is_file())
    return {path.stem: [row["v"] for row in rows(path)] for path in files}


def aside(directory: Path) -> list[str]:
    found = (path for path in (directory / "_staging").rglob("*") if path.is_file())
    return sorted(path.name for path in found if not path.name.endswith("-open"))


@pytest.fixture
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of commits need not reach the disk."""
    for module in (sink_module, files, columns):
        monkeypatch.setattr(module, "sync", lambda _path: None)


# commits


@MAKERS
def test_nothing_is_shown_before_it_is_published(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path, epoch=7)
    staged = stage(sink, 1, 2, last=True)
    assert shown(tmp_path) == {}
    sinks.publish(staged.publish)
    assert shown(tmp_path) == {"part-0-000007-000000-3fb2a1": [1, 2]}
    sink.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [f".{kind}"]


@MAKERS
def test_without_values_there_is_nothing_to_commit(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path)
    assert commit(sink) == Staged()
    commit(sink, 1)
    commit(sink, last=True)
    assert commit(sink, last=True) == Staged()
    sink.close()
    assert list(shown(tmp_path).values()) == [[1]]


@MAKERS
def test_what_is_written_after_a_cut_belongs_to_the_next(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUFFER_BYTES", 1)
    sink = made(kind, tmp_path)
    monkeypatch.setattr(sink, "rows_per_group", 1, raising=False)
    write(sink, 1, 2)
    make_durable = sink.cut()
    write(sink, 3, 4, 5)
    staged = make_durable()
    sinks.publish(staged.publish)
    committed = [path for _, path in staged.publish] or staged.held
    assert [row["v"] for path in committed for row in rows(path)] == [1, 2]
    commit(sink, 6, last=True)
    assert list(shown(tmp_path).values()) == [[1, 2, 3, 4, 5, 6]]


@MAKERS
@pytest.mark.usefixtures("no_disk")
def test_a_cut_is_made_durable_while_writing_goes_on(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path)
    number = 0
    with ThreadPoolExecutor(1) as pool:
        for _ in range(30):
            write(sink, number)
            number += 1
            staged = pool.submit(sink.cut())
            while not staged.done():
                write(sink, number)
                number += 1
            sinks.publish(staged.result().publish)
    commit(sink, last=True)
    sink.close()
    assert [v for values in shown(tmp_path).values() for v in values] == list(range(number))


@MAKERS
def test_to_publish_again_does_no_harm(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path)
    staged = commit(sink, 1, last=True)
    sinks.publish(staged.publish, again=True)
    assert list(shown(tmp_path).values()) == [[1]]
    for path in tmp_path.glob("part-*"):
        path.unlink()  # somebody has taken the results away
    sinks.publish(staged.publish, again=True)
    assert shown(tmp_path) == {}


@MAKERS
def test_a_sink_that_is_not_there_is_told_from_results_taken_away(
    kind: str, tmp_path: Path
) -> None:
    staged = commit(made(kind, tmp_path / "out"), 1, last=True)
    (tmp_path / "out").rename(tmp_path / "not mounted")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match=r"is missing; .* mount it, or, if its results"):
        sinks.publish(staged.publish, again=True)


def test_to_publish_what_is_nowhere_is_refused(tmp_path: Path) -> None:
    staged = (str(tmp_path / "_staging" / "x"), str(tmp_path / "y"))
    with pytest.raises(
        InputError, match=r"y: cannot be published, because .*x is missing; all machines, .* see"
    ):
        sinks.publish([staged])


def test_a_commit_published_again_never_shows_a_later_one(tmp_path: Path) -> None:
    sink = made("jsonl", tmp_path)
    recorded = commit(sink, 1)
    stage(sink, 2)  # the driver dies before it is recorded
    sinks.publish(recorded.publish, again=True)
    assert list(shown(tmp_path).values()) == [[1]]


@MAKERS
def test_a_commit_cut_short_is_begun_again(kind: str, tmp_path: Path) -> None:
    first = made(kind, tmp_path)
    recorded = commit(first, 1)
    stage(first, 2, 3)  # durable, but not recorded
    write(first, 4)
    again = made(kind, tmp_path, 2, recorded.held)
    assert aside(tmp_path) == [Path(path).name for path in recorded.held]
    commit(again, 3, 2, last=True)
    again.close()
    assert [v for values in shown(tmp_path).values() for v in values] == [1, 3, 2]


@MAKERS
def test_a_commit_recorded_but_not_published_is_published_by_the_next_start(
    kind: str, tmp_path: Path
) -> None:
    recorded = stage(made(kind, tmp_path), 1, 2, last=True)
    sinks.publish(recorded.publish)
    again = made(kind, tmp_path, 2, recorded.held)
    commit(again, 3, last=True)
    again.close()
    assert list(shown(tmp_path).values()) == [[1, 2], [3]]
    assert not (tmp_path / "_staging").exists()


# processes left over


@MAKERS
def test_a_process_left_over_changes_nothing(kind: str, tmp_path: Path) -> None:
    old = made(kind, tmp_path, 1)
    recorded = commit(old, 1)
    write(old, 99)
    new = made(kind, tmp_path, 2, recorded.held)
    write(new, 2)
    staged = new.cut()()
    write(new, 3)
    names, files = aside(tmp_path), shown(tmp_path)
    with contextlib.suppress(OSError):  # its files are gone
        stage(old, 99, last=True)
    with contextlib.suppress(OSError):
        stage(old, 99, last=True)
    old.close()
    assert shown(tmp_path) == files
    assert [name for name in aside(tmp_path) if name in names] == names
    sinks.publish(staged.publish)
    commit(new, 4, last=True)
    new.close()
    assert [v for values in shown(tmp_path).values() for v in values] == [1, 2, 3, 4]
    assert not (tmp_path / "_staging").exists()


@MAKERS
def test_a_process_left_over_that_closes_takes_nothing_away(kind: str, tmp_path: Path) -> None:
    old = made(kind, tmp_path, 1)
    recorded = commit(old, 1)
    new = made(kind, tmp_path, 2, recorded.held)
    old.close()
    commit(new, 2, last=True)
    new.close()
    assert [v for values in shown(tmp_path).values() for v in values] == [1, 2]


@MAKERS
def test_what_a_higher_epoch_has_staged_stays(kind: str, tmp_path: Path) -> None:
    new = made(kind, tmp_path, 10)
    staged = stage(new, "new", last=True)
    old = made(kind, tmp_path, 9)
    write(old, "old")
    old.close()
    sinks.publish(staged.publish)
    assert shown(tmp_path) == {"part-0-000010-000000-3fb2a1": ["new"]}


@MAKERS
@pytest.mark.parametrize("published", [True, False])
def test_close_leaves_what_a_commit_may_count_on(
    kind: str, published: bool, tmp_path: Path
) -> None:
    sink = made(kind, tmp_path)
    before = commit(sink, 1)
    staged = stage(sink, 2, last=True)
    write(sink, 3)
    if published:
        sinks.publish(staged.publish)
    sink.close()
    assert (tmp_path / "_staging").exists() is not published
    for path in (*before.held, *(source for source, _ in staged.publish)):
        assert os.path.exists(path) is not published
    sinks.publish(staged.publish, again=True)
    assert list(shown(tmp_path).values()) == [[1, 2]]


@MAKERS
def test_parts_do_not_touch_each_other(kind: str, tmp_path: Path) -> None:
    first, second = made(kind, tmp_path, part=0), made(kind, tmp_path, part=1)
    staged = stage(second, 2, last=True)
    commit(first, 1, last=True)
    first.close()
    assert shown(tmp_path) == {"part-0-000001-000000-3fb2a1": [1]}
    sinks.publish(staged.publish)
    second.close()
    assert list(shown(tmp_path).values()) == [[1], [2]]
    assert not (tmp_path / "_staging").exists()


@MAKERS
def test_a_new_checkpoint_overwrites_nothing_of_an_old_one(kind: str, tmp_path: Path) -> None:
    for run in ("aaaaaa", "bbbbbb", ""):
        sink = sinks.jsonl(tmp_path) if kind == "jsonl" else sinks.parquet(tmp_path)
        sink.run = run
        sink.open(0, 1)
        commit(sink, run, last=True)
        sink.close()
    assert shown(tmp_path) == {
        "part-0-000001-000000": [""],
        "part-0-000001-000000-aaaaaa": ["aaaaaa"],
        "part-0-000001-000000-bbbbbb": ["bbbbbb"],
    }


@MAKERS
def test_an_epoch_that_comes_twice_overwrites_nothing(kind: str, tmp_path: Path) -> None:
    for value in (1, 2):
        commit(made(kind, tmp_path), value, last=True)
    recorded = commit(made(kind, tmp_path), 3)
    again = made(kind, tmp_path, held=recorded.held)
    stage(again, 4)
    sinks.publish(recorded.publish, again=True)
    assert [v for values in shown(tmp_path).values() for v in values] + [
        row["v"] for path in recorded.held for row in rows(path)
    ] == [1, 2, 3]


@MAKERS
def test_names_sort_in_the_order_written(kind: str, tmp_path: Path) -> None:
    for epoch in (9, 10, 100):
        sink = made(kind, tmp_path, epoch)
        for number in range(11):
            commit(sink, (epoch, number), last=True)
        sink.close()
    found = [tuple(v) for values in shown(tmp_path).values() for v in values]
    assert found == [(epoch, number) for epoch in (9, 10, 100) for number in range(11)]


@MAKERS
def test_only_the_owner_looks_into_the_staging_folder(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path / "out")
    folder = tmp_path / "out" / "_staging"
    for path in (folder, folder / "part-0-3fb2a1"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    commit(sink, 1, last=True)
    (path,) = (tmp_path / "out").glob("part-*")
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@MAKERS
def test_the_directory_is_made_and_its_path_kept(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = sinks.jsonl("a/b") if kind == "jsonl" else sinks.parquet("a/b")
    monkeypatch.chdir("/")
    opened(sink)
    commit(sink, 1, last=True)
    sink.close()
    assert list(shown(tmp_path / "a" / "b").values()) == [[1]]


@MAKERS
def test_held_files_must_be_there(kind: str, tmp_path: Path) -> None:
    (tmp_path / "x.other").touch()
    for name in (f"gone.{kind}", "x.other"):
        with pytest.raises(InputError, match=rf"cannot go on, because the checkpoint .*{name}"):
            made(kind, tmp_path, 2, [str(tmp_path / name)])


@MAKERS
def test_a_sink_can_be_sent_to_another_process(kind: str, tmp_path: Path) -> None:
    sink = sinks.jsonl(tmp_path) if kind == "jsonl" else sinks.parquet(tmp_path)
    sent = opened(pickle.loads(pickle.dumps(sink)))
    commit(sent, 1, last=True)
    assert list(shown(tmp_path).values()) == [[1]]


@MAKERS
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1", None])
def test_a_size_must_be_a_whole_number(kind: str, value: Any, tmp_path: Path) -> None:
    make = sinks.jsonl if kind == "jsonl" else sinks.parquet
    with pytest.raises(InputError, match="roll_bytes must be a whole number above zero; got"):
        make(tmp_path, roll_bytes=value)


@MAKERS
@pytest.mark.parametrize("value", [3, None, b"out"])
def test_a_directory_must_be_a_path(kind: str, value: Any) -> None:
    make = sinks.jsonl if kind == "jsonl" else sinks.parquet
    with pytest.raises(InputError, match=rf"the sink for \.{kind} files: must be a path.*; got"):
        make(value)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "1", None])
def test_a_time_to_roll_must_be_above_zero(value: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="roll_s must be a number of seconds above zero; got"):
        sinks.parquet(tmp_path, roll_s=value)


STEPS = st.lists(st.sampled_from(["write", "commit", "lose", "late", "last"]), max_size=30)


@MAKERS
@pytest.mark.usefixtures("no_disk")
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_whatever_happens_what_is_committed_is_there_once(kind: str, steps: list[str]) -> None:
    epochs = itertools.count()

    def start(held: Iterable[str]) -> Sink:
        epoch = next(epochs)
        small = sinks.jsonl(directory, roll_bytes=30)
        return opened(small if kind == "jsonl" else sinks.parquet(directory), epoch, held)

    with tempfile.TemporaryDirectory() as name:
        directory, number = Path(name), 0
        sink, recorded = start(()), Staged()
        committed: list[int] = []
        written: list[int] = []
        for step in steps:
            if step == "write":
                write(sink, number)
                written.append(number)
                number += 1
            elif step in ("commit", "last"):
                recorded = commit(sink, last=step == "last")
                committed += written
                written = []
            else:  # the process is lost, or only cut off
                old, sink = sink, start(recorded.held)
                if step == "late":
                    with contextlib.suppress(OSError):  # its files are gone
                        old.write({"v": -1})
                        old.cut()()
                    old.close()
                written = []
            found = [v for values in shown(directory).values() for v in values]
            found += [row["v"] for path in recorded.held for row in rows(path)]
            assert found == committed
        commit(sink, last=True)
        sink.close()
        found = [v for values in shown(directory).values() for v in values]
        assert found == committed + written
        assert not (directory / "_staging").exists()


# JSON lines


def test_a_reader_sees_committed_whole_lines_only(tmp_path: Path) -> None:
    sink = made("jsonl", tmp_path)
    committed: list[str] = []
    for number in range(5):
        values = [f"{number} {'x' * 200_000}" for _ in range(3)]  # more than is buffered
        write(sink, *values)
        assert [v for vs in shown(tmp_path).values() for v in vs] == committed
        commit(sink)
        committed += values
        assert shown(tmp_path) == {"part-0-000001-000000-3fb2a1": committed}


def test_a_reader_that_has_a_file_open_keeps_what_it_was(tmp_path: Path) -> None:
    sink = made("jsonl", tmp_path)
    commit(sink, 1)
    (path,) = tmp_path.glob("*.jsonl")
    with path.open() as file:
        commit(sink, 2)
        assert file.read() == '{"v":1}\n'
    assert path.read_text() == '{"v":1}\n{"v":2}\n'


def test_a_file_that_is_large_enough_is_followed_by_another(tmp_path: Path) -> None:
    sink = opened(sinks.jsonl(tmp_path, roll_bytes=16))  # two lines
    for value in range(5):
        commit(sink, value)
    commit(sink, 5, 6, 7)
    commit(sink, last=True)
    sink.close()
    assert list(shown(tmp_path).values()) == [[0, 1], [2, 3], [4, 5, 6, 7]]
    assert not (tmp_path / "_staging").exists()


@pytest.mark.usefixtures("no_disk")
def test_many_small_commits_leave_few_files(tmp_path: Path) -> None:
    sink = opened(sinks.jsonl(tmp_path, roll_bytes=1000))
    for value in range(3000):
        commit(sink, value)
    assert len(aside(tmp_path)) <= 1
    commit(sink, last=True)
    sink.close()
    files = shown(tmp_path)
    assert len(files) < 50
    assert [v for values in files.values() for v in values] == list(range(3000))


@pytest.mark.usefixtures("no_disk")
def test_a_file_is_not_copied_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = made("jsonl", tmp_path)
    monkeypatch.setattr(sink, "commits_per_file", 4)
    for value in range(10):
        commit(sink, value)
    assert list(shown(tmp_path).values()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("works_for", [0, 10])
def test_files_are_copied_also_where_the_system_cannot(
    works_for: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = os.copy_file_range

    def fails(source: int, target: int, count: int) -> int:
        if not works_for or os.lseek(target, 0, os.SEEK_CUR):
            raise OSError("not supported")
        return copy(source, target, min(count, works_for))

    monkeypatch.setattr(os, "copy_file_range", fails)
    sink = made("jsonl", tmp_path)
    for number in range(3):
        commit(sink, *(f"{number} {i} {'x' * 1000}" for i in range(1500)))
    (values,) = shown(tmp_path).values()
    assert [value.split()[0] for value in values] == [f"{n}" for n in range(3) for _ in range(1500)]


class Odd:
    """What no format can hold."""


@pytest.mark.parametrize("bad", [Odd(), [1, Odd()], {"k": "\ud800"}])
def test_a_value_that_json_cannot_say_leaves_no_trace(bad: Any, tmp_path: Path) -> None:
    sink = made("jsonl", tmp_path)
    write(sink, 1)
    with pytest.raises((TypeError, ValueError)):
        write(sink, bad)
    commit(sink, 2)
    assert list(shown(tmp_path).values()) == [[1, 2]]


def test_a_full_disk_is_told_and_leaves_no_trace_of_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUFFER_BYTES", 1)
    sink = made("jsonl", tmp_path)
    write(sink, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(sink, "path", Path("/dev/full"))
        with pytest.raises(OSError, match="No space left"):
            write(sink, 3)
        with pytest.raises(OSError, match="No space left"):
            sink.cut()
    commit(sink, 4)
    assert list(shown(tmp_path).values()) == [[1, 2, 4]]


@MAKERS
def test_a_commit_that_cannot_be_made_durable_raises(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path)
    write(sink, 1)
    make_durable = sink.cut()
    (tmp_path / "_staging").rename(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="No such file"):
        make_durable()


def test_jsonl_takes_whatever_json_can_say(tmp_path: Path) -> None:
    sink = made("jsonl", tmp_path)
    values = [1, "a\nb", None, ["ö", 2.5], {"k": True}]
    for value in [*values, (1, 2)]:
        sink.write(value)
    commit(sink)
    (path,) = tmp_path.glob("*.jsonl")
    assert rows(path) == [*values, [1, 2]]


# Parquet


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_parquet_is_shown_when_it_is_old_enough(tmp_path: Path) -> None:
    clock = Clock()
    sink = opened(Parquet(tmp_path, sinks.PARQUET_ROLL_BYTES, 60.0, clock))
    for value in range(12):
        staged = commit(sink, value)
        assert (staged.publish, len(staged.held)) == ((), value + 1)
        clock.now += 5
    assert shown(tmp_path) == {}
    assert commit(sink, 12).held == ()
    assert list(shown(tmp_path).values()) == [list(range(13))]
    clock.now += 100
    commit(sink, 13)  # the time starts with the first piece
    assert len(aside(tmp_path)) == 1  # the pieces that were merged are gone
    clock.now += 60
    commit(sink)
    assert list(shown(tmp_path).values()) == [list(range(13)), [13]]


def test_parquet_is_shown_when_it_is_large_enough(tmp_path: Path) -> None:
    probe = made("parquet", tmp_path / "probe")
    stage(probe, 1)
    size = sum(os.path.getsize(path) for path in stage(probe, 2).held)
    sink = opened(sinks.parquet(tmp_path / "out", roll_bytes=size))
    for value in (1, 2, 3, 4, 5):
        commit(sink, value)
    assert list(shown(tmp_path / "out").values()) == [[1, 2], [3, 4]]


def test_what_is_held_survives_a_crash(tmp_path: Path) -> None:
    sink = made("parquet", tmp_path, 1)
    commit(sink, 1)
    recorded = commit(sink, 2)
    stage(sink, 3)
    again = made("parquet", tmp_path, 2, recorded.held)
    recorded = commit(again, 4)
    assert list(shown(tmp_path).values()) == [[1, 2, 4]]
    assert recorded.held == ()


def test_pieces_stay_until_the_commit_that_merged_them_is_recorded(tmp_path: Path) -> None:
    sink = made("parquet", tmp_path, 1)
    commit(sink, 1)
    recorded = commit(sink, 2)
    stage(sink, 3, last=True)
    again = made("parquet", tmp_path, 2, recorded.held)
    commit(again, 3, last=True)
    again.close()
    assert list(shown(tmp_path).values()) == [[1, 2, 3]]


def test_held_files_are_found_through_a_directory_that_was_moved(tmp_path: Path) -> None:
    recorded = commit(made("parquet", tmp_path / "old"), 1)
    (tmp_path / "old").rename(tmp_path / "new")
    (tmp_path / "old").symlink_to(tmp_path / "new")
    again = made("parquet", tmp_path / "old", 2, recorded.held)
    commit(again, 2, last=True)
    again.close()
    assert list(shown(tmp_path / "new").values()) == [[1, 2]]


def all_rows(directory: Path) -> list[list[Any]]:
    return [rows(path) for path in sorted(directory.glob("*.parquet"))]


def write_rows(sink: Sink, *values: Any) -> Staged:
    for value in values:
        sink.write(value)
    staged = sink.cut()()
    sinks.publish(staged.publish)
    return staged


def end(sink: Sink) -> None:
    sinks.publish(sink.cut(last=True)().publish)
    sink.close()


def test_columns_may_come_later(tmp_path: Path) -> None:
    sink = made("parquet", tmp_path)
    write_rows(sink, {"a": 1}, {"a": 2, "b": None})
    write_rows(sink, {"a": 3, "b": "x", "c": [{"d": 1}]})
    write_rows(sink, {"c": None, "b": "y"})
    end(sink)
    (found,) = all_rows(tmp_path)
    assert found == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": None, "c": None},
        {"a": 3, "b": "x", "c": [{"d": 1}]},
        {"a": None, "b": "y", "c": None},
    ]


def test_columns_may_come_after_a_restart(tmp_path: Path) -> None:
    recorded = write_rows(made("parquet", tmp_path), {"a": 1})
    sink = made("parquet", tmp_path, 2, recorded.held)
    write_rows(sink, {"b": 2.5})
    end(sink)
    assert all_rows(tmp_path) == [[{"a": 1, "b": None}, {"a": None, "b": 2.5}]]


def test_types_that_do_not_agree_go_to_files_of_their_own(tmp_path: Path) -> None:
    recorded = write_rows(made("parquet", tmp_path), {"a": 1})
    sink = made("parquet", tmp_path, 2, recorded.held)
    write_rows(sink, {"a": "x"}, {"a": "y"})
    end(sink)
    assert all_rows(tmp_path) == [[{"a": 1}], [{"a": "x"}, {"a": "y"}]]


def test_whole_and_broken_numbers_go_together_unless_that_changes_them(tmp_path: Path) -> None:
    sink = made("parquet", tmp_path)
    write_rows(sink, {"a": 1}, {"a": 2.5}, {"a": 3})
    with pytest.raises(ValueError, match="Parquet cannot hold"):
        sink.write({"a": 2**60 + 1})
    end(sink)
    assert all_rows(tmp_path) == [[{"a": 1}, {"a": 2.5}, {"a": 3}]]
    sink = made("parquet", tmp_path / "large")
    write_rows(sink, {"a": 2**60 + 1}, {"a": 2.5})
    end(sink)
    assert all_rows(tmp_path / "large") == [[{"a": 2**60 + 1}], [{"a": 2.5}]]


BAD: list[Any] = [
    {"a": "x"},  # the column has numbers
    {"a": [1]},
    {"a": True},
    {"a": 2**70},
    {"a": 1, "b": "\ud800"},
    {"a": 1, "s": "\ud800"},  # though the column has text
    {"a": 1, "b": Odd()},
    {"a": 1, "b": 1j},
    {"a": 1, "b": [1, "x"]},
    {"a": 1, "b": ["x", b"x"]},  # Arrow would make it text
    {"a": 1, "b": {}},  # Arrow knows this, Parquet does not
    {"a": 1, "c": {"d": "x"}},
    {"a": 1, "c": {"d": 1, "e": Odd()}},
    {"a": 1, "c": {b"d": 1}},
    {"a": 1, "t": datetime(2020, 1, 1, 12)},  # the column has days
    {1: 1},
    {b"a": 1},
    {},
    "x",  # the column `value` has numbers
]


@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_parquet_cannot_hold_leaves_no_trace(bad: Any, tmp_path: Path) -> None:
    sink = made("parquet", tmp_path)
    good = {"a": 1, "c": {"d": 1}, "s": "ö", "t": date(2020, 1, 1), "value": 1}
    write_rows(sink, good)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Parquet cannot hold .*; give each column values of"):
            sink.write(bad)
        sink.write(good)
    end(sink)
    assert all_rows(tmp_path) == [[good, good, good]]


def test_a_value_is_refused_with_the_column_and_the_types(tmp_path: Path) -> None:
    sink = made("parquet", tmp_path)
    sink.write({"a": {"b": [1]}})
    with pytest.raises(
        ValueError, match=r"\['x'\]\}\}: column 'a.b\[\]' has int64 so far, .* not go with string"
    ):
        sink.write({"a": {"b": ["x"]}})


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63]),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.sampled_from(["\ud800", "ö", "☃"]),
    st.binary(max_size=3),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-99, max_value=99),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))])),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)
ROWS = st.lists(st.dictionaries(st.sampled_from("ab"), VALUES), max_size=12)


def bare(value: Any) -> Any:
    """Without columns that have nothing."""
    if isinstance(value, dict):
        return {column: bare(item) for column, item in value.items() if item is not None}
    return [bare(item) for item in value] if isinstance(value, list) else value


@pytest.mark.usefixtures("no_disk")
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(values=ROWS, cuts=st.sets(st.integers(0, 12)))
def test_a_row_is_refused_or_can_be_read(values: list[dict[str, Any]], cuts: set[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        sink = made("parquet", Path(name))
        vars(sink)["rows_per_group"] = 3
        taken = []
        for number, row in enumerate(values):
            with contextlib.suppress(ValueError):
                sink.write(row)
                taken.append(row)
            if number in cuts:
                sink.cut()()
        end(sink)
        found = [row for part in all_rows(Path(name)) for row in part]
    assert bare(found) == bare(taken)


def test_parquet_tells_columns_as_they_are(tmp_path: Path) -> None:
    sink = made("parquet", tmp_path)
    row = {
        "flag": True,
        "at": datetime(2020, 1, 1, tzinfo=UTC),
        "day": date(2020, 1, 1),
        "price": Decimal("1.50"),
        "raw": b"\0",
        "words": ["a", None],
        "pair": {"x": 1, "y": 2.5},
    }
    write_rows(sink, row, row)
    end(sink)
    assert all_rows(tmp_path) == [[row, row]]


def test_parquet_keeps_order_over_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = made("parquet", tmp_path)
    monkeypatch.setattr(sink, "rows_per_group", 3)
    commit(sink, *range(8))
    commit(sink, *range(8, 10))
    commit(sink, *range(10, 11))
    end(sink)
    (path,) = tmp_path.glob("*.parquet")
    with pq.ParquetFile(path) as file:
        assert [file.metadata.row_group(i).num_rows for i in range(4)] == [3, 3, 4, 1]
    assert list(shown(tmp_path).values()) == [list(range(11))]


def test_parquet_puts_what_is_no_mapping_into_one_column(tmp_path: Path) -> None:
    sink = made("parquet", tmp_path)
    write_rows(sink, "a", "b")
    end(sink)
    assert all_rows(tmp_path) == [[{"value": "a"}, {"value": "b"}]]


# the others


def test_the_console_returns_a_line_for_the_driver() -> None:
    sink = sinks.console()
    assert sink.write("as it is") == "as it is"
    assert sink.write({"at": Path("/x")}) == '{"at": "/x"}'


def test_a_callable_is_called_with_every_value() -> None:
    seen: list[Any] = []
    sink = sinks.call(seen.append)
    sink.open(0, 1)
    assert [sink.write(value) for value in (1, 2)] == [None, None]
    assert sink.cut()() == Staged()
    sink.close()
    assert seen == [1, 2]


def test_a_sink_needs_no_more_than_write() -> None:
    class Mine(Sink):
        def write(self, value: Any) -> None:
            seen.append(value)

    seen: list[Any] = []
    sink = Mine()
    sink.open(0, 3, ())
    sink.write(1)
    assert sink.cut()() == sink.cut(last=True)() == Staged()
    sink.close()
    assert seen == [1]


def test_a_sink_without_write_says_so() -> None:
    class Mine(Sink):
        pass

    with pytest.raises(TypeError, match=r"Mine must define write\(self, value\)"):
        Mine().write(1)
