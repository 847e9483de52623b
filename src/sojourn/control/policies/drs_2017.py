"""The scheduler of DRS (ToN 2017, §IV-B). The smoothed sojourn decides: above T_max processors are
added, below T_min removed, else they are placed better. T_ra lies between any two changes. There is
nothing beyond that: no headroom, no doubt about measurements, no judging of changes. A
baseline for what `drs` adds. What it decides by is ours: the network is weighed by critical paths,
where eq. 4 adds up all branches, and rates from before a sure change are forgotten.

Where more machines are needed and may still come, nothing is changed until there is room for all
that is asked for: a part of a change would count as one, and T_ra would put off the rest.

`drs-2015` is the same as ICDCS 2015 tells it (§V, ExpA): machines come and go as program 8 needs
them, and program 6 then hands out all processors that these have."""

from collections.abc import Callable

from sojourn.control.measure import metric_of
from sojourn.control.policies.baseline import changed, patient
from sojourn.control.programs import operators_of
from sojourn.control.situation import Action, Decision, Situation
from sojourn.queueing.allocation import Plan, assign_processors, min_processors
from sojourn.queueing.network import what_of
from sojourn.units import format_duration as told


@patient
def drs_2017(s: Situation) -> Decision:
    """Program 8 when the target is missed or amply kept, else program 6."""
    return _decided(s, _kept)


@patient
def drs_2015(s: Situation) -> Decision:
    """The same with all processors of the machines that program 8 needs."""
    return _decided(s, _on_whole_machines)


Program = Callable[[Situation, float, str], Decision]


def _decided(s: Situation, kept: Program) -> Decision:
    measured, high, low = (
        metric_of(s.smooth.sojourn, s.settings.percentile),
        s.settings.max_sojourn_s,
        s.settings.min_sojourn_s,
    )
    if measured is None:
        return Decision(Action.NOT_READY, "no tuple tree was completed")
    if high is None:
        assert s.most is not None
        return _placed(s, s.most)
    what = f"{what_of(s.settings.percentile)} {told(measured)}"
    if measured > high:
        return _only(s, kept(s, high, f"{what} is above {told(high)}"), Action.ADD)
    if low is not None and measured < low:
        return _only(s, kept(s, high, f"{what} is below {told(low)}"), Action.REMOVE)
    return _placed(s, s.total(s.current))


def _kept(s: Situation, target_s: float, why: str) -> Decision:
    """Program 8."""
    return _followed(s, _fewest(s, target_s), why)


def _on_whole_machines(s: Situation, target_s: float, why: str) -> Decision:
    """Program 8 says how many machines there should be, and program 6 fills them."""
    plan = _fewest(s, target_s)
    each, most = s.settings.machine_processors, s.settings.max_machines
    machines = -(-s.total(operators_of(s, plan)) // each) if plan.feasible else 0
    beyond = most is not None and machines > most
    if not plan.feasible or s.limits.capacity is None or beyond:
        return _followed(s, plan, why)
    room = machines * each
    return _placed(s, room, f"{why}, and machines needed have room for {room}")


def _fewest(s: Situation, target_s: float) -> Plan:
    least = s.least | dict(s.limits.fixed)
    return min_processors(s.network, target_s, s.settings.percentile, least, _most(s))


def _only(s: Situation, found: Decision, action: Action) -> Decision:
    """The decision, if it does what the sojourn calls for. The model may see it otherwise."""
    if found.action in (action, Action.MOVE, Action.INFEASIBLE, Action.HOLD):
        return found
    reason = f"{found.reason}; but that is no reason to {found.action}"
    return Decision(Action.HOLD, reason, expected_s=s.estimate_s)


def _placed(s: Situation, processors: int, why: str = "") -> Decision:
    """Program 6."""
    whole = processors + sum(s.limits.fixed.values())
    plan = assign_processors(s.network, whole, s.least | dict(s.limits.fixed), _most(s))
    return _followed(s, plan, why or f"the best placement of {processors} processors")


def _followed(s: Situation, plan: Plan, why: str) -> Decision:
    if not plan.feasible:
        return Decision(Action.INFEASIBLE, f"{why}; {plan.reason}")
    best = operators_of(s, plan)
    needed = min(s.total(best), s.settings.max_processors or s.total(best))
    if needed > s.total(s.current) and _is_to_come(s, needed):
        reason = f"{why}; {needed} processors wait for machines with room for them"
        return Decision(Action.HOLD, reason, expected_s=s.estimate_s, needed=needed)
    return changed(s, best, why)


def _is_to_come(s: Situation, processors: int) -> bool:
    """Whether there is no room yet for so many, and machines with more may still come. Nobody knows
    that unless it is set how many there may be."""
    room, machines = s.limits.capacity, s.settings.max_machines
    if room is None or machines is None:
        return False
    return room < min(processors, machines * s.settings.machine_processors)


def _most(s: Situation) -> dict[str, int]:
    return dict(s.limits.maximum) | dict(s.limits.fixed)
