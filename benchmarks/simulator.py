"""How fast and how true the simulator is.

    python benchmarks/simulator.py [--json] [--quick] [part …]

    speed     M/M/10 with 200 000 customers, beside simpy and ciw in one run
    day       a day of video logo detection on 50 machines under control, on one core
    memory    whether memory grows with simulated time
    handover  how long a busy processor of the engine waits between two tuples: simulator.handOver
    spark     the same topology of sleeping operators on Spark and simulated: mean and p99 sojourn

Ends with code 1 where a figure misses its bound.
"""

import argparse
import itertools
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import sojourn as sj
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
from sojourn.simulator import Distribution, OperatorLoad, SimulatedEngine, SourceLoad, Workload

CUSTOMERS, SERVERS, SERVICE_S, UTILIZATION = 200_000, 10, 0.1, 0.8
RATE = UTILIZATION * SERVERS / SERVICE_S


def same(value: Any) -> Any:
    """A simulation never calls it."""
    return value


def station(rate: float, processors: int) -> sj.Topology:
    """source → work → out."""
    t = sj.Topology("station")
    source = t.source("source", sj.sources.paced(lambda n: n, rate=rate))
    t.sink("out", sj.sinks.console(), t.map("work", same, source, processors=processors))
    return t


def ours(customers: int, seed: int) -> float:
    """Mean sojourn of so many customers."""
    engine = SimulatedEngine(
        station(RATE, SERVERS),
        Workload(
            {"work": OperatorLoad(Distribution("exponential", SERVICE_S))},
            {"source": SourceLoad(((1.0, RATE),), count=customers)},
        ),
        SimulatorSettings(hop_s=0.0, sink_s=0.0, hand_over_s=0.0, stall_s=0.0),
        EngineSettings(),
        seed=seed,
    )
    total, count = 0.0, 0
    while not engine.is_idle:
        engine.advance(engine.now_s + 60.0)
        sojourn = engine.samples().sojourn
        if sojourn is not None:
            total, count = total + sojourn.mean_s * sojourn.count, count + sojourn.count
    assert count == customers
    return total / count


def with_simpy(customers: int, seed: int) -> float:
    """The same in simpy, as its users would write it."""
    import simpy

    draw, environment, sojourns = random.Random(seed), simpy.Environment(), []
    servers = simpy.Resource(environment, SERVERS)

    def customer() -> Any:
        arrived = environment.now
        with servers.request() as request:
            yield request
            yield environment.timeout(draw.expovariate(1 / SERVICE_S))
        sojourns.append(environment.now - arrived)

    def source() -> Any:
        for _ in range(customers):
            yield environment.timeout(draw.expovariate(RATE))
            environment.process(customer())

    environment.process(source())
    environment.run()
    return statistics.fmean(sojourns)


def with_ciw(customers: int, seed: int) -> float:
    """The same in ciw."""
    import ciw

    ciw.seed(seed)
    simulation = ciw.Simulation(
        ciw.create_network(
            arrival_distributions=[ciw.dists.Exponential(RATE)],
            service_distributions=[ciw.dists.Exponential(1 / SERVICE_S)],
            number_of_servers=[SERVERS],
        )
    )
    simulation.simulate_until_max_customers(customers, method="Finish")
    return statistics.fmean(r.exit_date - r.arrival_date for r in simulation.get_all_records())


def speed(quick: bool) -> dict[str, Any]:
    """Seconds of each, best of three, and the mean sojourns that they find."""
    customers = CUSTOMERS // 10 if quick else CUSTOMERS
    ways: dict[str, Callable[[int, int], float]] = {
        "sojourn": ours,
        "simpy": with_simpy,
        "ciw": with_ciw,
    }
    found: dict[str, Any] = {}
    for name, way in ways.items():
        times, means = [], []
        for seed in range(3):
            start = time.perf_counter()
            means.append(way(customers, seed))
            times.append(time.perf_counter() - start)
        found[name] = {"seconds": min(times), "mean_sojourn_s": statistics.fmean(means)}
    peers = min(found["simpy"]["seconds"], found["ciw"]["seconds"])
    return {
        "customers": customers,
        **found,
        "share_of_the_next": found["sojourn"]["seconds"] / peers,
        "bounds": {"share_of_the_next": 1.0},
    }


