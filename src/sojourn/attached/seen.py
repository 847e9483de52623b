"""What was seen of a query over a period: rates, machines, and how its batches take their time.
Fed by progress and status; feeds decisions."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sojourn.attached.progress import Batch, Coming, coming
from sojourn.attached.status import Executor, Job, StageRan
from sojourn.confidence import half_width
from sojourn.provisioning.rates import Rates
from sojourn.queueing.batches import Batches, Ran


@dataclass(frozen=True)
class Seen:
    """A period of a query's run. `executors` are there, with `slots` each, `asked` were asked for.
    Without rates there were too few batches, or counters that make no sense: `why` says which.
    `batches` is the model that explains them. `reported` tells whether the source said what comes.
    In real-time mode, `until_s` is when the batch under way ends. What changes takes effect only
    then, and `held` slots are what a batch takes, all at once. `at_least` tells that no batch was
    done, and that the input rate is only what a batch at work shows: that much came, or more.
    `tasks` are those of the widest stage that was seen. `start_s` is how long the last executors
    took to come that were asked for, if some were. `burst` rows came all at once after a time
    without any: there is no rate of them, only how many they are."""

    time_s: float
    executors: int
    slots: int
    asked: int
    rates: Rates | None
    why: str = ""
    batches: Batches | None = None
    reported: bool = False
    until_s: float | None = None
    held: int = 0
    at_least: bool = False
    start_s: float = 0.0
    run: str = ""
    tasks: int = 0
    burst: float = 0.0


def rated(
    recent: Sequence[Batch],
    executors: Mapping[str, Executor],
    before: Mapping[str, Executor],
    period: tuple[float, float],
    trigger_s: float = 0.0,
    left: Mapping[str, Executor] | None = None,
) -> tuple[Rates | None, str, bool]:
    """Rates of a period, from when to when, with these batches. Executors did shares of them by the
    tasks that they have finished. Those that were there `before` tell what one can do. Some `left`,
    as they were then, because they were given back. Nothing if that cannot be told, with the
    reason."""
    found = coming(recent)
    if isinstance(found, str):
        return None, found, False
    stayed = [name for name in executors if name in before]
    if not stayed:
        return None, "no executor was there for the whole period", found.reported
    if any(executors[n].tasks < before[n].tasks for n in stayed):
        return None, "an executor's counters went back", found.reported
    first, last = recent[0], recent[-1]
    passed_s = last.time_s - first.time_s
    done = math.fsum(one.rows for one in recent[:-1]) / passed_s
    tasks = {n: e.tasks - (before[n].tasks if n in before else 0) for n, e in executors.items()}
    known = sum(tasks.values())
    each = {n: tasks[n] / known if known else 1 / len(executors) for n in executors}
    left = left or {}
    theirs = sum(e.tasks - (before[n].tasks if n in before else 0) for n, e in left.items())
    gone = len(before.keys() - executors.keys() - left.keys())
    share = math.fsum(each[n] for n in stayed) / len(stayed)
    share *= known / (known + theirs) if theirs > 0 else 1.0
    whole = share / (1 + gone * share)  # one that has gone did as much as those that stayed
    busy_s = math.fsum(executors[n].busy_s - before[n].busy_s for n in stayed)
    slots_s = sum(executors[n].slots for n in stayed) * (period[1] - period[0])
    idle = min(1.0, max(0.0, 1 - busy_s / slots_s)) if slots_s > 0 else None
    latency_s = statistics.fmean(_latency_s(one, later) for one, later in _pairs(recent))
    rates = Rates(
        time_s=period[1],
        input=found.rate,
        processed=tuple(done * each[name] for name in executors),
        machine=done * whole,
        noise=_noise(recent, found.rate),
        waiting=found.waiting,
        growth=0.0 if _keeps_up(last, found, trigger_s) else max(0.0, found.growth),
        latency_s=latency_s,
        idle=idle,
        latest=_risen(recent, found),
    )
    return rates, "", found.reported


def _keeps_up(last: Batch, found: Coming, trigger_s: float) -> bool:
    """Whether the last batch waited for its trigger and left nothing behind: batches that grow only
    show that more comes."""
    return last.took_s <= trigger_s and found.waiting <= 0


def _pairs(batches: Sequence[Batch]) -> list[tuple[Batch, Batch]]:
    return list(itertools.pairwise(batches))


def _latency_s(one: Batch, later: Batch) -> float:
    """Of rows that came while a batch was processed: half of that time, and the next batch."""
    return (later.time_s - one.time_s) / 2 + later.took_s


def _risen(batches: Sequence[Batch], found: Coming) -> float | None:
    """What came since the batch before the last, a second, if that is more than what came in all,
    beyond the noise of the others and what as many rows may be off by chance."""
    passed_s = batches[-1].time_s - batches[-2].time_s
    chance = 2 * math.sqrt(found.latest / passed_s)
    least = found.rate + max(chance, _noise(batches[:-1], found.rate))
    return found.latest if found.latest > least else None


def _noise(batches: Sequence[Batch], rate: float) -> float:
    """How far the rate at which rows are processed may be off by chance."""
    rates = [a.rows / (b.time_s - a.time_s) for a, b in _pairs(batches) if b.time_s > a.time_s]
    if len(rates) < 3:
        return 0.1 * rate
    return min(half_width(rates), rate)


def jobs_of(one: Batch, jobs: Sequence[Job]) -> list[Job]:
    """The jobs that a batch began. Spark's times are whole milliseconds."""
    slack_s = 0.001
    return [job for job in jobs if one.time_s - slack_s <= job.begun_s <= one.end_s + slack_s]


def as_ran(one: Batch, stages: Sequence[StageRan], slots: int) -> Ran:
    """A batch with its stages, for the model."""
    return Ran(one.rows, one.took_s, slots, tuple((s.tasks, s.ran_s) for s in stages))
