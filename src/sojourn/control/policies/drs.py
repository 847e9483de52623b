"""Decide: from measures and the model to one decision with its reason in words (the optimizer and
scheduler of DRS §IV-B). Pure: the same situation gives the same decision, also offline.

Scale up fast, down lazily; never on missing data, never while a change settles. "Infeasible" and
"not ready" are decisions like any other."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sojourn.control.chronic import chronic
from sojourn.control.measure import back_at, lasting, metric_of
from sojourn.control.programs import (
    assigned,
    busier,
    evenly,
    fewest,
    filled,
    keeping_up,
    operators_of,
    within,
)
from sojourn.control.review import made_worse, restrained, unfinished
from sojourn.control.situation import Action, Blind, Decision, Situation, known
from sojourn.queueing.allocation import Plan
from sojourn.queueing.network import Network, what_of
from sojourn.units import format_duration as told

_AS_HIGH = 0.9  # of a load that is taken for as high
_LOOKS = 5  # intervals between two looks at whether places are wrong
_WORTH = 0.05  # the least share of processors worth giving back; smaller changes would never end
_LEAST_SHARE = 0.1  # of the target that is aimed at
_LASTS_S = 3.0  # the target is not missed by accident for that long
_AGREE = 2  # intervals in a row in which an operator is behind; so many signs alone may be chance
_AHEAD = 3  # times the headroom that is left free while the load rises steadily


def drs(s: Situation | Blind) -> Decision:
    """One tick's decision."""
    if isinstance(s, Blind):
        return _blindly(s)
    if s.pressures:
        return _at_once(s)
    waiting = unfinished(s)
    if waiting is not None:
        return _urgent(s) or waiting
    if s.most is not None and s.total(s.current) > s.most:
        return restrained(s, _fit(s, s.most))
    worse = made_worse(s)
    if worse is not None:
        return worse
    if s.settings.max_sojourn_s is None:
        found = _least_sojourn(s)
    else:
        found = _keep_target(s, s.settings.max_sojourn_s)
    return restrained(s, found)


def _blindly(s: Blind) -> Decision:
    """Nothing can be decided. But if nothing has arrived for long, little is needed."""
    since_s, least = s.idle_since_s, s.least
    if s.settings.max_sojourn_s is None or since_s is None:
        return Decision(Action.NOT_READY, s.why.reason)
    idle_s, needed = s.now_s - since_s, sum(least.values())
    if idle_s < s.settings.quiet_s:
        return Decision(Action.NOT_READY, s.why.reason)
    what = f"nothing has arrived for {told(idle_s)}"
    if s.wanted == least:
        return Decision(Action.HOLD, f"{what}; every operator is at its minimum", needed=needed)
    reason = f"{what}: every operator to its minimum"
    return Decision(Action.REMOVE, reason, least, needed=needed, forced=True)


def _fit(s: Situation, most: int) -> Decision:
    """More processors are in use than allowed: K_max was lowered, or a machine is gone."""
    what = f"{s.total(s.current)} processors are in use and the limit is {most}"
    best, note = within(s, most)
    if best == s.current:
        reason = f"{what}, but every operator is at its minimum"
        return Decision(Action.INFEASIBLE, reason, needed=_as_before(s))
    reason = f"{what}: {s.from_to(best)}{note}"
    expected = known(s.estimate(s.network, best))
    return Decision(Action.REMOVE, reason, best, expected, _as_before(s), forced=True)


def _as_before(s: Situation) -> int:
    """The processors that the target takes, or else as many as there were, within K_max."""
    target_s, most = s.settings.max_sojourn_s, s.settings.max_processors
    plan = None if target_s is None else fewest(s, s.network, target_s, None)[0]
    needed = s.total(s.wanted if plan is None or not plan.feasible else plan.allocation)
    return needed if most is None else min(needed, most)


