"""Spark executors and the stages that ran on them, as Spark's status store or its REST API give
them: both have the same fields. Read by whoever can reach one of the two."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from sojourn.errors import InputError

DRIVER = "driver"
_TIMEOUT_S = 10.0
_DONE = 1000  # stages that are remembered


@dataclass(frozen=True)
class Executor:
    """A Spark executor: its task slots, since when it is there, how many tasks it has finished, and
    for how many seconds it worked on them."""

    name: str
    slots: int
    since_s: float
    tasks: int
    busy_s: float
    running: int = 0


@dataclass(frozen=True)
class Job:
    """A job of a batch: its stages that ran."""

    number: int
    group: str
    begun_s: float
    ended_s: float | None
    stages: tuple[int, ...]


@dataclass(frozen=True)
class StageRan:
    """A stage that is done: its tasks, how long all of them together took, the rows that it read,
    and from when to when it was there. Of several that ran beside each other, all together, where
    `stages` says how many."""

    number: int
    tasks: int
    ran_s: float
    rows: float
    begun_s: float = 0.0
    ended_s: float = 0.0
    stages: int = 1


class Status(Protocol):
    """Where all this comes from. Every answer has fields of Spark's REST API, under their names."""

    @property
    def task_cpus(self) -> float:
        """`spark.task.cpus`: how long tasks ran, Spark counts once for each of these."""

    def executors(self) -> Sequence[Mapping[str, Any]]:
        """Those that are there."""

    def jobs(self, since: int = 0, group: str | None = None) -> Sequence[Mapping[str, Any]]:
        """The last ones, but none of before that number; those of a group, if one is named."""

    def stage(self, number: int) -> Mapping[str, Any] | None:
        """The last attempt at a stage; None if Spark has forgotten it."""


def executors(status: Status) -> dict[str, Executor]:
    """Those that are there, without the driver."""
    found = {}
    for of in status.executors():
        if of["id"] == DRIVER or not of.get("isActive", True):
            continue
        found[of["id"]] = Executor(
            of["id"],
            int(of.get("maxTasks") or of["totalCores"]),
            seconds(of["addTime"]) or 0.0,
            int(of["completedTasks"]),
            of["totalDuration"] / 1e3,
            int(of.get("activeTasks", 0)),
        )
    return found


def jobs(status: Status, group: str, since: int = 0) -> list[Job]:
    """Those of a run of a query, the oldest first, but none of before that number."""
    found = []
    for of in status.jobs(since, group):
        begun = seconds(of.get("submissionTime"))
        ended = seconds(of.get("completionTime"))
        stages = tuple(sorted(of["stageIds"]))
        found.append(Job(int(of["jobId"]), group, begun or 0.0, ended, stages))
    return sorted(found, key=lambda job: job.number)


def ran(status: Status, numbers: Iterable[int]) -> list[StageRan]:
    """Stages that are done; not those that were skipped."""
    found = []
    for number in numbers:
        of = status.stage(number)
        if of is None or of.get("status") != "COMPLETE":
            continue
        found.append(
            StageRan(
                number,
                int(of["numCompleteTasks"]),
                of["executorRunTime"] / 1e3 / status.task_cpus,
                float(of.get("inputRecords", 0)),
                seconds(of.get("submissionTime")) or 0.0,
                seconds(of.get("completionTime")) or 0.0,
            )
        )
    return found


def beside(stages: Iterable[StageRan]) -> list[StageRan]:
    """The same, where those that were there at the same time are one: they share the slots, so
    their tasks are as those of one stage. One that needs another begins after it."""
    found: list[StageRan] = []
    for one in sorted(stages, key=lambda stage: (stage.begun_s, stage.number)):
        last = found[-1] if found else None
        if last is None or one.begun_s >= last.ended_s:
            found.append(one)
            continue
        found[-1] = replace(
            last,
            tasks=last.tasks + one.tasks,
            ran_s=last.ran_s + one.ran_s,
            rows=last.rows + one.rows,
            ended_s=max(last.ended_s, one.ended_s),
            stages=last.stages + one.stages,
        )
    return found


