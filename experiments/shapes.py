"""Topologies by their rates, times of service and gains: as the papers place them, and as the
applications of `examples/` are. Their operators sleep on Spark and are never called in the
simulator."""

import importlib
import itertools
import random
import statistics
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cpu_times import kept

import sojourn as sj
from sojourn.queueing import Network, Station, traffic
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload


def example(name: str) -> Any:
    """One of the applications that come with the project."""
    folder = str(Path(__file__).parent.parent / "examples")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


_DRAWN = 4096  # service times that are drawn beforehand
_MIXED = 2**32


@dataclass(frozen=True)
class Shape:
    """A topology by its rates, times of service and gains; the papers' with their own names."""

    name: str
    sources: Mapping[str, SourceLoad]
    service: Mapping[str, Distribution]
    gains: Mapping[tuple[str, str], float]
    feedback: frozenset[tuple[str, str]] = frozenset()
    mean_rates: Mapping[str, float] = field(default_factory=dict)  # where rates change all the time
    turn_s: float | None = None  # on Spark, all that comes does so again after so many seconds
    reserved: int = 0  # processors of an operator that nobody sends anything
    drawn: int = 0  # another one draws other gaps, times and numbers of results

    @property
    def rate(self) -> float:
        """Tuples per second from outside, to begin with or on average."""
        return sum(map(self.rate_of, self.sources))

    def rate_of(self, source: str) -> float:
        """That of one source."""
        return self.mean_rates.get(source, self.sources[source].steps[0][1])

    @property
    def seed(self) -> int:
        """Another one for each, so that chance does not do the same to all."""
        return zlib.crc32(f"{self.drawn}.{self.name}".encode())

    def seed_of(self, vertex: str) -> int:
        """Another one for each of its sources and operators."""
        return zlib.crc32(f"{self.seed}.{vertex}".encode())

    def network(self, model: str = "mmk") -> Network:
        """As the queueing model sees it."""
        external = dict.fromkeys(self.service, 0.0)
        for (sender, receiver), gain in self.gains.items():
            if sender in self.sources:
                external[receiver] += gain * self.rate_of(sender)
        inner = {edge: gain for edge, gain in self.gains.items() if edge[0] in self.service}
        rates = traffic(external, inner)
        arrivals = statistics.fmean(_scv(load.gap) for load in self.sources.values())
        stations = {}
        for name, service in self.service.items():
            scvs = (1.0, 1.0) if model == "mmk" else (arrivals, _scv(service))
            stations[name] = Station(rates[name], 1 / service.mean_s, *scvs)
        return Network(stations, self.rate)

    def topology(self, allocation: Mapping[str, int], sleep: bool) -> sj.Topology:
        """With operators that sleep, or that are never called."""
        t = sj.Topology(self.name)
        made: dict[str, Any] = {}
        for name, load in self.sources.items():
            arrivals = {0.0: "constant", 1.0: "poisson"}.get(_scv(load.gap), "uniform")
            pace: Any = {"rate": self._steps(name), "arrivals": arrivals}
            seed = self.seed_of(name)
            made[name] = t.source(
                name,
                sj.sources.paced(_number, seed=seed, **pace)
                if self.turn_s is None
                else Again(Turns(**pace, seed=seed, turn_s=self.turn_s)),
            )
        for name, service in self.service.items():
            onward = {r: g for (s, r), g in self.gains.items() if s == name}
            code: Any = Nap(self.seed_of(name), service, onward) if sleep else _number
            inputs = [
                made[s] if s in self.sources else made[s][r]
                for s, r in self.gains
                if r == name and (s, r) not in self.feedback
            ]
            made[name] = t.operator(name, code, *inputs, processors=allocation[name])
        last = list(self.service)[-1]
        t.sink("out", sj.sinks.call(nothing), made[last])
        if self.reserved:
            t.operator("reserved", _none, made[last]["never"], executors=self.reserved)
        for sender, receiver in self.feedback:
            t.feedback(made[sender][receiver], made[receiver])
        return t

    def _steps(self, source: str) -> tuple[tuple[float, float], ...]:
        """The rates of a source; those of a turn alone have their mean if they change all the
        time."""
        steps = self.sources[source].steps
        if self.turn_s is None or source not in self.mean_rates:
            return steps
        ends = itertools.accumulate(seconds for seconds, _ in steps)
        some = [step for step, end in zip(steps, ends, strict=True) if end <= self.turn_s]
        off = self.mean_rates[source] / statistics.fmean(rate for _, rate in some)
        return tuple((seconds, rate * off) for seconds, rate in some)

    def workload(self) -> Workload:
        """For the simulator."""
        operators = {}
        last = list(self.service)[-1]
        for name, service in self.service.items():
            gains = {f"{r}[{r}]": g for (s, r), g in self.gains.items() if s == name}
            if name == last:
                gains["out"] = 0.0
                gains |= {"reserved[never]": 0.0} if self.reserved else {}
            operators[name] = OperatorLoad(service, gains)
        if self.reserved:
            operators["reserved"] = OperatorLoad(Distribution("constant", 0.001))
        return Workload(operators, self.sources)


