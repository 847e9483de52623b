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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from sojourn.queueing import Network, Station, traffic
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload


def example(name: str) -> Any:
    """One of the applications that come with the project."""
    folder = str(Path(__file__).parent.parent / "examples")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


@dataclass(frozen=True)
class Shape:
    """A topology by its rates, times of service and gains; the papers' with their own names."""

    name: str
    sources: Mapping[str, SourceLoad]
    service: Mapping[str, Distribution]
    gains: Mapping[tuple[str, str], float]
    feedback: frozenset[tuple[str, str]] = frozenset()

    @property
    def rate(self) -> float:
        """Tuples per second from outside, to begin with."""
        return sum(load.steps[0][1] for load in self.sources.values())

    @property
    def seed(self) -> int:
        """Another one for each, so that chance does not do the same to all."""
        return zlib.crc32(self.name.encode())

    def network(self, model: str = "mmk") -> Network:
        """As the queueing model sees it."""
        external = dict.fromkeys(self.service, 0.0)
        for (sender, receiver), gain in self.gains.items():
            if sender in self.sources:
                external[receiver] += gain * self.sources[sender].steps[0][1]
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
            pace: Any = {"rate": load.steps, "arrivals": arrivals}
            seed = zlib.crc32(f"{self.name}.{name}".encode())
            made[name] = t.source(name, sj.sources.paced(_number, seed=seed, **pace))
        for name, service in self.service.items():
            onward = {r: g for (s, r), g in self.gains.items() if s == name}
            code: Any = Nap(service, onward) if sleep else _number
            inputs = [
                made[s] if s in self.sources else made[s][r]
                for s, r in self.gains
                if r == name and (s, r) not in self.feedback
            ]
            made[name] = t.operator(name, code, *inputs, processors=allocation[name])
        last = list(self.service)[-1]
        t.sink("out", sj.sinks.call(_nothing), made[last])
        for sender, receiver in self.feedback:
            t.feedback(made[sender][receiver], made[receiver])
        return t

    def workload(self) -> Workload:
        """For the simulator."""
        operators = {}
        last = list(self.service)[-1]
        for name, service in self.service.items():
            gains = {f"{r}[{r}]": g for (s, r), g in self.gains.items() if s == name}
            if name == last:
                gains["out"] = 0.0
            operators[name] = OperatorLoad(service, gains)
        return Workload(operators, self.sources)


def _scv(distribution: Distribution) -> float:
    if distribution.scv is not None:
        return distribution.scv
    return {"constant": 0.0, "exponential": 1.0, "uniform": 1 / 3}[distribution.kind]


def _number(value: Any) -> Any:
    return value


def _nothing(_value: Any) -> None:
    """A result that nobody reads."""


class Nap(sj.Operator):
    """Sleeps, and sends on as many as it should, each receiver by its name."""

    def __init__(self, service: Distribution, gains: Mapping[str, float]) -> None:
        self.service, self.gains = service, gains
        self.drawn: list[float] = []

    def process(self, value: Any) -> Iterator[Any]:
        if not self.drawn:
            rng = np.random.default_rng(random.getrandbits(64))
            self.drawn = self.service.draw(rng, 256).tolist()
        time.sleep(self.drawn.pop())
        for receiver, gain in self.gains.items():
            for _ in range(int(gain) + (random.random() < gain - int(gain))):
                yield sj.Output(receiver, value)


def exponential(**means_s: float) -> dict[str, Distribution]:
    """Service times by their means."""
    return {name: Distribution("exponential", mean_s) for name, mean_s in means_s.items()}