def logo_detection() -> tuple[sj.Topology, Workload]:
    """Ten times the paper's traffic, 130 frames a second on average, higher by day than by night;
    service times as in examples/plans/vld.yaml."""
    t = sj.Topology("video-logo-detection")
    hours = tuple(
        (3600.0, 130.0 * (1 + 0.3 * math.sin(2 * math.pi * (hour - 9) / 24))) for hour in range(24)
    )
    frames = t.source("frames", sj.sources.paced(lambda n: n, rate=hours))
    extract = t.map("extract", same, frames, processors=70)
    match = t.map("match", same, extract, processors=75)
    aggregate = t.map("aggregate", same, match, processors=4)
    t.sink("logos", sj.sinks.console(), aggregate)
    means = {"extract": 0.475, "match": 0.520, "aggregate": 0.012}
    return t, Workload(
        {n: OperatorLoad(Distribution("exponential", mean)) for n, mean in means.items()}
    )


def day(quick: bool) -> dict[str, Any]:
    """Wall time of 24 hours, with a decision every ten seconds."""
    topology, workload = logo_detection()
    hours = 2.0 if quick else 24.0
    control = ControlSettings(
        max_sojourn_s=1.5, interval_s=10.0, machine_processors=4, max_machines=50
    )
    simulation = Simulation(
        topology,
        workload,
        (EngineSettings(), control, SimulatorSettings()),
        hours * 3600,
        machines=40,
    )
    start, cpu = time.perf_counter(), time.process_time()
    summary = simulation.run()
    seconds = time.perf_counter() - start
    return {
        "hours": hours,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "seconds_a_day": seconds * 24 / hours,
        "mean_sojourn_s": summary.mean_sojourn_s,
        "mean_processors": summary.mean_processors,
        "within_target": f"{summary.within_target} of {summary.intervals}",
        "changes": len(summary.changes),
        "bounds": {"seconds_a_day": 60.0},
    }


