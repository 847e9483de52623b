"""What the experiments of stepwise profiling share: six applications in virtual time, on machines
of two cores that can be full, and how what came out is told.

Service times are those that `benchmarks/tasks.py operators` measured on Spark where none waits, and
what hops and workers cost is what `benchmarks/tasks.py` fitted. None is taken from the paper. A
source has as many messages as are taken."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from lab import Lab

import sojourn as sj
from sojourn.chains import contracted
from sojourn.cli.profile_view import Event, LineView
from sojourn.profile import BASELINES, Profiling
from sojourn.profiler.capability import Limits
from sojourn.profiler.readings import Reading
from sojourn.profiler.stepwise import Shape
from sojourn.profiler.trial import Measured
from sojourn.settings import SimulatorSettings
from sojourn.simulator.draws import Distribution
from sojourn.simulator.trials import SimulatedPlatform
from sojourn.simulator.workload import OperatorLoad, Workload

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

import patterns
import tsa
import wc

ENGINES = ("simulator",)
CORES = 2
ALL = ("stepwise", "guided", "threshold", "stela")
US = 1e-6
UNDER_WAY = 1000  # source tuples, unless fewer may be
SLOW_S = 0.0002  # operators that take longer are read for longer
SMALL = 80.0  # messages a second: an operator that sleeps for 5 ms keeps up
NUMBERS_S, PARSE_S, SLEEP_S = 547 * US, 15 * US, 5.13e-3  # of the three patterns' operators
NOTES = (
    "virtual time, tuple by tuple; machines of two cores that busy workers share; service times as "
    "measured on Spark where none waits, and what hops and workers cost as fitted on two cores "
    "(benchmarks/tasks.py); a reading lasts 20 ms of virtual time or more, or 200 ms where "
    "operators are slow and 100 ms where some have timers, 20 readings a trial; at most 1000 "
    "source tuples are under way, so the limit on latency hardly binds; a round is a trial of a "
    "parallelism"
)


def takes(service_s: float, **more: Any) -> OperatorLoad:
    """An operator that takes about as long for every tuple."""
    return OperatorLoad(Distribution("gamma", service_s, scv=0.1), **more)


KIND = {
    "cpu": takes(NUMBERS_S),
    "json": takes(PARSE_S),
    "sleep": takes(SLEEP_S, cpu=0.0),
}
COUNTING = {
    "parse": takes(7.1 * US),
    "split": takes(30.4 * US, gains={"count": 12.0}),
    "count": takes(3.7 * US, gains={"out": 0.0}),  # nobody reads the counts, as in the paper
}
WAITING = {"wait": takes(1.11e-3, cpu=0.0)}
SENTIMENT = {
    "language": takes(11.3 * US, gains={"sentiment": 0.75}),
    "sentiment": takes(18.8 * US),
    "average": takes(5.1 * US),
    "hashtags": takes(8.2 * US, gains={"rolling": 0.75}),
    "rolling": takes(11.0 * US),
    "ranking": takes(15.1 * US, gains={"total": 16.0}, every_s=1.0),
    "total": takes(59.7 * US, gains={"rankings": 1.0}, every_s=1.0),
}


def line(depth: int = 3, kinds: Sequence[str] = ("cpu",)) -> tuple[sj.Topology, Workload]:
    """Operators in a row, of the kinds in turn."""
    made = patterns.linear(patterns.Settings(depth=depth), tuple(kinds))
    return made, Workload({f"op{i + 1}": KIND[kinds[i % len(kinds)]] for i in range(depth)})


def applications() -> dict[str, tuple[sj.Topology, Workload]]:
    """All six, each with its workload."""
    ways = {"cpu1": "cpu", "json2": "json", "sleep3": "sleep", "sleep4": "sleep", "join": "json"}
    return {
        "linear": line(),
        "diamond": (patterns.diamond(), Workload({n: KIND[k] for n, k in ways.items()})),
        "star": (patterns.star(), Workload(dict.fromkeys(("hub", "up", "down"), KIND["json"]))),
        "wc": (wc.designed("wc"), Workload(COUNTING)),
        "swc": (wc.designed("swc"), Workload({**WAITING, **COUNTING})),
        "tsa": (tsa.topology(), Workload(SENTIMENT)),
    }


_MEMO: dict[str, dict[str, Measured]] = {}  # of trials, by what they are of


def profiled(
    lab: Lab,
    made: tuple[sj.Topology, Workload],
    machines: int,
    methods: Sequence[str],
    under_way: int = UNDER_WAY,
    **limits: Any,
) -> Profiling:
    """Methods on so many machines, one after the other, with as many rounds as the first took."""
    topology, workload = made
    platform = SimulatedPlatform(
        topology, workload, SimulatorSettings(), machines, CORES, most=under_way
    )
    loads = workload.operators.values()
    slow = any(load.service.mean_s > SLOW_S for load in loads)
    timed = any(load.every_s is not None for load in loads)  # a trial lasts for some turns
    seconds = 0.2 if slow else 0.1 if timed else 0.02
    how = Reading(seconds=seconds / (2 if lab.quick else 1))
    found = Profiling(
        Shape.of(contracted(topology)),
        platform,
        Limits(cores=machines * CORES, **limits),
        how,
        small=SMALL,
        memo=_MEMO.setdefault(repr((topology.name, workload, machines, under_way, how)), {}),
    )
    found.run(methods, told=told_of(found))
    return found


_JOBS: list[Callable[[], Profiling]] = []  # for the processes that are forked


def at_once(jobs: Mapping[str, Callable[[], Profiling]]) -> dict[str, Profiling]:
    """Profile all these, one on each core. Virtual time knows nothing of that."""
    _JOBS[:] = jobs.values()
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(_profiled, range(len(jobs)), chunksize=1), strict=True))


def _profiled(place: int) -> Profiling:
    """One of them, without its platform: the topology's code cannot be sent back."""
    return replace(_JOBS[place](), platform=cast("Any", None))


def told_of(found: Profiling) -> Callable[[str, Event], None]:
    """Who tells of each round."""
    view = LineView()
    return lambda method, event: view(method, event, found)


def rates(found: Profiling, method: str) -> list[float]:
    """Throughput of each round that tries a parallelism."""
    return [of.measured.throughput for of in found.tried(method)]


def so_far(found: Profiling, method: str) -> list[float]:
    """What is carried after each round: of methods that go back, the most of what was kept so far
    and is within the limit; of others, what the round carries."""
    rounds = found.tried(method)
    if method in BASELINES:
        return rates(found, method)
    best: list[float] = []
    for of in rounds:
        is_kept = of.verdict.kept and of.measured.latency_s <= found.limits.latency_s
        before = best[-1] if best else 0.0
        best.append(max(before, of.measured.throughput) if is_kept or not best else before)
    return best


def final(found: Profiling, method: str) -> float:
    """What is carried in the end."""
    return found.best[method].measured.throughput


def told(found: Profiling, method: str) -> dict[str, Any]:
    """For the figures."""
    best = found.best[method]
    return {
        "rounds": len(found.tried(method)),
        "rates": rates(found, method),
        "final": best.measured.throughput,
        "latency_s": best.measured.latency_s,
        "processors": dict(best.parallelism.processors),
        "parts": dict(best.parallelism.parts),
        "in_flight": best.parallelism.in_flight,
        "why": [of.proposal.why for of in found.tried(method)],
        "verdicts": [of.verdict.why for of in found.tried(method)],
    }


def all_told(found: Mapping[str, Profiling]) -> dict[str, Any]:
    """Of several applications or platforms."""
    return {name: {m: told(of, m) for m in of.rounds} for name, of in found.items()}
