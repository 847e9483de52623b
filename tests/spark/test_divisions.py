"""Shards are divided anew among an operator's executors while tuples flow, commits are made and
processes die: every tuple counts once, in the order of its key."""

import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import await_results, results
from pyspark.sql import SparkSession
from victims import executor

import sojourn as sj
from sojourn import configuration
from sojourn.asked import settings_for
from sojourn.control.controller import Record
from sojourn.control.situation import Action
from sojourn.engine.driver.states import read_state

KEYS, SHARDS, EXECUTORS = 40, 24, 3


class Count(sj.Operator):
    """Counts by key, and keeps what is too large for one piece."""

    def process(self, n: int) -> tuple[int, int]:
        key = n % KEYS
        count: int = self.state.get(key, 0) + 1
        if count == 1 and key < 4:
            self.state["large", key] = random.Random(key).randbytes(300_000)
        self.state[key] = count
        if count == 5:
            self.state["gone", key] = key
        if count == 9:
            del self.state["gone", key]
        return key, count


def number(n: int) -> int:
    return n


def key_of(n: int) -> int:
    return n % KEYS


def topology(out: Path, count: int) -> sj.Topology:
    t = sj.Topology("division")
    numbers = t.source("numbers", sj.sources.paced(number, rate=200.0, count=count))
    through = t.map("through", number, numbers, executors=2, processors=2)
    counted = t.map(
        "count", Count, through, key=key_of, shards=SHARDS, executors=EXECUTORS, processors=4
    )
    t.sink("out", sj.sinks.jsonl(str(out)), counted)
    return t


def test_every_executor_has_one_processor_and_shards_are_divided_among_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, many = tmp_path / "out", 2000
    t = sj.Topology("divided")
    numbers = t.source("numbers", sj.sources.paced(number, rate=200.0, count=many))
    counted = t.map("count", Count, numbers, key=key_of, shards=SHARDS, executors=3, processors=3)
    t.sink("out", sj.sinks.jsonl(str(out)), counted)
    settings = {"commit": "500ms", "paradigm": "resource-centric"}
    with sj.start(t, spark=spark, settings=settings) as running:
        await_results(running, out, 200)
        for processors in (1, 3, 2):
            running.resize({"count": processors})
            while running.samples().vertices["count"].processors != processors:
                assert running.await_commit(60)
        with pytest.raises(sj.InputError, match="has 3 executors with one processor each; got 4"):
            running.resize({"count": 4})
        os.kill(executor(running, "count"), signal.SIGKILL)
        running.wait()  # with fewer processors than executors
        assert running.restarts == 1
    check(out, many)


@pytest.mark.parametrize("paradigm", ["resource-centric", "static"])
def test_the_loop_divides_shards_among_fewer_executors_unless_nothing_may_change(
    spark: SparkSession, tmp_path: Path, paradigm: str
) -> None:
    """Where every executor has one processor, and few are enough for the target."""
    out, many = tmp_path / "out", 1600
    t = sj.Topology("kept")
    numbers = t.source("numbers", sj.sources.paced(number, rate=200.0, count=many))
    counted = t.map("count", Count, numbers, key=key_of, shards=SHARDS, executors=3, processors=3)
    t.sink("out", sj.sinks.jsonl(str(out)), counted)
    records: list[Record] = []
    enough = threading.Event()

    def changed(record: Record) -> bool:
        """Asking again for what is slow to come is no change."""
        return record.applied and record.decision.action is not Action.RETRY

    def listen(record: Record) -> None:
        records.append(record)
        if changed(record) or (paradigm == "static" and len(records) == 7):
            enough.set()

    given = configuration.from_mapping({"paradigm": paradigm, "change.quiet": "2s"})
    settings = settings_for({"max_sojourn": "1s"}, over=[given], spark=None)
    with sj.Running(t, *settings, spark=spark, listeners=[listen]) as running:
        assert enough.wait(60)
        running.wait()
        assert running.restarts == 0
    changes = [record.decision.action for record in records if changed(record)]
    assert changes[:1] == ([] if paradigm == "static" else [Action.REMOVE])
    check(out, many)


def test_idle_executors_become_one_and_one_that_outgrows_its_machine_is_split(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, many = tmp_path / "out", 3000
    settings = {"commit": "500ms", "regroup": "1s"}
    with sj.start(topology(out, many), spark=spark, settings=settings) as running:
        await_results(running, out, 200)
        used = EXECUTORS
        while used > 1:
            assert running.await_commit(60)
            parts = running.samples().vertices["count"].parts
            used = sum(part.used for part in parts)
        assert sum(part.processors > 0 for part in parts) == 1
        running.resize({"count": 1})
        while running.samples().vertices["count"].processors != 1:
            assert running.await_commit(60)
        engine = running.engine
        machines = {hello.machine for hello in engine.hub.hellos().values()}
        engine.placing.room = dict.fromkeys(machines, 2)
        running.resize({"count": 4})
        while sum(part.used for part in running.samples().vertices["count"].parts) == 1:
            assert running.await_commit(60)
        assert len(set(engine.supervisor.divider.table("count", SHARDS))) == 2
        running.wait()
        assert running.restarts == 0
    check(out, many)


def test_executors_must_be_as_many_as_processors(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(sj.InputError, match="executors=3 and processors=4; make both alike"):
        sj.start(topology(tmp_path, 1), spark=spark, settings={"paradigm": "static"})


def tables(seed: int) -> Any:
    draw = random.Random(seed)
    while True:
        yield [draw.randrange(EXECUTORS) for _ in range(SHARDS)]


def check(out: Path, numbers: int) -> None:
    found: dict[int, list[int]] = {}
    for key, count in results(out):
        found.setdefault(key, []).append(count)
    wanted = Counter(n % KEYS for n in range(numbers))
    assert found == {key: list(range(1, count + 1)) for key, count in wanted.items()}


def test_shards_change_hands_while_tuples_flow(spark: SparkSession, tmp_path: Path) -> None:
    out, many, draw = tmp_path / "out", 2000, tables(1)
    made = topology(out, many)
    with sj.start(
        made, spark=spark, checkpoint=tmp_path / "checkpoint", settings={"commit": "500ms"}
    ) as running:
        await_results(running, out, 200)
        for _ in range(6):
            division = running.engine.divide("count", next(draw))
            assert division.done.wait(60)
            assert not division.failed
            assert division.moved
            assert running.await_commit(60)
        nobody = running.engine.divide("count", [0] * SHARDS)  # the others have none
        assert nobody.done.wait(60)
        os.kill(executor(running, "count"), signal.SIGKILL)
        assert running.await_commit(60)
        again = running.engine.divide("count", next(draw))
        assert again.done.wait(60)
        running.wait()
        assert running.restarts == 1
    check(out, many)
    kept = dict(read_state(tmp_path / "checkpoint", "count"))
    assert {key for key in kept if isinstance(key, tuple)} == {("large", key) for key in range(4)}
    assert kept[0] == many // KEYS
