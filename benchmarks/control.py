"""How well the control loop keeps its promise on Spark, with operators that sleep, so that two
cores can host 22 processors.

    python benchmarks/control.py [--json] [--quick] [part …]

    step      a load step of twice the rate within one batch: how many intervals until the sojourn
              is back under its target for good, and the highest mean over one interval around
              changes
    boundary  the end of a batch under steady load: the interval with it beside those without
    steady    ten minutes (one with --quick) of Poisson and of bursty arrivals: how many changes
    accuracy  estimated against measured mean sojourn at utilizations from 0.5 to 0.9, by the bare
              model and corrected by what was learned while it ran
    overhead  what measuring adds to the CPU time of a tuple
    tick      what one tick costs the driver at 100 operators
    machines  adding and removing a machine of a standalone cluster: how long tuples wait

Ends with code 1 where a figure misses its bound.
"""

import argparse
import functools
import itertools
import json
import math
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import engine as engine_benchmark
from pyspark.sql import SparkSession

import sojourn as sj
from sojourn import configuration
from sojourn.control.controller import Record
from sojourn.control.model import network_of
from sojourn.engine.spark.session import session
from sojourn.engine.wire import messages
from sojourn.engine.wire.bundle import FrameReader, Trace, send_frame
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import code, feeder, router, values, worker
from sojourn.ports import Allocation, Pressure, Sample, Samples, Sojourn
from sojourn.queueing.network import Network
from sojourn.settings import ControlSettings, EngineSettings
from sojourn.wiring import control_loop, settings_for

SLEEPS = {"check": 0.025, "price": 0.040}
ROUTE = Route(
    "next", None, feedback=False, level=1, first_partition=0, executors=1, key=None, shards=0
)


def nap(mean_s: float, value: Any) -> Any:
    """The value, after a sleep of an exponential time."""
    time.sleep(random.expovariate(1 / mean_s))
    return value


def chain(source: sj.Source, processors: Sequence[int]) -> sj.Topology:
    """source → check → price → sink."""
    t = sj.Topology("control")
    value = t.source("source", source)
    for (name, mean_s), count in zip(SLEEPS.items(), processors, strict=True):
        value = t.map(name, functools.partial(nap, mean_s), value, processors=count)
    t.sink("out", sj.sinks.call(lambda _: None), value)
    return t


def controlled(
    spark: SparkSession | None,
    topology: sj.Topology,
    seconds: float,
    *,
    settings: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
    **targets: Any,
) -> tuple[list[Record], sj.Running]:
    """Run under control for a while."""
    records: list[Record] = []
    given = configuration.from_mapping(settings or {})
    with sj.Running(
        topology,
        *settings_for(targets, over=[given], spark=spark),
        spark=spark,
        checkpoint=checkpoint,
        listeners=[records.append],
    ) as running:
        running.wait(seconds)
    return records, running


def step(spark: SparkSession, quick: bool) -> dict[str, Any]:
    """40 tuples/s for 40 s, then 80; target 200 ms, intervals of 5 s."""
    before_s, target_s = 40.0, 0.2
    results: list[dict[str, Any]] = []
    for seed in range(1 if quick else 3):
        source = sj.sources.paced(
            lambda n: n, rate=((before_s, 40.0), (90.0, 80.0)), arrivals="poisson", seed=seed
        )
        records, _ = controlled(
            spark, chain(source, (2, 3)), 95, max_sojourn=target_s, settings={"batch": "5min"}
        )
        means = [(r.samples.sojourn.mean_s if r.samples.sojourn else None) for r in records]
        rates = [r.measure.external_rate if r.measure else 0.0 for r in records]
        first = next(i for i, rate in enumerate(rates) if rate > 55)
        over = [(mean or 9) > target_s for mean in means[first:]]
        back = len(over) - over[::-1].index(True) if True in over else 0
        changes = [i for i, r in enumerate(records) if r.applied]
        peaks = []
        for i in changes:
            around = [m for m in means[i + 1 : i + 3] if m is not None]
            still = [m for m in (means[i], means[min(i + 4, len(means) - 1)]) if m is not None]
            if around and still:
                peaks.append(max(around) / max(still))
        results.append(
            {
                "back_after_intervals": back,
                "peak_over_larger_of_before_and_after": max(peaks, default=0.0),
                "changes": [r.decision.reason for r in records if r.applied],
                "means_ms": [None if m is None else round(m * 1e3) for m in means],
            }
        )
    return {
        "runs": results,
        "worst_back_after_intervals": max(r["back_after_intervals"] for r in results),
        "worst_peak": max(r["peak_over_larger_of_before_and_after"] for r in results),
        "bounds": {"back_after_intervals": 3, "peak": 1.5},
    }


