"""Decisions, and what they are based on. Frozen values. `model` and `remember` make them, `review`
and `decide` read them; decisions are written to the journal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from sojourn.control.bias import Bias
from sojourn.control.forecast import Forecast, Outlook
from sojourn.control.measure import Measure, NotReady, metric_of
from sojourn.ports import Pressure
from sojourn.provisioning.rates import Known
from sojourn.queueing.keyed import bound
from sojourn.queueing.network import Network
from sojourn.settings import ControlSettings
from sojourn.units import format_duration as told

_PAYS = 20.0  # times as long as a change costs, it must pay
_SLOWED = 1.5  # times as long as before is much longer
RETRIES = 3  # how often a change that does not come is asked for again


class Action(StrEnum):
    """What a decision does."""

    HOLD = "hold"
    NOT_READY = "not ready"
    SETTLING = "settling"
    WAIT = "wait"
    INFEASIBLE = "infeasible"
    ADD = "add"
    REMOVE = "remove"
    MOVE = "move"
    ROLL_BACK = "roll back"
    RETRY = "retry"
    CHRONIC = "chronic"


ACTING = frozenset({Action.ADD, Action.REMOVE, Action.MOVE, Action.ROLL_BACK, Action.RETRY})


@dataclass(frozen=True)
class Change:
    """A change that was decided: when, from which allocation, and at which external rate; what was
    measured before it and what was expected of it; whether the old allocation kept up. `worse`
    counts the intervals that speak against it. Once it is `reviewed`, no more are counted. `short`
    says that what was there before was not enough, though the model saw no need for more, `forced`
    that there was no choice. `cost_s`
    is for how long the target was missed right after it; once it is `counted`, that is known."""

    time_s: float
    before: Mapping[str, int]
    action: Action
    measured_s: float | None
    expected_s: float | None
    rate: float
    kept_up: bool
    worse: int = 0
    reviewed: bool = False
    short: bool = False
    cost_s: float = 0.0
    counted: bool = False
    forced: bool = False


@dataclass(frozen=True)
class Rejected:
    """What was rolled back or was not enough, at which external rate, and until when it is not
    tried again."""

    allocation: Mapping[str, int]
    action: Action
    rate: float
    until_s: float


@dataclass(frozen=True)
class Short:
    """An allocation to which more had to be added: since when it was there, and how many tuples had
    arrived in all by then; and the same for the addition."""

    allocation: Mapping[str, int]
    time_s: float
    tuples: float
    added_s: float
    added_tuples: float


@dataclass(frozen=True)
class Tried:
    """Whether the target was missed in an interval, and whether a commit was made in it or in the
    one before."""

    time_s: float
    missed: bool
    committed: bool


@dataclass(frozen=True)
class Memory:
    """What is remembered from tick to tick."""

    wanted: Mapping[str, int]  # processors that operators should have
    number: int = 0  # of the last tick
    before_s: float | None = None  # when its samples were taken
    starts: int = 1  # of the topology
    starting: bool = True  # no whole interval has been seen since the last of them
    past: tuple[Measure, ...] = ()  # the newest last
    waited: bool = False  # tuples that end next waited: nothing ran, or machines came or went
    change: Change | None = None  # the last
    low_since_s: float | None = None  # since when fewer processors would be enough
    enough: Mapping[str, int] = field(default_factory=dict)  # enough for all that time
    better_since_s: float | None = None  # since when other places would be better
    pressed: tuple[tuple[float, Pressure], ...] = ()  # rates told since the last interval, and when
    risen_s: float | None = None  # when a source's rate last rose for sure
    above: int = 0  # intervals in a row in which the target was missed
    behind: int = 0  # intervals in a row in which an operator could not keep up
    retries: int = 0  # times in a row that a resize was asked for again
    idle_since_s: float | None = None  # since when nothing arrives
    rejected: tuple[Rejected, ...] = ()
    stirred_s: float | None = None  # when something last was in motion
    learned_s: float | None = None  # when the bias last took an interval into account
    bias: Bias = field(default_factory=Bias)
    tried: tuple[Tried, ...] = ()  # intervals since the last change
    tuples: float = 0.0  # that have arrived from outside in all intervals
    since: tuple[float, float] | None = None  # the last change, and how many had arrived by then
    short: tuple[Short, ...] = ()  # the newest last
    commits: tuple[int, int] = (0, 0)  # so far, at the tick before the last and at the last
    cost_s: float = 0.0  # for how long a change of ours has the target missed
    outlook: Outlook = field(default_factory=Outlook)
    known: Known = field(default_factory=Known)  # of provisioning


@dataclass(frozen=True)
class Limits:
    """How many processors each operator must and may have, and how many there are in all."""

    minimum: Mapping[str, int]
    maximum: Mapping[str, int]
    fixed: Mapping[str, int]  # sinks, which stay as they are
    capacity: int | None = None

    def least(self, name: str) -> int:
        """Processors that an operator must have."""
        return self.minimum.get(name, 1)

    def most(self, name: str) -> float:
        """Processors that an operator may have; infinity where nothing bounds them."""
        return self.maximum.get(name, math.inf)


@dataclass(frozen=True)
class Standing:
    """How things stand at a tick, whatever its interval shows. `measure` is what the interval
    shows, if anything; it is then the newest of the `past`. `memory` comes from the tick before,
    `outlook` includes the interval. `pressures` are why the tick is urgent, if it is."""

    now_s: float
    measure: Measure | None
    past: tuple[Measure, ...]
    limits: Limits
    memory: Memory
    settings: ControlSettings
    outlook: Outlook
    pressures: tuple[Pressure, ...]

    @property
    def wanted(self) -> Mapping[str, int]:
        """The processors that operators should have."""
        return self.memory.wanted

    @property
    def least(self) -> dict[str, int]:
        """The processors that operators must have."""
        return {name: self.limits.least(name) for name in self.wanted}

    @property
    def keeps_up(self) -> bool:
        """Whether the present processors suffice for what arrives, as far as is known."""
        return True

    @property
    def estimate_s(self) -> float | None:
        """The sojourn that the present processors should have shown, as far as is known."""
        return None


@dataclass(frozen=True)
class Blind(Standing):
    """No decision can be based on the interval."""

    why: NotReady

    @property
    def idle_since_s(self) -> float | None:
        """Since when nothing arrives; None if something does, or if that is unknown."""
        if not self.why.idle:
            return None
        since = self.memory.idle_since_s
        return self.now_s if since is None else since


@dataclass(frozen=True)
class Situation(Standing):
    """All that a decision is based on. `network` has the smoothed rates. `excess` is how many
    tuples wait at an operator beyond the usual number; `to_come` adds what follows from those that
    wait before it. `draining` is how many processors work these off within two seconds. `forecast`
    is the load to plan for."""

    latest: Measure
    smooth: Measure
    network: Network
    excess: Mapping[str, float]
    to_come: Mapping[str, float]
    draining: Mapping[str, int]
    commits: int  # so far
    forecast: Forecast

    @cached_property
    def current(self) -> dict[str, int]:
        """The processors that operators have."""
        return {name: self.latest.operators[name].processors for name in self.wanted}

    @cached_property
    def most(self) -> int | None:
        """The most processors that may be used in all; None means no limit."""
        known = [n for n in (self.settings.max_processors, self.limits.capacity) if n is not None]
        return min(known, default=None)

    @cached_property
    def metric(self) -> float | None:
        """The measured mean or percentile that the target applies to."""
        return metric_of(self.latest.sojourn, self.settings.percentile)

    @property
    def missed(self) -> bool:
        """Whether the target was missed in the interval."""
        value, target = self.metric, self.settings.max_sojourn_s
        return value is not None and target is not None and value > target

    @cached_property
    def tried(self) -> tuple[Tried, ...]:
        """Whether the target was missed, interval by interval since the last change."""
        committed = 0 < self.memory.commits[0] < self.commits
        return (*self.memory.tried, Tried(self.now_s, self._missed_itself, committed))

    @property
    def _missed_itself(self) -> bool:
        """Whether the target was missed in this very interval, if its trees are enough to say."""
        own, p = None if self.measure is None else self.measure.sojourn, self.settings.percentile
        target = self.settings.max_sojourn_s
        if own is None or target is None or own.count * (1 - (p or 0.0) / 100) < 1:
            return self.missed
        value = metric_of(own, p)
        return value is not None and value > target

    @property
    def patience_s(self) -> float:
        """How long to wait before a change that need not be. Changes may have the target missed for
        a twentieth of the time at most."""
        return _PAYS * self.memory.cost_s

    @property
    def above(self) -> int:
        """For how many intervals in a row the target was missed. An interval without measured
        sojourns is not counted."""
        if self.metric is None or self.settings.max_sojourn_s is None:
            return self.memory.above
        return self.memory.above + 1 if self.missed else 0

    @cached_property
    def pressing(self) -> str:
        """Why the tick is urgent, in words."""
        told_of = (
            f"{p.vertex!r} sends {p.rate:.4g}/s for {told(p.over_s)}{self._taken(p.vertex, p.rate)}"
            if p.rate is not None
            else f"tuples will wait {told(p.wait_s)} at {p.vertex!r}"
            for p in self.pressures
        )
        return ", ".join(told_of)

    def _taken(self, source: str, rate: float) -> str:
        """That a source is taken to be back at a lower rate than it told, in words."""
        taken = self.latest.rates.get(source, rate)
        return f" (perhaps {taken:.4g}/s, as before)" if taken < rate else ""

    @cached_property
    def backlog(self) -> str:
        """What waits beyond the usual number, in words; empty if nothing does."""
        if self.latest.backlog_s > self.settings.interval_s / 2:
            return f"sources are {told(self.latest.backlog_s)} behind"
        for name in self.wanted:
            if self.excess[name] > 0:
                return f"{self.latest.operators[name].queue} tuples wait at {name!r}"
        return ""

    @property
    def queued(self) -> str:
        """What waits, also if that is usual, in words; empty if nothing does."""
        waiting = {name: self.latest.operators[name].queue for name in self.wanted}
        some = (f"{count} tuples wait at {name!r}" for name, count in waiting.items() if count)
        return next(some, "")

    @cached_property
    def slow(self) -> str:
        """Which operator cannot keep up with what arrives and waits, in words; empty if none. It
        must be so even if chance had one standard error more arrive, unless a rise is sure."""
        sure = self.pressures or self.forecast.by == "slope"
        least = 1.0 if sure else max(0.1, 1 - self.chance)
        for name, count in self.current.items():
            station = self.network.stations[name]
            each = f"{count} × {station.service_rate:.4g}/s"
            if least * station.utilization(count) >= 1:
                if station.offered_load < count:
                    words = bound(station) or "its busiest processor has too much"
                    return f"{name!r} cannot keep up: {words}"
                arrive = f"{station.arrival_rate:.4g}/s arrive"
                return f"{name!r} cannot keep up: {arrive}, it serves {each}"
            spare = station.service_rate * count - least * station.arrival_rate
            if count < self.draining[name] and self.to_come[name] > spare * self.settings.drain_s:
                waiting = f"{self.to_come[name]:.0f} tuples that wait or are to come"
                return f"{name!r} cannot work off {waiting} in time: it serves {each}"
        return ""

    @property
    def chance(self) -> float:
        """The share by which the load may be off by chance: one standard error of what was told, or
        of what was measured."""
        told_of = (p.rate * p.over_s for p in self.pressures if p.rate is not None)
        count = max(told_of, default=self.smooth.external_rate * self.smooth.interval_s)
        return math.sqrt(max(1.0, self.smooth.arrival_scv or 1.0) / max(1.0, count))

    @cached_property
    def slowed(self) -> frozenset[str]:
        """The operators whose tuples take much longer than in the minutes before the window."""
        first_s = self.now_s - self.settings.about(self.settings.memory_s)
        early = [m for m in self.past if m.time_s <= first_s]
        found = set()
        for name in self.wanted:
            each = [m.operators[name] for m in early]
            known_s = [(o.service_s, o.served) for o in each if o.service_s is not None]
            served = sum(count for _, count in known_s)
            now_s = self.smooth.operators[name].service_s
            before_s = sum(service_s * count for service_s, count in known_s) / max(1, served)
            if served and now_s is not None and now_s > _SLOWED * before_s:
                found.add(name)
        return frozenset(found)

    @property
    def behind(self) -> int:
        """For how many intervals in a row an operator could not keep up."""
        return self.memory.behind + 1 if self.slow else 0

    @property
    def keeps_up(self) -> bool:
        """Whether the present processors suffice for what arrives."""
        return all(self.network.stations[n].is_stable(k) for n, k in self.current.items())

    @property
    def estimate_s(self) -> float | None:
        """The sojourn that the present processors should have shown, by the smoothed rates."""
        return known(self.present_s)

    @cached_property
    def raw_present_s(self) -> float:
        """What the model expects of the present processors, without the learned bias."""
        return self.raw_estimate(self.network, self.current)

    @cached_property
    def present_s(self) -> float:
        """The sojourn that the present processors will show. Infinite if they do not keep up."""
        bound = self.network.bound(self.settings.percentile)
        return self.memory.bias.correct(self.raw_present_s, bound)

    def total(self, allocation: Mapping[str, int]) -> int:
        """Processors of operators; sinks do not count."""
        return sum(allocation[name] for name in self.wanted)

    def from_to(self, best: Mapping[str, int]) -> str:
        """What an allocation changes, in words."""
        return ", ".join(
            f"{name!r} {count} → {best[name]}"
            for name, count in self.current.items()
            if best[name] != count
        )

    def raw_estimate(self, network: Network, allocation: Mapping[str, int]) -> float:
        """The sojourn that the model expects of an allocation, without the learned bias."""
        whole = {**self.limits.fixed, **allocation}
        return network.sojourn(whole, self.settings.percentile)

    def estimate(self, network: Network, allocation: Mapping[str, int]) -> float:
        """The sojourn that an allocation will show, as far as is known."""
        raw = self.raw_estimate(network, allocation)
        return self.memory.bias.correct(raw, network.bound(self.settings.percentile))


@dataclass(frozen=True)
class Decision:
    """What to do and why. `needed` is how many processors it would take, even if there are not that
    many. `expected_s` is the sojourn that the allocation should show from now on. `enough` is an
    allocation of fewer processors that would be enough. `forced` says that there was no choice, so
    the change is not judged. `short` says that what there is falls short, whatever the model says,
    so it is not gone back to for a while. `better` says that other places would be better."""

    action: Action
    reason: str
    allocation: Mapping[str, int] | None = None
    expected_s: float | None = None
    needed: int | None = None
    enough: Mapping[str, int] | None = None
    forced: bool = False
    short: bool = False
    better: bool = False
    known: Known | None = None  # what provisioning has learned
    kinds: Mapping[str, int] | None = None  # machines that there should be, by kind


def known(estimate_s: float) -> float | None:
    """The estimate, or None where a station cannot keep up and the model has no number."""
    return estimate_s if math.isfinite(estimate_s) else None
