"""Operators with a key as k queues, held against a simulation that knows nothing of formulas."""

import heapq
import math
import random
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import InputError
from sojourn.queueing.allocation import assign_processors, min_processors
from sojourn.queueing.keyed import NEVER, KeyedStation
from sojourn.queueing.network import Network
from sojourn.queueing.station import Station

SHARES = st.lists(st.floats(0.001, 1.0), max_size=10).map(
    lambda raw: tuple(sorted((share / (sum(raw) + 0.5) for share in raw), reverse=True))
)


def stations(hot: tuple[float, ...], rate: float, scv: float) -> KeyedStation:
    return KeyedStation(rate, 10.0, scv, 1.0, hot)


STATIONS = st.builds(stations, SHARES, st.floats(0.1, 200.0), st.floats(0.1, 4.0))


def simulated_wait(station: KeyedStation, k: int, tuples: int = 200_000) -> float:
    """Poisson arrivals, exponential service, each tuple bound to a processor by its share."""
    draw = random.Random(5)
    bins = [share for share, count in station.spread(k) for _ in range(count)]
    free = [0.0] * len(bins)
    now = total = 0.0
    for place in draw.choices(range(len(bins)), bins, k=tuples):
        now += draw.expovariate(station.arrival_rate)
        begin = max(now, free[place])
        total += begin - now
        free[place] = begin + draw.expovariate(station.service_rate)
    return total / tuples


@pytest.mark.parametrize("hot", [(), (0.3,), (0.4, 0.2, 0.1), (0.05,) * 10])
@pytest.mark.parametrize("k", [4, 7])
def test_waits_are_those_of_a_simulation(hot: tuple[float, ...], k: int) -> None:
    station = KeyedStation(20.0, 10.0, hot=hot)
    assert station.mean_wait(k) == pytest.approx(simulated_wait(station, k), rel=0.05)


def test_a_key_costs_more_than_a_shared_queue() -> None:
    shared, keyed = Station(30.0, 10.0), KeyedStation(30.0, 10.0)
    assert keyed.mean_wait(4) > 3 * shared.mean_wait(4)
    assert keyed.mean_wait(1000) == pytest.approx(0.003 / 9.97)
    assert (keyed.min_processors, shared.min_processors) == (4, 4)


def test_shards_are_spread_as_evenly_as_can_be() -> None:
    station = KeyedStation(1.0, 10.0, hot=(0.5, 0.3))
    assert station.spread(1) == [(1.0, 1)]
    assert station.spread(2) == [(0.5, 2)]
    assert station.spread(3) == [(0.5, 1), (0.3, 1), (pytest.approx(0.2), 1)]
    assert station.spread(4) == [(0.5, 1), (0.3, 1), (pytest.approx(0.1), 2)]
    assert station.useful == 2


def test_one_shard_bounds_the_operator() -> None:
    station = KeyedStation(30.0, 10.0, hot=(0.4,))
    assert station.min_processors == NEVER
    assert not station.is_stable(1000)
    assert station.mean_wait(1000) == math.inf
    network = Network({"count": station}, 30.0)
    for plan in (assign_processors(network, 50), min_processors(network, 1.0)):
        assert not plan.feasible
        assert "operator 'count' cannot keep up with any number of processors: " in plan.reason
        assert "one shard brings 12/s, and a processor does 10/s" in plan.reason


@given(STATIONS, st.integers(1, 40))
def test_more_processors_help_less_and_less(station: KeyedStation, more: int) -> None:
    least = station.min_processors
    if least == NEVER:
        return
    assert not station.is_stable(least - 1) if least > 1 else True
    first, second, third = (mean for mean, _ in islice(station.waits(least + more), 3))
    assert first >= second >= third >= 0
    assert first - second >= (second - third) * (1 - 1e-6) - 1e-12


@given(STATIONS, st.integers(1, 40), st.sampled_from([50.0, 90.0, 99.0]))
def test_percentiles_are_of_the_whole(station: KeyedStation, more: int, p: float) -> None:
    if station.min_processors == NEVER:
        return
    k = station.min_processors + more
    found = station.wait_percentile(k, p)
    each = [station.queue_of(share) for share, _ in station.spread(k)]
    assert min(q.wait_percentile(1, p) for q in each) <= found + 1e-9
    assert found <= max(q.wait_percentile(1, p) for q in each) + 1e-9
    assert 0 <= station.delay_probability(k) <= 1


def test_one_processor_is_an_ordinary_station() -> None:
    plain = Station(5.0, 10.0, 2.0, 0.5)
    keyed = KeyedStation(5.0, 10.0, 2.0, 0.5, (0.9,))
    assert keyed.wait_moments(1) == pytest.approx(plain.wait_moments(1))
    assert keyed.wait_percentile(1, 99) == pytest.approx(plain.wait_percentile(1, 99))
    assert keyed.delay_probability(1) == plain.delay_probability(1)
    assert replace(keyed, arrival_rate=6.0).hot == (0.9,)


@pytest.mark.parametrize("hot", [(0.0,), (0.6, 0.6), (0.1, 0.2)])
def test_shares_that_cannot_be_are_refused(hot: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="shares of shards must"):
        KeyedStation(1.0, 1.0, hot=hot)


def test_the_best_placement_is_found_by_trying_all() -> None:
    network = Network({"a": KeyedStation(30.0, 10.0, hot=(0.2,)), "b": Station(40.0, 25.0)}, 30.0)
    for total in range(8, 14):
        plan = assign_processors(network, total)
        tried = heapq.nsmallest(
            1, (network.mean_sojourn({"a": a, "b": total - a}) for a in range(4, total - 1))
        )
        assert plan.mean_sojourn == pytest.approx(tried[0])
