"""What tests of attached queries begin with: progress and status as Spark tells them, and what was
seen of a query."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from sojourn.attached.decide import Wish
from sojourn.attached.progress import Batch, batch
from sojourn.attached.seen import Seen
from sojourn.provisioning.mended import Options
from sojourn.provisioning.rates import Rates
from sojourn.queueing.batches import Batches, Stage


def told(
    number: int,
    time_s: float,
    took_s: float,
    rows: int,
    end: object = None,
    latest: object = None,
    start: object = None,
    run: str = "run",
) -> str:
    """What Spark says of a batch."""
    return json.dumps(
        {
            "id": "query",
            "runId": run,
            "name": None,
            "timestamp": f"2026-11-17T10:{int(time_s) // 60:02}:{time_s % 60:06.3f}Z",
            "batchId": number,
            "durationMs": {"triggerExecution": took_s * 1e3},
            "numInputRows": rows,
            "inputRowsPerSecond": 0.0,
            "sources": [
                {
                    "numInputRows": rows,
                    "startOffset": start,
                    "endOffset": end,
                    "latestOffset": latest,
                }
            ],
        }
    )


def behind(count: int, comes: int = 100, takes: int = 60) -> list[Batch]:
    """One batch a second, of a source with two partitions that reports its newest offset."""

    def offset(rows: int) -> dict[str, dict[str, int]]:
        return {"topic": {"0": rows // 2, "1": rows - rows // 2}}

    return [
        batch(
            told(
                n,
                float(n),
                0.9,
                takes,
                offset((n + 1) * takes),
                offset((n + 1) * comes),
                offset(n * takes),
            )
        )
        for n in range(count)
    ]


EXECUTOR = {
    "id": "0",
    "isActive": True,
    "totalCores": 4,
    "maxTasks": 2,  # as spark.task.cpus=2 has it
    "addTime": "2026-11-17T10:00:00.000GMT",
    "completedTasks": 10,
    "totalDuration": 4000,
    "activeTasks": 1,
}

STAGE = {
    "status": "COMPLETE",
    "stageId": 3,
    "attemptId": 0,
    "numCompleteTasks": 4,
    "executorRunTime": 1200,
    "inputRecords": 100,
}

JOB = {
    "jobId": 5,
    "jobGroup": "run",
    "submissionTime": "2026-11-17T10:00:01.200GMT",
    "completionTime": "2026-11-17T10:00:01.800GMT",
    "stageIds": [3],
}


class Told:
    """A status that is given."""

    task_cpus = 1.0

    def __init__(self, executors: int = 1) -> None:
        self.names = [str(n) for n in range(executors)]
        self.tasks = 10
        self.running: Mapping[str, Any] | None = None
        self.waiting, self.done, self.task_ms, self.failed = 5, 3, 4000, 0  # of stage 7

    def executors(self) -> Sequence[Mapping[str, Any]]:
        self.tasks += 10
        driver = {**EXECUTOR, "id": "driver"}
        some = [{**EXECUTOR, "id": n, "completedTasks": self.tasks} for n in self.names]
        return [driver, *some, {**EXECUTOR, "id": "dead", "isActive": False}]

    def jobs(self, since: int = 0, group: str | None = None) -> Sequence[Mapping[str, Any]]:
        some = [JOB, {**JOB, "jobId": 6, "jobGroup": "other"}]
        every = some if self.running is None else [*some, self.running]
        return [
            j for j in every if int(str(j["jobId"])) >= since and group in (None, j["jobGroup"])
        ]

    def stage(self, number: int) -> Mapping[str, Any] | None:
        if number == 7:
            assert self.running is not None
            return {**STAGE, "status": "ACTIVE", "numTasks": self.done + 2 + self.waiting,
                    "numCompleteTasks": self.done,
                    "executorRunTime": self.done * self.task_ms,
                    "numFailedTasks": self.failed,
                    "firstTaskLaunchedTime": self.running["submissionTime"]}  # fmt: skip
        return STAGE if number == 3 else None


@contextmanager
def served(answers: Mapping[str, Any]) -> Iterator[str]:
    """A driver's REST API, as far as it is asked. A number is the code of an error."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.removeprefix("/api/v1/applications"), 404)
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


QUERY = Batches(0.1, (Stage(8, 0.01, 0.004),))

WISH = Wish(max_latency_s=2.0, quiet_s=60, options=Options(period_s=30))


def seen(rate: float, executors: int = 1, time_s: float = 0.0, **more: Any) -> Seen:
    rates = Rates(time_s, rate, (rate / executors,) * executors, waiting=more.pop("waiting", 0.0))
    asked = more.pop("asked", executors)
    return Seen(time_s, executors, 1, asked, rates, batches=more.pop("batches", QUERY), **more)
