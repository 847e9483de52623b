"""Topologies of every shape on real Spark: what comes out is what must."""

import functools
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import once, results
from pyspark.sql import SparkSession

import sojourn as sj
from sojourn.engine.worker.keys import key_hash
from sojourn.errors import TopologyFailed

LINES = [f"the quick {i % 7} fox {i % 3}" for i in range(450)]
WORDS = [word for line in LINES for word in line.split()]


def split(line: str) -> list[str]:
    return line.split()


@functools.cache
def itself(word: str) -> str:
    """A key; Python alone would not send a function with a cache."""
    return word


class Count(sj.Operator):
    def process(self, word: str) -> Iterator[tuple[str, int]]:
        self.state[word] = self.state.get(word, 0) + 1
        yield word, self.state[word]


def wordcount(out: Path, lines: Iterable[str], rate: float | None, **count: Any) -> sj.Topology:
    t = sj.Topology("wordcount")
    source = t.source("lines", sj.sources.iterable(lambda: lines, rate=rate))
    words = t.operator("split", split, source, processors=2)
    counts = t.operator("count", Count, words, key=itself, shards=32, **count)
    t.sink("out", sj.sinks.jsonl(out), counts)
    return t


def check_counts(found: list[Any], words: list[str]) -> None:
    """Every word was counted up from one, in order, to how often it stands there."""
    last: Counter[str] = Counter()
    for word, number in found:
        assert number == last[word] + 1
        last[word] = number
    assert last == Counter(words)


def test_counts_are_exact_over_commits_and_resizes(spark: SparkSession, tmp_path: Path) -> None:
    """Of an operator with processes, one with two executors, and one with threads."""
    t = sj.Topology("wordcount")
    source = t.source("lines", sj.sources.iterable(lambda: LINES, rate=75))
    words = t.operator("split", split, source, processors=2)
    counts: dict[str, dict[str, Any]] = {
        "processes": {"processors": 2},
        "two": {"processors": 3, "executors": 2},
        "threads": {"processors": 2, "concurrency": "thread"},
    }
    for name, options in counts.items():
        counted = t.operator(name, Count, words, key=itself, shards=32, **options)
        t.sink(f"{name}-out", sj.sinks.jsonl(tmp_path / name), counted)
    with sj.start(t, spark=spark, settings={"commit": 0.5}) as running:
        assert running.await_commit(30)
        running.resize({**dict.fromkeys(counts, 5), "split": 4})
        assert running.await_commit(30)
        running.resize({**dict.fromkeys(counts, 2), "split": 1})
        assert running.await_idle(90)
        assert running.allocation() == {**dict.fromkeys(counts, 2), "split": 1}
        assert running.restarts == 0
    for name in counts:
        assert not (tmp_path / name / "_staging").exists()
        check_counts(results(tmp_path / name), WORDS)


