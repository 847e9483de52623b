"""The two programs against exhaustive search, and what they say when there is no answer."""

import math
from collections.abc import Iterator, Mapping
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sojourn.errors import InputError
from sojourn.queueing import Network, Station, assign_processors, min_processors, sweep

DEPTH = 5  # how many processors above the least the exhaustive search tries per station


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """One to three stations, visited less, as or more often than once, of both models."""
    exponential = draw(st.booleans())
    stations = {}
    for i in range(draw(st.integers(1, 3))):
        service_rate = draw(st.floats(0.5, 20))
        scv = st.just(1.0) if exponential else st.floats(0.0, 4.0)
        stations[f"s{i}"] = Station(
            draw(st.floats(0.1, 6.0)) * service_rate, service_rate, draw(scv), draw(scv)
        )
    return Network(stations, draw(st.floats(0.5, 60)))


@st.composite
def limits(draw: st.DrawFn, network: Network) -> tuple[dict[str, int], dict[str, int]]:
    """A minimum and a maximum for some of the stations, above what stability needs."""
    low, high = {}, {}
    for name, station in network.stations.items():
        least = station.min_processors
        if draw(st.booleans()):
            low[name] = least + draw(st.integers(-1, 2))
            low[name] = max(1, low[name])
        if draw(st.booleans()):
            high[name] = max(low.get(name, 1), least) + draw(st.integers(0, 3))
    return low, high


