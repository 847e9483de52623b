"""Queries seen from outside, by the REST API alone, and what `sojourn watch` refuses."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from attaching import EXECUTOR, JOB, STAGE, served

from sojourn.attached import outside
from sojourn.attached import status as st
from sojourn.attached.advice import Advised, chosen, interval_s
from sojourn.attached.decide import wished
from sojourn.attached.progress import Batch
from sojourn.cli.watch import watch
from sojourn.errors import InputError

DETAILS = "?details=false"
T0_MS = 1_794_909_600_000  # 2026-11-17 10:00 UTC


def at(seconds: float) -> str:
    """A moment as the REST API writes it."""
    moment = datetime.fromtimestamp(T0_MS / 1e3 + seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "GMT")


def job(number: int, run: str = "r1", query: str = "q1", name: str = "") -> dict[str, Any]:
    """The only one of a batch, which has the same number."""
    return {
        "jobId": number,
        "jobGroup": run,
        "description": f"{name}\nid = {query}\nrunId = {run}\nbatch = {number}",
        "submissionTime": at(number),
        "completionTime": at(number + 0.7),
        "stageIds": [number],
    }


class Jobs:
    """A driver that has run some batches, a second each, and is at work on another."""

    task_cpus = 1.0

    def __init__(self, *jobs: Mapping[str, Any]) -> None:
        self.some = jobs
        self.asked: list[int] = []

    def executors(self) -> Sequence[Mapping[str, Any]]:
        return [EXECUTOR]

    def jobs(self, since: int = 0, group: str | None = None) -> Sequence[Mapping[str, Any]]:
        every = [*self.some, {**JOB, "jobId": 900, "description": "count at App.py"}]
        return [j for j in every if j["jobId"] >= since and group in (None, j["jobGroup"])]

    def stage(self, number: int) -> Mapping[str, Any] | None:
        self.asked.append(number)
        return {**STAGE, "stageId": number}


def test_batches_are_known_by_their_jobs() -> None:
    four = Jobs(*map(job, range(4)))
    found = outside.batches(four)
    assert [one.number for one in found] == [0, 1, 2]  # the last one may have jobs to come
    assert [one.rows for one in found] == [100, 100, 100]
    assert found[0].took_s == pytest.approx(0.7)
    assert found[1].time_s - found[0].time_s == pytest.approx(1.0)
    assert [one.number for one in outside.batches(four, found[1])] == [2]
    again = replace(found[1], run="an earlier one", number=98)
    assert [one.number for one in outside.batches(four, again)] == [0, 1, 2]
    assert outside.batches(four, replace(found[1], query="another")) == []
    assert outside.batches(Jobs()) == []


def test_the_last_batches_are_enough() -> None:
    many = Jobs(*map(job, range(200)))
    assert [one.number for one in outside.batches(many)] == list(range(149, 199))
    assert many.asked == list(range(149, 199))


def test_a_query_is_named_where_there_are_several() -> None:
    both = Jobs(*map(job, range(4)), *(job(n, "r2", "q2", "bids") for n in range(4, 9)))
    with pytest.raises(InputError, match=r"--query: must be given .*there are q1, bids \(q2\)"):
        outside.batches(both)
    for query in ("bids", "q2"):
        assert [one.number for one in outside.batches(both, query=query)] == [4, 5, 6, 7]
    assert [one.number for one in outside.batches(both, query="q1")] == [0, 1, 2]
    first = outside.batches(both, query="q1")[0]
    assert [one.number for one in outside.batches(both, first)] == [1, 2]
    with pytest.raises(InputError, match=r"got 'asks' of q1, bids \(q2\)"):
        outside.batches(both, query="asks")
    twice = {"q1": "bids", "q2": "bids"}
    with pytest.raises(InputError, match="one of the ids that 'bids' has"):
        chosen(twice, "bids")
    assert chosen(twice, "q1") == "q1"
    assert chosen({}, "bids") is None


def test_batches_tell_at_which_interval_they_are_triggered() -> None:
    def some(apart_s: float, took_s: float) -> list[Batch]:
        return [Batch("q", "r", n, n * apart_s, took_s, 10) for n in range(6)]

    assert interval_s(some(10.0, 4.0)) == 10.0
    assert interval_s(some(10.0, 9.9)) == 0.0  # one follows the other
    assert interval_s(some(10.0, 4.0)[:1]) == 0.0
    late = [replace(one, time_s=one.time_s + 50 * (one.number > 2)) for one in some(10.0, 4.0)]
    assert interval_s(late) == 10.0  # nothing came for a while


class Beside:
    """A driver's REST API, its clock, and what happens while somebody waits for a period."""

    def __init__(self, *periods: Callable[["Beside"], None]) -> None:
        self.now_s = T0_MS / 1e3
        self.waits = iter(periods)
        self.notes: list[str] = []
        self.answers: dict[str, Any] = {
            "": [{"id": "app"}],
            "/app/executors": [EXECUTOR, {**EXECUTOR, "id": "1"}],
        }
        self.run(0)

    def run(self, batches: int) -> None:
        """So many are done, and one more has begun. A batch has 100 rows, of which each executor
        reads some."""
        self.answers["/app/jobs"] = [job(n) for n in range(batches + 1)]
        for n in range(batches):
            self.answers[f"/app/stages/{n}{DETAILS}"] = [{**STAGE, "stageId": n}]

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        next(self.waits)(self)

    def advised(self, count: int | None = None) -> list[Advised]:
        wish = wished("model", 10.0, 1, None, 5.0)
        with served(self.answers) as address:
            found = outside.advised(
                st.Rest(address), wish, None, self.notes.append, lambda: self.now_s, self.wait
            )
            return list(itertools.islice(found, count))


