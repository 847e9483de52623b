"""Remember: the memory that a tick leaves to the next, made anew from the situation and the
decision. Fed by `decide`; the next tick begins with it. Pure."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sojourn.control.chronic import LONG_S
from sojourn.control.measure import Measure
from sojourn.control.review import SHORT, is_judged, is_worse
from sojourn.control.situation import (
    Action,
    Blind,
    Change,
    Decision,
    Memory,
    Rejected,
    Short,
    Situation,
)

_LEARN_S = 5.0  # between two intervals that are learned from
_SHORT = 10  # allocations that were not enough that are remembered
_ENOUGH_TREES = 10  # the fewest in an interval that is learned from
# No change is under way.
_STILL = (Action.HOLD, Action.WAIT, Action.INFEASIBLE, Action.REMOVE, Action.CHRONIC)


def after_start(memory: Memory, starts: int) -> Memory:
    """The memory after the topology started anew, because it failed or moved to other machines.
    Tuples waited meanwhile, so nothing is judged by them."""
    change = memory.change
    return replace(
        memory,
        starts=starts,
        starting=True,
        change=None if change is None else replace(change, reviewed=True),
        above=0,
        behind=0,
        waited=True,
        past=_without_sojourns(memory),
        since=None,  # what is added now is for what waited
        short=(),
    )


def remembered(s: Situation | Blind, decision: Decision) -> Memory:
    """What is known after a tick, whether or not its decision is carried out. An urgent one is
    no part of the measured past. Nothing is given back until `quiet_s` after it."""
    number = s.memory.number + 1
    if s.pressures:
        rates = [(s.now_s, p) for p in s.pressures if p.rate is not None]
        return replace(
            s.memory,
            number=number,
            stirred_s=s.now_s,
            low_since_s=None,
            enough={},
            pressed=(*s.memory.pressed, *rates),
            risen_s=max((at - p.over_s for at, p in rates), default=s.memory.risen_s),
        )
    memory = _by_clock(s.memory, s.now_s)
    past = memory.past if s.measure is None else s.past
    memory = replace(memory, number=number, before_s=s.now_s, past=past, pressed=())
    if decision.known is not None:
        memory = replace(memory, known=decision.known)
    if s.memory.before_s is None or s.now_s >= s.memory.before_s:
        outlook = s.outlook.with_room(s.now_s, decision.needed, s.limits.capacity)
        memory = replace(memory, outlook=outlook)
    if isinstance(s, Blind):
        unseen = s.measure is None and not s.why.idle
        return replace(memory, waited=memory.waited or unseen, idle_since_s=s.idle_since_s)
    return replace(
        memory,
        waited=False,
        change=_judged(s, decision),
        low_since_s=_low_since_s(s, decision),
        better_since_s=_better_since_s(s, decision),
        enough=dict(decision.enough or {}),
        above=s.above,
        behind=s.behind,
        idle_since_s=None,
        stirred_s=_stirred_s(s, decision),
        tried=tuple(t for t in s.tried if t.time_s > s.now_s - LONG_S),
        commits=(s.memory.commits[1], s.commits),
        tuples=s.memory.tuples + s.latest.interval_s * s.past[-1].external_rate,
        cost_s=_cost_s(s.memory, _is_over(s)),
        **_learned(s, decision),
    )


def adopted(
    memory: Memory, change: Change, allocation: Mapping[str, int], hold_off_s: float
) -> Memory:
    """The memory after a decision is carried out: its allocation is wanted, and what was there
    before is kept."""
    oldest_s = change.time_s - SHORT * hold_off_s
    short = [found for found in memory.short if found.added_s > oldest_s]
    if change.action is Action.ADD and memory.since is not None:
        short.append(Short(change.before, *memory.since, change.time_s, memory.tuples))
    rejected = tuple(r for r in memory.rejected if r.until_s > change.time_s)
    undone = memory.change
    if change.action is Action.ROLL_BACK and undone is not None:
        until_s = change.time_s + hold_off_s
        rejected = (*rejected, Rejected(change.before, undone.action, undone.rate, until_s))
    if change.short:
        until_s = change.time_s + SHORT * hold_off_s
        rejected = (*rejected, Rejected(change.before, Action.REMOVE, change.rate, until_s))
    return replace(
        memory,
        wanted=dict(allocation),
        past=_without_sojourns(memory),
        change=change,
        cost_s=_cost_s(memory, True),
        rejected=rejected,
        above=0,
        behind=0,
        retries=memory.retries + 1 if change.action is Action.RETRY else 0,
        low_since_s=None,
        enough={},
        better_since_s=None,
        tried=(),
        since=(change.time_s, memory.tuples),
        short=tuple(short[-_SHORT:]),
    )


def _low_since_s(s: Situation, decision: Decision) -> float | None:
    """Since when fewer processors would have been enough."""
    if decision.enough is None:
        return None
    return s.now_s if s.memory.low_since_s is None else s.memory.low_since_s


def _better_since_s(s: Situation, decision: Decision) -> float | None:
    """Since when the processors would have been better in other places."""
    if not decision.better:
        return None
    return s.now_s if s.memory.better_since_s is None else s.memory.better_since_s


def _judged(s: Situation, decision: Decision) -> Change | None:
    """The last change, with the interval's verdict on it."""
    change = s.memory.change
    if change is not None and not change.counted:
        if _is_over(s):
            change = replace(change, counted=True)
        elif s.missed and _is_free(change):
            change = replace(change, cost_s=change.cost_s + s.latest.interval_s)
    if change is None or change.reviewed or decision.action is Action.SETTLING:
        return change
    if not is_judged(s, change):
        return change
    worse = is_worse(s, change)
    return replace(change, worse=change.worse + worse, reviewed=not worse)


