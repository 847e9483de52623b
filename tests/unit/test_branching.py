"""How much the number of visits varies, against tuples followed one by one."""

import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from sojourn.queueing import Network, Station, spreads, traffic
from sojourn.queueing.branching import evenly

Law = Callable[[random.Random], Mapping[str, int]]


def either(draw: random.Random) -> Mapping[str, int]:
    return {"b": 1} if draw.random() < 0.5 else {"c": 1}


def back(draw: random.Random) -> Mapping[str, int]:
    return {"a": 1} if draw.random() < 0.25 else {}


def none_or_eight(draw: random.Random) -> Mapping[str, int]:
    return {"b": 8} if draw.random() < 0.5 else {}


def both_or_none(draw: random.Random) -> Mapping[str, int]:
    return {"b": 1, "c": 1} if draw.random() < 0.5 else {}


CASES: dict[str, dict[str, Law]] = {
    "one of two, and back": {"a": either, "b": lambda _: {"d": 1}, "c": back},
    "four at once": {"a": lambda _: {"b": 4}, "b": lambda draw: {"c": draw.random() < 0.3}},
    "none or eight": {"a": none_or_eight, "b": lambda draw: {"c": draw.random() < 0.3}},
    "both or none": {"a": both_or_none, "b": lambda _: {"d": 1}, "c": lambda _: {"d": 1}},
    "a loop around three": {"a": lambda _: {"b": 1}, "b": lambda _: {"c": 1}, "c": back},
}
TIMES = {"a": 1.0, "b": 0.5, "c": 2.0, "d": 1.5}


@pytest.mark.parametrize("case", CASES)
def test_the_variance_of_the_whole_is_that_of_tuples_followed(case: str) -> None:
    laws, draw = CASES[case], random.Random(3)
    gains: dict[str, dict[str, float]] = {}
    together: dict[str, dict[str, dict[str, float]]] = {}
    for name, law in laws.items():
        seen = [law(draw) for _ in range(40_000)]
        gains[name] = {to: statistics.fmean(one.get(to, 0) for one in seen) for to in TIMES}
        together[name] = {
            to: {
                other: statistics.fmean(one.get(to, 0) * one.get(other, 0) for one in seen)
                for other in TIMES
            }
            for to in TIMES
        }
    totals = []
    for _ in range(40_000):
        todo, total = ["a"], 0.0
        while todo:
            at = todo.pop()
            total += TIMES[at]
            following = laws[at](draw) if at in laws else {}
            for to, count in following.items():
                todo += [to] * int(count)
        totals.append(total)
    edges = {(name, to): gain for name, onward in gains.items() for to, gain in onward.items()}
    rates = traffic({"a": 1.0}, edges)
    # Times without any variance, and processors without number: only visits vary.
    stations = {name: Station(rates[name], 1 / time, 1, 0) for name, time in TIMES.items()}
    network = Network(stations, 1.0)
    onward = gains | {"in": {"a": 1.0}}
    network = replace(network, spreads=spreads(network, {"in": 1.0}, onward, together))
    mean, variance = network.bound_moments()
    assert mean == pytest.approx(statistics.fmean(totals), rel=0.03)
    assert variance == pytest.approx(statistics.variance(totals), rel=0.06, abs=1e-6)


def test_without_second_moments_numbers_are_as_even_as_they_can_be() -> None:
    assert evenly({"b": 4.0}) == {"b": {"b": 16.0}}
    assert evenly({"b": 0.25})["b"]["b"] == pytest.approx(0.25)
    assert evenly({"b": 2.5})["b"]["b"] == pytest.approx((4 + 9) / 2)
    assert evenly({"b": 0.5, "c": 0.5})["b"]["c"] == 0.0
    assert evenly({"b": 2.0, "c": 0.5})["b"]["c"] == 1.0


def test_sources_of_different_kinds_make_visits_vary() -> None:
    network = Network({"a": Station(1.0, 1.0), "b": Station(3.0, 1.0)}, 4.0)
    found = spreads(network, {"x": 1.0, "y": 3.0}, {"x": {"a": 1.0}, "y": {"b": 1.0}})
    # All tuples are served for one second each, wherever they go.
    assert sum(spread.visits for spread in found.values()) == pytest.approx(0.0, abs=1e-9)
    slower = Network({"a": Station(1.0, 0.5), "b": Station(3.0, 1.0)}, 4.0)
    found = spreads(slower, {"x": 1.0, "y": 3.0}, {"x": {"a": 1.0}, "y": {"b": 1.0}})
    assert found["a"].visits * 4 + found["b"].visits == pytest.approx(0.25 * 0.75)
