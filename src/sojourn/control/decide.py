"""Decide: from measures and the model to one decision with its reason in words (the optimizer and
scheduler of DRS §IV-B). Pure: the same situation gives the same decision, also offline.

Scale up fast, down lazily; never on missing data, never while a change settles. "Infeasible" and
"not ready" are decisions like any other."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sojourn.control.model import bare_of, metric_of
from sojourn.control.review import made_worse, restrained, unfinished
from sojourn.control.situation import Action, Decision, Situation
from sojourn.queueing.allocation import Plan, assign_processors, min_processors
from sojourn.queueing.network import Network
from sojourn.units import format_duration as told

_WORTH = 0.05  # share of the processors that giving some back must free, or it never ends
_AGREE = 2  # intervals in a row above the target, or behind, that are no accident


def decide(s: Situation) -> Decision:
    """One tick's decision."""
    waiting = unfinished(s)
    if waiting is not None:
        return waiting
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


def _fit(s: Situation, most: int) -> Decision:
    """More is in use than may be: K_max was lowered, or a machine is gone."""
    what = f"{s.total(s.current)} processors are in use and the limit is {most}"
    best, note = _within(s, most)
    if best == s.current:
        return Decision(Action.INFEASIBLE, f"{what}, but every operator is at its minimum")
    reason = f"{what}: {_from_to(s, best)}{note}"
    return Decision(Action.REMOVE, reason, best, _known(s.estimate(s.newest, best)), forced=True)


def _least_sojourn(s: Situation) -> Decision:
    """Program 6: K_max processors, placed for the least sojourn."""
    assert s.most is not None
    needed = s.settings.max_processors
    best, note = _within(s, s.most)
    if note and best == s.current:
        reason = f"all {s.most} processors are in use{note}"
        return Decision(Action.INFEASIBLE, reason, needed=needed)
    now, then = s.estimate(s.newest, s.current), s.estimate(s.newest, best)
    if best == s.current or (not note and then > (1 - s.settings.gain) * now):
        reason = f"no placement of {s.most} processors is much better"
        return Decision(Action.HOLD, reason, expected_s=_known(now), needed=needed)
    action = Action.ADD if s.total(best) > s.total(s.current) else Action.MOVE
    if action is Action.MOVE and not _pays(s, s.newest, best):
        reason = f"no placement of {s.most} processors is sure to be better{note}"
        return Decision(Action.HOLD, reason, expected_s=_known(now), needed=needed)
    promise = f": {told(then)} expected" if math.isfinite(then) else ""
    instead = f" instead of {told(now)}" if promise and math.isfinite(now) else ""
    reason = f"{_from_to(s, best)}{promise}{instead}{note}"
    return Decision(action, reason, best, _known(then), needed)


def _keep_target(s: Situation, target_s: float) -> Decision:
    """Program 8: the target, with the fewest processors."""
    measured = metric_of(s.latest.sojourn, s.settings.percentile)
    what = _what(s)
    expected = s.estimate(s.newest, s.current)
    missed = measured is not None and measured > target_s
    slow = behind(s)
    if slow and (missed or s.memory.behind >= _AGREE):
        # What rises has risen further than the interval shows.
        return _add(s, target_s, slow, _busier(s.newest, 1 + s.settings.headroom))
    if missed:
        assert measured is not None
        why = f"{what} {told(measured)} is above {told(target_s)}"
        agreed = expected > target_s and (s.rising or s.memory.above >= _AGREE)
        if agreed or s.memory.above > s.settings.window:
            network = _busier(s.newest, 1 + s.settings.headroom) if s.rising else s.newest
            return _add(s, target_s, why, network)
        but = s.backlog or f"the model expects {told(expected)}"
        reason = f"{why}, and {but}; waiting to see whether it lasts"
        return Decision(Action.WAIT, reason, expected_s=_known(expected))
    if not s.backlog:
        fewer = _fewer(s, target_s)
        if fewer is not None:
            return fewer
    found = _move(s, measured, target_s, expected)
    if found.action is Action.HOLD and s.limits.capacity is not None:
        return replace(found, needed=_room(s, target_s, s.limits.capacity))
    return found


def _room(s: Situation, target_s: float, capacity: int) -> int:
    """For how many processors there should still be room. A machine that goes or comes stalls
    tuples, so it is kept as long as its processors would not be given back if they were in use."""
    plan = _ample(s, target_s)
    needed = capacity if plan is None else s.total(plan.allocation)
    return min(capacity, max(needed, s.total(s.current)))


def behind(s: Situation) -> str:
    """Which operator cannot keep up with what arrives and waits, in words; nothing if none."""
    for name, count in s.current.items():
        station = s.newest.stations[name]
        each = f"{count} × {station.service_rate:.4g}/s"
        if not station.is_stable(count):
            return f"{name!r} cannot keep up: {station.arrival_rate:.4g}/s arrive, it serves {each}"
        if count < s.draining[name]:
            queue = s.latest.operators[name].queue
            return f"{name!r} cannot work off {queue} waiting tuples in time: it serves {each}"
    return ""


