"""Logo detection with seven processors, whose extractor emits a random number of parts at once, and
whose operators take the longer the more there are. On Spark its operators sleep. In virtual time it
is a queue with k servers after another, made for this, as the project's simulator draws times and
parts independently. Both draw frames, parts and times in the same way, with seeds of their own."""

import functools
import heapq
import itertools
import math
import statistics
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from paired import Part
from shapes import Again, Turns, mixed, nothing, varied

import sojourn as sj

SECONDS = {"extract": 0.22, "match": 0.07, "aggregate": 0.002}  # mean times of a call
MEAN, MOST = 4, 60  # parts of a frame
_DRAWN = 4096


@dataclass(frozen=True)
class Between(Turns):
    """Gaps that are uniform between two shares of their mean."""

    low: float = 0.0
    high: float = 2.0

    def _gaps(self, block: int) -> list[float]:
        gaps = np.random.default_rng([self.seed, block]).uniform(self.low, self.high, 1024)
        return [float(gap) for gap in gaps]


@functools.cache
def parts_drawn(seed: int) -> tuple[int, ...]:
    """Parts of frames: quiet scenes have one or two, busy ones many."""
    draw = np.random.default_rng([4, seed])
    counts = 1 + draw.poisson(draw.gamma(0.6, (MEAN - 1) / 0.6, _DRAWN))
    return tuple(int(count) for count in np.minimum(counts, MOST))


def units(parts: Sequence[int]) -> dict[str, tuple[float, float]]:
    """What the power of a frame's number of parts must be divided by, so that the mean time is as
    it should be, and that power."""
    return {
        "extract": (statistics.fmean(parts), 1.0),
        "match": (sum(n * math.sqrt(n) for n in parts) / sum(parts), 0.5),
    }


