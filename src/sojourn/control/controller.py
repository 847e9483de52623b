"""From samples to a decision, with what is remembered between ticks. Touches nothing outside, so
that a journal can be decided anew offline. Fed by the loop, or by `replay`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sojourn.control.decide import (
    ACTING,
    Action,
    Change,
    Decision,
    Limits,
    Memory,
    Situation,
    decide,
    is_judged,
    keeps_up,
)
from sojourn.control.measure import Measure, NotReady, measured, smoothed
from sojourn.control.model import estimate_of, metric_of, network_of
from sojourn.ports import Samples
from sojourn.settings import ControlSettings
from sojourn.topology import Topology, kind_of

_KEPT = 30


@dataclass(frozen=True)
class Shape:
    """What control must know of a topology: its vertices' kinds, and the limits it sets."""

    name: str
    known: Mapping[str, str]
    limits: Limits
    start: Mapping[str, int]


def shape_of(topology: Topology) -> Shape:
    """A processor for each executor at least, no more than there are shards; sinks have one."""
    operators = topology.operators
    return Shape(
        name=topology.name,
        known={name: kind_of(spec) for name, spec in topology.vertices.items()},
        limits=Limits(
            minimum={name: spec.executors for name, spec in operators.items()},
            maximum={name: o.shards for name, o in operators.items() if o.key is not None},
            fixed=dict.fromkeys(topology.sinks, 1),
        ),
        start={name: spec.processors for name, spec in operators.items()},
    )


@dataclass(frozen=True)
class Record:
    """One tick: what came in, what was made of it, what was decided, and whether it was done."""

    number: int
    time_s: float
    samples: Samples
    wanted: Mapping[str, int]
    capacity: int | None
    settings: ControlSettings
    measure: Measure | None
    estimate_s: float | None
    bias: tuple[float, float]
    kept_up: bool
    decision: Decision
    applied: bool


