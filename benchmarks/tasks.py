"""What is carried with more and more workers on the cores of this machine, on Spark and in virtual
time, where busy workers share cores.

    python benchmarks/tasks.py [--json] [--quick] [part …]

    compute   an operator that computes for 1 ms, with 1, 2, 4, 8, 16 and 32 workers
    sleep     one that sleeps for 5 ms
    nothing   one that does nothing, which shows what carrying a tuple costs
    operators how long the operators of examples take, and how much they pass on, where none waits

As many tuples come as are taken, but in the last part. With `simulator.hopCpu`, `.handOverCpu` and
`.taskShare` as they are, the simulator lies within 20 % of Spark at every number of workers.
Seconds with more than 5 % of the CPU stolen are left out.

`fitted` says which values of these settings would fit this machine best, by least squares of the
logarithms: the first and the last by `nothing`, then the second by `compute` and `sleep`.

Ends with code 1 where a figure misses its bound.
"""

import functools
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from machine import Steal
from parts import asked, each, ended
from pyspark.sql import SparkSession

import sojourn as sj
from sojourn.engine.spark.session import session
from sojourn.settings import SimulatorSettings
from sojourn.simulator.crowded import CrowdedEngine
from sojourn.simulator.draws import Distribution
from sojourn.simulator.workload import OperatorLoad, Workload

TASKS = (1, 2, 4, 8, 16, 32)
WITHIN = 0.2
WHILE = {"compute": (0.1, 0.5), "sleep": (0.1, 0.5), "nothing": (0.02, 0.06)}
"""Of virtual time, in which settings are fitted."""
CORES = os.cpu_count() or 1
FEW = {"linear": 300.0, "diamond": 50.0, "star": 1000.0, "wc": 2000.0, "swc": 200.0, "tsa": 2000.0}
"""Tuples a second that keep workers warm, and for which none waits."""


def compute(n: int) -> list[int]:
    """It takes a millisecond of CPU time."""
    until = time.thread_time() + 0.001
    while time.thread_time() < until:
        pass
    return [n]


def sleep(n: int) -> list[int]:
    """It waits, as for a service."""
    time.sleep(0.005)
    return [n]


def nothing(n: int) -> list[int]:
    """It passes."""
    return [n]


KINDS: dict[str, tuple[Callable[[int], list[int]], OperatorLoad]] = {
    "compute": (compute, OperatorLoad(Distribution("gamma", 0.001, scv=0.01))),
    "sleep": (sleep, OperatorLoad(Distribution("gamma", 0.005, scv=0.01), cpu=0.0)),
    "nothing": (nothing, OperatorLoad(Distribution("constant", 0.0))),
}


def endless() -> Iterator[int]:
    """Numbers."""
    return itertools.count()


def forget(_value: Any) -> None:
    """Nobody wants it."""


def topology(kind: str, tasks: int) -> sj.Topology:
    """numbers → work → out."""
    t = sj.Topology("tasks")
    numbers = t.source("numbers", sj.sources.iterable(endless))
    t.sink(
        "out", sj.sinks.call(forget), t.operator("work", KINDS[kind][0], numbers, processors=tasks)
    )
    return t


