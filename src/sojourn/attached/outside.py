"""A query seen from outside, by Spark's REST API alone. That knows jobs and stages, and nothing of
sources or triggers. So a batch is the time of its jobs, and its rows are those that stages read."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sojourn.attached import status as st
from sojourn.attached.advice import Advised, chosen, interval_s
from sojourn.attached.decide import Memory, Wish, decided
from sojourn.attached.observer import Observer
from sojourn.attached.progress import Batch

# How Spark describes the jobs of a batch. The first line is the query's name, if it has one.
_BATCH = re.compile(
    r"(?P<name>[^\n]*)\nid = (?P<id>\S+)\nrunId = (?P<run>\S+)\nbatch = (?P<number>\d+)"
)
_BATCHES = 50  # that are looked at
_FAILURES = 5  # looks in a row, after which nobody looks any more


def advised(
    status: st.Status,
    wish: Wish,
    query: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Advised]:
    """Once a period, without end, until the driver has not answered a few times in a row."""
    observer, memory = Observer(status), Memory()
    observer.before = st.executors(status)
    ticked_s, failed = clock(), 0
    while True:
        wait(max(0.0, ticked_s + wish.options.period_s - clock()))
        since_s, ticked_s = ticked_s, clock()
        try:
            fresh = batches(status, observer.batches[-1] if observer.batches else None, query)
            executors = st.executors(status)
            _add(observer, fresh)
            trigger_s = interval_s(observer.batches)
            seen = observer.seen(ticked_s, since_s, executors, None, trigger_s)
            if seen.rates is None:
                seen = observer.at_work(seen, trigger_s)
        except st.Unanswered as error:
            failed += 1
            if failed == _FAILURES:
                raise
            tell(f"look {failed} of {_FAILURES} has failed: {error}")
            continue
        failed = 0
        decision = decided(seen, memory, wish)
        memory = decision.memory
        count = len(executors)
        yield Advised(ticked_s, count, decision.executors or count, decision.why)


def _add(observer: Observer, fresh: list[Batch]) -> None:
    """Batches that are done. Where some before them were not looked at, the rows of those are not
    known, so that only time from the first of these on counts."""
    last = observer.batches[-1] if observer.batches else None
    for one in fresh:
        observer.add(one)
    if last and fresh and fresh[0].run == last.run and fresh[0].number > last.number + 1:
        observer.fresh -= 1


def batches(status: st.Status, last: Batch | None = None, query: str | None = None) -> list[Batch]:
    """The last ones that are done, the oldest first: of the run that began last, of the same query
    as the `last` one that is known, or of the one that is named, and only later ones than that. The
    newest may have jobs to come, so it is left out."""
    found: dict[tuple[str, str], dict[int, list[Mapping[str, Any]]]] = {}
    names: dict[str, str | None] = {}
    for job in sorted(status.jobs(), key=lambda job: int(job["jobId"])):
        named = _BATCH.search(job.get("description") or "")
        if named is not None:
            names[named["id"]] = named["name"]
            of = found.setdefault((named["id"], named["run"]), {})
            of.setdefault(int(named["number"]), []).append(job)
    wanted = chosen(names, query) if last is None else last.query
    runs = [run for of, run in found if of == wanted]
    if wanted is None or not runs:
        return []
    jobs = found[wanted, runs[-1]]
    after = last.number if last is not None and last.run == runs[-1] else -1
    numbers = [number for number in sorted(jobs)[:-1] if number > after]
    return [_batch(status, wanted, runs[-1], n, jobs[n]) for n in numbers[-_BATCHES:]]


def _batch(
    status: st.Status, query: str, run: str, number: int, jobs: Iterable[Mapping[str, Any]]
) -> Batch:
    jobs = list(jobs)
    begun = [st.seconds(job["submissionTime"]) or 0.0 for job in jobs]
    ended = [st.seconds(job.get("completionTime")) or 0.0 for job in jobs]
    stages = st.ran(status, sorted({s for job in jobs for s in job["stageIds"]}))
    rows = max((stage.rows for stage in stages), default=0.0)
    took_s = max(0.0, max(ended) - min(begun))
    return Batch(query, run, number, min(begun), took_s, rows)
