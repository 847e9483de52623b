"""What the simple policies share: they wait between two changes, and stay within the limits."""

from collections.abc import Mapping

from sojourn.control.programs import evenly
from sojourn.control.situation import Action, Decision, Situation
from sojourn.units import format_duration as told


def fresh(s: Situation) -> Decision | None:
    """Wait, if the last change was made less than `change.interval` ago."""
    change = s.memory.change
    left_s = 0.0 if change is None else s.settings.change_interval_s - (s.now_s - change.time_s)
    if left_s <= 0:
        return None
    return Decision(Action.WAIT, f"the last change is too recent ({told(left_s)} to go)")


def changed(s: Situation, best: Mapping[str, int], why: str) -> Decision:
    """The decision for an allocation, within the limits of operators and in all."""
    best = {
        name: int(min(max(count, s.limits.least(name)), s.limits.most(name)))
        for name, count in best.items()
    }
    if s.most is not None and s.total(best) > s.most:
        best, why = evenly(s), f"{why}; the limit is {s.most}"
    more, fewer = s.total(best) > s.total(s.current), s.total(best) < s.total(s.current)
    if best == s.current:
        return Decision(Action.HOLD, why, expected_s=s.estimate_s, needed=s.total(best))
    action = Action.ADD if more else Action.REMOVE if fewer else Action.MOVE
    return Decision(action, f"{why}: {s.from_to(best)}", best, needed=s.total(best), forced=True)