def _least_sojourn(s: Situation) -> Decision:
    """Program 6: K_max processors, placed for the least sojourn."""
    assert s.most is not None
    needed = s.settings.max_processors
    best, note = within(s, s.most)
    if note and best == s.current:
        reason = f"all {s.most} processors are in use{note}"
        return Decision(Action.INFEASIBLE, reason, needed=needed)
    now, then = s.present_s, s.estimate(s.network, best)
    if best == s.current or (not note and then > (1 - s.settings.gain) * now):
        reason = f"no placement of {s.most} processors is much better"
        return Decision(Action.HOLD, reason, expected_s=known(now), needed=needed)
    action = Action.ADD if s.total(best) > s.total(s.current) else Action.MOVE
    if action is Action.MOVE and not _pays(s, s.network, best):
        reason = f"no placement of {s.most} processors is sure to be better{note}"
        return Decision(Action.HOLD, reason, expected_s=known(now), needed=needed)
    promise = f": {told(then)} expected" if math.isfinite(then) else ""
    instead = f" instead of {told(now)}" if promise and math.isfinite(now) else ""
    reason = f"{s.from_to(best)}{promise}{instead}{note}"
    return Decision(action, reason, best, known(then), needed)


def _keep_target(s: Situation, target_s: float) -> Decision:
    """Program 8: the target, with the fewest processors."""
    measured, slow = s.metric, s.slow
    expected = s.present_s
    if slow and (s.missed or s.behind >= _AGREE):
        return _add(s, target_s, _and_forecast(s, slow), _risen(s))
    if s.missed:
        assert measured is not None
        why = f"{what_of(s.settings.percentile)} {told(measured)} is above {told(target_s)}"
        above_s = s.above * s.settings.interval_s
        signs = s.above + s.smooth.rising + (not s.keeps_up)
        lasts = above_s >= _LASTS_S or signs > _AGREE
        agreed = expected > target_s and lasts
        if agreed or above_s > s.settings.reach_s:
            return _add(s, target_s, _and_forecast(s, why), _risen(s))
        by_model = f"the model expects {told(expected)}"
        but = s.backlog or (by_model if s.keeps_up else "by the model an operator falls behind")
        reason = f"{why}, and {but}; waiting to see whether it lasts"
        return Decision(Action.WAIT, reason, expected_s=known(expected))
    share = max(_LEAST_SHARE, 1 - _AHEAD * s.settings.headroom) if s.forecast.by == "slope" else 1.0
    if s.forecast.words and s.estimate(_loaded(s, s.forecast.soon), s.current) > share * target_s:
        return _add(s, target_s, s.forecast.words, _foreseen(s), _foreseen(s))
    found = _chronic(s, target_s)
    if found is None and not s.backlog:
        found = _fewer(s, target_s)
    if found is None:
        found = _move(s, measured, target_s, expected)
    stays = found.action in (Action.HOLD, Action.CHRONIC) and found.needed is None
    if stays and s.limits.capacity is not None:
        return replace(found, needed=_room(s, target_s, s.limits.capacity))
    return found


def _chronic(s: Situation, target_s: float) -> Decision | None:
    """All seems well, but the target is missed again and again. More processors help if tuples
    wait; else say what would."""
    found = chronic(s, target_s)
    if found is None:
        return None
    why = f"{found.often}: {found.cause}"
    expected = known(s.present_s)
    if not found.busy:
        return Decision(Action.CHRONIC, f"{why}; {found.remedy}", expected_s=expected)
    total = s.total(s.current)
    if s.most is not None and total >= s.most:
        reason = f"{why}; the limit is {s.most} processors"
        room = s.most != s.settings.max_processors  # a machine would help
        needed = total + 1 if room else None
        return Decision(Action.CHRONIC, reason, expected_s=expected, needed=needed)
    plan = assigned(s, s.network, total + 1, s.current)
    best = operators_of(s, plan) if plan.feasible else s.current
    if best == s.current:
        reason = f"{why}; one more processor would not help"
        return Decision(Action.CHRONIC, reason, expected_s=expected)
    then = known(s.estimate(s.network, best))
    reason = f"{why}: {s.from_to(best)}"
    return Decision(Action.ADD, reason, best, then, s.total(best), short=True)


