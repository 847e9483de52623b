"""What an executor counts."""

import pytest

from sojourn.engine.executor.meter import Meter
from sojourn.engine.worker.worker import _Timer


def test_gaps_of_a_regular_stream() -> None:
    meter = Meter(0.0)
    for i in range(11):
        meter.arrived(1, i * 0.1)
    assert (meter.arrivals, meter.gaps) == (11, 10)
    assert meter.gap_s == pytest.approx(1.0)
    assert meter.gap_s2 == pytest.approx(0.1)


def test_tuples_that_come_together_have_no_gap_between_them() -> None:
    meter = Meter(0.0)
    meter.arrived(1, 0.0)
    meter.arrived(4, 1.0)
    assert (meter.gaps, meter.gap_s, meter.gap_s2) == (4, 1.0, 1.0)


def test_the_rush_after_a_batch_boundary_is_no_part_of_the_stream() -> None:
    meter = Meter(0.0)
    for i in range(10):
        meter.arrived(1, i * 0.1)
    meter.begin()  # nothing came for half a second
    meter.arrived(6, 1.4)
    meter.arrived(3, 1.45)
    for i in range(20):
        meter.arrived(1, 1.5 + i * 0.1)
    assert meter.arrivals == 39
    mean = meter.gap_s / meter.gaps
    assert mean == pytest.approx(0.1)
    assert meter.gap_s2 / meter.gaps - mean**2 == pytest.approx(0.0, abs=1e-9)


def test_processor_seconds_follow_a_resize() -> None:
    meter = Meter(0.0)
    meter.employs(2, 0.0)
    meter.employs(8, 9.0)
    meter.employs(8, 10.0)
    assert meter.processor_s == pytest.approx(2 * 9 + 8)


@pytest.mark.parametrize(
    ("every", "bundles", "expected"),
    [
        (0, [1, 500], [-1, -1]),
        (1, [1, 1, 8, 500, 3], [0, 0, 2, 3, 1]),
        (3, [1, 1, 1, 1, 1, 1], [-1, -1, 0, -1, -1, 0]),
        (3, [4, 4, 4], [2, 3, 2]),
        (100, [50, 50, 500], [-1, 49, 100]),
    ],
)
def test_one_tuple_is_timed_of_those_handed_over_together(
    every: int, bundles: list[int], expected: list[int]
) -> None:
    timer = _Timer(every)
    assert [timer.due(count) for count in bundles] == expected