def resident_mb() -> float:
    """Of this process."""
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory(quick: bool) -> dict[str, Any]:
    """Growth of this process over the last three quarters of a long simulation."""
    topology, workload = logo_detection()
    control = ControlSettings(max_sojourn_s=1.5)
    hours = 1.0 if quick else 8.0
    readings: list[float] = []

    def told(share: float) -> None:
        if share * 20 >= len(readings) + 1:
            readings.append(resident_mb())

    Simulation(
        topology, workload, (EngineSettings(), control, SimulatorSettings()), hours * 3600
    ).run(progress=told)
    grown = readings[-1] - readings[len(readings) // 4]
    return {"hours": hours, "readings_mb": readings, "grown_mb": grown, "bounds": {"grown_mb": 8.0}}


def nap(mean_s: float, value: Any) -> Any:
    """The value, after a sleep of an exponential time."""
    time.sleep(random.expovariate(1 / mean_s))
    return value


def handover(quick: bool) -> dict[str, Any]:
    """source → nap → out flat out on Spark with one and with three processors that always have
    something to do: what each takes for a tuple beyond its service time."""
    import engine as engine_benchmark

    from sojourn.engine.spark.session import session

    own = session(None, "local[8]", 8, "benchmark", 10)
    waits = {}
    for processors in (1, 3):
        t = sj.Topology("busy")
        source = t.source("source", sj.sources.iterable(itertools.count))
        value = t.map("nap", partial(nap, 0.020), source, processors=processors)
        t.sink("out", sj.sinks.call(engine_benchmark.nothing), value)
        with sj.start(t, spark=own, settings={"batch": 600}) as running:
            running.engine.hub.wait(lambda: False, 5)
            running.samples()
            running.engine.hub.wait(lambda: False, 10 if quick else 60)
            sample = running.samples().vertices["nap"]
            assert sample.service_s is not None
            waits[processors] = processors * sample.interval_s / sample.served - sample.service_s
            running.__exit__(ValueError, None, None)  # there is no need to drain it
    own.stop()
    return {
        "wait_ms": {str(n): wait_s * 1e3 for n, wait_s in waits.items()},
        "setting_ms": SimulatorSettings().hand_over_s * 1e3,
        "bounds": {},
    }


def spark(quick: bool) -> dict[str, Any]:
    """source → check → price → out at fixed processors on Spark, and simulated with the service
    times that were measured there."""
    import engine as engine_benchmark

    from sojourn.engine.spark.session import session

    seconds = 60.0 if quick else 240.0

    def topology() -> sj.Topology:
        t = sj.Topology("naps")
        value = t.source("source", sj.sources.paced(lambda n: n, rate=60.0))
        value = t.map("check", partial(nap, 0.025), value, processors=2)
        value = t.map("price", partial(nap, 0.040), value, processors=3)
        t.sink("out", sj.sinks.call(engine_benchmark.nothing), value)
        return t

    own = session(None, "local[8]", 8, "benchmark", 10)
    with sj.start(topology(), spark=own, settings={"batch": 60}) as running:
        running.engine.hub.wait(lambda: False, 10)
        running.engine.hub.tracker.collect()
        running.samples()
        sojourns: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            running.engine.hub.wait(lambda: False, 1)
            with running.engine.hub.changed:
                sojourns += running.engine.hub.tracker.take()
        measured = running.samples().vertices
    own.stop()
    loads = {}
    for name in ("check", "price"):
        sample = measured[name]
        assert sample.service_s is not None
        loads[name] = OperatorLoad(
            Distribution.of_moments(sample.service_s, sample.service_scv or 0.0)
        )
    simulated = SimulatedEngine(
        topology(), Workload(loads), SimulatorSettings(), EngineSettings(batch_s=60), seed=1
    )
    found: list[float] = []
    for _ in range(round(20 * seconds / 5)):
        simulated.advance(simulated.now_s + 5)
        found += [value for part in simulated.sojourns for value in part.tolist()]
        simulated.sojourns = []

    def both(values: list[float]) -> tuple[float, float]:
        return statistics.fmean(values), statistics.quantiles(values, n=100)[98]

    real, virtual = both(sojourns), both(found)
    return {
        "trees": {"spark": len(sojourns), "simulated": len(found)},
        "mean_ms": {"spark": real[0] * 1e3, "simulated": virtual[0] * 1e3},
        "p99_ms": {"spark": real[1] * 1e3, "simulated": virtual[1] * 1e3},
        "mean_error": abs(virtual[0] / real[0] - 1),
        "p99_error": abs(virtual[1] / real[1] - 1),
        "bounds": {"mean_error": 0.15, "p99_error": 0.25},
    }


PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "speed": speed,
    "day": day,
    "memory": memory,
    "handover": handover,
    "spark": spark,
}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"{' '.join(PARTS)}; all if none")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    missed = []
    for name in options.parts or PARTS:
        if name not in PARTS:
            parser.error(f"unknown part {name!r}; known: {', '.join(PARTS)}")
        print(f"{name} …", file=sys.stderr, flush=True)
        results[name] = found = PARTS[name](options.quick)
        for key, bound in found["bounds"].items():
            if found[key] > bound:
                missed.append(f"{name}: {key} is {found[key]:.3g}, bound {bound}")
        if not options.json:
            print(f"{name}: {json.dumps(found, indent=2)}", flush=True)
    if options.json:
        print(json.dumps(results, indent=2))
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
