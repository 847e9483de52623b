"""Cervino fig. 5: a rate that rises from 100 000 to 200 000 tuples a second, and machines that are
added by hand: one more of the same kind as soon as those there are do not carry it. A small machine
has one core and a large one four.

Claims: machines scale with the rate, and fewer large than small ones are needed for the same rate.

Rule: at every rate so many machines carry 99 % of it; more are never needed for less; and fewer
large than small ones are needed at every rate."""

import itertools
from typing import Any

from lab import Finding, Lab

import sojourn as sj
from sojourn.settings import SimulatorSettings
from sojourn.simulator import Distribution, OperatorLoad, Workload
from sojourn.simulator.crowded import CrowdedEngine

ENGINES = ("simulator",)
NOTES = (
    "virtual time, tuple by tuple, with a run for every rate and number of machines; the first "
    "stage takes 30 µs a tuple and passes on one of ten, the second 10 µs; what hops and workers "
    "cost is as fitted on two cores (benchmarks/tasks.py)"
)
KINDS = {"small": 1, "large": 4}
RATES = range(100_000, 200_001, 20_000)
KEPT = 0.99
MOST = 40  # machines
PART_RATE = 25_000  # tuples a second that a part of the source is asked for


def topology() -> tuple[sj.Topology, Workload]:
    """trades → maxima → merge → out."""
    t = sj.Topology("stocks")
    trades = t.source("trades", sj.sources.paced(lambda n: n, rate=1.0))
    merged = t.operator("merge", lambda v: [v], t.operator("maxima", lambda v: [v], trades))
    t.sink("out", sj.sinks.console(), merged)
    load = {
        "maxima": OperatorLoad(Distribution("gamma", 30e-6, scv=0.1), gains={"merge": 0.1}),
        "merge": OperatorLoad(Distribution("gamma", 10e-6, scv=0.1)),
    }
    return t, Workload(load)


def carried(rate: float, machines: int, cores: int, seconds: tuple[float, float]) -> float:
    """Tuples a second that are completed, from one moment to another. Every core has a worker of
    the first stage."""
    made, workload = topology()
    engine = CrowdedEngine(
        made,
        workload,
        SimulatorSettings(),
        machines=machines,
        cores=cores,
        processors={"maxima": machines * cores, "merge": max(1, machines * cores // 8)},
        parts={"trades": max(1, round(rate / PART_RATE))},
        rates={"trades": rate},
        in_flight=2000,
    )
    engine.advance(seconds[0])
    engine.samples()
    engine.advance(seconds[1])
    done = engine.samples().sojourn
    return 0.0 if done is None else done.count / (seconds[1] - seconds[0])


def run(lab: Lab) -> Finding:
    """Both kinds."""
    rates = list(RATES)[:: 2 if lab.quick else 1]
    seconds = (0.1, 0.2) if lab.quick else (0.2, 0.5)
    found: dict[str, dict[int, tuple[int, float]]] = {}
    for kind, cores in KINDS.items():
        found[kind] = {}
        for rate in rates:
            for machines in range(1, MOST + 1):
                does = carried(rate, machines, cores, seconds)
                if does >= KEPT * rate:
                    break
            found[kind][rate] = machines, does
    rows = [
        (f"{rate} a second: small, large machines", "fewer large",
         f"{found['small'][rate][0]}, {found['large'][rate][0]}")
        for rate in rates
    ]  # fmt: skip
    wrong = [rate for rate in rates if found["large"][rate][0] >= found["small"][rate][0]]
    for of in found.values():
        wrong += [rate for rate, (_, does) in of.items() if does < KEPT * rate]
        wrong += [b for a, b in itertools.pairwise(rates) if of[b][0] < of[a][0]]
    last = rates[-1]
    verdict = (
        f"{last} a second take {found['small'][last][0]} small or {found['large'][last][0]} large "
        "machines"
    )

    def draw(figure: Any) -> None:
        axis = figure.add_subplot()
        for kind, of in found.items():
            axis.step(list(of), [count for count, _ in of.values()], "o-", where="mid", label=kind)
        axis.set(xlabel="tuples a second", ylabel="machines", ylim=(0, None))
        axis.legend()

    return Finding(found, rows, verdict, not wrong, draw)