def _room(s: Situation, target_s: float, capacity: int) -> int:
    """For how many processors there should still be room. A machine takes long to come, so one is
    kept for as long as its processors would be kept if they were in use."""
    plan = _ample(s, target_s)
    needed = capacity if plan is None else s.total(plan.allocation)
    return min(capacity, max(needed, s.total(s.current)))


def _urgent(s: Situation) -> Decision | None:
    """An operator falls behind and this cannot wait, or another change is under way: give it more
    at once, if it has what was asked for and none is taken from others."""
    target_s = s.settings.max_sojourn_s
    if target_s is None or not s.slow:
        return None
    found = _add(s, target_s, s.slow, _risen(s))
    if found.action is not Action.ADD or found.allocation is None:
        return None
    best = {
        name: max(count, s.wanted[name])
        if s.current[name] == s.wanted[name] and name not in s.slowed
        else s.wanted[name]
        for name, count in found.allocation.items()
    }
    if s.most is not None:
        best = filled(s, s.wanted, best, s.most)
    if best == dict(s.wanted):
        return None
    reason, expected = f"{s.slow}: {s.from_to(best)}", known(s.estimate(s.network, best))
    return replace(found, allocation=best, reason=reason, expected_s=expected)


def _at_once(s: Situation) -> Decision:
    """Something presses: add what the operators that fall behind need, and what the target needs
    at a rate that has risen. Whatever takes processors from others waits for the next tick."""
    target_s = s.settings.max_sojourn_s
    if target_s is None:
        return Decision(Action.HOLD, f"{s.pressing}; there is no target")
    if s.slow:
        wait = Decision(
            Action.WAIT, f"{s.pressing}, and {s.slow}; but nothing can be added at once"
        )
        return _urgent(s) or wait
    expected = s.present_s
    if expected > target_s and any(p.rate is not None for p in s.pressures):
        why = f"{s.pressing}, and {told(expected)} expected is above {told(target_s)}"
        found = _add(s, target_s, why, _risen(s))
        best = found.allocation or {}
        if found.action is Action.ADD and all(best[n] >= k for n, k in s.current.items()):
            return restrained(s, found)
    if expected > target_s:
        reason = f"{s.pressing}; but all operators keep up, so this waits for the next interval"
        return Decision(Action.WAIT, reason, expected_s=known(expected))
    reason = f"{s.pressing}; but {told(expected)} expected is within {told(target_s)}"
    return Decision(Action.HOLD, reason, expected_s=known(expected))


def _risen(s: Situation) -> Network:
    """The network under the load that a change should do for. By now a rising load exceeds what
    the interval shows, unless it has been as high before."""
    rising = s.smooth.rising or bool(s.pressures)
    rate, over_s = s.smooth.external_rate, s.smooth.interval_s
    before = [(m.interval_s, m.external_rate) for m in s.past if m.time_s <= s.now_s - over_s]
    as_high = any(mean > _AS_HIGH * rate for mean in lasting(before))
    seen = as_high or back_at(rate, over_s, before) is not None
    more = (1 + s.settings.headroom) * (1 + s.chance) if rising and not seen else 1.0
    return _loaded(s, max(more * s.forecast.now, s.forecast.rate))


def _foreseen(s: Situation) -> Network:
    """The network under the load that a change should do for."""
    return _loaded(s, s.forecast.rate)


def _and_forecast(s: Situation, why: str) -> str:
    """The reason, and the forecast that is planned for, if there is one."""
    return f"{why}; {s.forecast.words}" if s.forecast.words else why


def _loaded(s: Situation, rate: float) -> Network:
    """The network with that external rate."""
    return busier(s.network, rate / s.forecast.now)