def _scv(distribution: Distribution) -> float:
    if distribution.scv is not None:
        return distribution.scv
    return {"constant": 0.0, "exponential": 1.0, "uniform": 1 / 3}[distribution.kind]


def _number(value: Any) -> Any:
    return value


def _none(_value: Any) -> list[Any]:
    return []


def nothing(_value: Any) -> None:
    """A result that nobody reads."""


class Nap(sj.Operator):
    """Sleeps, and sends on as many as it should, each receiver by its name. How long a tuple takes,
    and what becomes of it, follow from its number and the seed: the same for every turn of the
    traffic, and for every allocation."""

    def __init__(self, seed: int, service: Distribution, gains: Mapping[str, float]) -> None:
        self.seed = seed
        self.gains = [(to, gain, zlib.crc32(f"{seed}.{to}".encode())) for to, gain in gains.items()]
        drawn = service.draw(np.random.default_rng(seed), _DRAWN)
        self.drawn = (drawn * (service.mean_s / drawn.mean())).tolist()

    def process(self, value: int) -> Iterator[Any]:
        time.sleep(self.drawn[mixed(value, self.seed) % _DRAWN])
        for receiver, gain, salt in self.gains:
            more = mixed(value, salt) / _MIXED < gain - int(gain)
            for number in range(int(gain) + more):
                yield sj.Output(receiver, mixed(value, salt + number + 1))


