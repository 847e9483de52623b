"""The third step of profiling (Liu 2017, §4.3): single operators get a task more, first those whose
tasks have least time to spare. What does not help is revoked. Pure."""

from collections.abc import Collection, Mapping

from sojourn.profiler.capability import Best, Limits
from sojourn.profiler.features import Feature
from sojourn.profiler.trial import Measured, Method, Proposal, Verdict, enhanced, measured

STEP = "operators"
REVOKED = 2  # revocations in a row that end it


def is_ample(seen: Measured, features: Mapping[str, Feature], factor: float) -> bool:
    """Whether every operator takes at most `factor` times what it takes at least."""
    return all(
        of.service_s is None or of.service_s <= factor * features[name].least_s
        for name, of in seen.seen.items()
        if name in features
    )


def capacity(
    best: Best,
    features: Mapping[str, Feature],
    scalable: Collection[str],
    limits: Limits,
    found: list[Best],
) -> Method:
    """From the best parallelism so far on. `found` gets the best one."""
    revoked: list[str] = []
    while len(revoked) < REVOKED and not is_ample(best.measured, features, limits.factor):
        seen = best.measured.seen
        left = [name for name in scalable if name not in revoked]
        if not left:
            break
        name = max(left, key=lambda n: seen[n].capacity)
        now = enhanced(best.parallelism, {name: 1})
        why = f"a task more for {name}, which is busy {seen[name].capacity:.0%} of its time"
        after = measured((yield Proposal(STEP, now, why)))
        if after.change(best.measured) > 0 and (
            after.latency_s <= limits.latency_s or not best.is_met(limits)
        ):
            best, revoked = Best(now, after), []
            yield Verdict(True, "more is carried")
        else:
            revoked.append(name)
            late = after.latency_s > limits.latency_s
            yield Verdict(False, "tuples take too long" if late else "no more is carried")
    found.append(best)
    return best.parallelism