class Draw:
    """All that is drawn of frames, by a seed: how many parts each has, and how long calls take.
    Plain values, which go to workers with the code."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.parts = parts_drawn(seed)
        drawn = np.random.default_rng([5, seed]).gamma(10.0, 0.1, _DRAWN)
        self.wavers = (drawn / drawn.mean()).tolist()
        self.units = units(self.parts)

    def parts_of(self, frame: int) -> int:
        """How many a frame has."""
        return self.parts[mixed(frame, self.seed) % _DRAWN]

    def seconds_of(self, name: str, frame: int, part: int = 0) -> float:
        """How long a call takes: extraction as the number of parts, and matching as its root, as
        parts of busy frames are fuller; both waver by a third."""
        salt = zlib.crc32(f"{self.seed}.{name}".encode())
        waver = self.wavers[mixed(frame * (MOST + 1) + part, salt) % _DRAWN]
        if name == "aggregate":
            return float(SECONDS[name] * waver)
        unit, power = self.units[name]
        return float(SECONDS[name] * self.parts_of(frame) ** power / unit * waver)


class Extract(sj.Operator):
    """Sleeps, and sends all parts of a frame at once."""

    def __init__(self, drawn: Draw, faster: float) -> None:
        self.drawn, self.faster = drawn, faster

    def process(self, frame: int) -> Iterator[tuple[int, int]]:
        time.sleep(self.drawn.seconds_of("extract", frame) / self.faster)
        for part in range(self.drawn.parts_of(frame)):
            yield frame, part


class Onward(sj.Operator):
    """Sleeps, and sends the part on."""

    def __init__(self, name: str, drawn: Draw, faster: float) -> None:
        self.name, self.drawn, self.faster = name, drawn, faster

    def process(self, part: tuple[int, int]) -> tuple[int, int]:
        time.sleep(self.drawn.seconds_of(self.name, *part) / self.faster)
        return part


@dataclass(frozen=True)
class Bulky:
    """The application with frames at a rate: uniform between two bounds and drawn anew every
    second, or with gaps that are uniform between two shares of their mean."""

    name: str
    rate: float
    rates: tuple[float, float] | None
    gaps: tuple[float, float] | None
    faster: float
    drawn: int
    turn_s: float = 60.0
    service: Mapping[str, float] = field(default_factory=lambda: SECONDS)

    @property
    def seed(self) -> int:
        return zlib.crc32(f"{self.drawn}.{self.name}".encode())

    def pace(self) -> Turns:
        """When frames come."""
        if self.rates is None:
            assert self.gaps is not None
            mean_rate = self.rate * self.faster
            return Between(mean_rate, seed=self.seed, turn_s=self.turn_s, low=self.gaps[0],
                           high=self.gaps[1])  # fmt: skip
        steps = varied(self.seed, *self.rates, self.faster).steps
        ends = itertools.accumulate(seconds for seconds, _ in steps)
        some = [step for step, end in zip(steps, ends, strict=True) if end <= self.turn_s]
        off = self.rate * self.faster / statistics.fmean(rate for _, rate in some)
        return Turns([(s, rate * off) for s, rate in some], seed=self.seed, turn_s=self.turn_s)

    def topology(self, allocation: Mapping[str, int], sleep: bool = True) -> sj.Topology:
        """On Spark."""
        assert sleep
        t, drawn = sj.Topology(self.name), Draw(self.seed)
        frames = t.source("frames", Again(self.pace()))
        parts = t.operator(
            "extract", Extract(drawn, self.faster), frames, processors=allocation["extract"]
        )
        for name in ("match", "aggregate"):
            parts = t.map(
                name, Onward(name, drawn, self.faster), parts, processors=allocation[name]
            )
        t.sink("out", sj.sinks.call(nothing), parts)
        return t


@dataclass(frozen=True)
class Flow:
    """What a station has seen: tuples a second, and how long and how variable gaps and times of
    service are."""

    rate: float
    arrival_scv: float
    service_s: float
    service_scv: float


def served(arrivals: Sequence[float], times: Sequence[float], servers: int) -> list[float]:
    """When each tuple of a queue with so many servers is done, in the order of arrival."""
    free = [0.0] * servers
    done = []
    for arrived, takes in zip(arrivals, times, strict=True):
        ends = max(arrived, heapq.heappop(free)) + takes
        heapq.heappush(free, ends)
        done.append(ends)
    return done


def flow_of(arrivals: Sequence[float], times: Sequence[float]) -> Flow:
    """As it is measured."""
    gaps, takes = np.diff(np.array(arrivals)), np.array(times)
    return Flow(
        1 / float(gaps.mean()),
        float(gaps.var() / gaps.mean() ** 2),
        float(takes.mean()),
        float(takes.var() / takes.mean() ** 2),
    )


def simulated(
    shape: Bulky, allocation: Mapping[str, int], from_s: float, parts: int
) -> tuple[list[Part], dict[str, Flow]]:
    """One turn of the frames through three stations. Trees count that arrive from a time on, in so
    many parts of equal length."""
    frames = shape.pace().one
    done: list[tuple[float, int, int]] = [(at, number, 0) for number, at in enumerate(frames)]
    flows, drawn = {}, Draw(shape.seed)
    for name, servers in allocation.items():
        done.sort()
        arrivals = [at for at, _, _ in done]
        times = [drawn.seconds_of(name, frame, part) / shape.faster for _, frame, part in done]
        flows[name] = flow_of(arrivals, times)
        ends = served(arrivals, times, servers)
        done = [(end, frame, part) for end, (_, frame, part) in zip(ends, done, strict=True)]
        if name == "extract":
            done = [(end, frame, n) for end, frame, _ in done for n in range(drawn.parts_of(frame))]
    last: dict[int, float] = {}
    for end, frame, _ in done:
        last[frame] = max(last.get(frame, 0.0), end)
    width_s = (shape.turn_s - from_s) / parts
    found: list[list[float]] = [[] for _ in range(parts)]
    for frame, at in enumerate(frames):
        if at >= from_s:
            found[min(parts - 1, int((at - from_s) / width_s))].append(last[frame] - at)
    return [(len(s), math.fsum(s), math.fsum(one * one for one in s)) for s in found], flows
