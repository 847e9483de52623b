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
        tasks, most = best.parallelism.processors, limits.most
        left = [n for n in scalable if n not in revoked and tasks[n] < most.get(n, tasks[n] + 1)]
        if not left:
            break
        name = max(left, key=lambda n: seen[n].capacity)
        now = enhanced(best.parallelism, {name: 1}, limits.most)
        why = f"a task more for {name}, which is busy {seen[name].capacity:.0%} of its time"
        after = measured((yield Proposal(STEP, now, why)))
        in_time, more = after.latency_s <= limits.latency_s, after.change(best.measured) > 0
        if in_time > best.is_met(limits) or (more and in_time >= best.is_met(limits)):
            best, revoked = Best(now, after), []
            yield Verdict(True, "more is carried" if more else "tuples are in time now")
        else:
            revoked.append(name)
            yield Verdict(False, "no more is carried" if in_time else "tuples take too long")
    found.append(best)
    return best.parallelism
