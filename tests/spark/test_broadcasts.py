"""Broadcasts on real Spark: every worker has them, old or new, before and after a restart."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conftest import results
from pyspark.sql import SparkSession

import sojourn as sj

VERSIONS = 40


class Price(sj.Operator):
    """Emits with each order what it was told, from which worker, and how many of its key came."""

    def __init__(self, deadly: int = -1) -> None:
        self.deadly = deadly

    def open(self) -> None:
        self.doubled: dict[str, int] = {}

    def on_broadcast(self, key: str, value: int | None) -> None:
        if value is None:
            del self.doubled[key]
        else:
            self.doubled[key] = 2 * value

    def process(self, order: int) -> Iterator[Any]:
        if order == self.deadly:
            os._exit(1)
        assert self.doubled == {key: 2 * value for key, value in self.broadcast.items()}
        yield [order, dict(self.broadcast), os.getpid()]


class Keyed(Price):
    def process(self, order: int) -> Iterator[Any]:
        self.state[self.key] = self.state.get(self.key, 0) + 1
        yield from super().process(order)


def priced(out: Path, code: Any, told: list[Any], orders: int, **options: Any) -> sj.Topology:
    t = sj.Topology("priced")
    prices = t.source("prices", sj.sources.iterable(lambda: told, rate=200))
    numbers = t.source("orders", sj.sources.paced(lambda n: n, rate=100, count=orders))
    found = t.operator("price", code, numbers, broadcast=prices, **options)
    t.sink("out", sj.sinks.jsonl(out), found)
    return t


def of_key(order: int) -> int:
    return order % 7


def test_a_restart_and_other_executors_have_what_was_broadcast(
    spark: SparkSession, tmp_path: Path
) -> None:
    told = [*(("tea", n) for n in range(VERSIONS)), ("pot", 1), ("cup", 5), ("pot", None)]
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    start: dict[str, Any] = {"spark": spark, "checkpoint": checkpoint}
    start["settings"] = {"commit": "300ms"}
    first = priced(out, Keyed, told, 100, key=of_key, executors=2, processors=2)
    with sj.start(first, **start) as running:
        running.resize({"price": 4})
        assert running.await_idle(60)
    assert sorted(order for order, _, _ in results(out)) == list(range(100))
    again = priced(out, Keyed, told, 200, key=of_key, executors=3, processors=5)
    with sj.start(again, **start) as running:
        assert running.await_idle(60)
    later = [found for found in results(out) if found[0] >= 100]
    assert sorted(order for order, _, _ in later) == list(range(100, 200))
    assert all(held == {"tea": VERSIONS - 1, "cup": 5} for _, held, _ in later)
    assert len({pid for _, _, pid in later}) == 5
    assert sum(count for _, count in sj.read_state(checkpoint, "price")) == 200


def test_a_worker_that_takes_anothers_place_has_it_too(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    t = priced(out, Price(deadly=150), [("tea", 3)], 200, processors=2, on_error="skip")
    with sj.start(t, spark=spark, settings={"commit": "300ms"}) as running:
        assert running.await_idle(60)
        assert running.restarts == 0
        assert running.samples().vertices["price"].arrivals == 200
    found = {order: (held, pid) for order, held, pid in results(out)}
    assert set(found) == set(range(200)) - {150}
    assert all(found[order][0] == {"tea": 3} for order in range(151, 200))
    assert len({pid for _, pid in found.values()}) >= 3
