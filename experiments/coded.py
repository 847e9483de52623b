"""The applications of `examples/` with their real code under control. Two cores cannot host 22 busy
processors, so each call computes and then sleeps a multiple of the CPU time that it took. Logo
detection looks for features in frames of half their width: with 20 processes, whole ones took up to
twice the CPU time that they take alone, and more the busier the cores were. The detector of
patterns tells all of its instances. The rates are such that the committed sample of CPU times keeps
so many processors busy. All calls together then take a small part of two cores. The
multiple is the one that TIMES gives with that sample: the application runs for a while first, and
if its calls take longer than the sample has it, they sleep so many times less."""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cpu_times
from cpu_times import kept
from lab import Lab
from shapes import Shape, example, nothing

import sojourn as sj
from sojourn.errors import TopologyFailed
from sojourn.queueing import assign_processors
from sojourn.simulator import Distribution, SourceLoad
from sojourn.topology import OperatorSpec, SinkSpec

# Calls of patterns take microseconds, and more where caches are cold, so fewer are to be busy.
BUSY = {"vld": 17.0, "fpd": 8.0}
TIMES = {"vld": 119.0, "fpd": 20_000.0}  # of its CPU time in the sample that a call sleeps
SAMPLES = {"vld": "vld-half", "fpd": "fpd-all"}
MOST_CPU = 1.0  # cores
PROCESSORS, WARM_S, LOOK_S = 22, 8.0, 20.0  # with which, and how long, calls are timed first
_LONG_S = 7200.0  # that rates which repeat themselves are told for


def sleeps(lab: Lab, app: str) -> float:
    """How many times its CPU time a call must sleep in the runs that follow, to take as long as it
    should. It is kept with them. Calls take more CPU time beside others than alone, so it is
    measured with as many as will run."""
    shape = coded(app)
    (took_s,) = lab.each(partial(_took, lab), [shape], 1)
    return times_for(shape, took_s)


def _took(lab: Lab, shape: "Coded") -> dict[str, float]:
    """How long calls of each operator take now, on average, with what they sleep."""
    allocation = dict(assign_processors(shape.network(), PROCESSORS).allocation)
    with lab.running(shape, allocation) as (engine, let_pass):
        let_pass(WARM_S)
        engine.samples()
        let_pass(LOOK_S)
        seen = engine.samples().vertices
    return {name: seen[name].service_s or 0.0 for name in shape.service}


def times_for(shape: "Coded", took_s: Mapping[str, float]) -> float:
    """The same of an application whose calls take so long, sleeping as the sample has it."""
    stations, app = shape.network().stations, shape.app
    busy = sum(station.arrival_rate * took_s[name] for name, station in stations.items())
    more = busy / BUSY[app]
    times = (1 + TIMES[app]) / more - 1
    if BUSY[app] / (1 + times) > MOST_CPU:
        raise TopologyFailed(
            f"{app}: calls take {more:.1f} times the CPU time of the sample, so all need "
            f"{BUSY[app] / (1 + times):.1f} cores, and may need {MOST_CPU:g}; run it again with "
            "less beside it, or on a faster machine"
        )
    return times


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
    times: float = 0.0  # its CPU time that a call sleeps

    def topology(self, allocation: Mapping[str, int], sleep: bool) -> sj.Topology:  # noqa: ARG002
        module = example(self.app)
        made: sj.Topology
        if self.app == "vld":
            made = module.topology(
                module.Settings(rate=self.rates(), seed=self.drawn, width=cpu_times.HALF)
            )
        else:
            told = cpu_times.TOLD_ALL
            made = module.topology(
                module.Settings(
                    window=told["window"],
                    rate=self.steps[0][1],
                    support=told["support"],
                    instances=told["instances"],
                    seed=self.drawn,
                )
            )
        for name, spec in made.vertices.items():
            if isinstance(spec, SinkSpec):
                made.vertices[name] = replace(spec, sink=sj.sinks.call(nothing))
            elif isinstance(spec, OperatorSpec):
                code = Slowed(spec.code, self.times, spec.emits == "one")
                made.vertices[name] = replace(spec, code=code, processors=allocation[name])
        return made

    def rates(self) -> tuple[tuple[float, float], ...]:
        """The steps, or those of a turn again and again."""
        if self.turn_s is None:
            return self.steps
        left_s, turn = self.turn_s, []
        for seconds, rate in self.steps:
            turn.append((min(seconds, left_s), rate))
            left_s -= turn[-1][0]
            if left_s <= 1e-9:
                break
        return tuple(itertools.chain.from_iterable([turn] * round(_LONG_S / self.turn_s + 1)))


def coded(
    app: str,
    steps: tuple[tuple[float, float], ...] | None = None,
    mean_rate: float | None = None,
    times: float | None = None,
) -> Coded:
    """An application at the rate that keeps as many processors busy as it should, or at others, in
    steps of (seconds, frames a second). The first of these counts unless a mean is given. `times`
    are those that calls sleep now; the rest is told by the sample."""
    calls = kept(SAMPLES[app])
    longer = 1 + TIMES[app]
    service = {
        name: Distribution.of_moments(told["mean_ms"] / 1e3 * longer, min(4.0, told["scv"]))
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
    return Coded(
        f"{app}-code",
        {source: SourceLoad(told) for source in sources},
        service,
        {**entering, **gains},
        feedback,
        {} if mean_rate is None else dict.fromkeys(sources, mean_rate),
        app=app,
        steps=told,
        times=TIMES[app] if times is None else times,
    )
