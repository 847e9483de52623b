"""What wakes the loop up."""

import random

import pytest

from sojourn.pressure import QueueWatch, RateWatch


def alarms(
    rates: list[tuple[float, float]], seed: int, scv: float = 1.0
) -> list[tuple[float, float]]:
    """When a watch cries and the rate that it tells, over steps of (seconds, rate)."""
    draw = random.Random(seed)
    watch = RateWatch()
    now, found = 0.0, []
    for seconds, rate in rates:
        end = now + seconds
        next_s = now + draw.gammavariate(1 / scv, scv) / rate
        while now < end:
            now += 0.05
            count = 0
            while next_s <= now:
                count += 1
                next_s += draw.gammavariate(1 / scv, scv) / rate
            risen = watch.add(count, now)
            if risen is not None:
                found.append((now, risen[0]))
    return found


@pytest.mark.parametrize("rate", [5.0, 40.0, 400.0])
def test_a_steady_stream_is_left_alone_for_an_hour(rate: float) -> None:
    assert alarms([(3600.0, rate)], seed=1) == []


@pytest.mark.parametrize("scv", [0.1, 4.0, 8.0])
def test_so_is_one_that_is_regular_or_bursty(scv: float) -> None:
    assert alarms([(3600.0, 40.0)], 1, scv) == []


@pytest.mark.parametrize(("factor", "within_s"), [(10.0, 0.3), (3.0, 1.0), (2.0, 3.0)])
def test_a_rise_is_noticed_soon(factor: float, within_s: float) -> None:
    for seed in range(5):
        found = alarms([(60.0, 40.0), (20.0, 40.0 * factor)], seed)
        at_s, rate = found[0]
        assert 60.0 < at_s <= 60.0 + within_s
        assert 0.6 * factor * 40 < rate < 1.8 * factor * 40


def test_a_fall_is_not_told_and_a_rise_from_there_is() -> None:
    found = alarms([(60.0, 40.0), (20.0, 4.0), (20.0, 40.0)], seed=2)
    assert len(found) == 1
    assert 80.0 < found[0][0] < 83.0


def test_a_small_rise_soon_after_a_deep_fall_is_not_told() -> None:
    fall = [(60.0, 160.0), (10.0, 40.0)]
    for seed in range(5):
        assert alarms([*fall, (10.0, 80.0)], seed) == []
        assert alarms([*fall, (10.0, 160.0)], seed)
        assert alarms([(60.0, 160.0), (60.0, 40.0), (10.0, 80.0)], seed)


def test_after_a_change_the_new_rate_is_the_usual_one() -> None:
    assert len(alarms([(60.0, 40.0), (600.0, 120.0)], seed=3)) == 1


def test_a_queue_is_told_once_each_time_it_gets_too_long() -> None:
    watch = QueueWatch(0.2)
    told = [watch.look(waiting, 2, 0.02) for waiting in (5, 14, 16, 30, 8, 16, 3, 20)]
    assert told == [None, None, 0.16, None, None, None, None, 0.2]


def test_a_queue_is_not_told_if_it_is_short_or_fast_or_may_wait() -> None:
    assert QueueWatch(0.2).look(9, 2, 1.0) is None
    assert QueueWatch(0.2).look(1000, 2, 1e-4) is None
    assert QueueWatch(None).look(1000, 1, 1.0) is None
    assert QueueWatch(0.2).look(1000, 0, 1.0) is None


def test_a_rise_after_a_long_silence_is_told() -> None:
    watch = RateWatch()
    now_s = 0.0
    for _ in range(120):  # few enough that a silence is no fall
        now_s += 2.0
        watch.add(1, now_s)
    for _ in range(3):
        now_s += 40.0
        watch.add(0, now_s)
    assert watch.add(50, now_s + 1.0) == pytest.approx((50.0, 1.0))