def everything(
    network: Network, low: Mapping[str, int], high: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """All allocations within the limits, up to DEPTH above the least."""
    spans = []
    for name, station in network.stations.items():
        least = max(station.min_processors, low.get(name, 1))
        spans.append(range(least, min(least + DEPTH, high.get(name, 10**9)) + 1))
    for choice in product(*spans):
        yield dict(zip(network.stations, choice, strict=True))


@given(st.data())
def test_program_6_equals_exhaustive_search(data: st.DataObject) -> None:
    network = data.draw(networks())
    low, high = data.draw(limits(network))
    candidates = list(everything(network, low, high))
    least = sum(candidates[0].values())
    most = least + data.draw(st.integers(0, DEPTH))
    plan = assign_processors(network, most, low, high)
    best = min(network.mean_sojourn(c) for c in candidates if sum(c.values()) <= most)
    assert plan.feasible
    assert plan.processors <= most
    assert plan.mean_sojourn == pytest.approx(best, rel=1e-12)
    assert plan == assign_processors(network, most, low, high)


@given(st.data(), st.sampled_from([None, 50.0, 90.0, 99.0, 99.9]))
def test_program_8_equals_exhaustive_search(data: st.DataObject, p: float | None) -> None:
    network = data.draw(networks())
    low, high = data.draw(limits(network))
    candidates = list(everything(network, low, high))

    def reached(allocation: Mapping[str, int]) -> float:
        if p is None:
            return network.mean_sojourn(allocation)
        return network.percentile(allocation, p)

    target = reached(data.draw(st.sampled_from(candidates))) * data.draw(st.floats(1.0, 1.05))
    assume(math.isfinite(target))
    fewest = min(sum(c.values()) for c in candidates if reached(c) <= target)
    plan = min_processors(network, target, p, low, high)
    assert plan.feasible, plan.reason
    assert plan.processors == fewest
    assert reached(plan.allocation) <= target


def test_mean_and_tail_can_want_different_placements() -> None:
    network = Network(
        {"slow": Station(0.02, 0.1), "quick": Station(10, 2.5), "mid": Station(1, 1.6)}, 10
    )
    target = network.percentile_bound(99) * 1.02
    plan = min_processors(network, target, 99)
    by_mean = assign_processors(network, plan.processors)
    assert network.percentile(plan.allocation, 99) <= target
    assert network.percentile(by_mean.allocation, 99) > target


def test_a_corner_that_no_tangent_walk_finds() -> None:
    """Without the search of the corners this answer would be one processor too many."""
    network = Network(
        {
            "s0": Station(2.2486362906968247, 0.9336200109436746, 2.0939038852267284, 0.34687243),
            "s1": Station(0.019406256132168582, 0.04311633586284217, 1.0589942253, 0.1738659287),
            "s2": Station(0.05200763902984531, 0.0978140767472957, 0.641905853308, 0.2461811176),
        },
        1.0,
    )
    target = 4.9999423100842995
    fewest = min(
        sum(a.values()) for a in everything(network, {}, {}) if network.percentile(a, 70) <= target
    )
    assert min_processors(network, target, 70).processors == fewest == 8


def test_a_target_at_the_bound_takes_no_longer_than_others() -> None:
    """Rounding makes E[T] equal its bound at last; getting there must not be quadratic."""
    network = Network({f"s{i}": Station(5 + i % 7, 1 + i % 3) for i in range(300)}, 10)
    assert min_processors(network, network.lower_bound() * (1 + 1e-13)).feasible


def test_never_more_than_asked_for() -> None:
    """Alg. 1 of the paper ends with K_max + 1."""
    network = Network({"a": Station(10, 3), "b": Station(10, 4)}, 10)
    for most in range(7, 40):
        assert assign_processors(network, most).processors == most


def test_processors_that_save_nothing_are_left_over() -> None:
    network = Network({"a": Station(0.5, 1), "idle": Station(0, 1)}, 1)
    plan = assign_processors(network, 10_000)
    assert plan.processors < 1_000
    assert plan.allocation["idle"] == 1
    assert plan.mean_sojourn == network.lower_bound()


def test_ties_go_to_the_first_station() -> None:
    same = Station(5, 2)
    network = Network({"z": same, "a": same, "m": same}, 5)
    assert assign_processors(network, 10).allocation == {"z": 4, "a": 3, "m": 3}
    assert assign_processors(network, 11).allocation == {"z": 4, "a": 4, "m": 3}


def test_a_plan_tells_what_to_expect() -> None:
    network = Network({"a": Station(10, 4), "b": Station(5, 3)}, 10)
    plan = assign_processors(network, 6)
    assert plan.allocation == {"a": 3, "b": 3}
    assert plan.utilization == {"a": 10 / 12, "b": 5 / 9}
    assert plan.sojourn["b"] == Station(5, 3).mean_sojourn(3)
    assert plan.mean_sojourn == network.mean_sojourn(plan.allocation)


def test_too_few_processors_names_who_needs_how_many() -> None:
    network = Network({"extract": Station(120, 25), "match": Station(60, 25)}, 60)
    plan = assign_processors(network, 7)
    assert not plan.feasible
    assert plan.mean_sojourn == math.inf
    assert plan.reason == (
        "7 processors are too few: the topology needs at least 8 "
        "('extract' 5 for 120/s at 25/s each, 'match' 3 for 60/s at 25/s each)"
    )


def test_a_maximum_below_stability_is_explained_in_both_programs() -> None:
    network = Network({"match": Station(120, 25)}, 120)
    expected = (
        "operator 'match' is unstable: 120/s at 25/s per processor needs at least 5 processors; "
        "its maximum is 4"
    )
    assert assign_processors(network, 50, maximum={"match": 4}).reason == expected
    assert min_processors(network, 50.0, maximum={"match": 4}).reason == expected
    assert min_processors(network, 50.0, 99, maximum={"match": 4}).reason == expected
    assert list(sweep(network, maximum={"match": 4})) == []


def test_a_target_below_the_bound_is_refused_and_one_above_is_met() -> None:
    network = Network({"a": Station(10, 4), "b": Station(5, 3)}, 10)
    bound = network.lower_bound()
    for target in (bound * (1 - 1e-12), bound / 2):
        assert "serving a tuple takes 0.4167 s even when it never waits" in (
            min_processors(network, target).reason
        )
    assert min_processors(network, bound * (1 + 1e-12)).feasible
    tail = network.percentile_bound(99)
    assert "a p99 sojourn of" in min_processors(network, tail * 0.999, 99).reason
    assert min_processors(network, tail * (1 + 1e-9), 99).feasible


def test_stations_that_never_wait_meet_the_bound_itself() -> None:
    network = Network({"clockwork": Station(10, 4, 0, 0)}, 10)
    assert min_processors(network, 0.25).allocation == {"clockwork": 3}


@pytest.mark.parametrize("p", [None, 99])
def test_a_target_out_of_reach_of_the_maxima_says_so(p: float | None) -> None:
    network = Network({"a": Station(10, 4), "b": Station(5, 3)}, 10)
    plan = min_processors(network, 2.4 if p else 0.43, p, maximum={"a": 3})
    assert not plan.feasible
    assert "with 'a' at the maximum" in plan.reason


def test_a_minimum_above_the_maximum_is_explained() -> None:
    network = Network({"a": Station(1, 4)}, 1)
    plan = assign_processors(network, 9, {"a": 5}, {"a": 3})
    assert plan.reason == ("operator 'a' has a minimum of 5 processors above its maximum of 3")


def test_mistaken_limits_are_refused() -> None:
    network = Network({"a": Station(1, 4)}, 1)
    with pytest.raises(InputError, match="maximum names operator 'b'"):
        assign_processors(network, 9, maximum={"b": 3})
    with pytest.raises(InputError, match="minimum of operator 'a' must be at least 1; got 0"):
        assign_processors(network, 9, {"a": 0})
    with pytest.raises(InputError, match="max_sojourn must be above zero"):
        min_processors(network, 0)


@given(networks())
def test_a_sweep_is_program_6_for_every_k(network: Network) -> None:
    for step, _ in zip(sweep(network), range(12), strict=False):
        plan = assign_processors(network, step.processors)
        assert step.mean_sojourn == pytest.approx(plan.mean_sojourn, rel=1e-9)


def test_saturation_at_the_start_does_not_blur_the_end() -> None:
    """A sojourn of 10^10 s on the way must not cost digits of one of 0.2 s at the end."""
    network = Network({"edge": Station(3 - 1e-10, 1), "other": Station(40, 3)}, 40)
    plan = assign_processors(network, 30)
    assert min_processors(network, plan.mean_sojourn).processors == 30
