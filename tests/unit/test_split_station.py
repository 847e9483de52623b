"""An operator with several executors as one station."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import InputError
from sojourn.queueing.allocation import min_processors
from sojourn.queueing.keyed import NEVER, KeyedStation, bound, useful
from sojourn.queueing.network import Network
from sojourn.queueing.split import SplitStation, divided
from sojourn.queueing.station import Station


def split(*executors: Station) -> SplitStation:
    rate = sum(one.arrival_rate for one in executors)
    return SplitStation(rate, executors[0].service_rate, executors=executors)


@given(
    rates=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=3),
    more=st.integers(0, 4),
    service_rate=st.floats(5.0, 50.0),
)
def test_processors_are_divided_as_tuples_wait_least(
    rates: list[float], more: int, service_rate: float
) -> None:
    station = split(*(Station(rate, service_rate) for rate in rates))
    k = station.min_processors + more

    def waited(counts: tuple[int, ...]) -> float:
        parts = zip(station.executors, counts, strict=True)
        return sum(one.arrival_rate * one.mean_wait(n) for one, n in parts if one.arrival_rate)

    ways = itertools.product(range(1, k + 1), repeat=len(rates))
    best = min(waited(counts) for counts in ways if sum(counts) == k)
    found = station.split(k)
    assert sum(found) == k
    assert waited(found) == pytest.approx(best, rel=1e-9, abs=1e-15)
    if station.arrival_rate:
        assert station.mean_wait(k) * station.arrival_rate == pytest.approx(best, abs=1e-12)
    series = list(itertools.islice(station.waits(k), 4))
    assert series == [pytest.approx(station.wait_moments(k + i)) for i in range(4)]


def test_one_executor_is_the_station_itself() -> None:
    one = Station(30.0, 10.0)
    whole = split(one)
    for k in (4, 5, 9):
        assert whole.wait_moments(k) == pytest.approx(one.wait_moments(k))
        assert whole.delay_probability(k) == pytest.approx(one.delay_probability(k))
        assert whole.utilization(k) == pytest.approx(one.utilization(k))
        assert whole.wait_percentile(k, 99) == pytest.approx(one.wait_percentile(k, 99), abs=1e-9)


def test_executors_cannot_help_one_another() -> None:
    whole = split(*(Station(9.0, 10.0) for _ in range(4)))
    together = Station(36.0, 10.0)
    assert whole.mean_wait(8) > 3 * together.mean_wait(8)
    assert whole.min_processors == 4
    busy = split(Station(19.0, 10.0), Station(1.0, 10.0))
    assert busy.min_processors == 3
    assert not busy.is_stable(2)
    assert math.isinf(busy.mean_wait(2))
    assert math.isinf(busy.wait_percentile(2, 99))
    assert busy.delay_probability(2) == 1
    assert busy.utilization(2) == pytest.approx(1.9)


def test_too_few_processors_follow_the_loads() -> None:
    busy = [Station(80.0, 10.0), Station(10.0, 10.0)]
    assert divided(busy, 6) == [5, 1]
    assert divided(busy, 1) == [1, 1], "none has no processor"


def test_nobody_gets_more_than_it_may_have() -> None:
    full = [Station(19.0, 10.0), Station(1.0, 10.0)]
    assert divided(full, 5, 2) == [2, 2]
    assert divided(full, 4, 2) == [2, 2]
    assert divided(full, 3, 2) == [2, 1]
    assert divided([Station(80.0, 10.0), Station(10.0, 10.0)], 9, 3) == [3, 3]


def test_a_shard_bounds_its_executor_only() -> None:
    hot = KeyedStation(10.0, 10.0, hot=(0.9,))
    whole = split(hot, KeyedStation(5.0, 10.0, hot=(0.5,)))
    assert useful(whole) == 2 + 2
    assert bound(whole) == "", "a processor can do what the shard brings"
    assert whole.is_stable(3)
    endless = split(KeyedStation(20.0, 10.0, hot=(0.9,)), Station(5.0, 10.0))
    assert endless.min_processors == NEVER
    assert "one shard brings 18/s" in bound(endless)
    assert bound(split(Station(5.0, 10.0))) == ""


def test_the_two_programs_over_such_operators_are_those_over_executors() -> None:
    parts = {"a": [Station(35.0, 10.0), Station(5.0, 10.0)], "b": [Station(40.0, 30.0)]}
    apart = {f"{name}{i}": one for name, of in parts.items() for i, one in enumerate(of)}
    by_executor = min_processors(Network(apart, 40.0), 0.2)
    by_operator = min_processors(
        Network({name: split(*of) for name, of in parts.items()}, 40.0), 0.2
    )
    for name, of in parts.items():
        own = [by_executor.allocation[f"{name}{i}"] for i in range(len(of))]
        assert list(split(*of).split(by_operator.allocation[name])) == own


def test_executors_have_all_tuples_between_them() -> None:
    with pytest.raises(InputError, match="must have all tuples between them, 30/s; got 20/s"):
        SplitStation(30.0, 10.0, executors=(Station(20.0, 10.0),))