def test_executors_get_processors_by_what_they_have_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Most words belong to the second of two executors."""
    by_executor: list[list[str]] = [[], []]
    for number in range(200):
        by_executor[key_hash(word := f"w{number}") % 32 % 2].append(word)
    few, many = (found[:20] for found in by_executor)
    lines = [" ".join([few[n % 20], *(many[(n + i) % 20] for i in range(9))]) for n in range(250)]

    class Slow(Count):
        def process(self, word: str) -> Iterator[tuple[str, int]]:
            time.sleep(0.005)
            return super().process(word)

    t = sj.Topology("uneven")
    words = t.operator(
        "split", split, t.source("lines", sj.sources.iterable(lambda: lines, rate=40))
    )
    counts = t.operator("count", Slow, words, key=lambda w: w, shards=32, executors=2, processors=6)
    t.sink("out", sj.sinks.jsonl(tmp_path), counts)
    most: tuple[int, ...] = ()
    with sj.start(t, spark=spark) as running:
        while not running.await_idle(0.5):
            parts = running.samples().vertices["count"].parts
            most = max(most, tuple(part.processors for part in parts)[::-1])
        assert running.allocation()["count"] == 6
    assert most == (5, 1)
    check_counts(results(tmp_path), [word for line in lines for word in line.split()])


def test_splits_joins_skips_and_named_outputs(spark: SparkSession, tmp_path: Path) -> None:
    t = sj.Topology("shapes")
    numbers = t.source("numbers", sj.sources.iterable(lambda: range(500)))
    more = t.source("more", sj.sources.iterable(lambda: range(500, 700)))
    sorted_out = t.operator(
        "sort", lambda n: [n] if n % 2 else [sj.Output("even", n)], numbers, on_error="skip"
    )
    doubled = t.operator("double", lambda n: [n * 2], sorted_out["even"])
    joined = t.operator("join", lambda n: [("joined", n)], doubled, sorted_out, more)
    t.sink("out", sj.sinks.jsonl(tmp_path), joined, numbers)
    with sj.start(t, spark=spark) as running:
        assert running.await_idle(60)
    found = results(tmp_path)
    expected: Counter[Any] = Counter()
    expected.update(("joined", 2 * n if n % 2 == 0 else n) for n in range(500))
    expected.update(("joined", n) for n in range(500, 700))
    expected.update(range(500))
    assert Counter(tuple(v) if isinstance(v, list) else v for v in found) == expected


class Round(sj.Operator):
    def process(self, n: int) -> Iterator[Any]:
        self.state[n] = self.state.get(n, 0) + 1
        yield n
        if n:
            yield sj.Output("again", n - 1)


def fragile(n: int) -> list[int]:
    if n == 7:
        raise ValueError("seven")
    return [n]


def test_errors_in_user_code_are_put_aside(spark: SparkSession, tmp_path: Path) -> None:
    t = sj.Topology("fragile")
    numbers = t.source("numbers", sj.sources.iterable(lambda: range(20)))
    for name in ("skip", "dead-letter"):
        checked = t.operator(f"{name}-check", fragile, numbers, on_error=name)
        t.sink(name, sj.sinks.jsonl(tmp_path / name), checked)
    with sj.start(t, spark=spark, checkpoint=tmp_path / "checkpoint") as running:
        assert running.await_idle(60)
        found = running.samples().vertices
    letters = tmp_path / "checkpoint" / "sojourn" / "dead-letters"
    for name in ("skip", "dead-letter"):
        assert found[f"{name}-check"].dropped == 1
        assert sorted(results(tmp_path / name)) == [n for n in range(20) if n != 7]
    assert results(letters / "skip-check") == []
    (row,) = results(letters / "dead-letter-check")
    assert (row["operator"], row["value"]) == ("dead-letter-check", "7")
    assert "ValueError: seven" in row["error"]


def test_an_error_that_must_not_be_put_aside_ends_the_topology(
    spark: SparkSession, tmp_path: Path
) -> None:
    up = tmp_path / "up"
    t = sj.Topology("fragile")
    numbers = t.source("numbers", sj.sources.iterable(lambda: once(up, range(20))))
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), t.operator("check", fragile, numbers))
    running = sj.start(t, spark=spark)
    up.touch()
    with pytest.raises(TopologyFailed, match=r"(?s)operator 'check': processing 7 raised.*seven"):
        running.await_idle(60)
    with pytest.raises(TopologyFailed, match="seven"):
        running.stop()


def test_a_source_sheds_what_is_too_late_and_counts_it(spark: SparkSession, tmp_path: Path) -> None:
    t = sj.Topology("late")
    # All are due within a tenth of a second, before the operators are even up.
    numbers = t.source("numbers", sj.sources.iterable(lambda: range(50), rate=500, shed_after=1e-9))
    t.sink("out", sj.sinks.jsonl(tmp_path), numbers)
    with sj.start(t, spark=spark) as running:
        assert running.await_idle(60)
        shed = running.samples().vertices["numbers"].shed
    assert shed > 0
    assert len(results(tmp_path)) == 50 - shed


def test_parquet_console_and_callable_sinks(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = sj.Topology("sinks")
    rows = t.source("rows", sj.sources.iterable(lambda: [{"n": n, "s": str(n)} for n in range(9)]))
    seen = tmp_path / "seen"
    seen.mkdir()
    t.sink("parquet", sj.sinks.parquet(tmp_path / "parquet"), rows)
    t.sink("console", sj.sinks.console(), rows)
    t.sink("call", sj.sinks.call(lambda row: (seen / row["s"]).touch()), rows)
    with sj.start(t, spark=spark) as running:
        assert running.await_idle(60)
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "parquet")
    assert table.to_pylist() == [{"n": n, "s": str(n)} for n in range(9)]
    assert capsys.readouterr().out.count('"n": ') == 9
    assert len(list(seen.iterdir())) == 9


@dataclass
class Trade:
    """A class that only this module has; its values are tuples and state."""

    symbol: str
    price: int


class Highest(sj.Operator):
    def process(self, trade: Trade) -> Iterator[Trade]:
        best = self.state.get(trade.symbol)
        if best is None or trade.price > best.price:
            self.state[trade.symbol] = trade
        yield self.state[trade.symbol]


def trades(out: Path) -> sj.Topology:
    t = sj.Topology("trades")
    values = [Trade("AB"[i % 2], (i * 37) % 101) for i in range(200)]
    source = t.source("trades", sj.sources.iterable(lambda: values))
    best = t.operator("best", Highest, source, key=lambda t: t.symbol, shards=8, processors=2)
    shown = t.operator("show", lambda trade: [(trade.symbol, trade.price)], best)
    t.sink("out", sj.sinks.jsonl(out), shown)
    return t


def test_values_may_be_of_the_users_own_classes(spark: SparkSession, tmp_path: Path) -> None:
    highest: dict[str, int] = {}
    expected = []
    for i in range(200):
        symbol, price = "AB"[i % 2], (i * 37) % 101
        highest[symbol] = max(highest.get(symbol, 0), price)
        expected.append((symbol, highest[symbol]))
    checkpoint = tmp_path / "checkpoint"
    with sj.start(trades(tmp_path / "out"), spark=spark, checkpoint=checkpoint) as running:
        running.resize({"best": 4})  # moves state of that class
        assert running.await_idle(60)
    found = [(symbol, price) for symbol, price in results(tmp_path / "out")]
    assert sorted(found) == sorted(expected)
    with sj.start(trades(tmp_path / "out"), spark=spark, checkpoint=checkpoint) as running:
        assert running.await_idle(60)  # the state can be read again


def test_samples_lose_nothing_to_others_who_ask(spark: SparkSession, tmp_path: Path) -> None:
    values = range(3000)
    t = sj.Topology("numbers")
    source = t.source("numbers", sj.sources.iterable(lambda: values, rate=1000))
    t.sink("out", sj.sinks.jsonl(tmp_path), t.operator("same", lambda n: [n], source))
    served = shown = 0
    with sj.start(t, spark=spark) as running:
        idle = False
        while not idle:
            idle = running.await_idle(0.05)
            sample = running.samples().vertices["same"]
            served += sample.served
            shown += sample.emitted.get("out", 0)
    assert (served, shown) == (3000, 3000)


def test_a_source_says_how_far_it_is_behind(spark: SparkSession, tmp_path: Path) -> None:
    """An operator with a tenth of the capacity it needs: pressure holds the source back, and its
    rate is still the intended one. The tuples are large, because a megabyte or so may wait in
    sockets on the way."""

    def slow(value: bytes) -> list[int]:
        time.sleep(0.1)
        return [len(value)]

    t = sj.Topology("slow")
    source = t.source(
        "numbers", sj.sources.paced(lambda _: bytes(50_000), rate=100, arrivals="constant")
    )
    t.sink("out", sj.sinks.jsonl(tmp_path), t.operator("slow", slow, source))
    running = sj.start(t, spark=spark, settings={"maxQueue": 20, "measure.tracked": 1})
    try:
        lag, rate = 0.0, None
        while lag < 3 or rate is None:
            sample = running.samples().vertices["numbers"]
            lag, rate = sample.lag_s or 0.0, sample.arrival_rate
            assert not running.await_idle(1.0)
        assert 50 < rate < 150
    finally:
        running.__exit__(ValueError, None, None)  # there is no need to drain it


def test_a_failure_while_it_stops_is_told(spark: SparkSession, tmp_path: Path) -> None:
    reached, stopping = tmp_path / "reached", tmp_path / "stopping"

    def late(n: int) -> list[int]:
        if n == 5:
            reached.touch()
            while not stopping.exists():
                time.sleep(0.01)
            raise ValueError("on purpose")
        return [n]

    t = sj.Topology("late")
    source = t.source("numbers", sj.sources.iterable(lambda: range(20)))
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), t.operator("late", late, source))
    running = sj.start(t, spark=spark)
    while not reached.exists():
        assert not running.await_idle(0.1)

    def tell() -> None:
        assert not running.wait(), "it returns when the topology is told to stop"
        stopping.touch()

    threading.Thread(target=tell).start()
    with pytest.raises(TopologyFailed, match=r"(?s)without a last commit.*on purpose"):
        running.stop()
    with pytest.raises(TopologyFailed):
        running.stop()
    assert results(tmp_path / "out") == []


class Lengths(sj.Operator):
    """How long each word is, all at once."""

    columns = "numpy"

    def process_bundle(self, words: Any) -> Any:
        import numpy as np

        return np.char.str_len(words)


class CountAtOnce(sj.Operator):
    """As Count, a bundle at a time; one word it refuses, when it has counted."""

    def process_bundle(self, words: list[str]) -> list[list[tuple[str, int]]]:
        found = []
        for word in words:
            self.state[word] = self.state.get(word, 0) + 1
            found.append([(word, self.state[word])])
        if "2" in words:
            raise ValueError("no twos")
        return found


def test_operators_that_take_bundles(spark: SparkSession, tmp_path: Path) -> None:
    t = sj.Topology("bundles")
    source = t.source("lines", sj.sources.iterable(lambda: LINES))
    words = t.operator("split", split, source, processors=2)
    counts = t.operator(
        "count", CountAtOnce, words, key=lambda w: w, shards=32, processors=2, on_error="skip"
    )
    lengths = t.operator("lengths", Lengths, words, processors=2)
    t.sink("counts", sj.sinks.jsonl(tmp_path / "counts"), counts)
    t.sink("sizes", sj.sinks.jsonl(tmp_path / "sizes"), lengths)
    with sj.start(t, spark=spark) as running:
        assert running.await_idle(60)
        dropped = running.samples().vertices["count"].dropped
    check_counts(results(tmp_path / "counts"), [word for word in WORDS if word != "2"])
    assert dropped == WORDS.count("2")
    assert Counter(results(tmp_path / "sizes")) == Counter(map(len, WORDS))


class Shout(sj.Operator):
    def process(self, word: str) -> Iterator[Any]:
        yield word.upper()
        if word == "fox":
            yield sj.Output("animals", word)


def test_operators_that_share_workers(spark: SparkSession, tmp_path: Path) -> None:
    t = sj.Topology("chain")
    source = t.source("lines", sj.sources.iterable(lambda: LINES))
    words = t.operator("split", split, source, processors=2)
    loud = t.operator("shout", Shout, words, chain=True)
    counts = t.operator("count", Count, loud, key=lambda w: w, shards=32, processors=2)
    t.sink("counts", sj.sinks.jsonl(tmp_path / "counts"), counts)
    t.sink("animals", sj.sinks.jsonl(tmp_path / "animals"), loud["animals"])
    with sj.start(t, spark=spark) as running:
        running.resize({"split": 3})
        with pytest.raises(sj.InputError, match="'shout' shares the workers of 'split'"):
            running.resize({"shout": 2})
        assert running.await_idle(60)
        assert running.allocation() == {"split": 3, "count": 2}
        vertices = running.samples().vertices
    check_counts(results(tmp_path / "counts"), [word.upper() for word in WORDS])
    assert results(tmp_path / "animals") == ["fox"] * WORDS.count("fox")
    assert (vertices["split"].served, vertices["shout"].served) == (len(LINES), len(WORDS))
    assert vertices["shout"].head == "split"
    assert vertices["shout"].emitted == {
        "count": len(WORDS),
        "animals[animals]": WORDS.count("fox"),
    }
