"""Attached queries: what progress and status say, what is decided of it, and its journal."""

import itertools
import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sojourn.attached import journal, loop
from sojourn.attached import status as st
from sojourn.attached.decide import Memory, Wish, decided, wished
from sojourn.attached.listener import Ended, Idle
from sojourn.attached.loop import Attached
from sojourn.attached.observer import Observer
from sojourn.attached.progress import Batch, Coming, batch, coming, limit
from sojourn.attached.seen import Seen, jobs_of, rated
from sojourn.errors import InputError
from sojourn.provisioning.mended import Options
from sojourn.provisioning.rates import Rates
from sojourn.queueing.batches import Batches, Stage

# progress


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


def test_what_comes_is_told_by_the_newest_offset_even_if_batches_are_limited() -> None:
    found = coming(behind(6))
    assert isinstance(found, Coming)
    assert found.reported
    assert found.rate == pytest.approx(100)
    assert found.waiting == pytest.approx(6 * 40 + 90 - 60)  # 90 came since, of which 60 are next
    assert found.growth == pytest.approx(40)


def test_offsets_that_are_not_rows_are_counted_as_many_as_batches_show() -> None:
    batches = [
        batch(told(n, float(n), 0.5, 50, n + 1, 2 * (n + 1), n)) for n in range(5)
    ]  # an offset is 50 rows
    found = coming(batches)
    assert isinstance(found, Coming)
    assert found.rate == pytest.approx(100)
    odd = [batch(told(n, float(n), 0.5, 50 + 9 * n, n + 1, 2 * (n + 1), n)) for n in range(5)]
    found = coming(odd)
    assert isinstance(found, Coming)
    assert not found.reported
    assert found.rate == pytest.approx(50 + 9 * 2.5)


def test_without_offsets_what_was_taken_has_to_do() -> None:
    batches = [batch(told(n, float(n), 0.5, 70, '"file"', None)) for n in range(4)]
    found = coming(batches)
    assert isinstance(found, Coming)
    assert found.rate == pytest.approx(70)
    assert (found.waiting, found.reported) == (0, False)


def test_batches_that_grow_show_what_comes_now() -> None:
    """100 rows come a second; each batch has those that came since the one before began."""
    begins = [0, 1, 2, 4, 9]
    batches = [
        batch(told(n, float(at), 0.9, 100 * (at - before), '"file"', None))
        for n, (before, at) in enumerate(itertools.pairwise([-1, *begins]))
    ]
    batches[-1] = replace(batches[-1], took_s=12.0)
    found = coming(batches)
    assert isinstance(found, Coming)
    assert found.rate == pytest.approx(100)
    assert found.waiting == pytest.approx(100 * 12 - 500)


def test_counters_that_go_back_and_single_batches_say_nothing() -> None:
    batches = behind(6)
    assert coming(batches[:1]) == "only one batch of this run is done"
    assert coming([]) == "only one batch of this run is done"
    assert coming([*batches[3:5], *behind(1)]) == "the times of batches went back"
    other = batch(told(0, 7.0, 0.5, 10, run="another"))
    assert coming([*batches, other]) == "only one batch of this run is done"
    reset = [batch(told(n, float(n), 0.5, 9, n + 1, 9 - n, n)) for n in range(5)]
    assert coming(reset) == "the source's offsets went back"
    turned = [batch(told(n, float(n), 0.5, 9, n % 3, n % 3, n % 3 - 1)) for n in range(7)]
    assert coming(turned) == "the source's offsets went back"  # though they end where they began
    less = [batch(told(n, float(n), 0.5, 9, n + 1, n, n)) for n in range(5)]
    assert coming(less) == "the source's newest offset is less than what was read"


# status

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

    def __init__(self, executors: int = 1) -> None:
        self.names = [str(n) for n in range(executors)]
        self.tasks = 10
        self.running: Mapping[str, Any] | None = None
        self.waiting, self.done = 5, 2

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
                    "firstTaskLaunchedTime": self.running["submissionTime"]}  # fmt: skip
        return STAGE if number == 3 else None


def test_status_is_read_as_spark_writes_it() -> None:
    found = st.executors(Told())
    assert list(found) == ["0"]
    assert found["0"].slots == 2
    assert found["0"].busy_s == 4.0
    assert found["0"].since_s == pytest.approx(st.seconds("2026-11-17T10:00:00.000GMT"))
    (job,) = st.jobs(Told(), "run")
    assert (job.number, job.stages) == (5, (3,))
    (stage,) = st.ran(Told(), [2, 3])
    assert (stage.tasks, stage.ran_s) == (4, 1.2)
    assert st.seconds(1500) == 1.5
    assert st.seconds(None) is None
    assert jobs_of(behind(3)[1], [job]) == [job]
    assert jobs_of(behind(3)[2], [job]) == []


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


