"""From samples to a decision, with what is remembered between ticks. Touches nothing outside, so
that a journal can be decided anew offline. Fed by the loop, or by `replay`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sojourn.chains import contracted
from sojourn.control.decide import behind, decide
from sojourn.control.measure import Measure, NotReady, measured, smoothed
from sojourn.control.model import bare_of, estimate_of, excess_of, metric_of, network_of
from sojourn.control.review import is_judged, is_worse
from sojourn.control.situation import (
    ACTING,
    RETRIES,
    Action,
    Change,
    Decision,
    Limits,
    Memory,
    Rejected,
    Situation,
)
from sojourn.ports import Samples
from sojourn.queueing.network import Network
from sojourn.settings import ControlSettings
from sojourn.topology import Topology, kind_of
from sojourn.units import format_duration as told

_KEPT = 30
_ENOUGH_TREES = 10


@dataclass(frozen=True)
class Shape:
    """What control must know of a topology: its vertices' kinds, and the limits it sets."""

    name: str
    known: Mapping[str, str]
    limits: Limits
    start: Mapping[str, int]


def shape_of(topology: Topology) -> Shape:
    """A processor for each executor at least, no more than there are shards; sinks have one. A
    chain has those of its head."""
    topology = contracted(topology).without_broadcasts()
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
    disturbed: bool = False


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
        self.waited = False  # tuples that now end did, as nothing ran or machines came or went
        self.number = 0

    def step(
        self,
        samples: Samples,
        capacity: int | None,
        advise: bool = False,
        disturbed: bool = False,
    ) -> Record:
        """One decision. Unless it is only advice, what it asks for is wanted from now on.
        `disturbed` says that machines came or went."""
        self.number += 1
        if disturbed:
            self._forget()
        now_s = samples.time_s
        found = measured(samples, self.before_s, self.known, self.settings)
        if self.before_s is not None and now_s < self.before_s:
            self.memory = _shifted(self.memory, now_s - self.before_s)
        self.before_s = now_s
        estimate_s: float | None = None
        self.kept_up = True
        if isinstance(found, Measure) and self.number == 1:
            found = NotReady("the first interval mostly measures the start")
        if isinstance(found, NotReady):
            self.waited = self.waited or not found.idle
            decision = self._without_measures(now_s, found)
        else:
            self.past = [*self.past, found][-_KEPT:]
            self.memory = replace(self.memory, idle_since_s=None)
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
            disturbed=disturbed,
        )
        if record.applied:
            self.adopt(record)
        return record

    def _forget(self) -> None:
        """Machines came or went, and tuples waited meanwhile: nothing is judged by that."""
        change = self.memory.change
        if change is not None:
            change = replace(change, reviewed=True)
        self.memory = replace(self.memory, change=change, above=0, behind=0)
        self.waited = True
        self.past = [replace(measure, sojourn=None) for measure in self.past]

    def _without_measures(self, now_s: float, found: NotReady) -> Decision:
        """Nothing can be decided; but where nothing arrives for long, little is needed."""
        least = {name: self.limits.minimum.get(name, 1) for name in self.wanted}
        since = None
        if found.idle:
            since = now_s if self.memory.idle_since_s is None else self.memory.idle_since_s
        self.memory = replace(self.memory, idle_since_s=since)
        if since is None or now_s - since < self.settings.quiet_s or self.wanted == least:
            return Decision(Action.NOT_READY, found.reason)
        if self.settings.max_sojourn_s is None:
            return Decision(Action.NOT_READY, found.reason)
        reason = f"nothing has arrived for {told(now_s - since)}: every operator to its minimum"
        return Decision(Action.REMOVE, reason, least, needed=sum(least.values()), forced=True)

    def _decide(
        self, now_s: float, found: Measure, capacity: int | None
    ) -> tuple[Decision, float | None]:
        settings = self.settings
        smooth = smoothed(self.past, settings)
        # Service times and gains are the smoothed ones: only load changes from one interval to
        # the next, and what waits.
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
                for name in dict.fromkeys((*found.entering, *smooth.entering))
            },
            external_rate=max(found.external_rate, smooth.external_rate),
        )
        network = network_of(smooth, settings)
        newest = network_of(latest, settings)
        if isinstance(network, NotReady):
            return Decision(Action.NOT_READY, network.reason), None
        if isinstance(newest, NotReady):
            return Decision(Action.NOT_READY, newest.reason), None
        excess = {n: excess_of(latest.operators[n].queue, newest.stations[n]) for n in self.wanted}
        situation = Situation(
            now_s=now_s,
            latest=latest,
            smooth=smooth,
            network=network,
            newest=newest,
            excess=excess,
            draining=self._draining(newest, excess),
            rising=self._is_rising(found),
            wanted=self.wanted,
            limits=replace(self.limits, capacity=capacity),
            memory=self._remembered(found),
            settings=settings,
        )
        slow = self.memory.behind + 1 if behind(situation) else 0
        self.memory = replace(situation.memory, behind=slow)
        situation = replace(situation, memory=self.memory)
        decision = decide(situation)
        self.kept_up = situation.keeps_up
        self._note_enough(now_s, decision)
        estimate = estimate_of(
            network, {**self.limits.fixed, **situation.current}, settings.percentile
        )
        self._judge(situation, decision)
        bare = bare_of(network, settings.percentile)
        if not self.waited:
            self._learn(situation, decision, estimate, bare)
        self.waited = False
        return decision, _finite(situation.memory.bias.correct(estimate, bare))

    def _is_rising(self, found: Measure) -> bool:
        """Whether more arrived than chance would have, had the load stayed as it was."""
        before = [measure.external_rate for measure in self.past[:-1][-self.settings.window :]]
        if not before:
            return False
        usual = sum(before) / len(before)
        chance = 3 * math.sqrt(usual / found.interval_s)
        return found.external_rate > max(1.1 * usual, usual + chance)

    def _draining(self, newest: Network, excess: Mapping[str, float]) -> dict[str, int]:
        """Processors that work off what waits within an interval, as far as may be."""
        found = {}
        for name in self.wanted:
            station = newest.stations[name]
            rate = station.arrival_rate + excess[name] / self.settings.interval_s
            count = math.floor(rate / station.service_rate) + 1
            found[name] = min(count, self.limits.maximum.get(name, count)) if excess[name] else 1
        return found

    def _remembered(self, found: Measure) -> Memory:
        """For how many intervals in a row the target was missed."""
        value = metric_of(found.sojourn, self.settings.percentile)
        target = self.settings.max_sojourn_s
        if target is None or value is None:
            return self.memory
        return replace(self.memory, above=self.memory.above + 1 if value > target else 0)

    def _note_enough(self, now_s: float, decision: Decision) -> None:
        """How long fewer processors would have done, and how many all that time."""
        if decision.enough is None:
            self.memory = replace(self.memory, low_since_s=None, enough={})
        else:
            since = self.memory.low_since_s
            since = now_s if since is None else since
            self.memory = replace(self.memory, low_since_s=since, enough=dict(decision.enough))

    def _judge(self, s: Situation, decision: Decision) -> None:
        """Note whether the interval speaks for or against the last change."""
        change = self.memory.change
        if change is None or change.reviewed or decision.action is Action.SETTLING:
            return
        if is_judged(s, change):
            worse = is_worse(s, change)
            change = replace(change, worse=change.worse + worse, reviewed=not worse)
            self.memory = replace(self.memory, change=change)

    def _learn(self, s: Situation, decision: Decision, estimate: float, bare: float) -> None:
        """Compare the model with what was measured, where nothing is in motion."""
        value = metric_of(s.latest.sojourn, s.settings.percentile)
        still = decision.action in (Action.HOLD, Action.WAIT, Action.INFEASIBLE, Action.REMOVE)
        if not still or value is None or s.latest.sojourn is None or s.backlog:
            return
        if math.isfinite(estimate) and s.latest.sojourn.count >= _ENOUGH_TREES:
            change = self.memory.change
            group = 0.0 if change is None else change.time_s
            bias = self.memory.bias.learn(estimate, bare, value, group)
            self.memory = replace(self.memory, bias=bias)

    def adopt(self, record: Record) -> None:
        """What was decided is done: want it, and remember what was before."""
        now_s, decision, measure = record.time_s, record.decision, record.measure
        assert decision.allocation is not None
        before = dict(self.wanted)
        self.wanted = dict(decision.allocation)
        rate = measure.external_rate if measure is not None else 0.0
        rejected = tuple(r for r in self.memory.rejected if r.until_s > now_s)
        undone = self.memory.change
        if decision.action is Action.ROLL_BACK and undone is not None:
            until_s = now_s + self.settings.hold_off_s
            rejected = (*rejected, Rejected(before, undone.action, undone.rate, until_s))
        change = Change(
            time_s=now_s,
            before=before,
            action=decision.action,
            measured_s=metric_of(measure.sojourn if measure else None, self.settings.percentile),
            expected_s=decision.expected_s,
            rate=rate,
            kept_up=record.kept_up,
            reviewed=decision.forced,
        )
        retries = self.memory.retries + 1 if decision.action is Action.RETRY else 0
        self.memory = replace(
            self.memory,
            change=change,
            rejected=rejected,
            above=0,
            behind=0,
            retries=0 if self.wanted == before and retries > RETRIES else retries,
            low_since_s=None,
            enough={},
        )
        # Measures of the old allocation say nothing about sojourn under the new one.
        self.past = [replace(measure, sojourn=None) for measure in self.past]


def _shifted(memory: Memory, seconds: float) -> Memory:
    """The same memory by a clock that was set by so much."""

    def moved(time_s: float | None) -> float | None:
        return None if time_s is None else time_s + seconds

    change = memory.change
    if change is not None:
        change = replace(change, time_s=change.time_s + seconds)
    return replace(
        memory,
        change=change,
        low_since_s=moved(memory.low_since_s),
        idle_since_s=moved(memory.idle_since_s),
        rejected=tuple(replace(r, until_s=r.until_s + seconds) for r in memory.rejected),
    )


def _finite(value: float) -> float | None:
    """None for a station that cannot keep up, for which there is no number."""
    return value if math.isfinite(value) else None
