"""The traffic equations and E[T] of a network."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from documented import stated
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import InputError
from sojourn.queueing import Network, Station, spreads, traffic


def test_splits_joins_and_loops_add_up() -> None:
    gains = {
        ("A", "B"): 0.6,
        ("A", "C"): 1.0,
        ("B", "D"): 1.5,
        ("C", "E"): 0.5,
        ("D", "E"): 1.0,
        ("E", "A"): 0.2,
    }
    rates = traffic({"A": 100.0}, gains)
    # E gets (0.5 + 0.9) of A, and A gets 100 + 0.2 E: A = 100 / (1 - 0.28)
    assert rates["A"] == pytest.approx(100 / 0.72)
    assert rates["E"] == pytest.approx(1.4 * rates["A"])


@given(st.data())
def test_rates_satisfy_the_equations(data: st.DataObject) -> None:
    names = [f"v{i}" for i in range(data.draw(st.integers(1, 8)))]
    pairs = data.draw(
        st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), unique=True)
    )
    share = 0.9 / len(names)  # every vertex sends on less than it gets, so no loop diverges
    gains = {pair: data.draw(st.floats(0, share)) for pair in pairs}
    external = {name: data.draw(st.floats(0, 100)) for name in names}
    rates = traffic(external, gains)
    for name in names:
        arriving = external[name] + sum(
            rates[u] * gain for (u, v), gain in gains.items() if v == name
        )
        assert rates[name] == pytest.approx(arriving, rel=1e-9, abs=1e-12)


def test_a_chain_of_thousands_needs_no_recursion() -> None:
    gains = {(f"v{i}", f"v{i + 1}"): 1.0 for i in range(20_000)}
    assert traffic({"v0": 2.0}, gains)["v20000"] == 2.0


@pytest.mark.parametrize("gain", [1.0, 1.2])
def test_a_diverging_loop_is_named_with_its_gain(gain: float) -> None:
    with pytest.raises(
        InputError, match=rf"the loop c → b → c diverges: .* 'c' comes back {gain:g} "
    ):
        traffic({"a": 1.0}, {("a", "b"): 1.0, ("b", "c"): 2.0, ("c", "b"): gain / 2})


def test_of_two_loops_the_diverging_one_is_named() -> None:
    gains = {("a", "b"): 1.0, ("b", "a"): 0.1, ("b", "c"): 1.0, ("c", "b"): 2.0}
    with pytest.raises(InputError, match="the loop c → b → c diverges"):
        traffic({"a": 1.0}, gains)


def test_two_loops_that_diverge_only_together_are_refused() -> None:
    gains = {("a", "a"): 0.6, ("a", "b"): 0.6, ("b", "a"): 0.7}
    assert max(abs(np.linalg.eigvals(np.array([[0.6, 0.7], [0.6, 0.0]])))) > 1
    with pytest.raises(InputError, match=r"the loop b → a → b diverges: .* 'b' comes back 1\.05 "):
        traffic({"a": 1.0}, gains)


def test_a_long_loop_of_large_gains_that_converges_is_solved() -> None:
    """60 hops of gain 5, and a gain back that makes 0.5 of the whole round."""
    gains = {(f"v{i}", f"v{i + 1}"): 5.0 for i in range(60)}
    gains["v60", "v0"] = 0.5 * 5.0**-60
    rates = traffic({"v0": 1.0}, gains)
    assert rates["v0"] == pytest.approx(2.0)
    assert rates["v60"] == pytest.approx(2.0 * 5.0**60)


def test_rates_beyond_all_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="the gains before 'c' multiply to a number"):
        traffic({"a": 1.0}, {("a", "b"): 1e300, ("b", "c"): 1e300})


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_bad_rates_and_gains_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="external rate of 'a'"):
        traffic({"a": value}, {})
    with pytest.raises(InputError, match="gain of 'a' → 'b'"):
        traffic({"a": 1.0}, {("a", "b"): value})


def chain(*stations: Station) -> Network:
    return Network({f"s{i}": s for i, s in enumerate(stations)}, stations[0].arrival_rate)


def test_mean_sojourn_weighs_stations_by_visits() -> None:
    network = Network({"a": Station(10, 4), "b": Station(5, 3)}, 10)
    allocation = {"a": 3, "b": 2}
    expected = Station(10, 4).mean_sojourn(3) + 0.5 * Station(5, 3).mean_sojourn(2)
    assert network.mean_sojourn(allocation) == pytest.approx(expected)
    assert network.lower_bound() == pytest.approx(1 / 4 + 0.5 / 3)
    assert network.moments(allocation)[0] == pytest.approx(expected)


def test_the_bound_counts_visits_where_the_paper_does_not() -> None:
    network = Network({"rare": Station(1, 1)}, 100)
    assert network.lower_bound() == 0.01  # alg. 2 of the paper has Σ 1/μ = 1


def test_an_unstable_allocation_is_infinite_in_all_it_says() -> None:
    network = chain(Station(10, 4), Station(10, 6))
    allocation = {"s0": 2, "s1": 2}
    assert network.mean_sojourn(allocation) == math.inf
    assert network.percentile(allocation, 99) == math.inf
    assert network.percentile(allocation, 50) == math.inf


def test_an_exponential_sojourn_has_its_exact_percentile() -> None:
    network = chain(Station(3, 4))
    for p in (90, 95, 99, 99.9):
        exact = -math.log(1 - p / 100) / (4 - 3)
        assert network.percentile({"s0": 1}, p) == pytest.approx(exact)


def test_percentiles_of_chains_err_as_the_docs_say() -> None:
    """60 random chains, every second with a loop around its first station."""
    random = np.random.default_rng(20170)
    customers = 100_000
    errors: dict[int, list[float]] = {90: [], 95: [], 99: []}
    for trial in range(60):
        total = np.zeros(customers)
        stations, allocation = {}, {}
        for i in range(random.integers(1, 7)):
            k, service_rate = int(random.integers(1, 16)), 10 ** random.uniform(-1, 1)
            visits = 1 / (1 - random.uniform(0, 0.5)) if trial % 2 and i == 0 else 1.0
            arrival_rate = random.uniform(0.3, 0.95) * k * service_rate
            # The external rate is 1, so a station's rates are scaled to its visits.
            station = Station(visits, service_rate * visits / arrival_rate)
            stations[f"s{i}"], allocation[f"s{i}"] = station, k
            total += sampled(random, station, k, random.geometric(1 / visits, customers))
        for p, found in errors.items():
            estimate = Network(stations, 1.0).percentile(allocation, p)
            found.append(estimate / float(np.percentile(total, p)) - 1)
    for p, found in errors.items():
        stated("random chains", p, found)


@pytest.mark.parametrize("p", [90, 95, 99])
@pytest.mark.parametrize(
    ("row", "visits"), [("half of all tuples", 0.5), ("one tuple in 50", 0.02), ("fan-out of 4", 4)]
)
def test_percentiles_of_splits_err_as_the_docs_say(row: str, visits: float, p: int) -> None:
    """A station that all tuples pass, and a second that few pass, or all four times."""
    random = np.random.default_rng(5)
    customers = 400_000
    slow = 100.0 if visits < 0.1 else 1.0
    stations = {"all": Station(1.0, 0.5), "some": Station(visits, 1 / slow)}
    allocation = {"all": 3, "some": 6}
    if visits > 1:
        counts = np.full(customers, int(visits))
    else:
        counts = (random.random(customers) < visits).astype(int)
    total = sampled(random, stations["all"], 3, np.ones(customers, int))
    total += sampled(random, stations["some"], 6, counts)
    network = Network(stations, 1.0)
    onward = {"in": {"all": 1.0}, "all": {"some": visits}}
    network = replace(network, spreads=spreads(network, {"in": 1.0}, onward))
    estimate = network.percentile(allocation, p)
    stated(row, p, [estimate / float(np.percentile(total, p)) - 1])


def sampled(
    random: np.random.Generator, station: Station, k: int, visits: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Total sojourn of tuples that visit an M/M/k station so many times, independently."""
    total = np.zeros(visits.size)
    spare = k * station.service_rate - station.arrival_rate
    for visit in range(visits.max()):
        there = np.flatnonzero(visits > visit)
        waits = random.random(there.size) < station.delay_probability(k)
        total[there] += random.exponential(1 / station.service_rate, there.size)
        total[there] += waits * random.exponential(1 / spare, there.size)
    return total


def test_bad_networks_and_allocations_are_refused() -> None:
    with pytest.raises(InputError, match="at least one station"):
        Network({}, 1.0)
    with pytest.raises(InputError, match="external_rate must be above zero"):
        Network({"a": Station(1, 2)}, 0)
    network = chain(Station(1, 2))
    with pytest.raises(InputError, match="lacks operator 's0'"):
        network.mean_sojourn({})
    with pytest.raises(InputError, match="names 'x'"):
        network.moments({"s0": 1, "x": 1})