def _add(s: Situation, target_s: float, why: str, network: Network) -> Decision:
    least = {n: max(s.current[n], s.draining[n]) for n in s.wanted}
    plan, note = _fewest(s, network, target_s, least)
    # What is needed for good does not include what is needed to work off a backlog.
    lasting, _ = _fewest(s, s.newest, target_s, None)
    needed = s.total(lasting.allocation) if lasting.feasible else None
    if not plan.feasible:
        best, note = _evenly(s), f"; {plan.reason}; using as many as allowed"
    elif s.most is not None and s.total(plan.allocation) > s.most:
        best, short = _within(s, s.most)
        wanted = s.total(plan.allocation)
        note = f"; {wanted} processors are needed and the limit is {s.most}{short}"
    else:
        best = _operators_of(s, plan)
    if best == s.current and not note and (s.most is None or s.total(best) < s.most):
        # The model thinks that there are enough, and has been wrong for long: one more, then.
        best = _operators_of(s, _assigned(s, s.newest, s.total(best) + 1))
        note = "; the model sees no need, so one more goes where it helps most"
    if best == s.current:
        return Decision(Action.INFEASIBLE, f"{why}{note}; nothing more can be done", needed=needed)
    action = Action.ADD if s.total(best) > s.total(s.current) else Action.MOVE
    if action is Action.MOVE and not _pays(s, s.newest, best):
        reason = f"{why}{note}; no other placement is sure to be better"
        return Decision(Action.INFEASIBLE, reason, needed=needed)
    then = s.estimate(s.newest, best)
    promise = f", {told(then)} expected" if math.isfinite(then) else ""
    reason = f"{why}: {_from_to(s, best)}{promise}{note}"
    return Decision(action, reason, best, _known(then), needed or s.total(best))


def _fewer(s: Situation, target_s: float) -> Decision | None:
    """Give processors back, if all the time for `quiet_s` fewer would have been ample."""
    smooth = metric_of(s.smooth.sojourn, s.settings.percentile)
    low = s.settings.min_sojourn_s
    if smooth is None or (low is not None and smooth >= low):
        return None
    plan = _ample(s, target_s)
    if plan is None:
        return None
    now = _operators_of(s, plan)
    enough = {n: max(k, s.memory.enough.get(n, 0)) for n, k in now.items()}
    if s.total(enough) > (1 - _WORTH) * s.total(s.current):
        return None
    why = f"fewer processors are enough for {told(target_s)}"
    if low is not None:
        why = f"{_what(s)} {told(smooth)} is below {told(low)}"
    since = s.memory.low_since_s
    left = s.settings.quiet_s - (0.0 if since is None else s.now_s - since)
    if left > 0:
        reason = f"{why}; some are given back if that lasts another {told(left)}"
        expected = _known(s.estimate(s.newest, s.current))
        return Decision(Action.WAIT, reason, expected_s=expected, enough=enough)
    then = s.estimate(s.newest, enough)
    reason = f"{why}: {_from_to(s, enough)}, {told(then)} expected"
    return Decision(Action.REMOVE, reason, enough, _known(then), s.total(enough), enough=enough)


def _ample(s: Situation, target_s: float) -> Plan | None:
    """The fewest processors that keep the target with twice the headroom of a change the other way
    and as much more load, or as much as chance may have hidden, so that it is not the next to
    come; None if none do."""
    share = max(0.1, 1 - 2 * s.settings.headroom)
    chance = max(_error(s, name) for name in s.wanted)
    busier = _busier(s.newest, 1 + max(s.settings.headroom, chance))
    plan, note = _fewest(s, busier, share * target_s, None, exact=True)
    return plan if plan.feasible and not note else None


def _busier(network: Network, factor: float) -> Network:
    """The same with so many times the load."""
    stations = {
        name: replace(station, arrival_rate=factor * station.arrival_rate)
        for name, station in network.stations.items()
    }
    return Network(stations, factor * network.external_rate)


def _move(s: Situation, measured: float | None, target_s: float, expected: float) -> Decision:
    """The right number, perhaps in the wrong places."""
    plan = _assigned(s, s.network, s.total(s.current))
    if plan.feasible and not s.backlog:
        best = _operators_of(s, plan)
        now, then = s.estimate(s.network, s.current), s.estimate(s.network, best)
        if best != s.current and _pays(s, s.network, best):
            reason = (
                f"the same number, placed better: {_from_to(s, best)}, {told(then)} expected "
                f"instead of {told(now)}"
            )
            return Decision(Action.MOVE, reason, best, _known(then))
    if measured is None:
        return Decision(Action.HOLD, "no tuple tree was completed", expected_s=_known(expected))
    though = f", though {s.backlog}" if s.backlog else ""
    reason = f"{_what(s)} {told(measured)} is within {told(target_s)}{though}"
    return Decision(Action.HOLD, reason, expected_s=_known(expected))