class Controller:
    """The steps from samples to a decision, with what is remembered between ticks."""

    def __init__(self, shape: Shape, settings: ControlSettings) -> None:
        self.known, self.limits = shape.known, shape.limits
        self.settings = settings
        self.wanted = dict(shape.start)
        self.memory = Memory()
        self.past: list[Measure] = []
        self.before_s: float | None = None
        self.kept_up = True
        self.number = 0

    def step(self, samples: Samples, capacity: int | None, advise: bool = False) -> Record:
        """One decision. Unless it is only advice, what it asks for is wanted from now on."""
        self.number += 1
        now_s = samples.time_s
        found = measured(samples, self.before_s, self.known, self.settings)
        self.before_s = now_s if self.before_s is None else max(self.before_s, now_s)
        estimate_s: float | None = None
        self.kept_up = True
        if isinstance(found, Measure) and self.number == 1:
            found = NotReady("the first interval shows the start more than the stream")
        if isinstance(found, NotReady):
            decision = Decision(Action.NOT_READY, found.reason)
        else:
            self.past = [*self.past, found][-_KEPT:]
            decision, estimate_s = self._decide(now_s, found, capacity)
        bias = self.memory.bias
        record = Record(
            number=self.number,
            time_s=now_s,
            samples=samples,
            wanted=dict(self.wanted),
            capacity=capacity,
            settings=self.settings,
            measure=found if isinstance(found, Measure) else None,
            estimate_s=estimate_s,
            bias=(bias.offset_s, bias.slope),
            kept_up=self.kept_up,
            decision=decision,
            applied=decision.action in ACTING and not advise,
        )
        if record.applied:
            self.adopt(record)
        return record

    def _decide(
        self, now_s: float, found: Measure, capacity: int | None
    ) -> tuple[Decision, float | None]:
        settings = self.settings
        smooth = smoothed(self.past, settings)
        # Service times and gains are the smoothed ones: only load changes from one interval to
        # the next, and what is to be worked off.
        latest = replace(
            found,
            operators={
                name: replace(
                    smooth.operators[name],
                    queue=operator.queue,
                    processors=operator.processors,
                    wanted=operator.wanted,
                )
                for name, operator in found.operators.items()
            },
            entering={
                name: max(found.entering.get(name, 0.0), smooth.entering.get(name, 0.0))
                for name in {*found.entering, *smooth.entering}
            },
            external_rate=max(found.external_rate, smooth.external_rate),
        )
        network = network_of(smooth, settings)
        newest = network_of(latest, settings)
        urgent = network_of(latest, settings, drain_s=settings.interval_s)
        for made in (network, newest, urgent):
            if isinstance(made, NotReady):
                return Decision(Action.NOT_READY, made.reason), None
        assert not isinstance(network, NotReady)
        assert not isinstance(newest, NotReady)
        assert not isinstance(urgent, NotReady)
        situation = Situation(
            now_s=now_s,
            latest=latest,
            smooth=smooth,
            network=network,
            newest=newest,
            urgent=urgent,
            wanted=self.wanted,
            limits=replace(self.limits, capacity=capacity),
            memory=self._remembered(found),
            settings=settings,
        )
        self.memory = situation.memory
        decision = decide(situation)
        self.kept_up = keeps_up(situation)
        since = self.memory.low_since_s
        low = (since if since is not None else now_s) if decision.too_much else None
        self.memory = replace(self.memory, low_since_s=low)
        estimate = estimate_of(
            network, {**self.limits.fixed, **situation.current}, settings.percentile
        )
        self._learn(situation, decision, estimate)
        return decision, _finite(situation.memory.bias.correct(estimate))

    def _remembered(self, found: Measure) -> Memory:
        """For how many intervals in a row the target was missed."""
        value = metric_of(found.sojourn, self.settings.percentile)
        target = self.settings.max_sojourn_s
        if target is None or value is None:
            return self.memory
        return replace(self.memory, above=self.memory.above + 1 if value > target else 0)

    def _learn(self, s: Situation, decision: Decision, estimate: float) -> None:
        """Compare the model with what was measured, where nothing is in motion."""
        value = metric_of(s.latest.sojourn, s.settings.percentile)
        change = self.memory.change
        still = decision.action in (Action.HOLD, Action.WAIT, Action.INFEASIBLE, Action.REMOVE)
        if (
            change is not None
            and not change.reviewed
            and decision.action is not Action.SETTLING
            and is_judged(s, change)
        ):
            self.memory = replace(self.memory, change=replace(change, reviewed=True))
        if still and value is not None and math.isfinite(estimate) and s.latest.sojourn is not None:
            settled = s.latest.backlog_s < s.settings.interval_s / 2
            if settled and s.latest.sojourn.count >= 10:
                self.memory = replace(self.memory, bias=self.memory.bias.learn(estimate, value))

    def adopt(self, record: Record) -> None:
        """What was decided is done: want it, and remember what was before."""
        now_s, decision = record.time_s, record.decision
        assert decision.allocation is not None
        before = dict(self.wanted)
        self.wanted = dict(decision.allocation)
        value = None
        if record.measure is not None:
            value = metric_of(record.measure.sojourn, self.settings.percentile)
        rejected = tuple((a, until) for a, until in self.memory.rejected if until > now_s)
        if decision.action is Action.ROLL_BACK:
            rejected = (*rejected, (before, now_s + self.settings.hold_off_s))
        measure = record.measure
        change = Change(
            time_s=now_s,
            before=before,
            after=self.wanted,
            action=decision.action,
            measured_s=value,
            expected_s=decision.expected_s,
            rate=measure.external_rate if measure is not None else 0.0,
            kept_up=record.kept_up,
        )
        self.memory = replace(
            self.memory, change=change, rejected=rejected, above=0, low_since_s=None
        )
        # Measures of the old allocation say nothing about sojourn under the new one.
        self.past = [replace(measure, sojourn=None) for measure in self.past]


def _finite(value: float) -> float | None:
    """None for a station that cannot keep up, for which there is no number."""
    return value if math.isfinite(value) else None
