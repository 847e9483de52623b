"""Elasticutor fig. 8: what it takes to move a shard within a machine and between two, elastic and
resource-centric: to synchronise, and to hand over the state. On Spark, on a standalone cluster
whose machines are processes of one, with loopback for a wire.

Claims: resource-centric takes much longer, mainly to synchronise; elastic also hands state over a
little quicker.

Rule: both within and between machines, a move takes resource-centric at least 5 times as long as
elastic, and more than half of that is to synchronise; elastic takes no longer than resource-centric
to hand over the state."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from elasticutor_fig9 import ENGINES, divisions, moves, topology
from lab import Finding, Lab

import sojourn as sj
from sojourn.engine.driver.engine import SparkEngine
from sojourn.engine.driver.machines import StandalonePool
from sojourn.engine.spark.standalone import StandaloneCluster
from sojourn.errors import TopologyFailed

__all__ = ["ENGINES", "NOTES"]
NOTES = (
    "two cores; two machines of a standalone cluster, on one host; the operator sleeps 2 ms a "
    "tuple, 200 tuples a second, 64 shards with 32 KB each, 1 executor upstream; elastic: its "
    "workers change between 1 and 2; resource-centric: 32 shards go to another executor and back"
)
SIZE, SHARDS, CORES = 32 << 10, 64, 8
Times = tuple[float, float]
"""Milliseconds to synchronise, and from then on, for one shard."""


@contextmanager
def running(
    machines: int, made: sj.Topology, paradigm: str
) -> Iterator[tuple[StandaloneCluster, sj.Running]]:
    """On a cluster of its own."""
    with (
        tempfile.TemporaryDirectory() as directory,
        StandaloneCluster(Path(directory)) as cluster,
    ):
        for _ in range(machines):
            cluster.add(CORES)
        settings = {"paradigm": paradigm}
        with sj.start(made, master=cluster.url, settings=settings) as started:
            yield cluster, started


def elastic(lab: Lab, turns: int) -> dict[str, Times]:
    """First both workers are on one machine. Then there is room for one, and another machine."""
    with running(1, topology(1, SIZE, SHARDS, 1), "elastic") as (cluster, started):
        found = {"within": moves(lab, started, (1, 2), turns)}
        pool = StandalonePool(cluster, started.engine, processors=2, cores=CORES - 1, most=2)
        pool.start(2)
        pool.use(2)
        started.resize({"keep": 2})
        has = [of for at, of in started.engine.placing.has.items() if at.vertex == "keep"]
        if [sorted(of.values()) for of in has] != [[1, 1]]:
            raise TopologyFailed(f"the workers should be on two machines; they are {has}")
        return found | {"between": moves(lab, started, (1, 2), turns)}


def resource_centric(lab: Lab, turns: int) -> dict[str, Times]:
    """Executors of one machine, and of two."""
    with running(2, topology(1, SIZE, SHARDS, 4), "resource-centric") as (_, started):
        lab.let_pass(started, 4.0)
        return {
            where: divisions(lab, started, tables(*pair(started.engine, same)), turns)
            for where, same in (("within", True), ("between", False))
        }


def pair(engine: SparkEngine, same: bool) -> tuple[int, int]:
    """Two executors of the operator, on the same machine or not."""
    at = {p.executor: h.machine for p, h in engine.hub.hellos().items() if p.vertex == "keep"}
    for one, other in itertools.combinations(sorted(at), 2):
        if (at[one] == at[other]) == same:
            return one, other
    raise TopologyFailed(f"Spark has put the executors on {at}; try again")


def tables(one: int, other: int) -> Callable[[int], list[int]]:
    """All shards belong to one executor, or half of them to another."""
    return lambda turn: [(one, other)[turn % 2 and shard % 2] for shard in range(SHARDS)]


def run(lab: Lab) -> Finding:
    """All four."""
    lab.close()  # each has a Spark of its own
    turns = 6 if lab.quick else 20
    found = {"elastic": elastic(lab, turns), "resource-centric": resource_centric(lab, turns)}
    rows, ratios, holds = [], [], True
    for where in ("within", "between"):
        ours, theirs = found["elastic"][where], found["resource-centric"][where]
        ratios.append(sum(theirs) / sum(ours))
        holds &= ratios[-1] >= 5 and theirs[0] > theirs[1] and ours[1] <= theirs[1]
        for paradigm, of in (("elastic", ours), ("resource-centric", theirs)):
            rows.append((f"{where}, {paradigm}: to synchronise, ms", "", f"{of[0]:.2f}"))
            rows.append((f"{where}, {paradigm}: to hand over, ms", "", f"{of[1]:.2f}"))
        what = f"{where}: resource-centric over elastic"
        rows.append((what, "much longer", f"{ratios[-1]:.1f}"))
    verdict = (
        f"a move takes resource-centric {ratios[0]:.0f} times as long as elastic within a machine "
        f"and {ratios[1]:.0f} times as long between two"
    )

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        bars = [(p, w, *found[p][w]) for p in found for w in ("within", "between")]
        names = [f"{p},\n{w} a machine" if w == "within" else f"{p},\n{w} two" for p, w, *_ in bars]
        sync, hand = np.array([of[2:] for of in bars]).T
        axes.bar(names, sync, label="to synchronise")
        axes.bar(names, hand, bottom=sync, label="to hand over")
        axes.set(ylabel="ms a shard", yscale="log")
        axes.legend()

    return Finding({"ms": found}, rows, verdict, bool(holds), draw)
