"""What is made of batches and executors: how fast rows come, and how long batches take."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from attaching import JOB, QUERY, STAGE, Told, behind, told

from sojourn.attached import status as st
from sojourn.attached.observer import Observer
from sojourn.attached.progress import batch
from sojourn.attached.seen import rated
from sojourn.queueing.batches import Batches, Stage


def test_where_rows_are_little_of_a_batch_its_time_says_nothing_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = Told()
    observer = Observer(status)
    there = st.executors(status)
    observer.before = there
    for one in behind(6):
        observer.add(one)
    blind = observer.seen(one.end_s + 9, one.end_s, there, None)
    begun = datetime.fromtimestamp(one.end_s + 1, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fGMT")
    status.running = {**JOB, "jobId": 9, "submissionTime": begun, "completionTime": None,
                      "stageIds": [7]}  # fmt: skip
    assert observer.at_work(blind, 0.0).at_least
    flat = replace(QUERY, stages=tuple(replace(s, row_s=0.0) for s in QUERY.stages))
    monkeypatch.setattr(observer, "_fitted", lambda _: flat)
    assert observer.at_work(blind, 0.0) == blind


def test_a_batch_at_work_tells_how_much_came_at_least() -> None:
    status = Told()
    observer = Observer(status)
    there = st.executors(status)
    observer.before = there
    for one in behind(6):
        observer.add(one)
    observer.seen(one.end_s, one.time_s, there, None)
    blind = observer.seen(one.end_s + 9, one.end_s, there, None)
    assert observer.at_work(blind, 0.0) == blind  # no job runs
    begun = datetime.fromtimestamp(one.end_s + 1, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fGMT")
    status.running = {**JOB, "jobId": 9, "submissionTime": begun, "completionTime": None,
                      "stageIds": [7]}  # fmt: skip
    found = observer.at_work(blind, 0.0)
    assert found.at_least
    assert found.rates is not None
    assert found.batches is not None
    rows = found.rates.input * (one.end_s + 1 - one.time_s)
    (stage,) = found.batches.stages
    assert rows * stage.row_s == pytest.approx(10 * (4.0 - stage.task_s))  # as those that are done
    assert found.rates.waiting == pytest.approx(rows * 5 / 10)
    assert found.why == "a batch is at work for 8 s, and 5 of its tasks wait"
    status.done = 2
    few = observer.at_work(blind, 0.0).rates
    assert few is not None
    assert few.waiting == 0  # no more than one for each slot tell nothing of those that wait
    rows = few.input * (one.end_s + 1 - one.time_s)
    assert rows * stage.row_s + 4 * stage.task_s == pytest.approx(8.0 * 2)
    status.done, status.task_ms = 3, 100
    stuck = observer.at_work(blind, 0.0).rates  # two tasks take far longer than the others did
    assert stuck is not None
    rows = stuck.input * (one.end_s + 1 - one.time_s)
    least_s = (8.0 - 1.0) * 2 - 0.3 - 2 * stage.task_s  # the first ones may have begun late
    assert rows * stage.row_s == pytest.approx(least_s + 8 * max(0.0, 0.1 - stage.task_s))
    observer.idle("run", one.end_s)
    at_once = observer.at_work(blind, 0.0)  # a trigger found no rows: these have no rate
    assert (at_once.rates, at_once.at_least) == (None, True)
    assert at_once.burst == pytest.approx(rows)
    observer.idle_s = None
    status.failed = 1
    assert observer.at_work(blind, 0.0) == blind  # how long which ones took is not known
    status.failed = 0
    status.waiting = 0
    assert observer.at_work(blind, 0.0) == blind  # more executors would have no task
    status.waiting = 5
    observer.changed_s = one.end_s + 2
    assert observer.at_work(blind, 0.0) == blind  # some came meanwhile


def test_a_late_stage_does_not_count_rows_that_have_passed_the_first_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two stages, the second has many short tasks, most of which wait whatever comes."""
    observer, status = Observer(Told(4)), Told(4)
    observer.status, there = status, st.executors(status)
    observer.before = there
    stages = (Stage(8, 0.0, 0.016), Stage(200, 0.0, 0.008))
    for n in range(4):
        observer.add(batch(told(n, 10.0 * n, 6.0, 1000, '"file"', None)))
    now_s = observer.batches[-1].end_s
    blind = replace(
        observer.seen(now_s + 9, now_s, there, None), rates=None, why="no batch was done"
    )
    begun_s = now_s + 4
    begun = datetime.fromtimestamp(begun_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fGMT")
    launched = datetime.fromtimestamp(begun_s + 4, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fGMT")
    status.running = {**JOB, "jobId": 9, "submissionTime": begun, "completionTime": None,
                      "stageIds": [3, 7]}  # fmt: skip

    def stage(number: int) -> Mapping[str, Any]:
        if number == 3:
            return STAGE
        return {**STAGE, "status": "ACTIVE", "numTasks": 200, "numCompleteTasks": done,
                "executorRunTime": 40 * done, "firstTaskLaunchedTime": launched}  # fmt: skip

    monkeypatch.setattr(status, "stage", stage)
    monkeypatch.setattr(observer, "_fitted", lambda _: Batches(0.0, stages, 10.0))
    for done in (12, 20, 60):
        # Eight slots; each task has five rows and takes 40 ms, and the first ones begin late.
        seen_now = replace(blind, time_s=begun_s + 5 + done * 0.04 / 8)
        found = observer.at_work(seen_now, 10.0)
        assert found.rates is not None
        assert found.rates.input == pytest.approx(100)


def test_stages_beside_each_other_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    status = Told()
    status.running = {**JOB, "jobId": 9, "completionTime": None, "stageIds": [7, 7]}
    assert st.under_way(status, "run", 0.0) is not None
    status.running["stageIds"] = [7, 8]
    monkeypatch.setattr(status, "stage", lambda _: {**STAGE, "status": "ACTIVE"})
    assert st.under_way(status, "run", 0.0) is None


def test_stages_beside_each_other_share_the_slots_as_if_they_were_one() -> None:
    left, right = st.StageRan(1, 8, 4.0, 100, 10.0, 12.0), st.StageRan(2, 8, 2.0, 50, 10.0, 13.0)
    joined = st.StageRan(3, 20, 6.0, 0, 13.0, 14.0)
    both, last = st.beside([joined, right, left])
    assert (both.tasks, both.ran_s, both.rows, both.stages) == (16, 6.0, 150, 2)
    assert (both.begun_s, both.ended_s) == (10.0, 13.0)
    assert last == joined
    chain = [st.StageRan(n, 8, 4.0, 100, float(n), n + 1.0) for n in range(3)]
    assert st.beside(chain) == chain
    unknown = [st.StageRan(n, 8, 4.0, 100) for n in range(3)]
    assert st.beside(unknown) == unknown


def test_where_stages_run_beside_each_other_a_batch_has_the_tasks_of_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = Told()
    observer, there = Observer(status), st.executors(status)
    observer.before = there
    times = {"submissionTime": JOB["submissionTime"], "completionTime": JOB["completionTime"]}
    monkeypatch.setattr(status, "jobs", lambda *_: [{**JOB, "stageIds": [3, 4]}])
    monkeypatch.setattr(status, "stage", lambda _: {**STAGE, **times})
    for one in behind(6):
        observer.add(one)
    found = observer.seen(one.end_s, one.time_s, there, None)
    assert found.tasks == 8
    assert found.batches is not None
    assert [stage.tasks for stage in found.batches.stages] == [8]
    status.running = {**JOB, "jobId": 9, "completionTime": None, "stageIds": [7]}
    assert observer.at_work(found, 0.0) == found  # which of them runs is not known


def test_rates_come_from_executors_that_were_there_all_the_time() -> None:
    one = st.Executor("0", 1, 0, 10, 4.0)
    two = st.Executor("1", 1, 0, 10, 4.0)
    later = replace(one, tasks=20, busy_s=6.0)
    came = replace(two, tasks=10)
    period = (2.0, 10.0)
    rates, why, reported = rated(behind(6), {"0": later, "1": came}, {"0": one}, period)
    assert rates is not None
    assert reported
    assert rates.processed == pytest.approx((30, 30))
    assert rates.each == pytest.approx(30)  # what "0" did: "1" was not there for all of it
    assert rates.idle == pytest.approx(1 - 2 / 8)  # 2 of the 8 s of this period
    gone, _, _ = rated(behind(6), {"0": later}, {"0": one, "9": one}, period)
    assert gone is not None
    assert (gone.total, gone.each) == pytest.approx((60, 30))  # "9" did its part
    none, why, _ = rated(behind(6), {"1": two}, {"0": one}, (2.0, 10.0))
    assert none is None
    assert "no executor was there" in why
    both = {"0": one, "1": two}
    idle, _, _ = rated(behind(6), {"0": later}, both, period, left={"1": two})
    assert idle is not None
    assert (idle.total, idle.each) == pytest.approx((60, 60))  # "1" was given back, and did nothing
    half, _, _ = rated(behind(6), {"0": later}, both, period, left={"1": replace(two, tasks=15)})
    assert half is not None
    assert (half.total, half.each) == pytest.approx((60, 40))  # or half of what "0" did
    back, why, _ = rated(behind(6), {"0": one}, {"0": later}, (2.0, 10.0))
    assert back is None
    assert "went back" in why


@pytest.mark.parametrize(
    ("rows", "latest"),
    [
        ([100, 100, 100, 100, 300], 300),
        ([100, 100, 100, 100, 115], None),  # within chance
        ([60, 140, 60, 140, 150], None),  # within the noise of the others
        ([300, 100, 100, 100, 100], None),
        ([100, 300], None),  # one batch is both
    ],
)
def test_what_comes_of_late_counts_where_it_is_more_for_sure(
    rows: list[int], latest: int | None
) -> None:
    batches = [batch(told(n, float(n), 0.5, of, '"file"', None)) for n, of in enumerate(rows)]
    there = {"0": st.Executor("0", 1, 0, 10, 4.0)}
    rates, _, _ = rated(batches, there, there, (0.0, 5.0))
    assert rates is not None
    assert rates.latest == latest
    taken = [(n + 1, sum(rows[: n + 1])) for n in range(len(rows))]  # the same, as offsets say
    reporting = [
        batch(told(n, float(n), 0.5, of, taken[n][1], taken[n][1], taken[n][1] - of))
        for n, of in enumerate(rows)
    ]
    rates, _, reported = rated(reporting, there, there, (0.0, 5.0))
    assert rates is not None
    assert reported
    assert rates.latest == latest


def test_batches_that_grow_within_their_trigger_are_no_overload() -> None:
    there = {"0": st.Executor("0", 1, 0, 10, 4.0)}
    rows = [600, 600, 700, 780]
    batches = [batch(told(n, 10.0 * n, 6.0, of, '"file"', None)) for n, of in enumerate(rows)]
    calm, _, _ = rated(batches, there, there, (0.0, 40.0), trigger_s=10.0)
    assert calm is not None
    assert calm.growth == 0
    late = [*batches[:-1], replace(batches[-1], took_s=11.0)]
    short, _, _ = rated(late, there, there, (0.0, 40.0), trigger_s=10.0)
    assert short is not None
    assert short.growth > 0


def test_in_real_time_mode_a_batch_needs_its_slots_also_while_none_runs() -> None:
    observer, batches = Observer(Told()), behind(2)
    idle = {name: replace(one, running=0) for name, one in st.executors(Told(2)).items()}
    observer.before = idle
    for one in batches:
        observer.add(one)
    found = observer.seen(one.end_s, one.time_s, idle, None, 0.9, one.end_s + 0.9)
    assert found.held == 4
    assert found.batches is None


def test_a_period_counts_from_the_batch_before_it_however_late_batches_are_heard_of() -> None:
    observer, batches = Observer(Told()), behind(6)
    now_s = batches[-1].end_s + 20
    observer.before = there = st.executors(Told())
    for one in batches[:4]:
        observer.add(one)
    found = observer.seen(now_s, now_s - 5, there, None)
    assert found.rates is not None
    assert found.rates.input == pytest.approx(100)
    observer.add(batches[4])
    found = observer.seen(now_s + 5, now_s, there, None)
    assert found.rates is not None
    assert found.rates.waiting == pytest.approx(5 * 40 + 90 - 60)
    found = observer.seen(now_s + 10, now_s + 5, there, None)
    assert found.rates is None
    assert found.why == f"no batch was done for {now_s + 10 - batches[4].end_s:.0f} s"


@pytest.mark.parametrize(("executors", "counted"), [(1, 1), (2, 0)])
def test_a_batch_during_which_executors_came_says_nothing_about_its_time(
    executors: int, counted: int
) -> None:
    observer, batches = Observer(Told()), behind(6)
    observer.before = st.executors(Told())
    observer.add(batches[0])
    within_s = (batches[1].time_s + batches[1].end_s) / 2
    observer.seen(within_s, batches[0].time_s, st.executors(Told(executors)), None)
    for one in batches[1:]:
        observer.add(one)
    observer.seen(one.end_s, within_s, st.executors(Told(executors)), None)
    assert len(observer.ran) == counted  # the status knows the job of one batch


def test_a_run_that_follows_is_measured_anew() -> None:
    observer = Observer(Told())
    observer.before = there = st.executors(Told())
    for one in behind(6):
        observer.add(one)
    observer.seen(one.end_s, one.time_s, there, None)
    assert observer.ran
    observer.add(replace(one, run="again"))
    assert not observer.ran
    found = observer.seen(one.end_s + 1, one.end_s, there, None)
    assert (found.rates, found.why) == (None, "only one batch of this run is done")


def test_batches_that_come_far_apart_are_learned_from() -> None:
    observer = Observer(Told())
    observer.before = there = st.executors(Told())
    for one in behind(3):
        if observer.batches:
            observer.idle("run", one.time_s)
        observer.add(one)
        if len(observer.batches) == 1:
            continue
        found = observer.seen(one.end_s, one.time_s, there, None)
        assert (found.rates, found.why) == (None, "only one batch is done since rows come again")
        assert found.burst == one.rows
    assert len(observer.ran) == 1  # the status knows the job of one batch
