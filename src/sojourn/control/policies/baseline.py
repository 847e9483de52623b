"""What the simple policies share: they wait between two changes, and stay within the limits."""

from collections.abc import Callable, Mapping

from sojourn.control.review import too_recent
from sojourn.control.situation import Action, Blind, Decision, Situation


def patient(policy: Callable[[Situation], Decision]) -> Callable[[Situation | Blind], Decision]:
    """The policy, asked only where there are measures and the last change is not too recent."""

    def decide(s: Situation | Blind) -> Decision:
        if isinstance(s, Blind):
            return Decision(Action.NOT_READY, s.why.reason)
        if s.pressures:
            return Decision(Action.WAIT, f"{s.pressing}; but the policy waits for its interval")
        waiting = too_recent(s)
        return Decision(Action.WAIT, waiting) if waiting else policy(s)

    return decide


def changed(s: Situation, best: Mapping[str, int], why: str) -> Decision:
    """The decision for an allocation, within the limits of operators and in all. What it needs is
    not cut by the room there is on machines, or none would ever be asked for."""
    best = {
        name: int(min(max(count, s.limits.least(name)), s.limits.most(name)))
        for name, count in best.items()
    }
    needed = min(s.total(best), s.settings.max_processors or s.total(best))
    if s.most is not None and s.total(best) > s.most:
        best, why = _cut(s, best, s.most), f"{why}; the limit is {s.most}"
    more, fewer = s.total(best) > s.total(s.current), s.total(best) < s.total(s.current)
    if best == s.current:
        return Decision(Action.HOLD, why, expected_s=s.estimate_s, needed=needed)
    action = Action.ADD if more else Action.REMOVE if fewer else Action.MOVE
    return Decision(action, f"{why}: {s.from_to(best)}", best, needed=needed, forced=True)


def _cut(s: Situation, best: Mapping[str, int], most: int) -> dict[str, int]:
    """As many as allowed: those that would get most more, or have most, get fewer."""
    found = dict(best)
    while s.total(found) > most:
        able = [name for name in found if found[name] > s.limits.least(name)]
        if not able:
            break
        found[max(able, key=lambda n: (found[n] - s.current[n], found[n]))] -= 1
    return found