def boundary(spark: SparkSession, quick: bool) -> dict[str, Any]:
    """40 tuples/s at fixed processors with a batch every 20 s: how far the intervals that contain
    a batch's end, one in four, lie above the others."""
    records, _ = controlled(
        spark,
        chain(sj.sources.paced(number, rate=40.0, arrivals="poisson"), (2, 3)),
        65 if quick else 165,
        max_sojourn="10s",
        min_sojourn="1us",
        settings={"batch": "20s"},
    )
    means = sorted(r.samples.sojourn.mean_s for r in records[2:] if r.samples.sojourn)
    ends = len(means) // 4
    without, with_end = statistics.median(means[:-ends]), statistics.median(means[-ends:])
    return {
        "intervals": len(means),
        "mean_without_ms": without * 1e3,
        "mean_of_the_highest_quarter_ms": with_end * 1e3,
        "ratio": with_end / without,
    }


def number(n: int) -> int:
    """A value of a paced source."""
    return n


def steady(spark: SparkSession, quick: bool) -> dict[str, Any]:
    """40 tuples/s, Poisson; and bursts of a second with 80/s between two with 20/s. Each starts
    with the processors that it ends up with if it starts with more."""
    seconds = 60.0 if quick else 600.0
    found = {}
    schedule = tuple(
        step for _ in range(round(seconds / 3) + 60) for step in ((2.0, 20.0), (1.0, 80.0))
    )
    sources = {
        "poisson": (sj.sources.paced(number, rate=40.0, arrivals="poisson"), (2, 3)),
        "bursty": (sj.sources.paced(number, rate=schedule, arrivals="poisson"), (2, 4)),
    }
    for name, (source, processors) in sources.items():
        records, ended = controlled(
            spark, chain(source, processors), seconds + 60, max_sojourn="200ms"
        )
        summary = ended.summary
        start = records[0].time_s + 60  # Spark has just started
        late = [r for r in records if r.applied and r.time_s > start]
        found[name] = {
            "changes_in_the_first_minute": len(summary.changes) - len(late),
            "changes_after": len(late),
            "reasons": [r.decision.reason for r in late],
            "within_target": f"{summary.within_target} of {summary.intervals}",
            "mean_ms": (summary.mean_sojourn_s or 0) * 1e3,
        }
    return {
        "seconds": seconds,
        **found,
        "changes": sum(f["changes_after"] for f in found.values()),
        "bounds": {"changes": 0},
    }


def _uncorrected(record: Record) -> float:
    """What the model makes of the interval's own measures, without the bias learned."""
    network = network_of(record.measure, record.settings) if record.measure else None
    if not isinstance(network, Network):
        return math.nan
    return network.mean_sojourn(
        {n: record.samples.vertices[n].processors for n in network.stations}
    )