@dataclass(frozen=True)
class UnderWay:
    """A batch at work: when its first job began, how many of its stages are done, when the first
    task of the one that runs began, its tasks, how many of them are done, and how long these ran.
    How many run, Spark tells late: it is as many as there are slots."""

    begun_s: float
    place: int
    stage_s: float
    tasks: int
    done: int
    ran_s: float

    def running(self, slots: int) -> int:
        """Tasks that have a slot."""
        return min(slots, self.tasks - self.done)

    def waiting(self, slots: int) -> int:
        """Tasks that wait for a slot."""
        return self.tasks - self.done - self.running(slots)


def under_way(status: Status, group: str, since_s: float, since: int = 0) -> UnderWay | None:
    """The batch of a run that began after some time and is at work, none of whose jobs has a number
    before that; None if no job of it runs, or if not just one of its stages does: those that run
    beside each other share slots. None as well where tasks have failed, as their time is counted
    with that of those that are done."""
    some = [job for job in jobs(status, group, since) if job.begun_s >= since_s]
    if not some or some[-1].ended_s is not None:
        return None
    numbers = sorted({number for job in some for number in job.stages})
    every = [of for of in map(status.stage, numbers) if of is not None]
    active = [of for of in every if of.get("status") == "ACTIVE"]
    if len(active) != 1 or (began_s := seconds(active[0].get("firstTaskLaunchedTime"))) is None:
        return None
    (of,) = active
    if of.get("numFailedTasks") or of.get("numKilledTasks"):
        return None
    place = sum(one.get("status") == "COMPLETE" for one in every)
    return UnderWay(
        some[0].begun_s,
        place,
        began_s,
        int(of["numTasks"]),
        int(of["numCompleteTasks"]),
        of["executorRunTime"] / 1e3 / status.task_cpus,
    )


def seconds(moment: Any) -> float | None:
    """A time as the REST API or the status store writes it."""
    if moment is None:
        return None
    if isinstance(moment, int | float):
        return moment / 1e3
    return datetime.fromisoformat(str(moment).replace("GMT", "+00:00")).timestamp()


class Unanswered(InputError):
    """That a driver does not answer, or not as it should. It may the next time."""


class Rest:
    """The REST API of a driver. A stage that is done is asked for once."""

    def __init__(self, address: str) -> None:
        self.root = address.rstrip("/") + "/api/v1/applications"
        self.done: dict[int, Mapping[str, Any]] = {}
        found = self._get("")
        if not found:
            raise InputError(
                f"{address}: must be the UI of a Spark driver; it knows no application"
            )
        self.application = found[0]["id"]
        self._task_cpus: float | None = None

    @property
    def task_cpus(self) -> float:
        """Asked for once."""
        if self._task_cpus is None:
            found = self._get(f"/{self.application}/environment", or_none=True) or {}
            properties = dict(found.get("sparkProperties", ()))
            self._task_cpus = float(properties.get("spark.task.cpus", 1))
        return self._task_cpus

    def executors(self) -> Sequence[Mapping[str, Any]]:
        """Those that are there."""
        return list(self._get(f"/{self.application}/executors"))

    def jobs(self, since: int = 0, group: str | None = None) -> Sequence[Mapping[str, Any]]:
        """The last ones, but none of before that number."""
        return [
            job
            for job in self._get(f"/{self.application}/jobs")
            if job["jobId"] >= since and group in (None, job.get("jobGroup"))
        ]

    def stage(self, number: int) -> Mapping[str, Any] | None:
        """The last attempt at it."""
        if number in self.done:
            return self.done[number]
        path = f"/{self.application}/stages/{number}"
        found = self._get(f"{path}?details=false", or_none=True)
        if not found:
            return None
        stage: Mapping[str, Any] = found[-1]
        if stage.get("status") == "COMPLETE":
            self.done[number] = stage
            while len(self.done) > _DONE:
                del self.done[next(iter(self.done))]
        return stage

    def _get(self, path: str, or_none: bool = False) -> Any:
        address = self.root + path
        if not address.startswith(("http://", "https://")):
            raise InputError(f"{address}: must begin with http:// or https://")
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404 and or_none:
                return None
            raise Unanswered(f"{address}: Spark's REST API answers {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unanswered(
                f"{address}: must be the UI of a running Spark driver, such as "
                f"http://localhost:4040; {getattr(error, 'reason', error)}"
            ) from None