def vld(rate: float = 13.0, scale: float = 1.0) -> Shape:
    """Video logo detection; `scale` makes times shorter and rates higher."""
    return Shape(
        "vld",
        {"frames": SourceLoad(((1.0, rate * scale),), Distribution("uniform", 1.0))},
        exponential(extract=0.475 / scale, match=0.520 / scale, aggregate=0.012 / scale),
        {("frames", "extract"): 1, ("extract", "match"): 1, ("match", "aggregate"): 1},
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


def real(name: str) -> Shape:
    """An application of `examples/` with the service times and gains that its code has when it is
    called here, all times longer by one factor, such that 17 processors are busy with 250 tuples a
    second at all operators together."""
    calls = _called_vld() if name == "vld" else _called_fpd()
    service, gains, entering = {}, {}, ""
    for operator, (seconds, emitted) in calls.items():
        entering = entering or operator
        mean_s = statistics.fmean(seconds)
        scv = min(4.0, statistics.pvariance(seconds) / mean_s**2)
        service[operator] = Distribution.of_moments(mean_s, max(0.05, scv))
        for receiver, count in emitted.items():
            gains[operator, receiver] = count / len(seconds)
    feedback = frozenset(edge for edge in gains if edge[0] == edge[1])
    gains = {("source", entering): 1.0, **gains}
    one = Shape(name, {"source": SourceLoad(((1.0, 1.0),))}, service, gains, feedback).network()
    rate = 250.0 / sum(s.arrival_rate for s in one.stations.values())
    slower = 17.0 / (rate * sum(s.offered_load for s in one.stations.values()))
    scaled = {
        operator: Distribution.of_moments(d.mean_s * slower, _scv(d))
        for operator, d in service.items()
    }
    source = {"source": SourceLoad(((1.0, rate),))}
    return Shape(f"{name}-as-measured", source, scaled, gains, feedback)


Calls = dict[str, tuple[list[float], dict[str, int]]]  # seconds of each call, results by receiver


def _called_vld() -> Calls:
    module = example("vld")
    operators = module.topology(module.Settings()).operators
    shown = module.logos()
    values: list[Any] = [
        (number, module.encoded(module.composed(number, 0, shown))) for number in range(0, 240, 6)
    ]
    found: Calls = {}
    for (name, spec), receiver in zip(operators.items(), [*operators, ""][1:], strict=True):
        operator = spec.code
        operator.state = {}
        operator.open()
        seconds, made = [], []
        for value in values:
            began = time.perf_counter()
            result = operator.process(value)
            made += [result] if spec.emits == "one" else list(result)
            seconds.append(time.perf_counter() - began)
        found[name] = seconds, {receiver: len(made)} if receiver else {}
        values = made
    return found


def _called_fpd() -> Calls:
    module = example("fpd")
    settings = module.Settings(window=2_000)
    zipf = module.Zipf(settings.vocabulary, settings.seed)
    generate, detect = module.Generate(settings.cap), module.Detect(settings.threshold)
    detect.state = {}
    found: Calls = {
        "generate": ([], {"detect": 0}),
        "detect": ([], {"detect": 0, "report": 0}),
        "report": ([], {}),
    }
    clock = time.perf_counter
    for number in range(3 * settings.window):
        messages = [(1, zipf.message(number))]
        if number >= settings.window:
            messages.append((-1, zipf.message(number - settings.window)))
        for message in messages:
            began = clock()
            changes = [
                made for made in generate.process(message) if not isinstance(made, sj.Output)
            ]
            found["generate"][0].append(clock() - began)
            found["generate"][1]["detect"] += len(changes)
            while changes:
                change = changes.pop()
                began = clock()
                results = list(detect.process(change))
                found["detect"][0].append(clock() - began)
                for result in results:
                    if isinstance(result, sj.Output):
                        found["detect"][1]["detect"] += 1
                        changes.append(result.value)
                    else:
                        found["detect"][1]["report"] += 1
                        began = clock()
                        module.report(result)
                        found["report"][0].append(clock() - began)
    return found


def neighbours(network: Network, best: Mapping[str, int], count: int = 5) -> list[dict[str, int]]:
    """The nearest allocations of as many processors, by how many are elsewhere, the better
    estimated first among equals. Not those that hardly keep up: they take so long to settle
    that a short run shows them too good."""
    some = []
    for steps in itertools.product(range(-2, 3), repeat=len(best)):
        moved = {name: k + step for (name, k), step in zip(best.items(), steps, strict=True)}
        settles = all(network.stations[n].offered_load <= 0.95 * k for n, k in moved.items())
        if sum(steps) == 0 and any(steps) and settles:
            some.append((sum(map(abs, steps)), network.mean_sojourn(moved), moved))
    return [moved for *_, moved in sorted(some, key=lambda one: one[:2])[:count]]
