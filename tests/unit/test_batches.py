"""A query in batches as a station: how long they take, and how that is learned."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sojourn.queueing.batches import Batches, Ran, Stage, fitted

QUERY = Batches(0.2, (Stage(8, 0.01, 0.001), Stage(4, 0.05, 0.0)))


def test_tasks_take_slots_in_waves() -> None:
    # 8 tasks of 10 ms and 1 ms a row: with 3 slots three waves; then 4 tasks in two
    assert QUERY.batch_s(800, 3) == pytest.approx(0.2 + 3 * (0.01 + 0.1) + 2 * 0.05)
    assert QUERY.batch_s(800, 8) == pytest.approx(0.2 + 0.11 + 0.05)
    assert QUERY.batch_s(800, 80) == QUERY.batch_s(800, 8)
    assert QUERY.tasks == 8
    assert QUERY.capacity(8) == pytest.approx(8000)
    assert Batches(0.1, ()).capacity(1) == math.inf


def test_batches_grow_until_they_hold_what_comes_meanwhile() -> None:
    steady = QUERY.steady(4000, 8)
    assert steady is not None
    assert steady.batch_s == pytest.approx(QUERY.batch_s(steady.rows, 8))
    assert steady.rows == pytest.approx(4000 * steady.batch_s)
    assert steady.worst_s == pytest.approx(2 * steady.batch_s)
    assert QUERY.steady(8001, 8) is None
    slow = Batches(QUERY.overhead_s, QUERY.stages, trigger_s=10.0).steady(1000, 8)
    assert slow is not None
    assert (slow.cycle_s, slow.rows) == (10.0, 10_000)
    assert slow.batch_s == pytest.approx(QUERY.batch_s(10_000, 8))


def simulated(query: Batches, rate: float, slots: int, batches: int) -> list[float]:
    """Batch by batch: each has what came during the one before."""
    took_s = [query.batch_s(0, slots)]
    for _ in range(batches):
        took_s.append(query.batch_s(rate * max(took_s[-1], query.trigger_s), slots))
    return took_s


@given(some.floats(1, 20_000), some.integers(1, 12), some.sampled_from([0.0, 0.5, 5.0]))
def test_the_steady_batch_is_where_batches_end(rate: float, slots: int, trigger_s: float) -> None:
    query = Batches(QUERY.overhead_s, QUERY.stages, trigger_s)
    steady = query.steady(rate, slots)
    last = simulated(query, rate, slots, 200)
    load = rate / query.capacity(slots)
    if steady is None:
        assert last[-1] > last[-10]
    elif load < 0.9:
        assert last[-1] == pytest.approx(steady.batch_s, rel=1e-3)


def test_what_batches_cost_is_found_from_what_they_did() -> None:
    draw = random.Random(1)
    ran = []
    for number in range(30):
        rows, slots = draw.uniform(200, 3000), 2 if number < 15 else 4
        stages = tuple(
            (s.tasks, s.tasks * s.task_s + s.row_s * rows * draw.gauss(1, 0.02))
            for s in QUERY.stages
        )
        ran.append(Ran(rows, QUERY.batch_s(rows, slots) * draw.gauss(1, 0.02), slots, stages))
    found = fitted(ran)
    assert found is not None
    for rows, slots in ((500, 6), (2500, 8), (4000, 3)):
        assert found.batch_s(rows, slots) == pytest.approx(QUERY.batch_s(rows, slots), rel=0.05)


def test_batches_whose_tasks_differ_are_fitted_too() -> None:
    """As many tasks as there are files, or as a shuffle needs."""
    ran = []
    for number in range(30):
        rows, slots, tasks = 100.0 + 37 * number, 1 + number % 2, 2 + number % 5
        query = Batches(0.2, (Stage(tasks, 0.0, 0.01), Stage(1, 0.05, 0.0)))
        ran.append(Ran(rows, query.batch_s(rows, slots), slots, ((tasks, 0.01 * rows), (1, 0.05))))
    found = fitted(ran)
    assert found is not None
    assert found.tasks == 4
    assert found.overhead_s == pytest.approx(0.2)
    assert found.stages[0].row_s == pytest.approx(0.01)
    assert found.stages[1].task_s == pytest.approx(0.05)
    assert found.stages[1].row_s == pytest.approx(0)


def test_batches_that_are_all_alike_blame_their_rows() -> None:
    found = fitted([Ran(1000, 0.5, 1, ((1, 0.4),))] * 5)
    assert found is not None
    (stage,) = found.stages
    assert (stage.tasks, stage.task_s) == (1, 0.0)
    assert stage.row_s == pytest.approx(0.0004)
    assert found.overhead_s == pytest.approx(0.1)


def test_without_batches_there_is_nothing_to_fit() -> None:
    assert fitted([]) is None
    assert fitted([Ran(0, 0.1, 1, ((1, 0.1),))]) is None
    other = [Ran(10, 1, 1, ((1, 1.0),)), Ran(10, 1, 1, ((1, 0.5), (2, 0.5)))]
    found = fitted(other)
    assert found is not None
    assert len(found.stages) == 2


def test_a_limit_on_batches_bounds_what_is_carried_and_how_soon() -> None:
    limited = Batches(0.2, QUERY.stages, trigger_s=1.0, max_rows=800)
    assert limited.batch_s(800, 8) == pytest.approx(0.36)
    assert limited.capacity(8) == 800  # one batch a second
    assert limited.capacity(1) == pytest.approx(800 / limited.batch_s(800, 1))
    assert limited.steady(800, 8) is None
    steady = limited.steady(799, 8)
    assert steady is not None
    assert steady.rows == pytest.approx(799)
    assert limited.work_s(800, 8) == limited.batch_s(800, 8)
    assert limited.work_s(2000, 8) == pytest.approx(2 * 1.0 + limited.batch_s(400, 8))
    assert QUERY.work_s(2000, 8) == QUERY.batch_s(2000, 8)
