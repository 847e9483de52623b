"""What control itself costs: the parts overhead and tick of `control.py`, which has their rules."""

import functools
import itertools
import random
import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import engine as engine_benchmark
from pyspark.sql import SparkSession

import sojourn as sj
from sojourn.engine.wire import messages
from sojourn.engine.wire.bundle import FrameReader, Trace, send_frame
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import code, feeder, router, values, worker
from sojourn.paths import Critical
from sojourn.ports import Allocation, Pressure, Sample, Samples, Sojourn
from sojourn.settings import ControlSettings, EngineSettings
from sojourn.wiring import control_loop

ROUTE = Route(
    "next", None, feedback=False, level=1, first_partition=0, executors=1, key=None, shards=0
)


def number(n: int) -> int:
    """A value of a paced source."""
    return n


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
        made.reader.ahead.extend((engine_benchmark.PAD, "", None, now) for _ in range(500))
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
    cost = added_us / tuple_us
    return {
        "loops": found,
        "chain_us_per_tuple": tuple_us,
        "cost_in_throughput": cost,
        "missed": [f"{cost:.1%} of throughput, at most 2 %"] if cost > 0.02 else [],
    }


class Wavering:
    """An engine of 100 operators, of which each tells something else every second."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.time_s, self.draw = names, 1000.0, random.Random(1)
        self.on_pressure: Callable[[Pressure], None] | None = None

    def samples(self, peek: bool = False) -> Samples:  # noqa: ARG002
        """A second later."""
        self.time_s += 1
        came = round(self.draw.gauss(100, 10))
        vertices = {"in": self._sample("in", came, {self.names[0]: came})}
        for name, onward in zip(self.names, [*self.names[1:], None], strict=True):
            served = round(self.draw.gauss(100, 10))
            vertices[name] = self._sample(name, served, {onward: served} if onward else {})
        sojourns = sorted(self.draw.gammavariate(100, 0.024) for _ in range(100))
        paths = {name: Critical(1.0, self.draw.gauss(0.024, 0.002)) for name in self.names}
        sojourn = replace(Sojourn.of(sojourns), critical=paths)
        return Samples(self.time_s, vertices, sojourn, 0)

    def _sample(self, name: str, count: int, emitted: dict[str, int]) -> Sample:
        queue, service_s = self.draw.randrange(5), self.draw.gauss(0.02, 0.002)
        scvs = self.draw.gauss(1.0, 0.1), self.draw.gauss(1.0, 0.1)
        return Sample(
            name,
            1.0,
            3,
            3,
            queue,
            count,
            count,
            float(count),
            scvs[0],
            service_s,
            scvs[1],
            0.67,
            emitted,
            lag_s=None,
            together={to: {to: sent} for to, sent in emitted.items()},
        )

    def allocation(self) -> dict[str, int]:
        """Three each."""
        return dict.fromkeys(self.names, 3)

    def resize(self, allocation: Allocation) -> None:
        """As if."""


def tick(_spark: SparkSession, quick: bool) -> dict[str, Any]:
    """CPU time of the tick itself, over the interval of a second."""
    names = [f"operator-{i}" for i in range(100)]
    t = sj.Topology("hundred")
    value: sj.Vertex[int] = t.source("in", sj.sources.paced(number, rate=100.0))
    for name in names:
        value = t.map(name, number, value, processors=3)
    control = control_loop(Wavering(names), t, ControlSettings(max_sojourn_s=3.5))
    for _ in range(130):  # until the memory is full
        control.tick()
    ticks, before_s = (50 if quick else 200), control.busy_s
    decided = [control.tick().decision.action for _ in range(ticks)]
    each_s = (control.busy_s - before_s) / ticks
    share = each_s / control.settings.interval_s
    return {
        "ms_per_tick": each_s * 1e3,
        "share_of_a_core": share,
        "decided": {str(action): decided.count(action) for action in dict.fromkeys(decided)},
        "missed": [f"{share:.2%} of a core, at most 1 %"] if share > 0.01 else [],
    }
