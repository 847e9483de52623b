"""A query seen from outside, by Spark's REST API alone. That knows jobs and stages, and nothing of
sources or triggers. So a batch is the time of its jobs, and its rows are those that stages read."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sojourn.attached import status as st
from sojourn.attached.progress import Batch

_BATCH = re.compile(r"id = (?P<id>\S+?)<br/>runId = (?P<run>\S+?)<br/>batch = (?P<number>\d+)")


def batches(status: st.Status, last: Batch | None = None) -> list[Batch]:
    """Those that are done, the oldest first: of the run that began last, of the same query as the
    `last` one that is known, and only later ones than that. The newest may have jobs to come, so it
    is left out."""
    found: dict[tuple[str, str], dict[int, list[Mapping[str, Any]]]] = {}
    for job in sorted(status.jobs(), key=lambda job: int(job["jobId"])):
        named = _BATCH.search(job.get("description") or "")
        if named is not None and (last is None or named["id"] == last.query):
            of = found.setdefault((named["id"], named["run"]), {})
            of.setdefault(int(named["number"]), []).append(job)
    if not found:
        return []
    query, run = list(found)[-1]
    jobs = found[query, run]
    after = last.number if last is not None and last.run == run else -1
    return [_batch(status, query, run, n, jobs[n]) for n in sorted(jobs)[:-1] if n > after]


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
