"""A station against independent references: high precision, closed forms, and its own shape."""

import itertools
import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import InputError
from sojourn.queueing import Station

loads = st.floats(0.01, 60.0)
rates = st.floats(0.01, 1000.0)
scvs = st.floats(0.0, 8.0)


def reference_wait(k: int, arrival_rate: float, service_rate: float) -> mpmath.mpf:
    """Erlang's delay formula in 60 digits, from the sum over states in DRS eq. 3."""
    with mpmath.workdps(60):
        load = mpmath.mpf(arrival_rate) / mpmath.mpf(service_rate)
        term, below = mpmath.mpf(1), mpmath.mpf(0)
        for state in range(k):
            below += term
            term *= load / (state + 1)
        delayed = term / (1 - load / k)
        probability = delayed / (below + delayed)
        return probability / (k * mpmath.mpf(service_rate) - mpmath.mpf(arrival_rate))


@pytest.mark.parametrize("utilization", [0.9, 0.99, 0.999, 0.999999, 1 - 1e-9])
def test_a_hundred_thousand_processors_are_exact(utilization: float) -> None:
    k, service_rate = 100_000, 0.37
    station = Station(utilization * k * service_rate, service_rate)
    expected = reference_wait(k, station.arrival_rate, service_rate)
    assert abs(station.mean_wait(k) - expected) <= 1e-9 * expected


@given(loads, rates, st.integers(0, 40))
def test_wait_agrees_with_the_reference(load: float, service_rate: float, more: int) -> None:
    station = Station(load * service_rate, service_rate)
    k = station.min_processors + more
    expected = reference_wait(k, station.arrival_rate, service_rate)
    assert abs(station.mean_wait(k) - expected) <= 1e-9 * expected


def test_one_processor_is_the_textbook_queue() -> None:
    station = Station(arrival_rate=3.0, service_rate=4.0)
    assert station.utilization(1) == 0.75
    assert station.mean_sojourn(1) == pytest.approx(1 / (4 - 3))
    assert station.mean_wait(1) == pytest.approx(0.75)
    # P(W > t) = 0.75 e^-t
    assert station.wait_percentile(1, 99) == pytest.approx(math.log(75))
    assert station.wait_percentile(1, 20) == 0.0


@given(loads, rates, scvs, scvs)
def test_wait_falls_and_is_convex(
    load: float, service_rate: float, arrival_scv: float, service_scv: float
) -> None:
    station = Station(load * service_rate, service_rate, arrival_scv, service_scv)
    first = station.min_processors
    for moment in (0, 1):
        waits = [station.wait_moments(k)[moment] for k in range(first, first + 30)]
        savings = [a - b for a, b in itertools.pairwise(waits)]
        assert all(saving >= 0 for saving in savings)
        slack = 1e-12 * waits[0]
        assert all(b <= a + slack for a, b in itertools.pairwise(savings))


@given(loads, rates, scvs, scvs, st.integers(0, 5))
def test_waits_are_those_of_one_processor_after_the_other(
    load: float, service_rate: float, arrival_scv: float, service_scv: float, more: int
) -> None:
    station = Station(load * service_rate, service_rate, arrival_scv, service_scv)
    start = station.min_processors + more
    both = zip(station.waits(start), station.mean_waits(start, 2.0), strict=True)
    for k, (found, twice) in zip(range(start, start + 5), both, strict=False):
        assert found == pytest.approx(station.wait_moments(k), rel=1e-9, abs=1e-300)
        assert twice == pytest.approx(2 * found[0], rel=1e-9, abs=1e-300)


@given(loads, rates, st.integers(0, 10))
def test_unit_scvs_are_mmk_and_eq_5_scales_the_wait(
    load: float, service_rate: float, more: int
) -> None:
    plain = Station(load * service_rate, service_rate)
    k = plain.min_processors + more
    unit = Station(load * service_rate, service_rate, 1.0, 1.0)
    assert unit.mean_sojourn(k) == plain.mean_sojourn(k)
    bursty = Station(load * service_rate, service_rate, 3.0, 2.0)
    assert bursty.mean_wait(k) == pytest.approx(2.5 * plain.mean_wait(k))


@given(loads, rates, st.integers(0, 10), st.floats(1.0, 99.9))
def test_wait_percentile_inverts_the_tail(
    load: float, service_rate: float, more: int, p: float
) -> None:
    station = Station(load * service_rate, service_rate)
    k = station.min_processors + more
    wait = station.wait_percentile(k, p)
    spare = k * service_rate - station.arrival_rate
    exceeding = station.delay_probability(k) * math.exp(-spare * wait)
    assert exceeding <= (1 - p / 100) * (1 + 1e-6)
    if wait > 0:
        assert exceeding == pytest.approx(1 - p / 100, rel=1e-6)


@pytest.mark.parametrize(
    ("arrival", "service", "needed"),
    [(3, 1, 4), (0.3, 0.1, 4), (2.5, 1, 3), (1e9, 1, 10**9 + 1)],
)
def test_whole_loads_need_one_more(arrival: float, service: float, needed: int) -> None:
    station = Station(arrival, service)
    assert station.min_processors == needed
    assert station.mean_wait(needed - 1) == math.inf
    assert station.wait_percentile(needed - 1, 50) == math.inf
    assert math.isfinite(station.mean_wait(needed))


def test_an_idle_station_never_waits() -> None:
    station = Station(0.0, 2.0)
    assert station.min_processors == 1
    assert station.mean_wait(1) == 0
    assert station.mean_sojourn(1) == 0.5
    assert next(station.waits(1)) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 1), "arrival_rate must lie between 0 and"),
        ((1, 0), "service_rate must lie between"),
        ((1, math.inf), "service_rate must lie between"),
        ((1e20, 1), "arrival_rate must lie between 0 and 1e[+]15; got 1e[+]20"),
        ((1e12, 1e-3), "would need 1e[+]15 processors; the model takes up to 1e[+]09"),
        ((1, 1, -0.1), "arrival_scv must lie between 0 and"),
        ((1, 1, 1, math.nan), "service_scv must lie between 0 and"),
    ],
)
def test_impossible_stations_are_refused(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Station(*arguments)


def test_bad_arguments_are_refused() -> None:
    station = Station(1, 2)
    with pytest.raises(InputError, match="at least 1 processor; got 0"):
        station.utilization(0)
    with pytest.raises(InputError, match="between 0 and 100, as in 99; got 100"):
        station.wait_percentile(1, 100)
