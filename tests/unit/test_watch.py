"""Queries seen from outside and afterwards: the REST API alone, event logs, and `sojourn watch`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_attached import EXECUTOR, JOB, STAGE, told

from sojourn.attached import eventlog, outside
from sojourn.attached.decide import wished
from sojourn.cli.watch import watch
from sojourn.errors import InputError


class Jobs:
    """A driver that has run some batches, a second each, and is at work on another."""

    def __init__(self, batches: int, run: str = "r1") -> None:
        self.batches, self.run = batches, run

    def executors(self) -> Sequence[Mapping[str, Any]]:
        return [EXECUTOR]

    def jobs(self) -> Sequence[Mapping[str, Any]]:
        plain = {**JOB, "jobId": 900, "description": "count at App.py"}
        return [
            *(
                {
                    "jobId": n,
                    "jobGroup": self.run,
                    "description": f"<br/>id = q1<br/>runId = {self.run}<br/>batch = {n}",
                    "submissionTime": f"2026-11-17T10:00:{n:02}.000GMT",
                    "completionTime": f"2026-11-17T10:00:{n:02}.700GMT",
                    "stageIds": [n],
                }
                for n in range(self.batches)
            ),
            plain,
        ]

    def stage(self, number: int) -> Mapping[str, Any] | None:
        return {**STAGE, "stageId": number}


def test_batches_are_known_by_their_jobs() -> None:
    found = outside.batches(Jobs(4))
    assert [one.number for one in found] == [0, 1, 2]  # the last one may have jobs to come
    assert [one.rows for one in found] == [100, 100, 100]
    assert found[0].took_s == pytest.approx(0.7)
    assert found[1].time_s - found[0].time_s == pytest.approx(1.0)
    assert [one.number for one in outside.batches(Jobs(4), found[1])] == [2]
    again = replace(found[1], run="an earlier one", number=98)
    assert [one.number for one in outside.batches(Jobs(4), again)] == [0, 1, 2]
    assert outside.batches(Jobs(4), replace(found[1], query="another")) == []
    assert outside.batches(Jobs(0)) == []


T0_MS = 1_794_909_600_000  # 2026-11-17 10:00 UTC


def logged(batches: int, executors: int) -> list[dict[str, Any]]:
    """The log of a query with a batch a second that takes a tenth of it, on so many executors."""
    found: list[dict[str, Any]] = [
        {
            "Event": "SparkListenerExecutorAdded",
            "Timestamp": T0_MS - 5000,
            "Executor ID": str(n),
            "Executor Info": {"Total Cores": 1},
        }
        for n in range(executors)
    ]
    for n in range(batches):
        at_ms = T0_MS + 1000 * n
        found.append(
            {
                "Event": "SparkListenerJobStart",
                "Job ID": n,
                "Submission Time": at_ms + 10,
                "Stage IDs": [n],
                "Properties": {"spark.jobGroup.id": "run"},
            }
        )
        found.extend(
            {
                "Event": "SparkListenerTaskEnd",
                "Stage ID": n,
                "Task Info": {"Executor ID": str(task % executors)},
                "Task Metrics": {"Executor Run Time": 20, "Input Metrics": {"Records Read": 25}},
            }
            for task in range(4)
        )
        found.append(
            {
                "Event": "SparkListenerStageCompleted",
                "Stage Info": {"Stage ID": n, "Number of Tasks": 4},
            }
        )
        found.append({"Event": "SparkListenerJobEnd", "Job ID": n, "Completion Time": at_ms + 90})
        progress = json.loads(told(n, float(n), 0.1, 100))
        found.append({"Event": eventlog._PROGRESS, "progress": progress})
    return found


def written(path: Path, events: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


def test_a_log_tells_what_would_have_been_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "log", logged(55, 4))
    wish = wished("model", 3.0, 1, None, 5.0)
    found = list(eventlog.advised(path, wish))
    assert len(found) == 10
    assert {one.executors for one in found} == {4}
    assert found[-1].advised == 1  # 80 ms of work a second
    watch(event_log=path, max_latency="3s", period="5s")
    said = capsys.readouterr().out
    assert "4 executors, better 1" in said
    assert "fewer" in said.splitlines()[-1]
    watch(event_log=path, max_latency="3s", period="5s", as_json=True)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["advised_s"] < last["used_s"]
    assert last["saved"] == pytest.approx(1 - last["advised_s"] / last["used_s"])


def test_an_executor_that_goes_is_no_longer_there(tmp_path: Path) -> None:
    events = logged(30, 2)
    gone = {"Event": "SparkListenerExecutorRemoved", "Timestamp": T0_MS, "Executor ID": "1"}
    events.insert(60, gone)
    found = list(
        eventlog.advised(written(tmp_path / "log", events), wished("model", 3, 1, None, 5))
    )
    assert found[0].executors == 2
    assert found[-1].executors == 1


def test_a_log_in_parts_is_read_in_order(tmp_path: Path) -> None:
    events = logged(20, 1)
    folder = tmp_path / "eventlog_v2_app"
    folder.mkdir()
    (folder / "appstatus_app").touch()
    written(folder / "events_10_app", events[40:])
    written(folder / "events_2_app", events[:40])
    assert list(eventlog.events(folder)) == events


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("hello\n")
    with pytest.raises(InputError, match="line 1: is not an event of Spark"):
        list(eventlog.events(path))
    path.write_text("[]\n")
    with pytest.raises(InputError, match="is not an event"):
        list(eventlog.events(path))
    with pytest.raises(InputError, match="cannot be read"):
        list(eventlog.events(tmp_path / "none"))
    (tmp_path / "log.zstd").touch()
    with pytest.raises(InputError, match=r"spark.eventLog.compress=false"):
        list(eventlog.events(tmp_path / "log.zstd"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no event log"):
        list(eventlog.events(tmp_path / "empty"))
    with pytest.raises(InputError, match="no streaming query that ran for two periods"):
        watch(event_log=written(path, logged(1, 1)))


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="either --app or --event-log"):
        watch()
    with pytest.raises(InputError, match="either --app or --event-log"):
        watch(app="http://x", event_log=tmp_path)
    for wrong, words in (
        ({"policy": "none"}, "policy: must be one of model, mended, printed"),
        ({"policy": "mended", "max_latency": "1s"}, "is kept by the policy 'model' alone"),
        ({"period": "10ms"}, "at least 1 s"),
        ({"min_executors": 3, "max_executors": 2}, "got 3 and 2"),
        ({"max_latency": "soon"}, "--max-latency"),
    ):
        given: dict[str, Any] = wrong
        with pytest.raises(InputError, match=words):
            watch(event_log=tmp_path, **given)
    with pytest.raises(InputError, match=r"options: must be among predict, .*got 'speed'"):
        wished("mended", None, 1, None, 30, {"speed": 1})
