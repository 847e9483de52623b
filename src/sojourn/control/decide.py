"""Decide: from measures and the model to one decision with its reason in words (the optimizer and
scheduler of DRS §IV-B). Pure: the same situation gives the same decision, also offline.

Scale up fast, down lazily; never on missing data, never while a change settles. "Infeasible" and
"not ready" are decisions like any other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sojourn.control.measure import Measure
from sojourn.control.model import Bias, estimate_of, metric_of
from sojourn.queueing.allocation import Plan, assign_processors, min_processors
from sojourn.queueing.network import Network
from sojourn.settings import ControlSettings
from sojourn.units import format_duration as told

_RETRY_INTERVALS = 4  # a change that is not there after so many is asked for again
_WORSE = 1.3  # times what was expected
_ENOUGH_TREES = 20


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


ACTING = frozenset({Action.ADD, Action.REMOVE, Action.MOVE, Action.ROLL_BACK, Action.RETRY})


@dataclass(frozen=True)
class Change:
    """A change that was decided: when, from what to what, what was measured before it and
    expected of it at which external rate, and whether what was there before kept up."""

    time_s: float
    before: Mapping[str, int]
    after: Mapping[str, int]
    action: Action
    measured_s: float | None
    expected_s: float | None
    rate: float
    kept_up: bool
    reviewed: bool = False


@dataclass(frozen=True)
class Memory:
    """What is remembered from tick to tick."""

    change: Change | None = None
    low_since_s: float | None = None  # there has been too much all the time since
    above: int = 0  # intervals in a row above the target
    rejected: tuple[tuple[Mapping[str, int], float], ...] = ()
    bias: Bias = field(default_factory=Bias)


@dataclass(frozen=True)
class Limits:
    """What each operator must and may have, and what there is in all."""

    minimum: Mapping[str, int]
    maximum: Mapping[str, int]
    fixed: Mapping[str, int]  # sinks, which stay as they are
    capacity: int | None = None


@dataclass(frozen=True)
class Situation:
    """All that a decision is based on. `network` has the smoothed rates, `newest` those of
    the last interval where they are higher, `urgent` also what is needed to work off what waits."""

    now_s: float
    latest: Measure
    smooth: Measure
    network: Network
    newest: Network
    urgent: Network
    wanted: Mapping[str, int]
    limits: Limits
    memory: Memory
    settings: ControlSettings

    @property
    def current(self) -> dict[str, int]:
        """The processors that operators have."""
        return {name: self.latest.operators[name].processors for name in self.wanted}

    def total(self, allocation: Mapping[str, int]) -> int:
        """Processors of operators; sinks do not count."""
        return sum(allocation[name] for name in self.wanted)

    def estimate(self, network: Network, allocation: Mapping[str, int]) -> float:
        """What will be measured with an allocation, as far as is known."""
        whole = {**self.limits.fixed, **allocation}
        raw = estimate_of(network, whole, self.settings.percentile)
        return self.memory.bias.correct(raw)

    @property
    def most(self) -> int | None:
        """Processors that may be used in all."""
        known = [n for n in (self.settings.max_processors, self.limits.capacity) if n is not None]
        return min(known, default=None)


@dataclass(frozen=True)
class Decision:
    """What to do and why. `needed` is how many processors it would take, also if there are not
    that many; `expected_s` what the allocation in force from now on should show."""

    action: Action
    reason: str
    allocation: Mapping[str, int] | None = None
    expected_s: float | None = None
    needed: int | None = None
    too_much: bool = False


def decide(s: Situation) -> Decision:
    """One tick's decision."""
    waiting = _unfinished(s)
    if waiting is not None:
        return waiting
    worse = _made_worse(s)
    if worse is not None:
        return worse
    if s.most is not None and s.total(s.current) > s.most:
        found = _fit(s, s.most)
    elif s.settings.max_sojourn_s is None:
        found = _least_sojourn(s)
    else:
        found = _keep_target(s, s.settings.max_sojourn_s)
    return _restrained(s, found)