@pytest.fixture
def driver() -> Iterator[str]:
    answers = {
        "": [{"id": "app", "attempts": [{"startTime": "x"}]}],
        "/app/executors": Told().executors(),
        "/app/jobs": [JOB],
        "/app/stages/3?details=false": [STAGE],
    }
    with served(answers) as address:
        yield address


def test_the_rest_api_says_the_same(driver: str) -> None:
    rest = st.Rest(driver)
    assert list(st.executors(rest)) == ["0"]
    assert [s.tasks for s in st.ran(rest, [3, 4])] == [4]
    assert [job.number for job in st.jobs(rest, "run")] == [5]


def test_an_address_that_is_no_driver_is_refused(driver: str) -> None:
    with pytest.raises(InputError, match="answers 404"):
        st.Rest(f"{driver}/elsewhere")
    with pytest.raises(InputError, match="must be the UI of a running Spark driver"):
        st.Rest("http://127.0.0.1:1")
    with pytest.raises(InputError, match="must begin with http"):
        st.Rest("file:///etc")


# decisions

QUERY = Batches(0.1, (Stage(8, 0.01, 0.004),))
WISH = Wish(max_latency_s=2.0, quiet_s=60, options=Options(period_s=30))


def seen(rate: float, executors: int = 1, time_s: float = 0.0, **more: Any) -> Seen:
    rates = Rates(time_s, rate, (rate / executors,) * executors, waiting=more.pop("waiting", 0.0))
    asked = more.pop("asked", executors)
    return Seen(time_s, executors, 1, asked, rates, batches=more.pop("batches", QUERY), **more)


def test_the_model_finds_the_fewest_executors_for_a_latency() -> None:
    found = decided(seen(100), Memory(), WISH)
    assert found.executors == 1
    more = decided(seen(500), Memory(), WISH)
    assert more.executors is not None
    assert more.executors > 1
    steady = QUERY.steady(500, more.executors)
    assert steady is not None
    assert steady.worst_s <= 0.85 * 2.0
    fewer = QUERY.steady(500, more.executors - 1)
    assert (
        fewer is None
        or fewer.worst_s > 0.85 * 2.0
        or 0.9 * QUERY.capacity(more.executors - 1) < 500
    )
    backlog = decided(seen(500, waiting=20_000), Memory(), WISH)
    assert (backlog.executors or 0) > more.executors


def test_no_more_executors_than_tasks_or_than_allowed() -> None:
    found = decided(seen(1e5), Memory(), WISH)
    assert found.executors == 8
    assert "no number of executors carries" in found.why
    allowed = decided(seen(1e5), Memory(), replace(WISH, most=3))
    assert allowed.executors == 3
    assert "3 are allowed" in allowed.why
    rates = Rates(0, 9000, (1000,), waiting=1e6, growth=8000)
    by_rates = decided(
        Seen(0, 1, 1, 1, rates, batches=QUERY), Memory(), replace(WISH, policy="mended")
    )
    assert by_rates.executors == 8
    assert "would have no task" in by_rates.why


def test_fewer_executors_only_once_they_would_have_done_for_a_while() -> None:
    memory, found = Memory(), None
    for number in range(4):
        found = decided(seen(100, 4, 30.0 * number), memory, WISH)
        memory = found.memory
        if number < 2:
            assert found.executors is None
            assert "would do for" in found.why
        if found.executors is not None:
            break
    assert found is not None
    assert found.executors == 1


def test_time_in_which_nothing_is_known_is_no_time_in_which_fewer_would_do() -> None:
    memory = decided(seen(100, 4, 0.0), Memory(), WISH).memory
    blind = Seen(300.0, 4, 1, 4, None, "no batch was done for 300 s")
    memory = decided(blind, memory, WISH).memory
    found = decided(seen(100, 4, 330.0), memory, WISH)
    assert found.executors is None
    assert "1 would do for 30 s so far" in found.why
    assert decided(seen(100, 4, 360.0), found.memory, WISH).executors == 1


def test_what_a_batch_at_work_needs_is_not_given_back() -> None:
    needed = decided(seen(400), Memory(), WISH).executors
    assert needed == 2
    memory = decided(seen(100, 4, 0.0), Memory(), WISH).memory
    memory = decided(seen(400, 4, 30.0, at_least=True), memory, WISH).memory
    memory = decided(seen(100, 4, 60.0), memory, WISH).memory
    assert decided(seen(100, 4, 90.0), memory, WISH).executors == needed
    more = decided(seen(2000, 4, 30.0, at_least=True), memory, WISH)
    assert more.memory.low_since_s is None


def test_a_number_that_the_user_bounds_is_told_with_what_it_misses() -> None:
    assert decided(seen(500), Memory(), replace(WISH, most=1)).why.endswith(
        "1 are allowed, which do not keep up"
    )
    late = decided(seen(100), Memory(), replace(WISH, most=1, max_latency_s=0.4)).why
    assert "1 are allowed, with which rows take" in late
    assert decided(seen(100), Memory(), replace(WISH, least=4)).why.endswith(
        "at least 4 are wished for"
    )


