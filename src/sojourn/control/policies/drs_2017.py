"""The scheduler of DRS (ToN 2017, §IV-B) to the letter. The smoothed sojourn decides: above T_max
processors are added, below T_min removed, else they are placed better. T_ra lies between any two
changes. There is nothing beyond that: no headroom, no doubt about measurements, no judging
of changes. A baseline for what `drs` adds."""

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
        found = _kept(s, high, f"{what} is above {told(high)}")
        return _only(s, found, Action.ADD)
    if low is not None and measured < low:
        found = _kept(s, high, f"{what} is below {told(low)}")
        return _only(s, found, Action.REMOVE)
    return _placed(s, s.total(s.current))


def _kept(s: Situation, target_s: float, why: str) -> Decision:
    """Program 8."""
    plan = min_processors(
        s.network, target_s, s.settings.percentile, s.least | dict(s.limits.fixed), _most(s)
    )
    return _followed(s, plan, why)


def _only(s: Situation, found: Decision, action: Action) -> Decision:
    """The decision, if it does what the sojourn calls for. The model may see it otherwise."""
    if found.action in (action, Action.MOVE, Action.INFEASIBLE, Action.HOLD):
        return found
    reason = f"{found.reason}; but that is no reason to {found.action}"
    return Decision(Action.HOLD, reason, expected_s=s.estimate_s)


def _placed(s: Situation, processors: int) -> Decision:
    """Program 6."""
    whole = processors + sum(s.limits.fixed.values())
    plan = assign_processors(s.network, whole, s.least | dict(s.limits.fixed), _most(s))
    return _followed(s, plan, f"the best placement of {processors} processors")


def _followed(s: Situation, plan: Plan, why: str) -> Decision:
    if not plan.feasible:
        return Decision(Action.INFEASIBLE, f"{why}; {plan.reason}")
    return changed(s, operators_of(s, plan), why)


def _most(s: Situation) -> dict[str, int]:
    return dict(s.limits.maximum) | dict(s.limits.fixed)
