"""The applications of `examples/` with their real code under control. Two cores cannot host 22 busy
processors, so each call computes and then sleeps a fixed multiple of the CPU time that it took. The
multiple and the rate are such that the committed sample of CPU times keeps so many processors busy,
and that all calls together take a third of two cores."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cpu_times import kept
from shapes import Shape, example

import sojourn as sj
from sojourn.simulator import Distribution, SourceLoad
from sojourn.topology import OperatorSpec, SinkSpec

# Calls of patterns take microseconds, and more where caches are cold, so fewer are to be busy.
BUSY = {"vld": 17.0, "fpd": 8.0}
TIMES = {"vld": 29.0, "fpd": 20_000.0}  # of its CPU time that a call sleeps
INSTANCES = 13  # of the detector, all of which are told of each change


class Slowed(sj.Operator):
    """Calls an operator, and then sleeps so many times the CPU time that it took."""

    def __init__(self, code: Any, times: float, one: bool) -> None:
        self.code, self.times, self.one = code, times, one

    def open(self) -> None:
        if hasattr(self.code, "open"):
            self.code.open()

    def process(self, value: Any) -> Any:
        if hasattr(self, "state"):
            self.code.state = self.state
        began = time.thread_time()
        made = self.code.process(value) if hasattr(self.code, "process") else self.code(value)
        found = made if self.one else list(made)
        time.sleep(self.times * (time.thread_time() - began))
        return found


@dataclass(frozen=True)
class Coded(Shape):
    """An application. It runs on Spark only; its times and gains are those of the sample."""

    app: str = "vld"
    steps: tuple[tuple[float, float], ...] = ()

    def topology(self, allocation: Mapping[str, int], sleep: bool) -> sj.Topology:  # noqa: ARG002
        module = example(self.app)
        made: sj.Topology
        if self.app == "vld":
            made = module.topology(module.Settings(rate=self.steps))
        else:
            # A window that is full within three minutes of five seconds.
            rate = self.steps[0][1]
            made = module.topology(
                module.Settings(
                    window=round(13 * rate), rate=rate, support=0.1, instances=INSTANCES
                )
            )
        for name, spec in made.vertices.items():
            if isinstance(spec, SinkSpec):
                made.vertices[name] = replace(spec, sink=sj.sinks.call(_nothing))
            elif isinstance(spec, OperatorSpec):
                code = Slowed(spec.code, TIMES[self.app], spec.emits == "one")
                made.vertices[name] = replace(spec, code=code, processors=allocation[name])
        return made


def _nothing(_value: Any) -> None:
    """A result that nobody reads."""


def coded(
    app: str,
    steps: tuple[tuple[float, float], ...] | None = None,
    mean_rate: float | None = None,
) -> Coded:
    """An application at the rate that keeps as many processors busy as it should, or at others, in
    steps of (seconds, frames a second). The first of these counts unless a mean is given."""
    calls = kept(app)
    times = 1 + TIMES[app]
    service = {
        name: Distribution.of_moments(told["mean_ms"] / 1e3 * times, min(4.0, told["scv"]))
        for name, told in calls.items()
    }
    gains = {(name, to): gain for name, told in calls.items() for to, gain in told["gains"].items()}
    feedback = frozenset(edge for edge in gains if edge[0] == edge[1])
    sources = ("frames",) if app == "vld" else ("entering", "leaving")
    entering = {(source, next(iter(calls))): 1.0 for source in sources}
    one = {source: SourceLoad(((1.0, 1.0),)) for source in sources}
    alone = Shape(app, one, service, {**entering, **gains}, feedback).network()
    rate = BUSY[app] / sum(s.offered_load for s in alone.stations.values())
    told = steps or ((1.0, rate),)
    loads = {source: SourceLoad(told) for source in sources}
    mean_rates = {} if mean_rate is None else dict.fromkeys(sources, mean_rate)
    every = {**entering, **gains}
    return Coded(f"{app}-code", loads, service, every, feedback, mean_rates, app=app, steps=told)
