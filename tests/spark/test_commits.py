"""Commits on real Spark: under overload, at the end of Spark's batch, when machines change, when a
tuple fails, when the disk is full."""

import contextlib
import errno
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import await_results, once, results
from pyspark.sql import SparkSession
from test_topologies import LINES, WORDS, Round, check_counts, wordcount

import sojourn as sj
from sojourn.engine.driver import commit
from sojourn.engine.driver.engine import SparkEngine
from sojourn.engine.driver.record import last_record, write_record
from sojourn.engine.worker import values
from sojourn.errors import TopologyFailed
from sojourn.settings import EngineSettings


def nap(value: tuple[int, bytes]) -> list[int]:
    time.sleep(0.005)
    return [value[0]]


def position(checkpoint: Path, source: str) -> int:
    """How many values of a source the last commit has behind it."""
    part = next(part for part in last_record(checkpoint).parts if part.vertex == source)
    return int(values.loads(part.position)[1])


def test_an_overloaded_topology_commits_stops_and_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A source flat out in front of an operator of 5 ms: results come while it runs, what is in
    flight at the stop is kept, and the next start goes on with it, each number once, in order.
    Values are large, as a megabyte or so may be under way in sockets."""

    def topology(count: int | None) -> sj.Topology:
        t = sj.Topology("overload")
        numbers = itertools.count if count is None else lambda: range(count)
        source = t.source(
            "numbers", sj.sources.iterable(lambda: ((n, bytes(5000)) for n in numbers()))
        )
        t.sink("out", sj.sinks.jsonl(tmp_path / "out"), t.operator("nap", nap, source))
        return t

    checkpoint = tmp_path / "checkpoint"
    running = sj.start(
        topology(None),
        spark=spark,
        checkpoint=checkpoint,
        settings={"commit": 0.5, "drain": 0.2, "maxQueue": 500},
    )
    await_results(running, tmp_path / "out", 101)
    sample = running.samples().vertices["nap"]
    running.stop()
    assert sample.queue < 1_000  # a commit reads no more than there is room for
    found, read = results(tmp_path / "out"), position(checkpoint, "numbers")
    assert found == list(range(len(found)))
    assert read > len(found)
    with sj.start(topology(read), spark=spark, checkpoint=checkpoint) as again:
        assert again.await_idle(60)
    assert results(tmp_path / "out") == list(range(read))


def test_whenever_it_stops_all_that_is_committed_is_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Commits come as fast as they can, and it stops right after one, again and again."""
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    t = sj.Topology("numbers")
    source = t.source("numbers", sj.sources.iterable(itertools.count, rate=500))
    t.sink("out", sj.sinks.jsonl(out), t.operator("same", lambda n: [n], source))
    for _ in range(3):
        running = sj.start(
            t, spark=spark, checkpoint=checkpoint, settings={"commit": 0.1, "drain": 0.0}
        )
        begun = running.committed
        while running.committed <= begun + 3:
            assert running.await_commit(60)
        running.stop()
        found = results(out)
        assert found == list(range(len(found)))
        left = sum(len(log) for log in logs(checkpoint))
        assert len(found) + left == position(checkpoint, "numbers")


def logs(checkpoint: Path) -> Iterator[list[Any]]:
    """Tuples that were under way at the last commit."""
    from sojourn.engine.wire import messages as m

    for part in last_record(checkpoint).parts:
        if part.log:
            log = m.decode_log((checkpoint / "sojourn" / "state" / part.log).read_bytes())
            yield log.own
            yield from log.sent.values()
            yield from log.out.values()


