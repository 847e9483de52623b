"""A query that is over, from the event log of its driver: what happened, moment by moment, and how
many executors would have been advised. Fed by logfile.py."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sojourn.attached import status as st
from sojourn.attached.advice import Advised, chosen, interval_s
from sojourn.attached.decide import Memory, Wish, decided
from sojourn.attached.logfile import events
from sojourn.attached.observer import Observer
from sojourn.attached.progress import Batch, batch, moment_s
from sojourn.errors import InputError

_STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"
_STARTED, _PROGRESS, _IDLE, _ENDED = (
    f"{_STREAMING}Query{what}Event" for what in ("Started", "Progress", "Idle", "Terminated")
)
_KEPT = 1000  # jobs, and stages


@dataclass
class Logged:
    """What Spark knew, as far as the log has been read."""

    there: dict[str, dict[str, Any]] = field(default_factory=dict)
    gone: list[tuple[float, float]] = field(default_factory=list)  # executors: from when to when
    every: dict[int, dict[str, Any]] = field(default_factory=dict)  # jobs
    stages: dict[int, dict[str, Any]] = field(default_factory=dict)
    task_cpus: float = 1.0

    def executors(self) -> Sequence[Mapping[str, Any]]:
        """Those that are there."""
        return [
            {**of, "maxTasks": math.floor(of["totalCores"] / self.task_cpus + 1e-9)}
            for of in self.there.values()
        ]

    def jobs(self, since: int = 0, group: str | None = None) -> Sequence[Mapping[str, Any]]:
        """The last ones, but none of before that number."""
        return [
            job
            for job in self.every.values()
            if job["jobId"] >= since and group in (None, job["jobGroup"])
        ]

    def stage(self, number: int) -> Mapping[str, Any] | None:
        """The last attempt at it."""
        return self.stages.get(number)

    def executor_seconds(self, since_s: float, until_s: float) -> float:
        """Of all executors together, to the moment at which they came and went."""
        spans = [*self.gone, *((of["addTime"] / 1e3, math.inf) for of in self.there.values())]
        return math.fsum(max(0.0, min(until_s, e) - max(since_s, b)) for b, e in spans)

    def hear(self, event: Mapping[str, Any]) -> None:
        """An event."""
        match event["Event"]:
            case "SparkListenerEnvironmentUpdate":
                self.task_cpus = float(event["Spark Properties"].get("spark.task.cpus", 1))
            case "SparkListenerExecutorAdded":
                self._added(event)
            case "SparkListenerExecutorRemoved":
                of = self.there.pop(event["Executor ID"], None)
                if of is not None:
                    self.gone.append((of["addTime"] / 1e3, event["Timestamp"] / 1e3))
            case "SparkListenerJobStart":
                self._started(event)
            case "SparkListenerJobEnd":
                if event["Job ID"] in self.every:
                    self.every[event["Job ID"]]["completionTime"] = event["Completion Time"]
            case "SparkListenerStageSubmitted":
                self._submitted(event["Stage Info"])
            case "SparkListenerTaskStart":
                self._launched(event)
            case "SparkListenerTaskEnd":
                self._task(event)
            case "SparkListenerStageCompleted":
                self._completed(event["Stage Info"])

    def _added(self, event: Mapping[str, Any]) -> None:
        if event["Executor ID"] == st.DRIVER:
            return
        self.there[event["Executor ID"]] = {
            "id": event["Executor ID"],
            "isActive": True,
            "totalCores": event["Executor Info"]["Total Cores"],
            "addTime": event["Timestamp"],
            "completedTasks": 0,
            "totalDuration": 0,
        }

    def _started(self, event: Mapping[str, Any]) -> None:
        properties = event.get("Properties") or {}
        self.every[event["Job ID"]] = {
            "jobId": event["Job ID"],
            "jobGroup": properties.get("spark.jobGroup.id"),
            "submissionTime": event["Submission Time"],
            "stageIds": event["Stage IDs"],
        }
        _forget(self.every)

    def _submitted(self, info: Mapping[str, Any]) -> None:
        self.stages[info["Stage ID"]] = {
            "status": "ACTIVE",
            "submissionTime": info.get("Submission Time"),
            "attemptId": info["Stage Attempt ID"],
            "numTasks": info["Number of Tasks"],
            "numCompleteTasks": 0,
            "executorRunTime": 0,
            "numFailedTasks": 0,
            "firstTaskLaunchedTime": None,
            "inputRecords": 0,
        }
        _forget(self.stages)

    def _launched(self, event: Mapping[str, Any]) -> None:
        stage = self.stages.get(event["Stage ID"])
        if stage is None or stage["attemptId"] != event["Stage Attempt ID"]:
            return
        if stage["firstTaskLaunchedTime"] is None:
            stage["firstTaskLaunchedTime"] = event["Task Info"]["Launch Time"]

    def _task(self, event: Mapping[str, Any]) -> None:
        """One has ended. What one that failed has read, another reads again."""
        info, metrics = event["Task Info"], event.get("Task Metrics") or {}
        is_done = event["Task End Reason"]["Reason"] == "Success"
        executor = self.there.get(info["Executor ID"])
        if executor is not None:
            executor["completedTasks"] += is_done
            executor["totalDuration"] += info["Finish Time"] - info["Launch Time"]
        stage = self.stages.get(event["Stage ID"])
        if stage is None or stage["attemptId"] != event["Stage Attempt ID"]:
            return
        stage["executorRunTime"] += metrics.get("Executor Run Time", 0)
        stage["numFailedTasks"] += not is_done
        if not is_done:
            return
        stage["numCompleteTasks"] += 1
        stage["inputRecords"] += (metrics.get("Input Metrics") or {}).get("Records Read", 0)

    def _completed(self, info: Mapping[str, Any]) -> None:
        stage = self.stages.get(info["Stage ID"])
        if stage is not None and stage["attemptId"] == info["Stage Attempt ID"]:
            stage["status"] = "FAILED" if "Failure Reason" in info else "COMPLETE"
            stage["completionTime"] = info.get("Completion Time")


def _forget(what: dict[int, Any]) -> None:
    """The oldest, so that a long log takes no more memory than a short one."""
    while len(what) > _KEPT:
        del what[next(iter(what))]


class Afterwards:
    """A query of a log, period by period, as if the advice had been taken. Rates are those that
    were measured with the executors that there were. Both kinds of executor-seconds are counted
    while the query runs: those that were used, and those that were advised; until the first advice,
    they are the same."""

    def __init__(
        self,
        path: Path,
        wish: Wish,
        query: str | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.path, self.wish, self.tell = path, wish, tell
        self.query = _query(path, query)
        self.logged = Logged()
        self.observer, self.memory = Observer(self.logged), Memory()
        self.would: int | None = None
        self.used_s = self.advised_s = 0.0
        self.now_s = -math.inf
        self.ticked_s: float | None = None  # None while the query does not run
        self.is_idle = False

    def periods(self) -> Iterator[Advised]:
        """What would have been advised after each."""
        for event in events(self.path, self.tell):
            try:
                one = self._batch(event)
                self.now_s = max(self.now_s, _moment_s(event) if one is None else one.end_s)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise self._odd(event, error) from None
            yield from self._due()
            try:
                self._hear(event, one)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise self._odd(event, error) from None
        self._count(self.now_s)

    def _odd(self, event: Mapping[str, Any], error: Exception) -> InputError:
        return InputError(
            f"{self.path}: has an event {event['Event']} that is not as Spark writes it: {error!r}"
        )

    def _batch(self, event: Mapping[str, Any]) -> Batch | None:
        """Of our query. Logs have what listeners hear, but for what is summed up over sources."""
        if event["Event"] != _PROGRESS or event["progress"]["id"] != self.query:
            return None
        rows = sum(source["numInputRows"] for source in event["progress"]["sources"])
        return batch({**event["progress"], "numInputRows": rows})

    def _hear(self, event: Mapping[str, Any], one: Batch | None) -> None:
        self.logged.hear(event)
        if one is not None:
            self.observer.add(one)
            self.is_idle = False
            self._begin()
        if event["Event"] not in (_STARTED, _IDLE, _ENDED) or event["id"] != self.query:
            return
        self.is_idle = event["Event"] == _IDLE
        if self.is_idle:
            self.observer.idle(event["runId"], self.now_s)
        elif event["Event"] == _STARTED:
            self._begin()
        elif event["Event"] == _ENDED:
            self._count(self.now_s)
            self.ticked_s = None

    def _begin(self) -> None:
        """The query runs from now on, unless it does so already."""
        if self.ticked_s is None:
            self.ticked_s = self.now_s
            self.observer.before = st.executors(self.logged)

    def _due(self) -> Iterator[Advised]:
        """All periods that have ended, also those in which nothing happened."""
        period_s = self.wish.options.period_s
        while self.ticked_s is not None and self.ticked_s + period_s <= self.now_s:
            yield self._tick(self.ticked_s, self.ticked_s + period_s)

    def _tick(self, since_s: float, now_s: float) -> Advised:
        self._count(now_s)
        trigger_s = interval_s(self.observer.batches)
        there = st.executors(self.logged)
        seen = self.observer.seen(now_s, since_s, there, self.would, trigger_s)
        if seen.rates is None and self.is_idle:
            seen = self.observer.silent(seen, trigger_s)
        elif seen.rates is None:
            seen = self.observer.at_work(seen, trigger_s)
        decision = decided(seen, self.memory, self.wish)
        self.memory = decision.memory
        self.would = decision.executors or self.would
        return Advised(now_s, len(there), self.would or len(there), decision.why)

    def _count(self, until_s: float) -> None:
        """Executor-seconds since the last time."""
        if self.ticked_s is None:
            return
        used_s = self.logged.executor_seconds(self.ticked_s, until_s)
        self.used_s += used_s
        advised_s = used_s if self.would is None else self.would * (until_s - self.ticked_s)
        self.advised_s += advised_s
        self.ticked_s = until_s


def _query(path: Path, wanted: str | None) -> str:
    """The one that is meant, of all in the log."""
    names: dict[str, str | None] = {}
    for event in events(path, only=_PROGRESS.encode()):
        if event["Event"] == _PROGRESS:
            progress = event.get("progress") or {}
            names[progress.get("id", "")] = progress.get("name")
    found = chosen(names, wanted)
    if found is None:
        raise InputError(f"{path}: has no batch of a streaming query")
    return found


def _moment_s(event: Mapping[str, Any]) -> float:
    """When it happened, if it tells."""
    match event["Event"]:
        case "SparkListenerJobStart":
            return float(event["Submission Time"]) / 1e3
        case "SparkListenerJobEnd":
            return float(event["Completion Time"]) / 1e3
        case "SparkListenerTaskEnd":
            return float(event["Task Info"]["Finish Time"]) / 1e3
        case (
            "SparkListenerExecutorAdded"
            | "SparkListenerExecutorRemoved"
            | "SparkListenerApplicationEnd"
        ):
            return float(event["Timestamp"]) / 1e3
        case what if what in (_STARTED, _IDLE):
            return moment_s(event["timestamp"])
    return -math.inf