def _add(
    s: Situation, target_s: float, why: str, network: Network, lasting: Network | None = None
) -> Decision:
    least = {n: max(s.current[n], s.wanted[n], s.draining[n]) for n in s.wanted}
    plan, note = fewest(s, network, target_s, least)
    if not plan.feasible:  # then perhaps for no more than is measured
        network = s.network
        plan, note = fewest(s, network, target_s, least)
    # `needed` is without what is needed to work off a backlog.
    ahead, lasting = lasting is not None, lasting or s.network
    after, _ = fewest(s, network, target_s, None)
    needed = s.total(after.allocation if after.feasible else keeping_up(s))
    if not plan.feasible:
        best, note = evenly(s), f"; {plan.reason}; using as many as help"
    elif s.most is not None and s.total(plan.allocation) > s.most:
        best, short = within(s, s.most)
        wanted = s.total(plan.allocation)
        note = f"; {wanted} processors are needed and the limit is {s.most}{short}"
    else:
        best, held = _not_too_many(s, operators_of(s, plan))
        note += held
    if best == s.current and not note and (s.most is None or s.total(best) < s.most):
        # The model sees enough processors, but has been wrong for long: add one.
        best = operators_of(s, assigned(s, s.network, s.total(best) + 1, s.current))
        why_one = "" if ahead else "the model sees no need, so "
        note = f"; {why_one}one more goes where it helps most"
    if best == s.current:
        return Decision(Action.INFEASIBLE, f"{why}{note}; nothing more can be done", needed=needed)
    action = Action.ADD if s.total(best) > s.total(s.current) else Action.MOVE
    if action is Action.MOVE and not _pays(s, s.network, best):
        reason = f"{why}{note}; no other placement is sure to be better"
        return Decision(Action.INFEASIBLE, reason, needed=needed)
    then = s.estimate(lasting, best)
    promise = f", {told(then)} expected" if math.isfinite(then) else ""
    reason = f"{why}: {s.from_to(best)}{promise}{note}"
    return Decision(action, reason, best, known(then), needed)


def _not_too_many(s: Situation, best: Mapping[str, int]) -> tuple[dict[str, int], str]:
    """At most twice as many where tuples take longer than before, and why. If it is the machine
    that has become slow, more processors make it slower still."""
    most = {n: 2 * s.current[n] if n in s.slowed else k for n, k in best.items()}
    held = ", ".join(repr(name) for name, count in best.items() if count > most[name])
    note = f"; tuples take longer than before at {held}, so at most twice as many at first"
    return {n: min(k, most[n]) for n, k in best.items()}, note if held else ""


def _fewer(s: Situation, target_s: float) -> Decision | None:
    """Give processors back if fewer would have been ample all the time for `quiet_s`."""
    smooth = metric_of(s.smooth.sojourn, s.settings.percentile)
    low = s.settings.min_sojourn_s
    if smooth is None or (low is not None and smooth >= low):
        return None
    plan = _ample(s, target_s)
    if plan is None:
        return None
    now = operators_of(s, plan)
    enough = {n: max(k, s.memory.enough.get(n, 0)) for n, k in now.items()}
    if enough == s.current or s.total(enough) > (1 - _WORTH) * s.total(s.current):
        return None
    why = f"fewer processors are enough for {told(target_s)}"
    if low is not None:
        why = f"{what_of(s.settings.percentile)} {told(smooth)} is below {told(low)}"
    since = s.memory.low_since_s
    quiet_s = max(s.settings.quiet_s, s.patience_s)
    lasts_s = 0.0 if since is None else s.now_s - since
    if lasts_s < s.settings.about(quiet_s):
        left = quiet_s - lasts_s
        reason = f"{why}; some are given back if that lasts another {told(left)}"
        expected = known(s.present_s)
        return Decision(Action.WAIT, reason, expected_s=expected, enough=enough)
    then = s.estimate(s.network, enough)
    reason = f"{why}: {s.from_to(enough)}, {told(then)} expected"
    return Decision(Action.REMOVE, reason, enough, known(then), s.total(enough), enough=enough)