def _is_free(change: Change) -> bool:
    """Whether a change was made though it need not have been."""
    ours = change.action in (Action.MOVE, Action.REMOVE) and not change.forced
    return ours and change.kept_up


def _cost_s(memory: Memory, over: bool) -> float:
    """For how long such a change has the target missed, by those so far: halfway from what was
    known to what the last one has cost, once that is over."""
    change = memory.change
    if change is None or change.counted or not over or not _is_free(change):
        return memory.cost_s
    return (memory.cost_s + change.cost_s) / 2


def _is_over(s: Situation) -> bool:
    """Whether what the last change has cost is known."""
    change = s.memory.change
    return change is not None and s.now_s - change.time_s > s.settings.reach_s


def _stirred_s(s: Situation, decision: Decision) -> float | None:
    """When a change was made, or the load rose, or tuples waited beyond what is usual."""
    stirred = s.smooth.rising or bool(s.backlog) or decision.action not in _STILL or s.memory.waited
    return s.now_s if stirred else s.memory.stirred_s


def _learned(s: Situation, decision: Decision) -> dict[str, Any]:
    """The bias, with the model compared to what was measured. That is done now and then, once
    nothing has been in motion for as long as the window."""
    stirred_s, learned_s = _stirred_s(s, decision), s.memory.learned_s
    calm = stirred_s is None or s.now_s - stirred_s >= s.settings.reach_s
    due = learned_s is None or s.now_s - learned_s >= _LEARN_S
    value, sojourn = s.metric, s.latest.sojourn
    if not calm or not due or value is None or sojourn is None or sojourn.count < _ENOUGH_TREES:
        return {}
    estimate = s.raw_present_s
    if not math.isfinite(estimate):
        return {}
    group = 0.0 if s.memory.change is None else s.memory.change.time_s
    bound = s.network.bound(s.settings.percentile)
    return {"bias": s.memory.bias.learn(estimate, bound, value, group), "learned_s": s.now_s}


def _without_sojourns(memory: Memory) -> tuple[Measure, ...]:
    """The past measures without their sojourns, which say nothing about those under another
    allocation, or after a pause."""
    return tuple(replace(measure, sojourn=None) for measure in memory.past)


def _by_clock(memory: Memory, now_s: float) -> Memory:
    """The same memory by a clock that was set back."""
    if memory.before_s is None or now_s >= memory.before_s:
        return memory
    seconds = now_s - memory.before_s

    def moved(time_s: float | None) -> float | None:
        return None if time_s is None else time_s + seconds

    change = memory.change
    if change is not None:
        change = replace(change, time_s=change.time_s + seconds)
    return replace(
        memory,
        past=tuple(replace(m, time_s=m.time_s + seconds) for m in memory.past),
        risen_s=moved(memory.risen_s),
        change=change,
        since=None if memory.since is None else (memory.since[0] + seconds, memory.since[1]),
        short=tuple(
            replace(found, time_s=found.time_s + seconds, added_s=found.added_s + seconds)
            for found in memory.short
        ),
        tried=tuple(replace(t, time_s=t.time_s + seconds) for t in memory.tried),
        low_since_s=moved(memory.low_since_s),
        better_since_s=moved(memory.better_since_s),
        stirred_s=moved(memory.stirred_s),
        learned_s=moved(memory.learned_s),
        idle_since_s=moved(memory.idle_since_s),
        rejected=tuple(replace(r, until_s=r.until_s + seconds) for r in memory.rejected),
        outlook=memory.outlook.moved(seconds),
        known=memory.known.moved(seconds),
    )