def _unfinished(s: Situation) -> Decision | None:
    """A change that is not there yet, or too fresh to be judged."""
    change = s.memory.change
    late = [name for name, count in s.wanted.items() if s.current[name] != count]
    if late:
        name = late[0]
        has, wants = s.current[name], s.wanted[name]
        since = None if change is None else s.now_s - change.time_s
        if since is None or since > _RETRY_INTERVALS * s.settings.interval_s:
            return Decision(
                Action.RETRY,
                f"{name!r} has {has} of the {wants} processors asked for"
                f"{'' if since is None else f' {told(since)} ago'}; asking again",
                dict(s.wanted),
            )
        return Decision(Action.SETTLING, f"{name!r} has {has} of {wants} processors so far")
    if change is not None and s.latest.time_s - s.latest.interval_s < change.time_s:
        ago = told(max(0.0, s.now_s - change.time_s))
        return Decision(
            Action.SETTLING, f"the change of {ago} ago lies within the interval measured"
        )
    return None


def _made_worse(s: Situation) -> Decision | None:
    """Judge the last change, once. It is worse if tuples take longer than before and than
    expected, though no more of them arrive."""
    change = s.memory.change
    measured = metric_of(s.latest.sojourn, s.settings.percentile)
    if change is None or change.reviewed or change.action in (Action.ROLL_BACK, Action.RETRY):
        return None
    if measured is None or change.measured_s is None or not is_judged(s, change):
        return None
    if (s.latest.sojourn.count if s.latest.sojourn else 0) < _ENOUGH_TREES:
        return None
    expected = change.expected_s
    if expected is None or not change.kept_up or s.latest.external_rate > 1.1 * change.rate:
        return None
    if measured <= _WORSE * max(expected, change.measured_s):
        return None
    return Decision(
        Action.ROLL_BACK,
        f"after the last change {told(measured)} were measured, where {told(expected)} were "
        f"expected and {told(change.measured_s)} were measured before it; going back, and not "
        f"trying that again for {told(s.settings.hold_off_s)}",
        dict(change.before),
    )


def is_judged(s: Situation, change: Change) -> bool:
    """Whether a change shows what it is worth: what it found waiting is worked off, or has had the
    time for it."""
    return not _backlog(s) or s.now_s - change.time_s > 3 * s.settings.interval_s


def keeps_up(s: Situation) -> bool:
    """Whether the processors there are suffice for what arrives."""
    return all(s.newest.stations[name].is_stable(count) for name, count in s.current.items())


def _backlog(s: Situation) -> str:
    """What waits beyond what is usual, in words; nothing if nothing."""
    if s.latest.backlog_s > s.settings.interval_s / 2:
        return f"sources are {told(s.latest.backlog_s)} behind"
    for name in s.wanted:
        if s.urgent.stations[name].arrival_rate > 1.01 * s.newest.stations[name].arrival_rate:
            return f"{s.latest.operators[name].queue} tuples wait at {name!r}"
    return ""


def _fit(s: Situation, most: int) -> Decision:
    """More is in use than may be: K_max was lowered, or a machine is gone."""
    best, note = _within(s, most)
    then = s.estimate(s.urgent, best)
    reason = (
        f"{s.total(s.current)} processors are in use and {most} may be: {_from_to(s, best)}{note}"
    )
    return Decision(Action.REMOVE, reason, best, _known(then))


def _least_sojourn(s: Situation) -> Decision:
    """Program 6: K_max processors, placed for the least sojourn."""
    assert s.most is not None
    best, note = _within(s, s.most)
    if note and best == s.current:
        return Decision(Action.INFEASIBLE, f"all {s.most} processors are in use{note}")
    now, then = s.estimate(s.urgent, s.current), s.estimate(s.urgent, best)
    if best == s.current or (not note and then > (1 - s.settings.gain) * now):
        return Decision(
            Action.HOLD,
            f"no placement of {s.most} processors is much better",
            expected_s=_known(now),
        )
    action = Action.ADD if s.total(best) > s.total(s.current) else Action.MOVE
    promise = f": {told(then)} expected" if math.isfinite(then) else ""
    instead = f" instead of {told(now)}" if promise and math.isfinite(now) else ""
    return Decision(action, f"{_from_to(s, best)}{promise}{instead}{note}", best, _known(then))