def _ample(s: Situation, target_s: float) -> Plan | None:
    """The fewest processors that keep the target with twice the headroom, and with the load raised
    by half the headroom, by sampling error, or to the highest that is forecast until they could be
    had again, so that no addition follows. None if no number does."""
    share = max(_LEAST_SHARE, 1 - 2 * s.settings.headroom)
    chance = max((_error(s, name) for name in s.wanted), default=0.0)
    ahead = s.forecast.highest / s.forecast.now
    network = busier(s.network, max(1 + s.settings.headroom / 2, 1 + chance, ahead))
    plan, note = fewest(s, network, share * target_s, None, exact=True)
    return plan if plan.feasible and not note else None


def _move(s: Situation, measured: float | None, target_s: float, expected: float) -> Decision:
    """The number of processors is right; move some if their places are wrong. That is looked at now
    and then, because it takes long to be sure of."""
    looks = s.memory.better_since_s is not None or s.memory.number % _LOOKS == 0
    plan = assigned(s, s.network, s.total(s.current)) if looks and not s.backlog else None
    if plan is not None and plan.feasible:
        best = operators_of(s, plan)
        if best != s.current and _pays(s, s.network, best):
            now, then = s.present_s, s.estimate(s.network, best)
            reason = (
                f"the same number, placed better: {s.from_to(best)}, {told(then)} expected "
                f"instead of {told(now)}"
            )
            since = s.memory.better_since_s
            quiet_s, lasts_s = s.settings.quiet_s, 0.0 if since is None else s.now_s - since
            if lasts_s < s.settings.about(quiet_s):
                left = quiet_s - lasts_s
                reason = f"{reason}; they are moved if that lasts another {told(left)}"
                return Decision(Action.WAIT, reason, expected_s=known(now), better=True)
            return Decision(Action.MOVE, reason, best, known(then), better=True)
    if measured is None:
        reason = f"no tuple tree was completed, and {s.backlog or s.queued or 'nothing waits'}"
        return Decision(Action.HOLD, reason, expected_s=known(expected))
    though = f", though {s.backlog}" if s.backlog else ""
    reason = f"{what_of(s.settings.percentile)} {told(measured)} is within {told(target_s)}{though}"
    return Decision(Action.HOLD, reason, expected_s=known(expected))


def _pays(s: Situation, network: Network, best: Mapping[str, int]) -> bool:
    """Whether the same number of processors in other places saves enough, even if the measurement
    is off. Operators that lose processors are taken to be busier by some standard errors, others
    less busy. Otherwise chance would move processors to and fro near saturation. Where no placement
    keeps up, the operator that falls behind most should fall behind less."""
    stations = dict(network.stations)
    for name, count in best.items():
        error = _error(s, name)
        factor = 1 + error if count < s.current[name] else 1 / (1 + error)
        station = stations[name]
        stations[name] = station.scaled(speed=1 / factor)
    doubted = replace(network, stations=stations)
    now, then = s.estimate(doubted, s.current), s.estimate(doubted, best)
    if math.isfinite(now) or math.isfinite(then):
        return then < (1 - s.settings.gain) * now

    def worst(allocation: Mapping[str, int]) -> float:
        return max(stations[name].offered_load / allocation[name] for name in best)

    return worst(best) < worst(s.current)


def _error(s: Situation, name: str) -> float:
    """The share by which an operator's measured load may be off, in as many standard errors as
    set."""
    measure = s.smooth.operators[name]
    scvs = (1.0 if scv is None else scv for scv in (measure.arrival_scv, measure.service_scv))
    return s.settings.doubt * math.sqrt(sum(scvs) / max(1, measure.served))