def mixed(value: int, salt: int) -> int:
    """A number up to _MIXED that looks drawn by chance."""
    found = (value * 0x9E3779B97F4A7C15 + salt * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    found = ((found ^ (found >> 31)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return found >> 32


@dataclass(frozen=True)
class Turns(sj.sources.Pace):
    """A pace that begins anew after so many seconds. `one` has the times of a turn; it is no cached
    property, whose lock could not go to a worker."""

    turn_s: float = 60.0
    one: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        times = (time_s for time_s, _ in super().times())
        one = tuple(itertools.takewhile(lambda time_s: time_s < self.turn_s, times))
        object.__setattr__(self, "one", one)

    def times(self, skip: int = 0, expected: float = 0.0) -> Iterator[tuple[float, float]]:  # noqa: ARG002
        for number in itertools.count(skip):
            turn, within = divmod(number, len(self.one))
            time_s = turn * self.turn_s + self.one[within]
            yield time_s, time_s


class Again(sj.Source[int]):
    """The numbers of the tuples within their turn."""

    def __init__(self, pace: Turns) -> None:
        self.pace: Turns = pace

    def read(self, position: Any) -> Iterator[tuple[int, Any]]:
        for number in itertools.count(position or 0):
            yield number % len(self.pace.one), number + 1


def exponential(**means_s: float) -> dict[str, Distribution]:
    """Service times by their means."""
    return {name: Distribution("exponential", mean_s) for name, mean_s in means_s.items()}


FRAMES = (1.0, 25.0)  # a second, drawn anew every second
MEAN_FRAMES = 13.0
_SECONDS = 7200  # of frame rates; the last goes on


def varied(seed: int, low: float, high: float, scale: float = 1.0) -> SourceLoad:
    """Even gaps at a rate that is uniform between two, drawn anew every second; `scale` makes
    seconds shorter and rates higher."""
    draw = random.Random(f"{seed} {low} {high}")
    steps = tuple((1.0 / scale, draw.uniform(low, high) * scale) for _ in range(_SECONDS))
    # The mean of a sample is that of the distribution, so that it is known how many come.
    off = (low + high) / 2 * scale / statistics.fmean(rate for _, rate in steps)
    return SourceLoad(
        tuple((seconds, rate * off) for seconds, rate in steps), Distribution("constant", 1.0)
    )


def vld(rate: float = 13.0, scale: float = 1.0, drawn: int | None = None) -> Shape:
    """Video logo detection; `scale` makes times shorter and rates higher. Gaps are uniform, or with
    the seed `drawn` rates are as printed: uniform in [1, 25] each second."""
    gaps = SourceLoad(((1.0, rate * scale),), Distribution("uniform", 1.0))
    return Shape(
        "vld",
        {"frames": gaps if drawn is None else varied(drawn, *FRAMES, scale)},
        exponential(extract=0.475 / scale, match=0.520 / scale, aggregate=0.012 / scale),
        {("frames", "extract"): 1, ("extract", "match"): 1, ("match", "aggregate"): 1},
        mean_rates={} if drawn is None else {"frames": MEAN_FRAMES * scale},
    )


def fpd(slower: float = 15.0, load: float = 1.0) -> Shape:
    """Frequent pattern detection, slower so that Python carries the tuples with ease; `load` makes
    its rates higher."""
    rate = SourceLoad(((1.0, load * 320.0 / slower),))
    return Shape(
        "fpd",
        {"entering": rate, "leaving": rate},
        exponential(generate=0.0068 * slower, detect=0.0036 * slower, report=0.0035 * slower),
        {
            ("entering", "generate"): 1,
            ("leaving", "generate"): 1,
            ("generate", "detect"): 4,
            ("detect", "detect"): 0.05,
            ("detect", "report"): 0.15,
        },
        frozenset({("detect", "detect")}),
    )


def real(name: str, seed: int = 0) -> Shape:
    """An application of `examples/` with the CPU times and gains of its code in the committed
    sample, all times longer by one factor, such that 17 processors are busy with 250 tuples a
    second at all operators together. Logo detection has the paper's rates."""
    calls = kept(name)
    service, gains = {}, {}
    for operator, told in calls.items():
        service[operator] = Distribution.of_moments(told["mean_ms"] / 1e3, _bounded(told["scv"]))
        for receiver, gain in told["gains"].items():
            gains[operator, receiver] = gain
    feedback = frozenset(edge for edge in gains if edge[0] == edge[1])
    gains = {("source", next(iter(calls))): 1.0, **gains}
    one = Shape(name, {"source": SourceLoad(((1.0, 1.0),))}, service, gains, feedback).network()
    rate = 250.0 / sum(s.arrival_rate for s in one.stations.values())
    slower = 17.0 / (rate * sum(s.offered_load for s in one.stations.values()))
    scaled = {
        operator: Distribution.of_moments(d.mean_s * slower, _scv(d))
        for operator, d in service.items()
    }
    load = varied(seed, *FRAMES, rate / MEAN_FRAMES) if name == "vld" else None
    source = {"source": load or SourceLoad(((1.0, rate),))}
    return Shape(f"{name}-as-measured", source, scaled, gains, feedback, {"source": rate})


def _bounded(scv: float) -> float:
    return min(4.0, max(0.05, scv))


def neighbours(
    network: Network, best: Mapping[str, int], count: int = 5, busiest: float = 1.0
) -> list[dict[str, int]]:
    """The nearest allocations of as many processors, by how many are elsewhere, the better
    estimated first among equals. Those that hardly keep up are among them; not those that do not,
    whose sojourn says how long one has looked."""
    some = []
    for steps in itertools.product(range(-3, 4), repeat=len(best)):
        moved = {name: k + step for (name, k), step in zip(best.items(), steps, strict=True)}
        settles = all(network.stations[n].offered_load < busiest * k for n, k in moved.items())
        if sum(steps) == 0 and any(steps) and settles:
            some.append((sum(map(abs, steps)), network.mean_sojourn(moved), moved))
    return [moved for *_, moved in sorted(some, key=lambda one: one[:2])[:count]]
