"""Nothing is ever changed. A baseline: what a topology costs and misses if nobody scales it."""

from sojourn.control.situation import Action, Blind, Decision, Situation


def static(s: Situation | Blind) -> Decision:
    """Hold."""
    if isinstance(s, Blind):
        return Decision(Action.NOT_READY, s.why.reason)
    return Decision(Action.HOLD, "the policy is static", expected_s=s.estimate_s)