def _keep_target(s: Situation, target_s: float) -> Decision:
    """Program 8: the target, with the fewest processors."""
    measured = metric_of(s.latest.sojourn, s.settings.percentile)
    smooth = metric_of(s.smooth.sojourn, s.settings.percentile)
    what = _what(s)
    unstable = [n for n in s.wanted if not s.urgent.stations[n].is_stable(s.current[n])]
    expected = s.estimate(s.urgent, s.current)
    if unstable:
        name = unstable[0]
        station = s.urgent.stations[name]
        return _add(
            s,
            target_s,
            f"{name!r} cannot keep up: {station.arrival_rate:.4g}/s to work off at "
            f"{station.service_rate:.4g}/s for each of {s.current[name]}",
        )
    if measured is not None and measured > target_s:
        if expected > target_s or s.memory.above >= s.settings.window:
            return _add(s, target_s, f"{what} {told(measured)} is above {told(target_s)}")
        why = _backlog(s) or f"the model expects {told(expected)}"
        return Decision(
            Action.WAIT,
            f"{what} {told(measured)} is above {told(target_s)}, but {why}; "
            "waiting whether it stays there",
            expected_s=_known(expected),
        )
    fewer = _fewer(s, target_s)
    low = s.settings.min_sojourn_s
    if fewer is not None and smooth is not None and not _backlog(s):
        if low is None:
            return _remove(s, fewer, f"fewer processors keep {told(target_s)}", expected)
        if smooth < low:
            why = f"{what} {told(smooth)} is below {told(low)}"
            return _remove(s, fewer, why, expected)
    return _move(s, measured, target_s, expected)


def _add(s: Situation, target_s: float, why: str) -> Decision:
    plan, note = _fewest(s, s.urgent, target_s, s.current)
    needed = s.total(plan.allocation) if plan.feasible else None
    if not plan.feasible:
        best, note = _evenly(s), f"; {plan.reason}; using all there is"
    elif s.most is not None and s.total(plan.allocation) > s.most:
        best, note = _within(s, s.most)
        note = f"; {needed} processors would be needed and {s.most} may be used{note}"
    else:
        best = _operators_of(s, plan)
    if best == s.current and not note and (s.most is None or s.total(best) < s.most):
        # The model thinks that there are enough, and has been wrong for long: one more, then.
        best = _operators_of(s, _assigned(s, s.urgent, s.total(best) + 1))
        note = "; the model sees no need, so one more where it helps most"
    if best == s.current:
        return Decision(Action.INFEASIBLE, f"{why}{note}; nothing more can be done", needed=needed)
    action = Action.ADD if s.total(best) > s.total(s.current) else Action.MOVE
    then = s.estimate(s.urgent, best)
    promise = f", {told(then)} expected" if math.isfinite(then) else ""
    reason = f"{why}: {_from_to(s, best)}{promise}{note}"
    return Decision(action, reason, best, _known(then), needed or s.total(best))


def _within(s: Situation, most: int) -> tuple[dict[str, int], str]:
    """The best placement of what may be used: to work off what waits, else to keep up, else to
    fall behind evenly."""
    for network in (s.urgent, s.newest):
        plan = _assigned(s, network, most)
        if plan.feasible:
            return _operators_of(s, plan), ""
    return _evenly(s), "; even that does not keep up"


def _evenly(s: Situation) -> dict[str, int]:
    """All that may be used, where most is to be done for each processor."""
    best = {name: max(1, s.limits.minimum.get(name, 1)) for name in s.wanted}
    load = {name: s.newest.stations[name].offered_load for name in s.wanted}
    while s.most is None or sum(best.values()) < s.most:
        open_to = [n for n in best if best[n] < s.limits.maximum.get(n, math.inf)]
        if s.most is None:  # no more than keeps up
            open_to = [n for n in open_to if load[n] >= best[n]]
        if not open_to:
            break
        best[max(open_to, key=lambda n: load[n] / best[n])] += 1
    return best


def _known(value: float) -> float | None:
    """None where the model has no number."""
    return value if math.isfinite(value) else None


def _fewer(s: Situation, target_s: float) -> dict[str, int] | None:
    """Fewer processors than there are that keep the target, with twice the headroom of a change
    the other way, so that it does not come next."""
    share = max(0.1, 1 - 2 * s.settings.headroom)
    plan, note = _fewest(s, s.newest, share * target_s, None, exact=True)
    if note or not plan.feasible or s.total(plan.allocation) >= s.total(s.current):
        return None
    return _operators_of(s, plan)


def _remove(s: Situation, best: dict[str, int], why: str, expected: float) -> Decision:
    low = s.memory.low_since_s
    if low is None or s.now_s - low < s.settings.quiet_s:
        left = s.settings.quiet_s - (0.0 if low is None else s.now_s - low)
        return Decision(
            Action.WAIT,
            f"{why}; some are given back if it stays so for {told(left)} more",
            expected_s=_known(expected),
            too_much=True,
        )
    then = s.estimate(s.newest, best)
    return Decision(
        Action.REMOVE,
        f"{why}: {_from_to(s, best)}, {told(then)} expected",
        best,
        then,
        s.total(best),
        too_much=True,
    )


