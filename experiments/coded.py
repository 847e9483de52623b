"""The applications of `examples/` with their real code under control. Two cores cannot host 22 busy
processors, so each call computes and then sleeps a multiple of the CPU time that it took. The rates
are such that the committed sample of CPU times keeps so many processors busy. All calls of logo
detection together then take about a third of two cores, and those of patterns next to nothing. The
multiple is the one that TIMES gives with that sample: some calls are timed first, and if the
machine is slower now, calls sleep so many times less."""

import itertools
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import cpu_times
from cpu_times import kept
from lab import Lab
from shapes import Shape, example, nothing

import sojourn as sj
from sojourn.errors import TopologyFailed
from sojourn.simulator import Distribution, SourceLoad
from sojourn.topology import OperatorSpec, SinkSpec

# Calls of patterns take microseconds, and more where caches are cold, so fewer are to be busy.
BUSY = {"vld": 17.0, "fpd": 8.0}
TIMES = {"vld": 29.0, "fpd": 20_000.0}  # of its CPU time in the sample that a call sleeps
SAMPLES = {"vld": "vld", "fpd": "fpd-all"}  # the detector tells all of its instances
MOST_CPU = 1.0  # cores
CALLS, REST_S = {"vld": 12, "fpd": 300}, 0.005  # that are timed first, with a rest as they sleep
_LONG_S = 7200.0  # that rates which repeat themselves are told for


def times_now(app: str) -> float:
    """How many times its CPU time a call must sleep now, to take as long as it should."""
    sample = kept(SAMPLES[app])
    if app == "vld":
        ms = cpu_times.timed_vld(CALLS[app], REST_S)
        usual_ms = statistics.fmean(sample["extract"]["ms"][: CALLS[app]])
    else:
        ms, usual_ms = cpu_times.timed_fpd(CALLS[app], REST_S), sample["generate"]["mean_ms"]
    times = (1 + TIMES[app]) * usual_ms / ms - 1
    if BUSY[app] / (1 + times) > MOST_CPU:
        raise TopologyFailed(
            f"{app}: calls take {ms / usual_ms:.1f} times the CPU time of the sample, so all need "
            f"{BUSY[app] / (1 + times):.1f} cores, and may need {MOST_CPU:g}; run it again with "
            "less beside it, or on a faster machine"
        )
    return times


def sleeps(lab: Lab, app: str) -> float:
    """The same for the runs that follow, kept with them."""
    (times,) = lab.each(times_now, [app], 1)
    return float(times)


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
            made = module.topology(module.Settings(rate=self.rates(), seed=self.drawn))
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
