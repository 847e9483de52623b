"""Utilization above and below a threshold, one step at a time. A baseline: what Kubernetes' HPA,
KEDA and Spark's dynamic allocation amount to. It knows no target, and each operator alone."""

from sojourn.control.policies.baseline import changed, patient
from sojourn.control.situation import Decision, Situation

_HIGH, _LOW = 0.8, 0.3  # of its processors' time that an operator is busy


@patient
def threshold(s: Situation) -> Decision:
    """A processor more for each operator that is busier than 80 %, one fewer below 30 %."""
    best, why = dict(s.current), []
    for name, count in s.current.items():
        busy = s.smooth.operators[name].busy
        if busy > _HIGH:
            best[name] = count + 1
            why.append(f"{name!r} is {busy:.0%} busy, above {_HIGH:.0%}")
        elif busy < _LOW and count > s.limits.least(name):
            best[name] = count - 1
            why.append(f"{name!r} is {busy:.0%} busy, below {_LOW:.0%}")
    return changed(s, best, "; ".join(why) or "all operators are within the thresholds")
