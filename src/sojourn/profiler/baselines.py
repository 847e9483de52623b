"""What stepwise profiling is compared with, as Liu 2017 (§6.1.3) adapted it: both start with one
task each and never go back. Pure.

Threshold gives the busiest operator a task, if it is busy for more than 80 % of its time. Stela (Xu
2016) gives out at most as many tasks in a round as there are machines. Each goes to the congested
operator with the highest effective throughput percentage: the share of all results to which it has
a free way, past nothing congested. Then rates are projected, as if the task had come.

Where tuples under way are bounded, what comes to an operator is what it can do, so rates alone do
not show congestion. Here an operator is congested if it is busy for more than 80 % of its time."""

from collections.abc import Collection, Mapping, Sequence

from sojourn.graph import reached
from sojourn.ports import Parallelism
from sojourn.profiler.trial import Measured, Method, Proposal, Verdict, enhanced, measured

BUSY = 0.8


def threshold(
    start: Parallelism, rounds: int, scalable: Collection[str], most: Mapping[str, int]
) -> Method:
    """So many rounds, or until nothing is busy enough that can use more tasks."""
    now, why = start, "one task each"
    for number in range(rounds):
        seen = measured((yield Proposal("threshold", now, why)))
        yield Verdict(True, "a start" if not number else "never revoked")
        able = _able(scalable, now.processors, most)
        busiest = max(able, key=lambda n: seen.seen[n].capacity, default=None)
        if busiest is None or seen.seen[busiest].capacity <= BUSY:
            break
        now = enhanced(now, {busiest: 1}, most)
        why = f"a task more for {busiest}, busy {seen.seen[busiest].capacity:.0%} of its time"
    return now


def stela(
    start: Parallelism,
    rounds: int,
    scalable: Collection[str],
    receivers: Mapping[str, Sequence[str]],
    machines: int,
    most: Mapping[str, int],
) -> Method:
    """So many rounds, or until nothing is congested that can use more tasks."""
    now, why = start, "one task each"
    for number in range(rounds):
        seen = measured((yield Proposal("stela", now, why)))
        yield Verdict(True, "a start" if not number else "never revoked")
        more = projected(seen, scalable, receivers, machines, most)
        if not more:
            break
        now = enhanced(now, more, most)
        why = ", ".join(f"{count} more for {name}" for name, count in more.items())
    return now


def _able(
    scalable: Collection[str], tasks: Mapping[str, int], most: Mapping[str, int]
) -> list[str]:
    """Operators that can use more tasks."""
    return [name for name in scalable if tasks[name] < most.get(name, tasks[name] + 1)]


def projected(
    seen: Measured,
    scalable: Collection[str],
    receivers: Mapping[str, Sequence[str]],
    machines: int,
    most: Mapping[str, int],
) -> dict[str, int]:
    """Tasks that Stela gives out in a round, at most as many as there are machines."""
    busy = {name: of.capacity for name, of in seen.seen.items()}
    tasks = {name: of.tasks for name, of in seen.seen.items()}
    more: dict[str, int] = {}
    for _ in range(machines):
        congested = [name for name in _able(scalable, tasks, most) if busy[name] > BUSY]
        if not congested:
            break
        name = max(congested, key=lambda n: (effective(n, busy, seen, receivers), busy[n]))
        more[name] = more.get(name, 0) + 1
        grown = (tasks[name] + 1) / tasks[name]
        tasks[name] += 1
        # It can do so much more now. What is behind it gets more, until another one is full.
        for other in reached(name, receivers):
            busy[other] = busy.get(other, 0.0) * grown
        busy[name] /= grown
    return more


def effective(
    name: str, busy: Mapping[str, float], seen: Measured, receivers: Mapping[str, Sequence[str]]
) -> float:
    """The share of all results that an operator has a free way to: nothing congested is between it
    and where they end. They end where nothing is passed on."""
    ends = [n for n, of in seen.seen.items() if not any(of.emitted.values())]
    total = sum(seen.seen[n].served for n in ends)
    full = [n for n, share in busy.items() if share > BUSY]
    free = reached(name, receivers, full)
    own = sum(seen.seen[n].served for n in ends if n in free or n == name)
    return own / total if total else 0.0
