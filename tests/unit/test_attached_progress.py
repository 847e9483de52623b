"""What progress and status of attached queries say."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from attaching import JOB, STAGE, Told, behind, served, told

from sojourn.attached import status as st
from sojourn.attached.progress import Batch, Coming, batch, chance, coming
from sojourn.attached.seen import jobs_of
from sojourn.errors import InputError


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
    twice = Told()
    twice.task_cpus = 2.0  # Spark counts how long a task ran once for each of its cores
    assert st.ran(twice, [3])[0].ran_s == 0.6
    assert st.seconds(1500) == 1.5
    assert st.seconds(None) is None
    assert jobs_of(behind(3)[1], [job]) == [job]
    assert jobs_of(behind(3)[2], [job]) == []


@pytest.fixture
def driver() -> Iterator[str]:
    answers = {
        "": [{"id": "app", "attempts": [{"startTime": "x"}]}],
        "/app/executors": Told().executors(),
        "/app/jobs": [JOB],
        "/app/stages/3?details=false": [STAGE],
        "/app/environment": {"sparkProperties": [["spark.task.cpus", "2"]]},
    }
    with served(answers) as address:
        yield address


def test_the_rest_api_says_the_same(driver: str) -> None:
    rest = st.Rest(driver)
    assert list(st.executors(rest)) == ["0"]
    assert [(s.tasks, s.ran_s) for s in st.ran(rest, [3, 4])] == [(4, 0.6)]
    assert [job.number for job in st.jobs(rest, "run")] == [5]


def test_an_address_that_is_no_driver_is_refused(driver: str) -> None:
    with pytest.raises(InputError, match="answers 404"):
        st.Rest(f"{driver}/elsewhere")
    with pytest.raises(InputError, match="must be the UI of a running Spark driver"):
        st.Rest("http://127.0.0.1:1")
    with pytest.raises(InputError, match="must begin with http"):
        st.Rest("file:///etc")


def test_chance_is_by_how_much_neighbours_differ_and_no_rise() -> None:
    def at(rows: Sequence[int]) -> list[Batch]:
        return [batch(told(n, 2.0 * n, 1.0, count, '"file"', None)) for n, count in enumerate(rows)]

    assert chance(at([100, 240, 280, 240, 280, 240]), 1) == pytest.approx(2 * 20)
    assert chance(at([100, 240, 280, 240, 280, 240]), 4) == pytest.approx(20)
    assert chance(at([100, 100, 100, 300, 300, 300]), 1) == 0  # it rose
    assert chance(at([100, 240, 280, 240]), 1) == 0  # too few
    assert chance(at([100]), 1) == 0
