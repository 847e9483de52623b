"""A query that is over, from the event log of its driver: what happened, moment by moment, and how
many executors would have been advised."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sojourn.attached import status as st
from sojourn.attached.decide import Memory, Wish, decided
from sojourn.attached.observer import Observer
from sojourn.attached.progress import batch
from sojourn.errors import InputError

_PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
_COMPRESSED = (".lz4", ".snappy", ".zstd", ".lzf")


@dataclass
class Logged:
    """What Spark knew, as far as the log has been read."""

    there: dict[str, dict[str, Any]] = field(default_factory=dict)
    every: dict[int, dict[str, Any]] = field(default_factory=dict)  # jobs
    done: dict[int, dict[str, Any]] = field(default_factory=dict)  # stages
    by: dict[int, dict[str, dict[str, float]]] = field(default_factory=dict)

    def executors(self) -> Sequence[Mapping[str, Any]]:
        """Those that are there."""
        return list(self.there.values())

    def jobs(self) -> Sequence[Mapping[str, Any]]:
        """The last ones."""
        return list(self.every.values())

    def stage(self, number: int) -> Mapping[str, Any] | None:
        """One that is done."""
        return self.done.get(number)

    def hear(self, event: Mapping[str, Any]) -> None:
        """An event."""
        match event["Event"]:
            case "SparkListenerExecutorAdded":
                self._added(event)
            case "SparkListenerExecutorRemoved":
                self.there.pop(event["Executor ID"], None)
            case "SparkListenerJobStart":
                self._started(event)
            case "SparkListenerJobEnd":
                if event["Job ID"] in self.every:
                    self.every[event["Job ID"]]["completionTime"] = event["Completion Time"]
            case "SparkListenerTaskEnd":
                self._task(event)
            case "SparkListenerStageCompleted":
                self._stage(event["Stage Info"])

    def _added(self, event: Mapping[str, Any]) -> None:
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
        for old in sorted(self.every)[:-1000]:
            del self.every[old]

    def _task(self, event: Mapping[str, Any]) -> None:
        metrics = event.get("Task Metrics") or {}
        name = event["Task Info"]["Executor ID"]
        if name in self.there:
            self.there[name]["completedTasks"] += 1
            self.there[name]["totalDuration"] += metrics.get("Executor Run Time", 0)
        of = self.by.setdefault(event["Stage ID"], {}).setdefault(
            name, {"succeededTasks": 0, "inputRecords": 0, "ran": 0}
        )
        of["succeededTasks"] += 1
        of["inputRecords"] += (metrics.get("Input Metrics") or {}).get("Records Read", 0)
        of["ran"] += metrics.get("Executor Run Time", 0)

    def _stage(self, info: Mapping[str, Any]) -> None:
        by = self.by.pop(info["Stage ID"], {})
        self.done[info["Stage ID"]] = {
            "status": "COMPLETE",
            "numCompleteTasks": info["Number of Tasks"],
            "executorRunTime": sum(of["ran"] for of in by.values()),
            "inputRecords": sum(of["inputRecords"] for of in by.values()),
            "executorSummary": by,
        }
        for old in sorted(self.done)[:-1000]:
            del self.done[old]


@dataclass(frozen=True)
class Advised:
    """A period of the log: when, how many executors there were and would have been, and why."""

    time_s: float
    executors: int
    advised: int
    why: str


def advised(path: Path, wish: Wish, query: str | None = None) -> Iterator[Advised]:
    """Period by period, as if the advice had been taken. Rates are those that were measured with
    the executors that there were."""
    logged = Logged()
    observer, memory = Observer(logged), Memory()
    ticked_s: float | None = None
    would: int | None = None
    for event in events(path):
        try:
            if event["Event"] != _PROGRESS:
                logged.hear(event)
                continue
            one = batch(event["progress"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}: has an event {event['Event']} that is not as Spark writes it: {error!r}"
            ) from None
        query = query or one.query
        if one.query != query:
            continue
        observer.add(one)
        if ticked_s is None:
            ticked_s = one.time_s
            observer.before = st.executors(logged)
        if one.end_s - ticked_s < wish.options.period_s:
            continue
        there = st.executors(logged)
        seen = observer.seen(one.end_s, ticked_s, there, would)
        decision = decided(seen, memory, wish)
        memory = decision.memory
        would = decision.executors or would or len(there)
        yield Advised(one.end_s, len(there), would, decision.why)
        ticked_s = one.end_s


def events(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events of a log: a file, or a directory of files that follow one another."""
    for file in _files(path):
        if file.suffix in _COMPRESSED:
            raise InputError(
                f"{file}: is compressed; set spark.eventLog.compress=false for logs to be read here"
            )
        try:
            with file.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if line.endswith("\n"):  # else the driver ended while it wrote it
                        yield _event(file, number, line)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: cannot be read as an event log: {error}") from None


def _files(path: Path) -> list[Path]:
    """A log is a file, or a directory with files that are numbered."""
    if not path.is_dir():
        return [path]
    found = [file for file in path.iterdir() if file.is_file() and "appstatus" not in file.name]
    parts = [file for file in found if file.name.startswith("events_")]
    if parts:
        return sorted(parts, key=lambda file: int(file.name.split("_")[1]))
    logs = [file for file in found if not file.name.startswith(".")]
    logs += [below for below in path.iterdir() if below.name.startswith("eventlog_v2_")]
    if not logs:
        raise InputError(f"{path}: has no event log; set spark.eventLog.enabled=true and dir")
    if len(logs) > 1 or logs[0].is_dir():
        names = ", ".join(sorted(log.name for log in logs)[:5])
        raise InputError(f"{path}: has the logs of {len(logs)} applications; give one, of {names}")
    return logs


def _event(file: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        raise InputError(f"{file}, line {number}: is not an event of Spark") from None
    if not isinstance(found, dict) or "Event" not in found:
        raise InputError(f"{file}, line {number}: is not an event of Spark")
    return found
