"""Queries that are over: event logs as Spark writes them, and what would have been advised."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from attaching import told

from sojourn.attached import eventlog, logfile
from sojourn.attached import status as st
from sojourn.attached.advice import Advised
from sojourn.attached.decide import wished
from sojourn.cli.watch import watch
from sojourn.errors import InputError

T0_MS = 1_794_909_600_000  # 2026-11-17 10:00 UTC


def added(name: str, at_ms: int = T0_MS - 5000, cores: int = 1) -> dict[str, Any]:
    return {
        "Event": "SparkListenerExecutorAdded",
        "Timestamp": at_ms,
        "Executor ID": name,
        "Executor Info": {"Total Cores": cores},
    }


def removed(name: str, at_ms: int) -> dict[str, Any]:
    return {"Event": "SparkListenerExecutorRemoved", "Timestamp": at_ms, "Executor ID": name}


def task(stage: int, executor: str, at_ms: int, reason: str = "Success") -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Stage Attempt ID": 0,
        "Task End Reason": {"Reason": reason},
        "Task Info": {"Executor ID": executor, "Launch Time": at_ms, "Finish Time": at_ms + 20},
        "Task Metrics": {"Executor Run Time": 20, "Input Metrics": {"Records Read": 25}},
    }


def ran(number: int, at_s: float, executors: int, query: str = "query") -> list[dict[str, Any]]:
    """A batch of four tasks that takes 0.1 s, as Spark logs it: rows are those of sources, and
    offsets are in quotes."""
    at_ms = T0_MS + round(1000 * at_s)
    progress = json.loads(told(number, at_s, 0.1, 100, '"file"', None))
    del progress["numInputRows"]
    stage = {"Stage ID": number, "Stage Attempt ID": 0, "Number of Tasks": 4}
    return [
        {
            "Event": "SparkListenerJobStart",
            "Job ID": number,
            "Submission Time": at_ms + 10,
            "Stage IDs": [number],
            "Properties": {"spark.jobGroup.id": "run"},
        },
        {"Event": "SparkListenerStageSubmitted", "Stage Info": stage},
        *(task(number, str(n % executors), at_ms + 10) for n in range(4)),
        {"Event": "SparkListenerStageCompleted", "Stage Info": stage},
        {"Event": "SparkListenerJobEnd", "Job ID": number, "Completion Time": at_ms + 90},
        {"Event": eventlog._PROGRESS, "progress": {**progress, "id": query}},
    ]


def logged(batches: int, executors: int) -> list[dict[str, Any]]:
    """The log of a query with a batch a second that takes a tenth of it, on so many executors."""
    found = [added(str(n)) for n in range(executors)]
    found.append({"Event": eventlog._STARTED, "id": "query", "timestamp": "2026-11-17T10:00:00Z"})
    return found + [event for n in range(batches) for event in ran(n, float(n), executors)]


def written(path: Path, events: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


def packed(path: Path, events: Sequence[Mapping[str, Any]]) -> Path:
    """As Spark does: a frame ends where it flushes."""
    lines = [json.dumps(event).encode() + b"\n" for event in events]
    frames = [pyarrow.compress(line, codec="zstd", asbytes=True) for line in lines]
    path.write_bytes(b"".join(frames))
    return path


def afterwards(
    tmp_path: Path, events: Sequence[Mapping[str, Any]], period_s: float = 5.0
) -> tuple[eventlog.Afterwards, list[Advised]]:
    path = written(tmp_path / "log", events)
    found = eventlog.Afterwards(path, wished("model", 3.0, 1, None, period_s))
    return found, list(found.periods())


def test_a_log_tells_what_would_have_been_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, found = afterwards(tmp_path, logged(55, 4))
    assert len(found) == 10
    assert {one.executors for one in found} == {4}
    assert found[-1].advised == 1  # 80 ms of work a second
    fewer = next(one for one in found if one.advised == 1)
    before_s, after_s = fewer.time_s - T0_MS / 1e3, 54.1 - (fewer.time_s - T0_MS / 1e3)
    assert log.used_s == pytest.approx(4 * 54.1)
    assert log.advised_s == pytest.approx(4 * before_s + after_s)
    watch(event_log=tmp_path / "log", max_latency="3s", period="5s")
    said = capsys.readouterr().out
    assert "4 executors, better 1" in said
    assert "216 executor-seconds were used" in said.splitlines()[-1]
    assert "fewer" in said.splitlines()[-1]
    watch(event_log=tmp_path / "log", max_latency="3s", period="5s", as_json=True)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["used_s"] == pytest.approx(log.used_s)
    assert last["saved"] == pytest.approx(1 - log.advised_s / log.used_s)


def test_executors_count_from_when_they_came_to_when_they_went(tmp_path: Path) -> None:
    """Whatever lies between two looks."""
    events = logged(30, 2)
    place = events.index(ran(12, 12.0, 2)[0])
    events.insert(place, removed("1", T0_MS + 11_500))
    events.insert(place, added("short", T0_MS + 11_200))
    events.insert(place + 2, removed("short", T0_MS + 11_900))
    log, found = afterwards(tmp_path, events)
    assert [one.executors for one in found] == [2, 2, 1, 1, 1]
    assert log.used_s == pytest.approx(29.1 + 11.5 + 0.7)


def test_time_passes_also_while_nothing_happens(tmp_path: Path) -> None:
    """Spark says that it waits for data. So fewer executors would do."""
    events = logged(12, 4)
    idle = {"Event": eventlog._IDLE, "id": "query", "runId": "run"}
    idle["timestamp"] = "2026-11-17T10:00:22.000Z"
    end = {"Event": "SparkListenerApplicationEnd", "Timestamp": T0_MS + 41_000}
    log, found = afterwards(tmp_path, [*events, idle, end])
    assert [one.time_s - T0_MS / 1e3 for one in found] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert "no batch was done for 9 s" in found[3].why
    assert "0 rows/s come" in found[4].why
    assert found[-1].advised == 1
    assert log.used_s == pytest.approx(4 * 41)


def test_a_query_that_has_ended_uses_nothing_until_it_goes_on(tmp_path: Path) -> None:
    events = logged(12, 2)
    ended = {"Event": eventlog._ENDED, "id": "query", "runId": "run", "exception": None}
    other = {"Event": "SparkListenerJobEnd", "Job ID": 900, "Completion Time": T0_MS + 60_000}
    again = [event for n in range(12, 24) for event in ran(n, 60.0 + n, 2)]
    log, found = afterwards(tmp_path, [*events, ended, other, *again])
    assert [round(one.time_s - T0_MS / 1e3, 3) for one in found] == [5, 10, 77.1, 82.1]
    assert log.used_s == pytest.approx(2 * (11.1 + 11.0))  # from the first sign of life


def test_a_batch_at_work_is_seen(tmp_path: Path) -> None:
    """Tasks of it wait for a slot when a period ends."""
    events = logged(12, 1)
    start, stage, *rest = ran(12, 12.0, 1)
    many = {**stage, "Stage Info": {**stage["Stage Info"], "Number of Tasks": 40}}
    launched = {**task(12, "0", T0_MS + 12_500), "Event": "SparkListenerTaskStart"}
    late = [{**task(12, "0", T0_MS + 14_000)}, {**task(12, "0", T0_MS + 22_000)}]
    found = afterwards(tmp_path, [*events, start, many, launched, *late, *rest])[1]
    assert found[-1].time_s - T0_MS / 1e3 == 20
    assert "a batch is at work for 8 s, and 38 of its tasks wait" in found[-1].why
    assert found[-1].advised > 1


def test_a_task_that_failed_has_done_nothing() -> None:
    found = eventlog.Logged()
    start, stage, one, *_, completed, _, _ = ran(0, 0.0, 1)
    for event in (added("0"), start, stage, one, task(0, "0", T0_MS, "ExceptionFailure")):
        found.hear(event)
    lost = {**task(0, "0", T0_MS), "Stage Attempt ID": 7}
    for event in (task(0, "0", T0_MS, "TaskKilled"), lost, completed):
        found.hear(event)
    (ended,) = st.ran(found, [0])
    assert (ended.tasks, ended.rows, ended.ran_s) == (1, 25.0, 0.06)
    there = st.executors(found)["0"]
    assert (there.tasks, there.busy_s) == (2, 0.08)  # another attempt's task is one as well
    failed = {**completed, "Stage Info": {**completed["Stage Info"], "Failure Reason": "x"}}
    found.hear(failed)
    assert st.ran(found, [0]) == []


def test_slots_are_as_many_as_tasks_fit() -> None:
    found = eventlog.Logged()
    found.hear(added("0", cores=4))
    found.hear(added("driver", cores=4))
    assert [one.slots for one in st.executors(found).values()] == [4]
    for cpus, slots in (("3", 1), ("2", 2), ("0.1", 40)):
        given = {"Spark Properties": {"spark.task.cpus": cpus}}
        found.hear({"Event": "SparkListenerEnvironmentUpdate", **given})
        assert [one.slots for one in st.executors(found).values()] == [slots]
    assert found.executor_seconds(T0_MS / 1e3, T0_MS / 1e3 + 2) == 2.0  # the driver is none


def test_a_query_of_a_log_is_named_where_there_are_several(tmp_path: Path) -> None:
    events = [added("0"), added("1")]
    for n in range(30):
        events += ran(n, float(n), 2)
        events += ran(1000 + n, n + 0.5, 2, "another")
        events[-1]["progress"]["name"] = "bids"
    path = written(tmp_path / "log", events)
    wish = wished("model", 3.0, 1, None, 5.0)
    with pytest.raises(InputError, match=r"must be given .* there are query, bids \(another\)"):
        eventlog.Afterwards(path, wish)
    with pytest.raises(InputError, match="got 'asks' of query, bids"):
        watch(event_log=path, query="asks")
    for name in ("bids", "another", "query"):
        found = eventlog.Afterwards(path, wish, name)
        assert "100 rows/s come" in list(found.periods())[-1].why


def test_a_log_in_parts_is_read_in_order(tmp_path: Path) -> None:
    """As Spark writes it by default: compressed, in a directory of its own."""
    events = logged(20, 1)
    folder = tmp_path / "eventlog_v2_app"
    folder.mkdir()
    (folder / "appstatus_app.inprogress").touch()
    (folder / ".appstatus_app.inprogress.crc").touch()
    parts = [events[n * 10 : n * 10 + 10] for n in range(18)] + [events[180:]]
    for number, part in enumerate(parts, 1):
        packed(folder / f"events_{number}_app.zstd", part)
    assert list(logfile.events(folder)) == events
    assert list(logfile.events(tmp_path)) == events
    (folder / "events_7_app.zstd").rename(tmp_path / "kept")
    with pytest.raises(InputError, match="it lacks events_7_…"):
        list(logfile.events(folder))
    whole = packed(folder / "events_7_app.zstd.compact", events[:70])
    notes: list[str] = []
    assert list(logfile.events(folder, notes.append)) == events
    assert notes == [
        f"{whole}: is compacted by the history server; jobs that were done are left out"
    ]


@pytest.mark.parametrize("name", ["app", "app.inprogress", "app.zstd", "app.zstd.inprogress"])
def test_a_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path, name: str) -> None:
    events = logged(5, 1)
    path = (packed if "zstd" in name else written)(tmp_path / name, events)
    notes: list[str] = []
    assert list(logfile.events(path, notes.append)) == events
    assert notes == []
    path.write_bytes(path.read_bytes()[:-7])
    found = list(logfile.events(path, notes.append))
    assert found == events[: len(found)]
    assert len(events) - 6 < len(found) < len(events)  # up to 512 bytes may be lost
    (note,) = notes
    assert note.startswith(f"{path}: is cut off after line {len(found)}")


def test_a_part_that_is_cut_off_is_refused_where_another_follows(tmp_path: Path) -> None:
    events = logged(5, 1)
    first = packed(tmp_path / "events_1_app.zstd", events[:20])
    packed(tmp_path / "events_2_app.zstd", events[20:])
    first.write_bytes(first.read_bytes()[:-7])
    with pytest.raises(InputError, match=r"events_1_app.zstd: cannot be read as an event log"):
        list(logfile.events(tmp_path))


def test_a_directory_with_one_application_is_as_good_as_its_log(tmp_path: Path) -> None:
    events = logged(5, 1)
    written(tmp_path / "app-1", events)
    assert list(logfile.events(tmp_path)) == events
    (tmp_path / "eventlog_v2_app-2").mkdir()
    packed(tmp_path / "eventlog_v2_app-2" / "events_1_app-2.zstd", events)
    with pytest.raises(
        InputError, match=r"logs of 2 applications; give one of app-1, eventlog_v2_app-2$"
    ):
        list(logfile.events(tmp_path))


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("hello\n")
    with pytest.raises(InputError, match="line 1: is not an event of Spark"):
        list(logfile.events(path))
    path.write_text("[]\n")
    with pytest.raises(InputError, match="is not an event"):
        list(logfile.events(path))
    for none in (tmp_path / "none", tmp_path / "none.zstd"):
        with pytest.raises(InputError, match="cannot be read"):
            list(logfile.events(none))
    (tmp_path / "log.zstd").write_text("hello\n")
    with pytest.raises(InputError, match=r"log.zstd: cannot be read as an event log"):
        list(logfile.events(tmp_path / "log.zstd"))
    for codec in ("lz4", "snappy", "lzf"):
        with pytest.raises(InputError, match=rf"got {codec}; .*compression.codec=zstd"):
            list(logfile.events(tmp_path / f"log.{codec}.inprogress"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no event log"):
        list(logfile.events(tmp_path / "empty"))
    with pytest.raises(InputError, match="no query that ran for a period of 30 s"):
        watch(event_log=written(path, logged(1, 1)))
    with pytest.raises(InputError, match="has no batch of a streaming query"):
        watch(event_log=written(path, logged(0, 1)))
    odd = logged(1, 1)
    del odd[2]["Submission Time"]
    with pytest.raises(InputError, match="SparkListenerJobStart that is not as Spark writes it"):
        watch(event_log=written(path, odd))