def on_spark(spark: SparkSession, kind: str, tasks: int, seconds: int) -> dict[str, Any]:
    """Tuples a second, in the median of the seconds."""
    rates = []
    with Steal() as steal, sj.start(topology(kind, tasks), spark=spark) as running:
        running.engine.hub.wait(lambda: False, 5.0)
        running.samples()
        for _ in range(seconds):
            began = time.monotonic()
            running.engine.hub.wait(lambda: False, 1.0)
            work = running.samples().vertices["work"]
            if steal.was_clean(began):
                rates.append(work.served / work.interval_s)
    rates.sort()
    return {
        "seconds": len(rates),
        "per_second": rates[len(rates) // 2] if rates else math.nan,
        "steal": steal.told(),
    }


def simulated(
    kind: str, tasks: int, settings: SimulatorSettings, seconds: tuple[float, float]
) -> float:
    """The same in virtual time, from one moment to another."""
    engine = CrowdedEngine(
        topology(kind, tasks),
        Workload({"work": KINDS[kind][1]}),
        settings,
        machines=1,
        cores=CORES,
        in_flight=1000,
    )
    engine.advance(seconds[0])
    engine.samples()
    engine.advance(seconds[1])
    work = engine.samples().vertices["work"]
    return work.served / work.interval_s


def part(kind: str, spark: SparkSession, quick: bool) -> dict[str, Any]:
    """All numbers of workers."""
    runs, missed = [], []
    for tasks in TASKS:
        run = on_spark(spark, kind, tasks, 4 if quick else 12)
        run |= {
            "tasks": tasks,
            "simulated": simulated(kind, tasks, SimulatorSettings(), WHILE[kind]),
        }
        runs.append(run)
        ratio = run["simulated"] / run["per_second"]
        if not 1 - WITHIN <= ratio <= 1 + WITHIN:
            missed.append(f"{tasks} workers: simulated {ratio:.2f} of what Spark carries")
    return {"runs": runs, "missed": missed}


def examples() -> dict[str, sj.Topology]:
    """Those that are profiled, with few tuples."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
    import patterns
    import tsa
    import wc

    few = {name: patterns.Settings(rate=rate) for name, rate in FEW.items()}
    return {
        "linear": patterns.linear(few["linear"]),
        "diamond": patterns.diamond(replace(few["diamond"], depth=1)),
        "star": patterns.star(replace(few["star"], depth=1)),
        "wc": wc.designed("wc", rate=FEW["wc"]),
        "swc": wc.designed("swc", rate=FEW["swc"]),
        "tsa": tsa.topology(rate=FEW["tsa"]),
    }


def operators(spark: SparkSession, quick: bool) -> dict[str, Any]:
    """Microseconds that a tuple takes in each operator, and what it makes of it."""
    found: dict[str, Any] = {}
    for name, made in examples().items():
        with sj.start(made, spark=spark) as running:
            running.engine.hub.wait(lambda: False, 5.0)
            running.samples()
            running.engine.hub.wait(lambda: False, 5.0 if quick else 20.0)
            seen = running.samples().vertices
        found[name] = {
            operator: {
                "us": round((seen[operator].service_s or math.nan) * 1e6, 1),
                "emits": {e: n / seen[operator].served for e, n in seen[operator].emitted.items()},
            }
            for operator in made.operators
        }
    return {"found": found, "missed": []}


def fitted(results: dict[str, Any]) -> dict[str, float]:
    """The settings that would fit best."""

    def off(kinds: Sequence[str], settings: SimulatorSettings) -> float:
        return sum(
            math.log(simulated(kind, run["tasks"], settings, WHILE[kind]) / run["per_second"]) ** 2
            for kind in kinds
            for run in results[kind]["runs"]
        )

    plain, best = SimulatorSettings(), {}
    if "nothing" in results:
        grid = [
            replace(plain, hop_cpu_s=hop_us / 1e6, task_share=share)
            for hop_us in (1, 1.3, 1.6, 2, 2.5)
            for share in (0.0, 0.002, 0.005, 0.01)
        ]
        plain = min(grid, key=lambda of: off(["nothing"], of))
        best = {"hop_cpu_us": plain.hop_cpu_s * 1e6, "task_share": plain.task_share}
    others = [kind for kind in ("compute", "sleep") if kind in results]
    if others:
        grid = [replace(plain, hand_over_cpu_s=ms / 1e3) for ms in (0.2, 0.24, 0.28, 0.32, 0.36)]
        plain = min(grid, key=lambda of: off(others, of))
        best["hand_over_cpu_ms"] = plain.hand_over_cpu_s * 1e3
    return best


def main() -> None:
    """Run what is asked for."""
    options = asked(__doc__, [*KINDS, "operators"])
    spark = functools.cache(lambda: session(None, "local[16]", 16, "tasks", 10))

    def run(name: str) -> dict[str, Any]:
        return (
            part(name, spark(), options.quick)
            if name in KINDS
            else operators(spark(), options.quick)
        )

    results = each(options, run)
    if results.keys() & KINDS.keys():
        results["fitted"] = {**fitted(results), "missed": []}
    if "fitted" in results and not options.json:
        print(f"fitted: {json.dumps(results['fitted'], indent=2)}", flush=True)
    ended(results, options.json)


if __name__ == "__main__":
    main()