def test_a_loop_loses_and_repeats_nothing_across_commits_and_the_end_of_a_batch_of_sparks(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every number counts down to zero over the feedback edge: n + 1 rounds each. The end of a
    batch is just another commit."""
    t = sj.Topology("countdown")
    numbers = t.source("numbers", sj.sources.iterable(lambda: [i % 6 for i in range(600)], rate=80))
    rounds = t.operator("round", Round, numbers, key=lambda n: n, shards=8, processors=2)
    t.feedback(rounds["again"], rounds)
    t.sink("out", sj.sinks.jsonl(tmp_path), rounds)
    with sj.start(t, spark=spark, settings={"batch": 3, "commit": 1}) as running:
        assert running.await_idle(90)
        assert running.restarts == 0
        batches = running.engine.hub.handled_batch + 1
        assert running.committed > batches > 0
    assert Counter(results(tmp_path)) == Counter(n for i in range(600) for n in range(i % 6 + 1))


def test_a_relocation_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A callable sink acts at once, and would show what is done twice."""
    seen = tmp_path / "seen"

    def note(n: int) -> None:
        with seen.open("a", encoding="utf-8") as file:
            file.write(f"{n}\n")

    t = sj.Topology("numbers")
    source = t.source("numbers", sj.sources.iterable(lambda: range(900), rate=150))
    t.sink("out", sj.sinks.call(note), t.operator("same", lambda n: [n], source, processors=2))
    engine = SparkEngine(t, None, None, spark, EngineSettings(commit_s=0.5))
    with contextlib.ExitStack() as after:
        after.callback(engine.stop)
        for _ in range(2):
            assert engine.await_commit(60)
            while not seen.exists():
                assert engine.await_commit(60)
            engine.relocate()
        assert engine.await_idle(60)
        found = engine.samples(peek=True)
        assert (found.restarts, found.relocations) == (0, 2)
    assert sorted(map(int, seen.read_text(encoding="utf-8").split())) == list(range(900))


class Fussy(sj.Operator):
    """Counts in two places, and fails between them for every third of a key."""

    def process(self, n: int) -> Iterator[tuple[int, int, int]]:
        seen = self.state.setdefault(n % 5, [0, 0])
        seen[0] += 1
        if n % 3 == 0:
            raise ValueError("third")
        seen[1] += 1
        yield n % 5, seen[0], seen[1]


def test_a_failed_tuple_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    t = sj.Topology("fussy")
    numbers = t.source("numbers", sj.sources.iterable(lambda: range(300)))
    kept = t.operator("kept", Fussy, numbers, key=lambda n: n % 5, on_error="skip", processors=2)
    t.sink("out", sj.sinks.jsonl(tmp_path), kept)
    with sj.start(t, spark=spark) as running:
        assert running.await_idle(60)
    found = results(tmp_path)
    assert len(found) == 200
    assert all(first == second for _, first, second in found)


def test_a_value_that_a_sink_cannot_encode_meets_on_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    t = sj.Topology("odd")
    numbers = t.source("numbers", sj.sources.iterable(lambda: range(20)))
    odd = t.operator("odd", lambda n: [n if n != 7 else {1j: object}], numbers)
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), odd, on_error="dead-letter")
    with sj.start(t, spark=spark, checkpoint=tmp_path / "checkpoint") as running:
        assert running.await_idle(60)
        assert running.samples().vertices["out"].dropped == 1
    assert results(tmp_path / "out") == [n for n in range(20) if n != 7]
    (letter,) = results(tmp_path / "checkpoint" / "sojourn" / "dead-letters" / "out")
    assert letter["operator"] == "out"


class Twice(sj.Operator):
    """Dies of the first 13 it meets, twice, and of no other."""

    def process(self, what: tuple[int, str]) -> list[int]:
        n, folder = what
        deaths = len(list(Path(folder).iterdir()))
        if n == 13 and deaths < 2:
            Path(folder, str(deaths)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [n]


def test_only_the_guilty_tuple_is_left_out_and_not_its_like(
    spark: SparkSession, tmp_path: Path
) -> None:
    deaths, up = tmp_path / "deaths", tmp_path / "up"
    deaths.mkdir()
    folder = str(deaths)
    numbers = [*range(20), 13, 13, *range(20, 30), 13]
    t = sj.Topology("poison")
    source = t.source(
        "numbers",
        sj.sources.iterable(lambda: once(up, [(n, folder) for n in numbers]), rate=100),
    )
    checked = t.operator("check", Twice, source, key=lambda what: what[0] % 4, on_error="skip")
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), checked)
    with sj.start(t, spark=spark) as running:
        up.touch()
        assert running.await_idle(90)
        assert running.restarts == 2
    expected = Counter(numbers)
    expected[13] -= 1
    assert Counter(results(tmp_path / "out")) == expected


def double(n: int) -> list[int]:
    return [n, n]


def test_a_loop_that_gains_more_than_it_loses_ends_with_a_message(spark: SparkSession) -> None:
    t = sj.Topology("avalanche")
    numbers = t.source("numbers", sj.sources.iterable(lambda: [1]))
    doubled = t.operator("double", double, numbers)
    t.feedback(doubled, doubled)
    running = sj.start(t, spark=spark, settings={"maxQueue": 50, "maxBundle": 5})
    with pytest.raises(TopologyFailed, match="feedback grows without bound"):
        running.await_idle(120)
    with pytest.raises(TopologyFailed):
        running.stop()