def test_what_comes_is_remembered_once_a_period() -> None:
    memory = Memory()
    for second in range(0, 200, 2):
        memory = decided(seen(100 + second, time_s=float(second)), memory, WISH).memory
    times = [at_s for at_s, _ in memory.known.inputs]
    assert len(times) == 5
    assert all(b - a >= WISH.options.period_s - 2 for a, b in itertools.pairwise(times[:-1]))


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


def test_rates_that_make_no_sense_replace_none_and_are_not_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, odd = seen(100), seen(math.nan)
    assert Attached._newer(sound, odd) is sound
    found, *_ = attached(tmp_path)
    monkeypatch.setattr(found.observer, "seen", lambda *_: odd)
    period = found.tick()
    assert period.seen.rates is None
    assert period.decision.why == "the rates make no sense"
    assert found.path is not None
    assert [one.seen for one in journal.read(found.path)[1]] == [period.seen]


def test_a_journal_that_cannot_be_begun_is_told_of_and_decisions_go_on(tmp_path: Path) -> None:
    found, *_ = attached(tmp_path)
    assert found.path is not None
    found.path.write_text("somebody else's")
    for number in range(6):
        assert found._try(found.tick)
        assert found.failures == 0
        assert len(found.periods) == number + 1
    assert "the journal lacks period 5: " in found.periods[-1].note
    assert found.path.read_text() == "somebody else's"


def test_a_clock_that_is_set_back_puts_nothing_off(tmp_path: Path) -> None:
    found, _, _, clock = attached(tmp_path)
    clock.now_s -= 3600.0
    found._by_clock()
    assert found._due_s() == clock.now_s + 5.0
    assert found.tick().note == "the clock was set back by 3600 s"


def test_bad_data_is_no_reason_to_act() -> None:
    blind = Seen(0, 2, 1, 2, None, "no batch was done for 30 s")
    found = decided(blind, Memory(), WISH)
    assert (found.executors, found.why) == (None, "no batch was done for 30 s")
    odd = replace(blind, rates=Rates(0, float("nan"), (1.0, 1.0)))
    assert decided(odd, Memory(), WISH).executors is None


def test_what_waits_until_executors_come_must_not_make_later_rows_late() -> None:
    wish = replace(WISH, max_latency_s=10.0)
    calm = decided(seen(500), Memory(), wish).executors
    waits = decided(seen(500, waiting=3_000), Memory(), wish).executors
    assert calm is not None
    assert waits is not None
    assert waits > calm
    slow = replace(seen(500, waiting=3_000), start_s=20.0)
    assert (decided(slow, Memory(), wish).executors or 0) > waits
    there = replace(seen(500, 8), start_s=20.0)  # nobody has to come
    assert decided(there, Memory(), replace(wish, quiet_s=0)).executors == calm


def test_a_batch_at_work_can_ask_for_more_executors_and_never_for_fewer() -> None:
    at_work = replace(
        seen(500, at_least=True), why="a batch is at work for 9 s, and 3 of its tasks wait"
    )
    found = decided(at_work, Memory(low_since_s=1.0, low_most=1), WISH)
    assert (found.executors or 0) > 1
    assert found.why.startswith(
        "a batch is at work for 9 s, and 3 of its tasks wait: at least 500 rows/s"
    )
    assert found.memory == Memory(time_s=0.0)  # a bound is no rate to remember
    assert decided(replace(at_work, asked=8), Memory(), WISH).executors is None
    few = decided(seen(1, 4, at_least=True), Memory(), replace(WISH, quiet_s=0))
    assert few.executors is None
    for policy in ("mended", "printed"):
        assert decided(at_work, Memory(), replace(WISH, policy=policy)).executors is None


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
    assert (rows - found.rates.waiting) * stage.row_s + 4 * stage.task_s == pytest.approx(8.0 * 2)
    assert found.rates.waiting == pytest.approx(rows * 5 / 9)
    assert found.why == "a batch is at work for 8 s, and 5 of its tasks wait"
    status.done = 1
    few = observer.at_work(blind, 0.0).rates
    assert few is not None
    assert few.waiting == 0  # one task tells nothing of those that wait
    status.done = 2
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
                "firstTaskLaunchedTime": launched}  # fmt: skip

    monkeypatch.setattr(status, "stage", stage)
    monkeypatch.setattr(observer, "_fitted", lambda _: Batches(0.0, stages, 10.0))
    for done in (4, 20, 60):
        took_s = done / 4 * 0.04 / 2  # eight slots; each task has five rows and takes 40 ms
        seen_now = replace(blind, time_s=begun_s + 4 + took_s)
        found = observer.at_work(seen_now, 10.0)
        assert found.rates is not None
        assert 30 < found.rates.input <= 100 * 1.01


