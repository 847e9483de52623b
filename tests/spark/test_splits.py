"""Sources that several processes read, on real Spark: each value comes once, whoever reads it, also
after a start with others, after a failure, and from splits that come later."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from conftest import await_processors, await_results, results
from pyspark.sql import SparkSession
from victims import worker

import sojourn as sj
from sojourn.engine.driver.record import last_record

FILES, LINES = 5, 300


def write(folder: Path, number: int, count: int = LINES) -> None:
    """A file that is there whole or not at all."""
    folder.mkdir(exist_ok=True)
    aside = folder / f"{number}.part"
    aside.write_text("".join(f"{number}-{i}\n" for i in range(count)), encoding="utf-8")
    aside.rename(folder / f"{number}.txt")


def topology(tmp_path: Path, executors: int, rate: float, follow: bool = False) -> sj.Topology:
    t = sj.Topology("lines")
    found = sj.sources.files(tmp_path / "in" / "*.txt", rate=rate, follow=follow)
    lines = t.source("lines", found, executors=executors)
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), t.map("same", str, lines))
    return t


def test_each_value_comes_once_whoever_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    """Two processes begin, three go on, and one reads the rest."""
    for number in range(FILES):
        write(tmp_path / "in", number)
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    for executors, after in ((2, 200), (3, 500)):
        t = topology(tmp_path, executors, 250)
        settings = {"commit": 0.5, "drain": 0.5}
        with sj.start(t, spark=spark, checkpoint=checkpoint, settings=settings) as running:
            await_results(running, out, after)
        splits = last_record(checkpoint).splits["lines"]
        assert sum(position != b"" for position in splits.values()) >= executors
    assert len(results(out)) < FILES * LINES
    with sj.start(topology(tmp_path, 1, 5000), spark=spark, checkpoint=checkpoint) as running:
        assert running.await_idle(60)
        assert running.restarts == 0
    found = results(out)
    assert Counter(found) == Counter(f"{n}-{i}" for n in range(FILES) for i in range(LINES))
    for number in range(FILES):  # each in its order
        assert [v for v in found if v.startswith(f"{number}-")] == [
            f"{number}-{i}" for i in range(LINES)
        ]


def test_files_that_come_later_are_found_and_a_dead_reader_costs_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    write(folder, 1)
    t = topology(tmp_path, 2, 2000, follow=True)
    with sj.start(t, spark=spark, settings={"commit": 0.3}) as running:
        await_results(running, out, LINES)
        write(folder, 0)  # before the other in the order of names, so it takes its place
        write(folder, 2)
        await_results(running, out, 2 * LINES)
        os.kill(worker(running, "lines"), signal.SIGKILL)
        write(folder, 3)
        await_results(running, out, 4 * LINES)
        assert running.restarts == 1
    assert Counter(results(out)) == Counter(f"{n}-{i}" for n in range(4) for i in range(LINES))


def test_readers_come_and_go_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    """From one to three to two; nobody is told of it but the readers."""
    for number in range(FILES):
        write(tmp_path / "in", number)
    out = tmp_path / "out"
    settings = {"commit": 0.5}
    with sj.start(topology(tmp_path, 1, 250), spark=spark, settings=settings) as running:
        await_processors(running, lines=1)
        for readers in (3, 2):
            before = len(results(out))
            running.resize({"lines": readers})
            await_processors(running, lines=readers)
            await_results(running, out, before + 1)
        with pytest.raises(sj.InputError, match="needs from 1 to 5 processes"):
            running.resize({"lines": 6})
        assert running.await_idle(90)
        assert running.restarts == 0
    found = results(out)
    assert Counter(found) == Counter(f"{n}-{i}" for n in range(FILES) for i in range(LINES))
    for number in range(FILES):
        mine = [value for value in found if value.startswith(f"{number}-")]
        assert mine == [f"{number}-{i}" for i in range(LINES)], "in their order, whoever read them"