def _move(s: Situation, measured: float | None, target_s: float, expected: float) -> Decision:
    """The right number, perhaps in the wrong places."""
    plan = _assigned(s, s.network, s.total(s.current))
    if plan.feasible:
        best = _operators_of(s, plan)
        now, then = s.estimate(s.network, s.current), s.estimate(s.network, best)
        if best != s.current and then < (1 - s.settings.gain) * now:
            return Decision(
                Action.MOVE,
                f"as many processors in other places: {_from_to(s, best)}, {told(then)} expected "
                f"instead of {told(now)}",
                best,
                then,
            )
    if measured is None:
        return Decision(Action.HOLD, "no tuple tree was completed", expected_s=expected)
    waits = _backlog(s)
    return Decision(
        Action.HOLD,
        f"{_what(s)} {told(measured)} is within {told(target_s)}"
        + (f", though {waits}" if waits else ""),
        expected_s=_known(expected),
    )


def _restrained(s: Situation, found: Decision) -> Decision:
    """Not so soon after the last change, and nothing that was rolled back."""
    if found.action not in ACTING or found.allocation is None:
        return found
    change = s.memory.change
    if change is not None and s.now_s - change.time_s < s.settings.change_interval_s:
        left = told(s.settings.change_interval_s - (s.now_s - change.time_s))
        return Decision(
            Action.WAIT, f"{found.reason}; but the last change is too fresh, {left} to go",
            needed=found.needed,
        )  # fmt: skip
    if (
        found.action is Action.ADD
        and change is not None
        and not change.reviewed
        and not is_judged(s, change)
        and s.latest.external_rate <= 1.1 * change.rate
    ):
        return Decision(
            Action.WAIT,
            f"{found.reason}; but the last change has not shown yet what it is worth",
            needed=found.needed,
        )
    for allocation, until_s in s.memory.rejected:
        # What made things worse does so all the more with more.
        more = found.action is Action.ADD and s.total(found.allocation) >= s.total(allocation)
        if (more or dict(found.allocation) == dict(allocation)) and s.now_s < until_s:
            return Decision(
                Action.WAIT,
                f"{found.reason}; but that was rolled back, and is not tried again for "
                f"{told(until_s - s.now_s)}",
            )
    return found


def _fewest(
    s: Situation,
    network: Network,
    target_s: float,
    least: Mapping[str, int] | None,
    exact: bool = False,
) -> tuple[Plan, str]:
    """The fewest processors for the target with headroom (or exactly, without); if that cannot be
    had, for what can, with a note that says so."""
    minimum = {
        n: max(s.limits.minimum.get(n, 1), least[n] if least else 1) for n in s.wanted
    } | dict(s.limits.fixed)
    maximum = dict(s.limits.maximum) | dict(s.limits.fixed)
    bias, percentile = s.memory.bias, s.settings.percentile
    shares = ((1.0, ""),) if exact else ((1 - s.settings.headroom, ""), (1.0, "; without headroom"))
    for share, note in shares:
        inner = bias.estimate_for(share * target_s)
        if inner > 0:
            plan = min_processors(network, inner, percentile, minimum, maximum)
            if plan.feasible:
                return plan, note
    bound = network.lower_bound() if percentile is None else network.percentile_bound(percentile)
    plan = min_processors(network, 1.1 * bound, percentile, minimum, maximum)
    least_s = told(bias.correct(bound))
    return plan, f"; {told(target_s)} cannot be had, as tuples take {least_s} without any waiting"


def _assigned(s: Situation, network: Network, processors: int) -> Plan:
    minimum = {n: s.limits.minimum.get(n, 1) for n in s.wanted} | dict(s.limits.fixed)
    maximum = dict(s.limits.maximum) | dict(s.limits.fixed)
    return assign_processors(network, processors + sum(s.limits.fixed.values()), minimum, maximum)


def _operators_of(s: Situation, plan: Plan) -> dict[str, int]:
    return {name: plan.allocation[name] for name in s.wanted}


def _from_to(s: Situation, best: Mapping[str, int]) -> str:
    changed = [
        f"{name!r} {s.current[name]} → {best[name]}"
        for name in s.wanted
        if best[name] != s.current[name]
    ]
    return ", ".join(changed)


def _what(s: Situation) -> str:
    p = s.settings.percentile
    return "mean sojourn" if p is None else f"p{p:g} sojourn"
