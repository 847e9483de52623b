"""Timers on real Spark: fired once whatever is killed, waited for, kept over a stop; and state read
from outside."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import await_exit, await_processors, results
from pyspark.sql import SparkSession
from victims import executor, worker

import sojourn as sj
from sojourn import windows
from sojourn.errors import InputError


class Gather(sj.Operator):
    """Emits what has come for a key once nothing has come for a while."""

    def __init__(self, quiet_s: float) -> None:
        self.quiet_s = quiet_s

    def process(self, number: int) -> None:
        self.state.setdefault(self.key, []).append(number)
        self.timers.after(self.quiet_s)

    def on_timer(self, key: int, payload: Any) -> Iterator[Any]:  # noqa: ARG002
        yield key, self.state.pop(key)


def gathering(out: Path, quiet_s: float, count: int = 300) -> sj.Topology:
    t = sj.Topology("gathering")
    numbers = t.source("numbers", sj.sources.paced(lambda n: n, rate=100, count=count))
    found = t.operator("gather", Gather(quiet_s), numbers, key=lambda n: n % 7, processors=2)
    t.sink("out", sj.sinks.jsonl(out), found)
    return t


def all_of(out: Path) -> list[int]:
    return sorted(number for _, numbers in results(out) for number in numbers)


def test_timers_fire_once_whatever_is_killed_and_are_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    with sj.start(
        gathering(tmp_path / "out", 0.05), spark=spark, settings={"commit": 0.3}
    ) as running:
        assert running.await_commit(30)
        os.kill(executor(running, "gather"), signal.SIGKILL)
        running.resize({"gather": 3})
        assert running.await_idle(60)
        assert running.restarts == 1
    assert all_of(tmp_path / "out") == list(range(300))


def test_a_stop_keeps_timers_and_state_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    topology = gathering(tmp_path / "out", 12.0, count=50)
    often = {"commit": "500ms"}
    with sj.start(topology, spark=spark, checkpoint=checkpoint, settings=often) as running:
        while sum(len(gathered) for _, gathered in sj.read_state(checkpoint, "gather")) < 50:
            assert running.await_commit(60)
        assert not running.await_idle(0), "timers are pending"
    assert results(tmp_path / "out") == []
    kept = dict(sj.read_state(checkpoint, "gather"))
    assert kept == {key: [n for n in range(50) if n % 7 == key] for key in range(7)}
    frame = sj.read_state(checkpoint, "gather", spark=spark)
    assert {row.key: row.value for row in frame.collect()} == kept
    with pytest.raises(InputError, match="no operator 'out' has a key; those with one: gather"):
        sj.read_state(checkpoint, "out")
    with pytest.raises(InputError, match="is not a checkpoint"):
        sj.read_state(tmp_path, "gather")
    with sj.start(topology, spark=spark, checkpoint=checkpoint) as running:
        assert running.await_idle(60)
    assert all_of(tmp_path / "out") == list(range(50))
    assert dict(sj.read_state(checkpoint, "gather")) == {}


def counted(key: int, window: windows.Window, values: list[int]) -> list[Any]:
    return [key, window.start, len(values)]


def test_windows_and_keys_with_an_end(spark: SparkSession, tmp_path: Path) -> None:
    t = sj.Topology("windows")
    numbers = t.source("numbers", sj.sources.iterable(lambda: range(200), rate=400))
    tens = t.operator(
        "tens",
        windows.tumbling(
            10, lambda key, window, values: [key, window.start, len(values)], time=float
        ),
        t.filter("even", lambda n: n % 2 == 0, numbers),
        key=lambda n: n % 4,
        ttl="1h",
    )
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), tens)
    sj.run(t, spark=spark, checkpoint=tmp_path / "checkpoint")
    found = results(tmp_path / "out")
    assert sum(count for _, _, count in found) == 100
    assert len(found) == len({(key, start) for key, start, _ in found}) == 40


async def fetch(number: int) -> list[int]:
    await asyncio.sleep(0.1)
    return [number]


def test_tuples_that_wait_elsewhere_share_a_worker(spark: SparkSession, tmp_path: Path) -> None:
    t = sj.Topology("fetching")
    numbers = t.source("numbers", sj.sources.iterable(lambda: range(400), rate=100))
    found = t.operator("fetch", fetch, numbers, concurrency=10, processors=12)
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), found)
    with sj.start(t, spark=spark, settings={"commit": 0.5}) as running:
        await_processors(running, fetch=12)
        pid = worker(running, "fetch")
        os.kill(pid, signal.SIGKILL)
        await_exit(pid)
        running.resize({"fetch": 25})
        assert running.await_idle(60)
        assert running.allocation() == {"fetch": 25}
        assert running.restarts == 0
    assert sorted(results(tmp_path / "out")) == list(range(400))
