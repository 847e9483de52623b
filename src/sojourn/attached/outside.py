"""A query seen from outside, by Spark's REST API alone. That knows jobs and stages, and nothing of
sources or triggers. So a batch is the time of its jobs, and its rows are those that stages read."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sojourn.attached import status as st
from sojourn.attached.progress import Batch

_BATCH = re.compile(r"id = (?P<id>\S+?)<br/>runId = (?P<run>\S+?)<br/>batch = (?P<number>\d+)")


def batches(status: st.Status, after: int = -1) -> list[Batch]:
    """Those that are done, of the query that ran last, the oldest first; only later ones than
    `after`. The last one may have jobs to come, so it is left out."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    query = run = ""
    for job in sorted(status.jobs(), key=lambda job: int(job["jobId"])):
        named = _BATCH.search(job.get("description") or "")
        if named is None:
            continue
        if named["run"] != run:
            query, run, found = named["id"], named["run"], {}
        found.setdefault(int(named["number"]), []).append(job)
    done = sorted(found)[:-1]
    return [_batch(status, query, run, n, found[n]) for n in done if n > after]


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