def test_stages_beside_each_other_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    status = Told()
    status.running = {**JOB, "jobId": 9, "completionTime": None, "stageIds": [7, 7]}
    assert st.under_way(status, "run", 0.0) is not None
    status.running["stageIds"] = [7, 8]
    monkeypatch.setattr(status, "stage", lambda _: {**STAGE, "status": "ACTIVE"})
    assert st.under_way(status, "run", 0.0) is None


def test_in_real_time_mode_slots_that_are_held_are_kept() -> None:
    rates = Rates(0, 100, (50, 50), idle=0.9)
    now = Seen(0, 2, 2, 2, rates, until_s=200.0, held=4)
    wish = Wish(policy="mended", quiet_s=0, options=Options(idle=True))
    found = decided(now, Memory(), wish)
    assert found.executors == 2
    assert "in effect with the next batch, in 200 s" in found.why
    fewer = decided(now, Memory(), replace(WISH, quiet_s=0, most=1))
    assert fewer.executors == 2
    assert "1 are allowed; 2 hold its tasks; batches tell nothing of max_latency" in fewer.why
    short = replace(now, rates=Rates(0, 1000, (200, 200), growth=600, waiting=9000))
    more = decided(short, Memory(), replace(wish, options=Options()))
    assert more.executors == 2  # others would have no task


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


def test_a_latency_that_cannot_be_had_takes_no_more_executors_than_come_near_it() -> None:
    query = Batches(0.6, (Stage(12, 0.01, 0.01),), trigger_s=2.0)
    found = decided(seen(5, batches=query), Memory(), replace(WISH, max_latency_s=3.0))
    assert found.executors == 1
    assert "no number of executors carries within 3 s; with 1 they take" in found.why


def test_before_a_model_is_fitted_tasks_bound_executors_as_well() -> None:
    short = Rates(0, 1000, (100,), growth=900, waiting=9000)
    blind = replace(seen(1), rates=short, batches=None, tasks=6)
    assert decided(blind, Memory(), WISH).executors == 6
    assert (decided(replace(blind, tasks=0), Memory(), WISH).executors or 0) > 6


def test_the_model_plans_for_what_comes_of_late() -> None:
    usual = seen(100)
    assert usual.rates is not None
    risen = replace(usual, rates=replace(usual.rates, latest=500.0))
    found = decided(risen, Memory(), WISH)
    assert found.executors == decided(seen(500), Memory(), WISH).executors
    assert found.why.startswith("100 rows/s come, 500/s of late: ")


# observers


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
    assert len(observer.ran) == 1  # the status knows the job of one batch


# the loop, and its journal