def accuracy(spark: SparkSession, quick: bool) -> dict[str, Any]:
    """One M/M/k operator of 20 ms with 4 processors, at several utilizations: the closer to one,
    the longer a mean takes to settle. Within one batch, whose end no model knows of; the first
    third is for learning what carrying tuples costs."""
    points = []
    for utilization, minutes in ((0.5, 1.5), (0.7, 2), (0.8, 2.5), (0.9, 6)):
        rate = utilization * 4 / 0.020
        t = sj.Topology("accuracy")
        source = t.source("source", sj.sources.paced(number, rate=rate, arrivals="poisson"))
        t.sink(
            "out",
            sj.sinks.call(lambda _: None),
            t.map("nap", functools.partial(nap, 0.020), source, processors=4),
        )
        records, _ = controlled(
            spark,
            t,
            minutes * (20 if quick else 60) + 15,
            max_sojourn="10s",
            min_sojourn="1us",
            settings={"measure.window": "30s", "batch": "10min"},
        )
        records = records[len(records) // 3 :]
        found = [r.samples.sojourn for r in records if r.samples.sojourn is not None]
        measured = sum(s.mean_s * s.count for s in found) / sum(s.count for s in found)
        later = [r for r in records if r.estimate_s is not None]
        estimated = statistics.fmean(r.estimate_s or 0.0 for r in later)
        bare = statistics.fmean(x for r in later if math.isfinite(x := _uncorrected(r)))
        points.append(
            {
                "utilization": utilization,
                "measured_ms": measured * 1e3,
                "bare_model_ms": bare * 1e3,
                "bare_error": abs(bare / measured - 1),
                "estimated_ms": estimated * 1e3,
                "error": abs(estimated / measured - 1),
            }
        )
    worst = max(p["error"] for p in points)
    return {"points": points, "worst_error": worst, "bounds": {"worst_error": 0.15}}


class Silent(feeder.Feeder):
    """A source's loop that tracks no tuple."""

    def _learn_pace(self, gaps: int, gap_s: float) -> None:  # noqa: ARG002
        self.chance = 0.0


def feeding(measured: bool) -> Callable[[], None]:
    """Has a source's loop send 500 tuples."""
    kind = feeder.Feeder if measured else Silent
    made = kind(sj.sources.iterable(tuple), (ROUTE,), b"", EngineSettings().tracked_per_s, 1 << 25)
    made.last = time.monotonic()
    made._learn_pace(1, 5e-5)  # as at 20 000 a second

    def send() -> None:
        now = time.monotonic()
        made.reader.ahead.extend((engine_benchmark.PAD, None, now) for _ in range(500))
        messages.encode(made.send_due(now))

    return send


def working(measured: bool, size: int) -> Callable[[], None]:
    """Has a worker's loop process that many tuples that are handed over together through a socket;
    of 20 000 a second 200 are tracked."""
    rng = random.Random(1)
    payloads = [values.dumps(engine_benchmark.PAD)] * size
    frames = [
        messages.encode(
            messages.Work(
                payloads,
                [],
                [Trace(i, 1, 2) for i in range(size) if measured and rng.random() < 0.01],
            )
        )
        for _ in range(1000)
    ]
    made = code.OperatorCode(engine_benchmark.same, "same", code.Shared())
    addresses, timer = router.Router((ROUTE,), 1), worker._Timer(1 if measured else 0)
    turn = itertools.cycle(frames)
    here, there = socket.socketpair()
    answers, asked = FrameReader(here), FrameReader(there)

    def work() -> None:
        send_frame(here, next(turn))
        message = messages.decode_to_worker(asked.read() or b"")
        assert isinstance(message, messages.Work)
        send_frame(there, messages.encode(worker._process(message, made, addresses, False, timer)))
        answers.read()

    return work


def overhead(spark: SparkSession, quick: bool) -> dict[str, Any]:
    """What measuring adds to the CPU time of the two loops that measure, a source's and a worker's,
    in turns with and without in one process; and what that is of all the CPU time that a tuple
    takes in the chain of three no-op operators flat out on Spark, which is the share of throughput
    that it costs. Whole runs with and without waver far more on a shared machine than it costs."""
    rounds = 20 if quick else 200
    loops = {"source, 500 at once": (500, feeding)}
    for size in (8, 64, 500):
        loops[f"worker, {size} at once"] = size, functools.partial(working, size=size)
    found: dict[str, Any] = {}
    for name, (size, make) in loops.items():
        ways = {measured: make(measured) for measured in (True, False)}
        times = 10_000 // (size + 30)
        costs, spent = [], []
        for _ in range(rounds):
            taken = dict.fromkeys(ways, 0.0)
            for measured in (True, False, False, True):
                began = time.process_time()
                for _ in range(times):
                    ways[measured]()
                taken[measured] += time.process_time() - began
            costs.append(taken[True] / taken[False] - 1)
            spent.append(taken[False] / (2 * times * size))
        found[name] = {
            "us_per_tuple": statistics.median(spent) * 1e6,
            "us_for_measuring": statistics.median(spent) * statistics.median(costs) * 1e6,
            "share_of_the_loop": statistics.median(costs),
            "standard_error": statistics.stdev(costs) / len(costs) ** 0.5,
        }
    chains = [
        engine_benchmark.flat_out(spark, 100_000 if quick else 400_000)
        for _ in range(1 if quick else 5)
    ]
    tuple_us = statistics.median(flat["cpu_us_per_tuple"] for flat in chains)
    source, work = found["source, 500 at once"], found["worker, 64 at once"]
    added_us = source["us_for_measuring"] + 3 * work["us_for_measuring"]
    return {
        "loops": found,
        "chain_us_per_tuple": tuple_us,
        "cost_in_throughput": added_us / tuple_us,
        "bounds": {"cost_in_throughput": 0.02},
    }


class Still:
    """An engine of 100 operators that always says the same."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.time_s = 1000.0
        self.on_pressure: Callable[[Pressure], None] | None = None

    def samples(self, peek: bool = False) -> Samples:  # noqa: ARG002
        """The same again, later."""
        self.time_s += 5
        vertices = {"in": self._sample("in", {self.names[0]: 500})}
        for name, onward in zip(self.names, [*self.names[1:], None], strict=True):
            vertices[name] = self._sample(name, {onward: 500} if onward else {})
        return Samples(self.time_s, vertices, Sojourn(500, 2.0, 2.0, 3.0, 4.0, 5.0), 0)

    def _sample(self, name: str, emitted: dict[str, int]) -> Sample:
        return Sample(
            name, 5.0, 3, 3, 2, 500, 500, 100.0, 1.0, 0.02, 1.0, 0.67, emitted, lag_s=None
        )

    def allocation(self) -> dict[str, int]:
        """Three each."""
        return dict.fromkeys(self.names, 3)

    def resize(self, allocation: Allocation) -> None:
        """As if."""


def tick(_spark: SparkSession, quick: bool) -> dict[str, Any]:
    """CPU time of the tick itself over the interval of five seconds."""
    names = [f"operator-{i}" for i in range(100)]
    t = sj.Topology("hundred")
    value: sj.Vertex[int] = t.source("in", sj.sources.paced(number, rate=100.0))
    for name in names:
        value = t.map(name, number, value, processors=3)
    control = control_loop(Still(names), t, ControlSettings(max_sojourn_s=2.5))
    ticks = 50 if quick else 200
    for _ in range(ticks):
        control.tick()
    share = control.busy_s / ticks / control.settings.interval_s
    return {
        "ms_per_tick": control.busy_s / ticks * 1e3,
        "share_of_a_core": share,
        "bounds": {"share_of_a_core": 0.01},
    }


def machines(_spark: SparkSession, quick: bool) -> dict[str, Any]:
    """A standalone cluster; the load needs a second machine, and later does not."""
    source = sj.sources.paced(
        number, rate=((40.0, 20.0), (60.0, 90.0), (200.0, 15.0)), arrivals="poisson"
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        records, ended = controlled(
            None,
            chain(source, (1, 2)),
            180 if quick else 240,
            checkpoint=checkpoint,
            max_sojourn="300ms",
            settings={
                "machines.pool": "standalone",
                "machines.processors": 6,
                "machines.cores": 5,
                "machines.most": 3,
                "change.quiet": "20s",
            },
        )
    assert ended.loop is not None
    answers = [f"{a.have} of {a.wanted}: {a.words}" for a in ended.loop.negotiator.answers]
    return {
        "answers": answers,
        "means_ms": [
            round(r.samples.sojourn.mean_s * 1e3) if r.samples.sojourn else None for r in records
        ],
        "processors": [sum(r.wanted.values()) for r in records],
        "capacity": [r.capacity for r in records],
        "restarts": ended.restarts,
    }


PARTS: dict[str, Callable[[SparkSession, bool], dict[str, Any]]] = {
    "tick": tick,
    "step": step,
    "boundary": boundary,
    "accuracy": accuracy,
    "overhead": overhead,
    "steady": steady,
    "machines": machines,
}
NAMES = {"back_after_intervals": "worst_back_after_intervals", "peak": "worst_peak"}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"{' '.join(PARTS)}; all if none")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    options = parser.parse_args()
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"unknown part {name!r}; known: {', '.join(PARTS)}")
    wanted = options.parts or list(PARTS)
    spark = None
    results: dict[str, Any] = {}
    missed = []
    for name in sorted(wanted, key=list(PARTS).index):
        if name == "machines":  # which has a cluster, and so a Spark, of its own
            if spark is not None:
                spark.stop()
        elif spark is None and name != "tick":
            spark = session(None, "local[16]", 16, "benchmark", 10)
        print(f"{name} …", file=sys.stderr, flush=True)
        results[name] = found = PARTS[name](spark, options.quick)  # type: ignore[arg-type]
        for key, bound in found.get("bounds", {}).items():
            if found[NAMES.get(key, key)] > bound:
                missed.append(f"{name}: {key} is {found[NAMES.get(key, key)]:.3g}, bound {bound}")
        if not options.json:
            print(f"{name}: {json.dumps(found, indent=2)}", flush=True)
    if options.json:
        print(json.dumps(results, indent=2))
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
