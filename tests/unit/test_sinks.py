"""Sinks: file sinks publish each result once, whatever was cut short."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from sojourn import sinks
from sojourn.sinks import Sink

MAKERS = pytest.mark.parametrize("kind", ["jsonl", "parquet"])


def made(kind: str, directory: Path, part: int = 0) -> Sink:
    sink = sinks.jsonl(directory) if kind == "jsonl" else sinks.parquet(directory)
    sink.open(part)
    return sink


def run(sink: Sink, batch: int, epoch: int, values: Iterable[Any]) -> None:
    sink.begin(batch, epoch)
    for value in values:
        sink.write({"v": value})
    sink.end()


def read(path: Path) -> list[Any]:
    if path.suffix == ".parquet":
        return [row["v"] for row in pq.read_table(path).to_pylist()]
    return [msgspec.json.decode(line)["v"] for line in path.read_bytes().splitlines()]


def published(directory: Path) -> dict[str, list[Any]]:
    return {p.stem: read(p) for p in sorted(directory.iterdir()) if p.is_file()}


def staged(directory: Path) -> list[str]:
    return sorted(p.name for p in (directory / "_staging").rglob("*") if p.is_file())


@MAKERS
def test_a_batch_is_staged_until_the_next_begins(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path)
    run(sink, 0, 1, [1, 2])
    assert published(tmp_path) == {}
    assert staged(tmp_path) == [f"0.1.{kind}"]
    sink.begin(1, 1)
    assert published(tmp_path) == {"part-0-batch-000000": [1, 2]}
    assert staged(tmp_path) == []


@MAKERS
def test_a_batch_without_results_leaves_no_file(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path)
    run(sink, 0, 1, [])
    run(sink, 1, 1, [3])
    sink.close(1)
    assert published(tmp_path) == {"part-0-batch-000001": [3]}


@MAKERS
def test_a_batch_begun_again_leaves_each_result_once(kind: str, tmp_path: Path) -> None:
    first = made(kind, tmp_path)
    run(first, 0, 1, [1])
    run(first, 1, 1, [2, 3])  # ended, and the process killed before the commit
    again = made(kind, tmp_path)
    run(again, 1, 2, [3, 2])
    assert published(tmp_path) == {"part-0-batch-000000": [1]}
    again.close(1)
    assert published(tmp_path) == {"part-0-batch-000000": [1], "part-0-batch-000001": [3, 2]}


@MAKERS
def test_a_batch_cut_short_in_the_middle_is_void(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path)
    (tmp_path / "_staging" / "part-0" / f"0.1.{kind}").write_bytes(b'{"v": 1}\n{"v"')
    run(sink, 0, 2, [])
    sink.close(0)
    assert published(tmp_path) == {}


@MAKERS
def test_a_committed_batch_is_published_by_the_next_start(kind: str, tmp_path: Path) -> None:
    run(made(kind, tmp_path), 4, 1, [1, 2])  # committed, and the process killed before the next
    again = made(kind, tmp_path)
    again.begin(5, 2)
    assert published(tmp_path) == {"part-0-batch-000004": [1, 2]}


@MAKERS
def test_of_several_attempts_the_highest_epoch_wins(kind: str, tmp_path: Path) -> None:
    left_over, new = made(kind, tmp_path), made(kind, tmp_path)
    new.begin(0, 10)
    new.write({"v": "new"})
    new.end()
    for epoch in (2, 9):
        run_late(left_over, tmp_path, epoch, kind)
    assert staged(tmp_path) == sorted(f"0.{e}.{kind}" for e in (2, 9, 10))
    new.begin(1, 10)
    assert published(tmp_path) == {"part-0-batch-000000": ["new"]}
    assert staged(tmp_path) == []


def run_late(sink: Sink, directory: Path, epoch: int, kind: str) -> None:
    """Write as a process of an earlier start does that has begun before and ends only now."""
    vars(sink)["pending"] = directory / "_staging" / "part-0" / f"0.{epoch}.{kind}"
    sink.write({"v": "old"})
    sink.end()


@MAKERS
def test_close_publishes_what_is_committed_and_nothing_else(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path)
    run(sink, 0, 1, [1])
    run(sink, 1, 1, [2])
    sink.close(0)
    assert published(tmp_path) == {"part-0-batch-000000": [1]}
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []


@MAKERS
def test_parts_do_not_touch_each_other(kind: str, tmp_path: Path) -> None:
    first, second = made(kind, tmp_path, 0), made(kind, tmp_path, 1)
    run(first, 0, 1, [1])
    run(second, 0, 1, [2])
    first.close(0)
    assert published(tmp_path) == {"part-0-batch-000000": [1]}
    assert staged(tmp_path) == [f"0.1.{kind}"]
    second.close(0)
    assert published(tmp_path) == {"part-0-batch-000000": [1], "part-1-batch-000000": [2]}
    assert not (tmp_path / "_staging").exists()


@MAKERS
def test_batches_sort_by_name_as_by_number(kind: str, tmp_path: Path) -> None:
    sink = made(kind, tmp_path)
    for batch in (9, 10, 100):
        run(sink, batch, 1, [batch])
    sink.close(100)
    assert list(published(tmp_path).values()) == [[9], [10], [100]]


@MAKERS
def test_the_directory_is_made_and_its_path_kept(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = sinks.jsonl("a/b") if kind == "jsonl" else sinks.parquet("a/b")
    monkeypatch.chdir("/")
    sink.open(0)
    run(sink, 0, 1, [1])
    sink.close(0)
    assert published(tmp_path / "a" / "b") == {"part-0-batch-000000": [1]}


def test_parquet_keeps_order_over_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = made("parquet", tmp_path)
    monkeypatch.setattr(sink, "rows_per_group", 3)
    run(sink, 0, 1, range(8))
    sink.close(0)
    (path,) = tmp_path.glob("*.parquet")
    with pq.ParquetFile(path) as file:
        assert file.num_row_groups == 3
    assert read(path) == list(range(8))


def test_parquet_puts_what_is_no_mapping_into_one_column(tmp_path: Path) -> None:
    sink = sinks.parquet(tmp_path)
    sink.open(0)
    sink.begin(0, 1)
    sink.write("a")
    sink.write("b")
    sink.end()
    sink.close(0)
    (path,) = tmp_path.glob("*.parquet")
    assert pq.read_table(path).to_pylist() == [{"value": "a"}, {"value": "b"}]


def test_jsonl_takes_whatever_json_can_say(tmp_path: Path) -> None:
    sink = sinks.jsonl(tmp_path)
    sink.open(0)
    sink.begin(0, 1)
    values = [1, "a\nb", None, ["ö", 2.5], {"k": True}]
    for value in [*values, (1, 2)]:
        sink.write(value)
    sink.end()
    sink.close(0)
    (path,) = tmp_path.glob("*.jsonl")
    lines = path.read_bytes().splitlines()
    assert [msgspec.json.decode(line) for line in lines] == [*values, [1, 2]]


def test_the_console_returns_a_line_for_the_driver() -> None:
    sink = sinks.console()
    assert sink.write("as it is") == "as it is"
    assert sink.write({"at": Path("/x")}) == '{"at": "/x"}'


def test_a_callable_is_called_with_every_value() -> None:
    seen: list[Any] = []
    sink = sinks.call(seen.append)
    sink.open(0)
    sink.begin(0, 1)
    assert [sink.write(value) for value in (1, 2)] == [None, None]
    sink.end()
    sink.close(0)
    assert seen == [1, 2]


def test_a_sink_without_write_says_so() -> None:
    class Mine(Sink):
        pass

    with pytest.raises(TypeError, match=r"Mine must define write\(self, value\)"):
        Mine().write(1)
