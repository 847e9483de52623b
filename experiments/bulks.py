"""Logo detection with seven processors, whose extractor emits a random number of parts at once, and
whose operators take the longer the more there are. On Spark its operators sleep. In virtual time it
is a queue with k servers after another, made for this, as the project's simulator draws times and
parts independently. Both have the same frames, parts and times."""

import heapq
import itertools
import math
import statistics
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from paired import Part
from shapes import Again, Turns, mixed, varied

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


def _parts_drawn() -> tuple[int, ...]:
    """Parts of frames: quiet scenes have one or two, busy ones many."""
    draw = np.random.default_rng(4)
    counts = 1 + draw.poisson(draw.gamma(0.6, (MEAN - 1) / 0.6, _DRAWN))
    return tuple(int(count) for count in np.minimum(counts, MOST))


def _units() -> dict[str, tuple[float, float]]:
    """What the power of a frame's number of parts must be divided by, so that the mean time is as
    it should be, and that power."""
    return {
        "extract": (statistics.fmean(PARTS), 1.0),
        "match": (sum(n * math.sqrt(n) for n in PARTS) / sum(PARTS), 0.5),
    }


def _wavers() -> tuple[float, ...]:
    drawn = np.random.default_rng(5).gamma(10.0, 0.1, _DRAWN)
    return tuple(float(one) for one in drawn / drawn.mean())


# Plain values, which go to workers with the code.
PARTS, WAVERS = _parts_drawn(), _wavers()
UNITS = _units()


def parts_of(frame: int) -> int:
    """How many a frame has."""
    return PARTS[mixed(frame, 17) % _DRAWN]


def seconds_of(name: str, frame: int, part: int = 0) -> float:
    """How long a call takes: extraction as the number of parts, and matching as its root, as parts
    of busy frames are fuller; both waver by a third."""
    waver = WAVERS[mixed(frame * (MOST + 1) + part, zlib.crc32(name.encode())) % _DRAWN]
    if name == "aggregate":
        return SECONDS[name] * waver
    unit, power = UNITS[name]
    return float(SECONDS[name] * parts_of(frame) ** power / unit * waver)


class Extract(sj.Operator):
    """Sleeps, and sends all parts of a frame at once."""

    def __init__(self, faster: float) -> None:
        self.faster = faster

    def process(self, frame: int) -> Iterator[tuple[int, int]]:
        time.sleep(seconds_of("extract", frame) / self.faster)
        for part in range(parts_of(frame)):
            yield frame, part


class Onward(sj.Operator):
    """Sleeps, and sends the part on."""

    def __init__(self, name: str, faster: float) -> None:
        self.name, self.faster = name, faster

    def process(self, part: tuple[int, int]) -> tuple[int, int]:
        time.sleep(seconds_of(self.name, *part) / self.faster)
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
        return zlib.crc32(self.name.encode())

    def pace(self) -> Turns:
        """When frames come."""
        if self.rates is None:
            assert self.gaps is not None
            mean_rate = self.rate * self.faster
            return Between(mean_rate, seed=self.drawn, turn_s=self.turn_s, low=self.gaps[0],
                           high=self.gaps[1])  # fmt: skip
        steps = varied(self.drawn, *self.rates, self.faster).steps
        ends = itertools.accumulate(seconds for seconds, _ in steps)
        some = [step for step, end in zip(steps, ends, strict=True) if end <= self.turn_s]
        off = self.rate * self.faster / statistics.fmean(rate for _, rate in some)
        return Turns([(s, rate * off) for s, rate in some], seed=self.drawn, turn_s=self.turn_s)

    def topology(self, allocation: Mapping[str, int], sleep: bool = True) -> sj.Topology:
        """On Spark."""
        assert sleep
        t = sj.Topology(self.name)
        frames = t.source("frames", Again(self.pace()))
        parts = t.operator(
            "extract", Extract(self.faster), frames, processors=allocation["extract"]
        )
        for name in ("match", "aggregate"):
            parts = t.map(name, Onward(name, self.faster), parts, processors=allocation[name])
        t.sink("out", sj.sinks.call(_nothing), parts)
        return t


def _nothing(_value: Any) -> None:
    """A result that nobody reads."""


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
    flows = {}
    for name, servers in allocation.items():
        done.sort()
        arrivals = [at for at, _, _ in done]
        times = [seconds_of(name, frame, part) / shape.faster for _, frame, part in done]
        flows[name] = flow_of(arrivals, times)
        ends = served(arrivals, times, servers)
        done = [(end, frame, part) for end, (_, frame, part) in zip(ends, done, strict=True)]
        if name == "extract":
            done = [(end, frame, n) for end, frame, _ in done for n in range(parts_of(frame))]
    last: dict[int, float] = {}
    for end, frame, _ in done:
        last[frame] = max(last.get(frame, 0.0), end)
    width_s = (shape.turn_s - from_s) / parts
    found: list[list[float]] = [[] for _ in range(parts)]
    for frame, at in enumerate(frames):
        if at >= from_s:
            found[min(parts - 1, int((at - from_s) / width_s))].append(last[frame] - at)
    return [(len(s), math.fsum(s), math.fsum(one * one for one in s)) for s in found], flows