def _pays(s: Situation, network: Network, best: Mapping[str, int]) -> bool:
    """Whether as many processors in other places save enough, even if what was measured erred
    against them: operators that lose some are busier by some standard errors, others less busy.
    Near saturation, chance would else move processors to and fro. Where nothing keeps up, the
    operator that falls behind most should do so less."""
    stations = dict(network.stations)
    for name, count in best.items():
        error = _error(s, name)
        factor = 1 + error if count < s.current[name] else 1 / (1 + error)
        station = stations[name]
        stations[name] = replace(station, service_rate=station.service_rate / factor)
    doubted = Network(stations, network.external_rate)
    now, then = s.estimate(doubted, s.current), s.estimate(doubted, best)
    if math.isfinite(now) or math.isfinite(then):
        return then < (1 - s.settings.gain) * now

    def worst(allocation: Mapping[str, int]) -> float:
        return max(stations[name].offered_load / allocation[name] for name in best)

    return worst(best) < worst(s.current)


def _error(s: Situation, name: str) -> float:
    """The standard errors that are doubted of an operator's measured load, as a share of it."""
    measure = s.smooth.operators[name]
    scvs = (1.0 if scv is None else scv for scv in (measure.arrival_scv, measure.service_scv))
    return s.settings.doubt * math.sqrt(sum(scvs) / max(1, measure.served))


def _within(s: Situation, most: int) -> tuple[dict[str, int], str]:
    """The best placement of what may be used: to work off what waits, else to keep up, else to
    fall behind evenly."""
    for least in (s.draining, None):
        plan = _assigned(s, s.newest, most, least)
        if plan.feasible:
            return _operators_of(s, plan), ""
    return _evenly(s), "; that is too few to keep up"


def _evenly(s: Situation) -> dict[str, int]:
    """All that may be used, where most is to be done for each processor; without a bound, enough
    everywhere to keep up and no less than there is."""
    least = {name: max(1, s.limits.minimum.get(name, 1)) for name in s.wanted}
    load = {name: s.newest.stations[name].offered_load for name in s.wanted}
    best = least if s.most is not None else {n: max(k, s.current[n]) for n, k in least.items()}
    while s.most is None or sum(best.values()) < s.most:
        open_to = [n for n in best if best[n] < s.limits.maximum.get(n, math.inf)]
        if s.most is None:
            open_to = [n for n in open_to if max(load[n], s.draining[n] - 1) >= best[n]]
        if not open_to:
            break
        best[max(open_to, key=lambda n: load[n] / best[n])] += 1
    return best


def _fewest(
    s: Situation,
    network: Network,
    target_s: float,
    least: Mapping[str, int] | None,
    exact: bool = False,
) -> tuple[Plan, str]:
    """The fewest processors for the target with headroom (or exactly, without); if that cannot be
    had, for what can, with a note that says so."""
    minimum, maximum = _bounds(s, least)
    bias, percentile = s.memory.bias, s.settings.percentile
    shares = ((1.0, ""),) if exact else ((1 - s.settings.headroom, ""), (1.0, "; without headroom"))
    bound = bare_of(network, percentile)
    for share, note in shares:
        inner = bias.estimate_for(share * target_s, bound)
        if inner > 0:
            plan = min_processors(network, inner, percentile, minimum, maximum)
            if plan.feasible:
                return plan, note
    plan = min_processors(network, 1.1 * bound, percentile, minimum, maximum)
    shortest = told(bias.correct(bound, bound))
    return plan, f"; {told(target_s)} is out of reach: tuples take {shortest} without any waiting"


def _assigned(
    s: Situation, network: Network, processors: int, least: Mapping[str, int] | None = None
) -> Plan:
    minimum, maximum = _bounds(s, least)
    return assign_processors(network, processors + sum(s.limits.fixed.values()), minimum, maximum)


def _bounds(s: Situation, least: Mapping[str, int] | None) -> tuple[dict[str, int], dict[str, int]]:
    minimum = {n: max(s.limits.minimum.get(n, 1), least[n] if least else 1) for n in s.wanted}
    return minimum | dict(s.limits.fixed), dict(s.limits.maximum) | dict(s.limits.fixed)


def _operators_of(s: Situation, plan: Plan) -> dict[str, int]:
    return {name: plan.allocation[name] for name in s.wanted}


def _from_to(s: Situation, best: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name!r} {s.current[name]} → {best[name]}"
        for name in s.wanted
        if best[name] != s.current[name]
    )


def _what(s: Situation) -> str:
    p = s.settings.percentile
    return "mean sojourn" if p is None else f"p{p:g} sojourn"


def _known(value: float) -> float | None:
    """None where the model has no number."""
    return value if math.isfinite(value) else None
