"""What figures 8 and 9 of Elasticutor share: an operator whose shards move, within a machine or
between two, and how long that takes."""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import Lab

import sojourn as sj
from sojourn.engine.driver.engine import SparkEngine
from sojourn.engine.driver.machines import StandalonePool
from sojourn.engine.spark.session import session, wait_for_slots
from sojourn.engine.spark.standalone import StandaloneCluster
from sojourn.errors import TopologyFailed

RATE, SLEEP_S = 50.0, 0.010
CORES = 8  # of a machine
_COME_S = 120.0
WARM_S = 8.0  # in which every shard gets its state
Times = tuple[float, float]
"""Milliseconds to synchronise a move, and from then on, for one shard, in the median."""


class Keep(sj.Operator):
    """Sleeps, counts, and keeps bytes for the first key of a shard."""

    def __init__(self, size: int) -> None:
        self.size = size

    def process(self, n: int) -> int:
        time.sleep(SLEEP_S)
        if self.size and "kept" not in self.state:
            self.state["kept"] = bytes(self.size)
        count: int = self.state.get(n, 0) + 1
        self.state[n] = count
        return count


def numbered(n: int) -> int:
    """A value."""
    return n % 512


def same(n: int) -> int:
    """It passes."""
    return n


def forget(_value: Any) -> None:
    """Nobody wants it."""


def topology(upstream: int, size: int, shards: int, executors: int) -> sj.Topology:
    """numbers → through → keep → out."""
    t = sj.Topology("moves")
    numbers = t.source("numbers", sj.sources.paced(numbered, rate=RATE))
    through = t.map("through", same, numbers, executors=upstream, processors=upstream)
    kept = t.map(
        "keep",
        Keep(size),
        through,
        key=same,
        shards=shards,
        executors=executors,
        processors=max(2, executors),
    )
    t.sink("out", sj.sinks.call(forget), kept)
    return t


def moves(lab: Lab, running: sj.Running, between: tuple[int, int], turns: int) -> Times:
    """Of shards between workers of an executor, whose number changes between two."""
    sync, beyond = [], []
    running.resize({"keep": between[0]})
    lab.let_pass(running, WARM_S)
    running.samples()
    for turn in range(turns):
        running.resize({"keep": between[(turn + 1) % 2]})
        lab.let_pass(running, 1.0)
        for part in running.samples().vertices["keep"].parts:
            if part.moves:
                sync.append(part.sync_s * 1e3)
                beyond.append(part.moving_s * 1e3)
    return statistics.median(sync), statistics.median(beyond)


def divisions(
    lab: Lab, running: sj.Running, table: Callable[[int], list[int]], turns: int
) -> Times:
    """Of shards between executors, whose senders all pause until that is over. The table says which
    executor each shard should belong to in each turn; the first is a start and does not count."""
    sync, beyond = [], []
    for turn in range(turns + 1):
        division = running.engine.divide("keep", table(turn))
        if not division.done.wait(60) or division.failed:
            raise TopologyFailed(f"shards were not divided anew: {division.failed}")
        if turn and division.moved:
            sync.append(division.drained_s * 1e3)
            beyond.append(division.moved_s * 1e3 / division.moved)
        lab.let_pass(running, 1.0)
    return statistics.median(sync), statistics.median(beyond)


@contextmanager
def on_machines(
    machines: int, made: sj.Topology, paradigm: str
) -> Iterator[tuple[StandaloneCluster, sj.Running]]:
    """What runs on a standalone cluster of its own, all on this host."""
    with (
        tempfile.TemporaryDirectory() as directory,
        StandaloneCluster(Path(directory)) as cluster,
    ):
        for _ in range(machines):
            cluster.add(CORES)
        with session(None, cluster.url, machines * CORES, made.name, 10) as spark:
            # All tasks fit on one machine: without this, whichever comes first may get them all.
            wait_for_slots(spark, machines * CORES, _COME_S, lambda: False)
            settings = {"paradigm": paradigm}
            with sj.start(made, master=cluster.url, settings=settings) as started:
                yield cluster, started


def elastic(lab: Lab, size: int, shards: int, turns: int) -> dict[str, Times]:
    """First both workers are on one machine. Then there is room for one, and another machine."""
    with on_machines(1, topology(1, size, shards, 1), "elastic") as (cluster, started):
        found = {"within": moves(lab, started, (1, 2), turns)}
        pool = StandalonePool(cluster, started.engine, processors=2, cores=CORES - 1, most=2)
        pool.start(2)
        pool.use(2)
        started.resize({"keep": 2})
        has = [of for at, of in started.engine.placing.has.items() if at.vertex == "keep"]
        if [sorted(of.values()) for of in has] != [[1, 1]]:
            raise TopologyFailed(f"the workers should be on two machines; they are {has}")
        return found | {"between": moves(lab, started, (1, 2), turns)}


def resource_centric(lab: Lab, size: int, shards: int, turns: int) -> dict[str, Times]:
    """Executors of one machine, and of two: half of the shards go to another one and back."""
    made = topology(1, size, shards, 4)
    with on_machines(2, made, "resource-centric") as (_, started):
        lab.let_pass(started, WARM_S)
        found = {}
        for where, same_machine in (("within", True), ("between", False)):
            pair = _pair(started.engine, same_machine)
            found[where] = divisions(lab, started, _halves(*pair, shards), turns)
        return found


def _pair(engine: SparkEngine, same_machine: bool) -> tuple[int, int]:
    """Two executors of the operator. Spark gives its tasks to machines in turn, so there are two on
    the same one, and two that are not."""
    at = {p.executor: h.machine for p, h in engine.hub.hellos().items() if p.vertex == "keep"}
    for one, other in itertools.combinations(sorted(at), 2):
        if (at[one] == at[other]) == same_machine:
            return one, other
    raise TopologyFailed(f"Spark has put all executors on {at}")


def _halves(one: int, other: int, shards: int) -> Callable[[int], list[int]]:
    """All shards belong to one executor, or half of them to another."""
    return lambda turn: [(one, other)[turn % 2 and shard % 2] for shard in range(shards)]