def test_a_query_that_runs_is_advised_by_what_its_driver_answers() -> None:
    rounds = itertools.count(5, 5)
    made = Beside(*(lambda driver: driver.run(next(rounds)),) * 6)
    found = made.advised(6)
    assert [one.time_s - T0_MS / 1e3 for one in found] == [5, 10, 15, 20, 25, 30]
    assert [one.executors for one in found] == [2] * 6
    assert "100 rows/s come" in found[0].why
    assert found[-1].advised == 1
    assert made.notes == []


def test_a_look_that_fails_is_told_and_the_next_goes_on() -> None:
    def fail(driver: Beside) -> None:
        driver.run(10)
        driver.answers["/app/executors"] = 503

    def work(driver: Beside) -> None:
        driver.run(15)
        driver.answers["/app/executors"] = [EXECUTOR]

    made = Beside(lambda driver: driver.run(5), fail, work, lambda _: None)
    found = made.advised(3)
    assert [one.time_s - T0_MS / 1e3 for one in found] == [5, 15, 20]
    assert [one.executors for one in found] == [2, 1, 1]
    (note,) = made.notes
    assert note.startswith("look 1 of 5 has failed: http://")
    assert note.endswith("answers 503")
    assert "100 rows/s come" in found[1].why  # batches of both periods count
    assert "no batch was done for" in found[2].why


def test_a_driver_that_is_gone_is_looked_at_five_times() -> None:
    """In a row: those before the last answer do not count."""

    def end(driver: Beside) -> None:
        driver.answers["/app/jobs"] = 404  # another application has its port

    def run(driver: Beside) -> None:
        driver.run(5)

    made = Beside(run, *(end,) * 4, run, *(end,) * 5)
    with pytest.raises(InputError, match="answers 404"):
        made.advised()
    looks = [note.split(" has")[0] for note in made.notes]
    assert looks == [f"look {n} of 5" for n in range(1, 5)] * 2


def test_rows_of_batches_that_were_not_looked_at_are_not_missed() -> None:
    """Of 200 batches in a period, the last 50 tell how much comes."""
    made = Beside(lambda driver: driver.run(5), lambda driver: driver.run(205))
    assert "100 rows/s come" in made.advised(2)[1].why


def test_a_stage_that_is_done_is_asked_for_once() -> None:
    answers: dict[str, Any] = {
        "": [{"id": "app"}],
        f"/app/stages/1{DETAILS}": [STAGE],
        f"/app/stages/2{DETAILS}": [{**STAGE, "status": "ACTIVE"}],
    }
    with served(answers) as address:
        rest = st.Rest(address)
        assert rest.stage(1) == STAGE
        assert (rest.stage(2) or {})["status"] == "ACTIVE"
        answers[f"/app/stages/1{DETAILS}"] = 500
        answers[f"/app/stages/2{DETAILS}"] = [STAGE]
        assert rest.stage(1) == rest.stage(2) == STAGE
        assert rest.stage(3) is None


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="either --app or --event-log"):
        watch()
    with pytest.raises(InputError, match="either --app or --event-log"):
        watch(app="http://x", event_log=tmp_path)
    for wrong, words in (
        ({"policy": "none"}, "policy: must be one of model, mended, printed"),
        ({"policy": "mended", "max_latency": "1s"}, "is kept by the policy 'model' alone"),
        ({"period": "10ms"}, "at least 1 s"),
        ({"min_executors": 3, "max_executors": 2}, "min_executors, which is 3; got 2"),
        ({"max_latency": "soon"}, "--max-latency"),
    ):
        given: dict[str, Any] = wrong
        with pytest.raises(InputError, match=words):
            watch(event_log=tmp_path, **given)