def test_what_only_passes_a_level_does_not_wait_behind_its_slow_operator(
    spark: SparkSession, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    def blocked(n: int) -> list[int]:
        while not go.exists():
            time.sleep(0.01)
        return [n]

    t = sj.Topology("lane")
    many = t.source("many", sj.sources.iterable(lambda: (bytes(10_000) for _ in range(1000))))
    few = t.source("few", sj.sources.iterable(lambda: range(50), rate=100))
    slow = t.operator("slow", lambda value: blocked(len(value)), many)
    joined = t.operator("join", lambda n: [n], slow, few)
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), joined)
    with sj.start(t, spark=spark, settings={"commit": 0.5, "maxQueue": 20}) as running:
        await_results(running, tmp_path / "out", 50)
        assert len(results(tmp_path / "out")) == 50
        go.touch()
        assert running.await_idle(60)
    assert Counter(results(tmp_path / "out")) == Counter([*range(50), *[10_000] * 1000])


def test_a_full_disk_is_told_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no room for a record; once there is, the topology goes on."""
    written: list[int] = []

    def full(checkpoint: Path, record: Any) -> None:
        written.append(record.number)
        if record.number > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_record(checkpoint, record)

    monkeypatch.setattr(commit, "write_record", full)
    topology = wordcount(tmp_path / "out", LINES, 75, processors=2)
    checkpoint = tmp_path / "checkpoint"
    running = sj.start(
        topology, spark=spark, checkpoint=checkpoint, settings={"commit": 0.5, "maxRestarts": 1}
    )
    with pytest.raises(TopologyFailed, match="the disk is full; make room"):
        running.await_idle(90)
    with pytest.raises(TopologyFailed):
        running.stop()
    assert max(written) == 3
    monkeypatch.undo()
    with sj.start(topology, spark=spark, checkpoint=checkpoint) as again:
        assert again.await_idle(90)
    check_counts(results(tmp_path / "out"), WORDS)


def test_state_survives_many_commits_and_merges_and_another_number_of_executors(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So many commits that files are merged, a stop in the middle, and twice the executors."""
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    topology = wordcount(out, LINES, 75, processors=2)
    with sj.start(
        topology, spark=spark, checkpoint=checkpoint, settings={"commit": 0.1}
    ) as running:
        folder = checkpoint / "sojourn" / "state" / "count" / "0"
        while running.committed < 15 or not any(folder.glob("*.merged")):
            assert running.await_commit(60)
    again = wordcount(out, LINES, 200, processors=2, executors=2)
    with sj.start(again, spark=spark, checkpoint=checkpoint, settings={"commit": 0.2}) as running:
        assert running.await_idle(60)
    check_counts(results(out), WORDS)
    assert sum(1 for _ in (checkpoint / "sojourn" / "state").rglob("*.*")) < 60


def test_an_overloaded_loop_with_two_sources_gets_over_the_end_of_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Queues are full when Spark's batch ends, and again when it stops; nothing hangs, and each
    number is counted once."""

    def slow(n: int) -> Iterator[Any]:
        time.sleep(0.005)
        yield n
        if n % 10 == 0:
            yield sj.Output("again", n + 1)

    t = sj.Topology("busy")
    numbers = [range(start, start + 1_000_000, 2) for start in (0, 1)]
    one = t.source("one", sj.sources.iterable(lambda: numbers[0]))
    two = t.source("two", sj.sources.iterable(lambda: numbers[1]))
    busy = t.operator("busy", slow, one, two, processors=2)
    t.feedback(busy["again"], busy)
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), busy)
    checkpoint = tmp_path / "checkpoint"
    settings = {"commit": 0.5, "batch": 4, "maxQueue": 50, "maxBundle": 20, "drain": 0.0}
    running = sj.start(t, spark=spark, checkpoint=checkpoint, settings=settings)
    while not any(checkpoint.glob("spark/*/commits/1")):  # Spark's second batch is over as well
        assert running.await_commit(60)
    await_results(running, tmp_path / "out", len(results(tmp_path / "out")) + 1)
    assert running.restarts == 0
    running.stop()
    found = Counter(results(tmp_path / "out"))
    twice = {n for n, count in found.items() if count == 2}
    assert all(n % 10 == 1 for n in twice)  # it came over the loop as well
    assert set(found.values()) <= {1, 2}