class Given:
    """Whoever is asked for executors."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.gone: list[str] = []
        self.takes = True

    def ask(self, executors: int) -> bool:
        self.asked.append(executors)
        return self.takes

    def give_back(self, names: Sequence[str]) -> list[str]:
        self.gone.extend(names)
        return list(names)


class Clock:
    def __init__(self) -> None:
        self.now_s = behind(1)[0].time_s

    def __call__(self) -> float:
        return self.now_s


class Running:
    """A context that was not stopped."""

    def sc(self) -> "Running":
        return self

    def isStopped(self) -> bool:  # noqa: N802
        return False


class Quiet(Attached):
    """Without a driver, so no query runs."""

    def _java(self) -> None:
        return None


MADE: list[Quiet] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop()._let_go()


def attached(tmp_path: Path, **more: Any) -> tuple[Quiet, Given, Told, Clock]:
    given, status, clock = Given(), Told(), Clock()
    wish = Wish(policy="mended", quiet_s=0, options=Options(period_s=5))
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=Running()))
    found = Quiet(
        spark, "query", wish, journal=tmp_path / "j.jsonl", status=status, scaling=given,
        clock=clock, **more,
    )  # fmt: skip
    MADE.append(found)
    found.observer.before = st.executors(status)
    return found, given, status, clock


def hear(found: Attached, batches: Sequence[str]) -> None:
    for one in batches:
        found.heard.put(one)


def overloaded(first: int, count: int) -> list[str]:
    return [told(n, float(n), 0.9, 60, (n + 1) * 60, (n + 1) * 100, n * 60)
            for n in range(first, first + count)]  # fmt: skip


def test_a_batch_that_takes_oddly_long_is_not_waited_for(tmp_path: Path) -> None:
    found, _, _, clock = attached(tmp_path)
    first_s = clock.now_s
    for one in [*overloaded(0, 2), told(2, 2.0, 2.0, 60)]:
        found._hear(one)
    clock.now_s = first_s + 2.0
    assert found._due_s() == first_s + 5.0  # the others decide once a period
    found.wish = replace(found.wish, policy="model")
    found.observer.batches.pop()
    assert found._due_s() == pytest.approx(first_s + 1.9 + 1.25 * 0.9)  # longer than the last one
    found.trigger_s = 1.2  # the next one begins later
    assert found._due_s() == pytest.approx(first_s + 2.2 + 1.25 * 0.9)
    found.trigger_s = 0.0
    found.ticked_s = clock.now_s + 1.8
    found._hear(told(2, 2.0, 2.0, 60))
    assert found._due_s() == found.ticked_s + 1.0  # it was decided just now, and is not forgotten
    found.tick()
    found.ticked_s = clock.now_s = first_s + 9.0  # and once for each batch that lasts
    assert found._due_s() == found.ticked_s + 5.0
    found.real_time = True
    found._hear(told(3, 4.0, 9.0, 60))
    assert found._due_s() == found.ticked_s + 5.0


def test_a_batch_at_work_counts_beside_those_that_are_done_if_it_shows_more(
    tmp_path: Path,
) -> None:
    found, _, status, clock = attached(tmp_path)
    found.wish = replace(found.wish, policy="model")
    began_s = clock.now_s
    hear(found, [told(n, float(n), 0.5, 10, '"file"', None) for n in range(4)])
    begun = datetime.fromtimestamp(began_s + 4, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fGMT")
    status.running = {**JOB, "jobId": 9, "submissionTime": begun, "completionTime": None,
                      "stageIds": [7]}  # fmt: skip
    clock.now_s = began_s + 4.1
    assert not found.tick().seen.at_least
    hear(found, [told(4, 4.0, 0.5, 10, '"file"', None)])
    begun = datetime.fromtimestamp(began_s + 5, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fGMT")
    status.running = {**status.running, "submissionTime": begun}
    clock.now_s = began_s + 14.0
    period = found.tick()
    assert period.seen.at_least
    assert period.seen.rates is not None
    assert period.seen.rates.input > 10


def test_a_query_that_falls_behind_gets_executors_and_a_journal_tells_why(tmp_path: Path) -> None:
    found, given, _, clock = attached(tmp_path)
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    period = found.tick()
    assert period.decision.executors is not None
    assert given.asked == [period.decision.executors]
    assert period.applied
    # they do not come, and are not asked for again and again
    for number in range(1, 15):
        hear(found, overloaded(6 * number, 6))
        clock.now_s += 6
        period = found.tick()
    assert "executors are there after" in period.note
    assert len(given.asked) == len(set(given.asked))
    # nothing more is heard
    clock.now_s += 60
    assert "no batch was done for 60 s" in found.tick().decision.why
    found._tell(period)
    found._let_go()
    path = tmp_path / "j.jsonl"
    assert journal.is_attached(path)
    header, periods = journal.read(path)
    assert header.query == "query"
    every = list(journal.replay(periods, header.wish))
    assert len(every) == 17
    assert all(then.decision == again for then, again in every[:16])


def test_an_executor_that_is_gone_for_two_periods_is_told_of(tmp_path: Path) -> None:
    found, given, status, clock = attached(tmp_path)
    status.names = ["0", "1"]
    found._apply(2, st.executors(status))
    clock.now_s += 3600
    found.tick()
    status.names = ["0"]
    clock.now_s += 5
    assert found.tick().note == ""
    clock.now_s += 5
    assert found.tick().note == "1 of 2 executors are there after 10 s"
    assert not given.asked


def test_advice_changes_nothing(tmp_path: Path) -> None:
    found, given, _, clock = attached(tmp_path, advise=True)
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    period = found.tick()
    assert (period.decision.executors or 0) > 1
    assert not period.applied
    assert not given.asked


def test_the_newest_idle_executors_are_given_back(tmp_path: Path) -> None:
    found, given, status, _ = attached(tmp_path)
    status.names = ["0", "1", "2"]
    every = st.executors(status)
    every = {n: replace(e, since_s=float(n), running=int(n == "2")) for n, e in every.items()}
    assert found._apply(2, every) == (True, "gave back 1")
    assert given.gone == ["1"]
    del every["1"]  # it is leaving, and so does not count
    assert found._apply(2, every) == (False, "")
    assert found._apply(1, every) == (True, "gave back 0")


def test_a_query_to_which_no_rows_come_gives_executors_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, given, status, clock = attached(tmp_path)
    status.names = ["0", "1", "2"]
    hear(found, overloaded(0, 6))  # so that it is known what one can process
    clock.now_s += 6
    found.tick()
    hear(found, [told(6, 7.0, 0.1, 1, 601, 601, 600)])
    clock.now_s += 5
    found.tick()
    given.asked.clear()
    clock.now_s += 30
    assert found.tick().decision.executors is None  # no batch: it may be a long one
    monkeypatch.setattr(found, "_says", lambda: ("Spark says: Waiting for data to arrive", True))
    clock.now_s += 5
    period = found.tick()
    assert period.seen.rates is not None
    assert period.seen.rates.input == 0
    assert period.decision.executors == 1
    assert given.gone


def test_what_makes_no_sense_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, given, status, clock = attached(tmp_path)
    status.names = ["0", "1", "2"]
    monkeypatch.setattr(found, "_says", lambda: ("Spark says: Waiting for data to arrive", True))
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    found.tick()
    given.asked.clear()
    given.gone.clear()
    hear(found, [told(6, 7.0, 0.1, 1, 601, 1, 600)])
    clock.now_s += 5
    period = found.tick()
    assert period.decision.executors is None
    assert period.decision.why.startswith("the source's offsets went back")
    assert not given.asked
    assert not given.gone


def test_executors_go_once_the_batch_at_work_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, given, status, _ = attached(tmp_path)
    status.names = ["0", "1", "2"]
    monkeypatch.setattr(found, "_is_at_work", lambda: True)
    assert found._apply(2, st.executors(status)) == (
        False,
        "1 will go once the batch at work is done",
    )
    assert not given.asked
    assert not given.gone
    assert not found._hear(Idle("query", "run", 0.0))
    assert found._hear(overloaded(0, 1)[0])
    found._reduce()
    assert given.asked == [2]
    assert len(given.gone) == 1
    assert found.news == [f"gave back {given.gone[0]}"]
    assert found.fewer is None
    found._apply(2, st.executors(status))
    found._apply(3, st.executors(status))  # they are needed after all
    assert found.fewer is None
    found._apply(2, st.executors(status))
    status.names = ["0"]
    found._reduce()  # enough have gone by themselves
    assert len(given.gone) == 1


@pytest.mark.parametrize("rate", [20.0, 700.0, 5000.0])
def test_executors_that_the_batch_at_work_needs_do_not_go_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    needed = decided(seen(rate), Memory(), WISH).executors or 0
    assert {20.0: needed < 2, 700.0: 2 < needed < 5, 5000.0: needed > 5}[rate]
    found, given, status, _ = attached(tmp_path)
    status.names = [str(n) for n in range(5)]
    found.wish, found.asked = replace(WISH, quiet_s=60), 5
    shown = seen(rate, 5, time_s=1.0, asked=5, at_least=True, why="a batch is at work")
    monkeypatch.setattr(found.observer, "seen", lambda *_: shown)
    monkeypatch.setattr(found, "_newer", lambda one, _: one)
    found.fewer = 2
    found.tick()
    assert found.fewer == (max(2, needed) if needed < 5 else None)
    assert not given.gone


def test_a_batch_that_is_heard_of_while_a_decision_is_made_does_not_press_for_another(
    tmp_path: Path,
) -> None:
    found, _, _, clock = attached(tmp_path)
    found.wish = replace(found.wish, policy="model")
    hear(found, [*overloaded(0, 2), told(2, 2.0, 9.0, 60)])
    found.tick()
    assert not found.presses
    assert found._due_s() > clock.now_s + 1.0


def test_an_executor_that_leaves_is_not_counted_and_none_other_goes_where_more_are_wanted(
    tmp_path: Path,
) -> None:
    found, given, status, clock = attached(tmp_path)
    status.names = ["0", "1", "2", "3"]
    found.leaving = {"2", "3", "gone"}
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    period = found.tick()
    assert period.seen.executors == 2
    assert "2, 3 still leaving" in period.note
    assert found.leaving == {"2", "3"}
    assert found._apply(3, {n: e for n, e in st.executors(status).items() if n in "01"})[0]
    assert not given.gone


def test_a_request_that_is_not_taken_is_made_again(tmp_path: Path) -> None:
    found, given, status, _ = attached(tmp_path)
    given.takes = False
    for _ in range(2):
        taken, note = found._apply(3, st.executors(status))
        assert (taken, note) == (False, "the cluster manager takes no requests")
    assert given.asked == [3, 3]
    status.names = ["0", "1", "2"]
    assert found._apply(2, st.executors(status)) == (False, "the cluster manager takes no requests")
    assert not given.gone  # others would come for them
    assert found.asked is None


def test_a_period_that_fails_is_told_and_the_next_one_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, *_ = attached(tmp_path)
    monkeypatch.setattr(found, "_trigger", lambda: 1 / 0)
    found._try(found.tick)
    monkeypatch.undo()
    found._try(found.tick)
    assert "a period failed, ZeroDivisionError: division by zero" in found.periods[-1].note
    monkeypatch.setattr(found, "_trigger", lambda: 1 / 0)
    for _ in range(4):
        found._try(found.tick)
    with pytest.raises(ZeroDivisionError):
        found._try(found.tick)


@pytest.mark.parametrize(
    ("options", "latency_s", "message"),
    [
        ({"full": 0}, None, "full must be above 0 and at most 1; got 0"),
        ({"start_s": "5s"}, None, "start_s must be a number of seconds"),
        ({"predict": 1}, None, "predict must be True or False; got 1"),
        ({"spread": True}, None, "must be among predict, latency, idle, start_s, full"),
        (None, 0.0, "max_latency: must be above 0"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(
    options: dict[str, Any] | None, latency_s: float | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        wished("model", latency_s, 1, None, 10.0, options)


def test_a_restart_of_the_query_begins_anew(tmp_path: Path) -> None:
    found, *_ = attached(tmp_path)
    hear(found, overloaded(0, 3))
    found.tick()
    assert len(found.observer.batches) == 3
    found._hear(told(0, 9.0, 0.5, 10, run="again"))
    assert [one.run for one in found.observer.batches] == ["again"]


def test_a_journal_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_text("{}\n")
    assert not journal.is_attached(path)
    with pytest.raises(InputError, match="is not a journal of an attached query"):
        journal.read(path)
    with pytest.raises(InputError, match="cannot be read"):
        journal.read(tmp_path / "none")
    path.write_text('{"sojourn_attached":9,"query":"q","wish":{}}\n')
    with pytest.raises(InputError, match="has journal format 9"):
        journal.read(path)


def test_a_decision_without_a_model_goes_by_rates() -> None:
    found = decided(seen(100, batches=None), Memory(), WISH)
    assert found == decided(seen(100, batches=None), Memory(), replace(WISH, policy="mended"))
    assert "batches of" not in found.why


def test_a_trigger_without_rows_tells_from_when_on_what_comes_counts(tmp_path: Path) -> None:
    found, _, _, clock = attached(tmp_path)
    began_s = clock.now_s
    hear(found, overloaded(0, 6))
    clock.now_s += 6
    found.tick()
    for minute in range(1, 11):  # nothing comes
        found.heard.put(Idle("query", "run", began_s + 60 * minute))
    found.heard.put(Idle("another", "run", began_s + 601))
    found.heard.put(Idle("query", "before", began_s + 602))
    clock.now_s = began_s + 605
    found.tick()
    assert found.observer.idle_s == began_s + 600
    hear(found, [told(6, 610.0, 0.9, 1000, 1360, 1360, 360)])
    clock.now_s = began_s + 611
    first = found.tick().seen
    assert first.rates is None  # not 1000 rows in ten minutes
    assert first.why.startswith("only one batch is done since rows come again")
    hear(found, [told(7, 611.0, 0.9, 100, 1460, 1460, 1360)])
    clock.now_s = began_s + 612
    period = found.tick()
    assert period.seen.rates is not None
    assert period.seen.rates.input == pytest.approx(100)
    assert period.seen.rates.growth == 0


def test_a_query_that_found_no_rows_waits_for_them_between_triggers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, *_ = attached(tmp_path)

    class Said:
        words, active, run = "Waiting for next trigger", False, "run"

        def runId(self) -> "Said":  # noqa: N802
            return self

        def toString(self) -> str:  # noqa: N802
            return self.run

        def status(self) -> "Said":
            return self

        def message(self) -> str:
            return self.words

        def isTriggerActive(self) -> bool:  # noqa: N802
            return self.active

    hear(found, overloaded(0, 2))
    found.tick()
    monkeypatch.setattr(found, "_java", Said)
    assert found._says() == ("Spark says: Waiting for next trigger", False)
    found._hear(Idle("query", "run", found.observer.batches[-1].end_s + 10))
    assert found._says()[1]
    Said.active = True  # a batch is at work by now
    assert not found._says()[1]
    Said.active, Said.run = False, "again"  # of a run that has done nothing yet
    assert not found._says()[1]


def test_what_another_run_has_shown_is_forgotten() -> None:
    low = decided(seen(100, executors=3, run="one"), Memory(run="one"), WISH)
    assert low.executors is None
    assert low.memory.low_since_s is not None
    again = decided(seen(100, executors=3, time_s=1e6, run="two"), low.memory, WISH)
    assert again.executors is None
    assert again.memory.low_since_s == 1e6
    assert decided(seen(100, executors=3, time_s=1e6, run="one"), low.memory, WISH).executors


@pytest.mark.parametrize(("asked", "wanted"), [(1, 2), (2, None), (9, None)])
def test_before_the_first_batch_the_users_least_holds(asked: int, wanted: int | None) -> None:
    blind = replace(seen(1, executors=asked, asked=asked), rates=None, why="nothing is known")
    found = decided(blind, Memory(), replace(WISH, least=2, most=4))
    assert found.executors == wanted
    assert found.why.startswith("nothing is known")
    nobody = replace(blind, executors=0)  # the first ones are on their way
    assert decided(nobody, Memory(), replace(WISH, least=2, most=4)).executors is None
    odd = replace(blind, run="run")
    assert decided(odd, Memory(), replace(WISH, least=2, most=4)).executors is None


def test_the_limit_on_a_batch_is_learned_and_more_executors_are_not_asked_for_in_vain() -> None:
    assert limit(behind(6)) == 60
    assert limit(behind(6, comes=60)) is None  # nothing is left behind
    assert limit(behind(2)) is None
    larger = batch(told(6, 6.0, 0.9, 90, 450, 450, 360))
    assert limit([*behind(6), larger]) is None  # so it is none
    slow = Batches(0.2, (Stage(8, 0.01, 0.01),), trigger_s=10.0, max_rows=1000)
    found = decided(seen(150, batches=slow), Memory(), replace(WISH, max_latency_s=None))
    assert found.executors == 2  # 1000 rows take 10 s with one and 5 s with two
    assert "no number of executors carries; batches are limited to 1000 rows" in found.why


def test_a_batch_at_work_with_more_tasks_than_usual_may_have_as_many_executors() -> None:
    wide = QUERY.of_tasks(50)
    assert wide.tasks == 50
    assert QUERY.of_tasks(2) is QUERY
    at_work = seen(1e5, batches=wide, at_least=True, why="a batch is at work")
    assert decided(at_work, Memory(), WISH).executors == 50


def test_a_time_without_rows_counts_for_nothing_also_within_a_period(tmp_path: Path) -> None:
    found, _, _, clock = attached(tmp_path)
    began_s = clock.now_s
    hear(found, overloaded(0, 3))
    found.heard.put(Idle("query", "run", began_s + 600))
    hear(found, [told(3, 610.0, 0.9, 1000, 1180, 1180, 180)])
    hear(found, [told(4, 611.0, 0.9, 100, 1280, 1280, 1180)])
    clock.now_s = began_s + 612
    rates = found.tick().seen.rates
    assert rates is not None
    assert rates.input == pytest.approx(100)


def test_what_cannot_be_read_or_written_is_told_and_nothing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, *_, clock = attached(tmp_path)
    hear(found, ['{"id": "query"}', "no JSON", *overloaded(0, 6)])
    clock.now_s += 6
    note = found.tick().note
    assert "a progress cannot be read, KeyError: 'runId'" in note
    assert "a progress cannot be read, JSONDecodeError" in note

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    assert found.journal is not None
    monkeypatch.setattr(found.journal.lines, "append", full)
    assert found.tick() is found.periods[-1]
    monkeypatch.undo()
    assert "the journal lacks period 2: [Errno 28] No space left" in found.tick().note


def test_where_spark_was_stopped_it_ends_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, *_ = attached(tmp_path)
    monkeypatch.setattr(found, "_trigger", lambda: 1 / 0)
    found.spark.sparkContext._jsc = None
    assert not found._try(found.tick)
    assert not found.news


def test_the_end_of_a_run_is_in_the_journal_once(tmp_path: Path) -> None:
    found, *_, clock = attached(tmp_path)
    hear(found, overloaded(0, 6))
    found.heard.put(Ended("query", None))
    found.heard.put(Ended("another", "failed"))
    clock.now_s += 6
    assert "the query has ended; its executors stay" in found.tick().note
    clock.now_s += 6
    assert "ended" not in found.tick().note


# who is refused


class Conf:
    def __init__(self, **of: str) -> None:
        self.of = of

    def get(self, key: str, default: str) -> str:
        return self.of.get(key.replace(".", "_"), default)


def session(
    master: str = "spark://here:7077", active: Sequence[Any] = (), **conf: str
) -> SimpleNamespace:
    context = SimpleNamespace(
        master=master, applicationId=f"app-{master}", getConf=lambda: Conf(**conf)
    )
    streams = SimpleNamespace(
        active=list(active), get=lambda of: next((q for q in active if q.id == of), None)
    )
    return SimpleNamespace(_jsc=None, _jvm=None, sparkContext=context, streams=streams)


def query(name: str) -> SimpleNamespace:
    return SimpleNamespace(id=name, name=name, isActive=True)


@pytest.mark.parametrize(
    ("spark", "given", "message"),
    [
        (SimpleNamespace(), None, "got one of Spark Connect; call it in the program that starts"),
        (session("local[2]"), None, "got master 'local[2]', which has none; use spark://"),
        (
            session(spark_dynamicAllocation_enabled="true"),
            None,
            "got spark.dynamicAllocation.enabled=true; set it to false",
        ),
        (
            session(active=[query("one"), query("two")]),
            None,
            "must be given where several run, as they share executors; there are one, two",
        ),
        (session(), "one", "query: must be what start() returned; got 'one'"),
        (session(active=[query("one")]), query("other"), "got other; give the session that"),
    ],
)
def test_who_cannot_be_looked_after_is_refused_with_the_reason(
    spark: Any, given: Any, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        loop.attach(spark, given)
    assert message in str(refused.value)


def test_a_second_query_of_an_application_is_refused(tmp_path: Path) -> None:
    found, *_ = attached(tmp_path)
    spark = session("spark://second:7077")
    loop._ATTACHED["app-spark://second:7077"] = found
    with pytest.raises(InputError, match="got a second one beside query; stop that first"):
        loop.attach(spark)
