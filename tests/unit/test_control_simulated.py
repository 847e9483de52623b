"""The control loop over the simulated engine: half-hours of load in seconds. The same topologies on
Spark are in tests/spark/test_promise.py and benchmarks/control.py."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.control.summary import Happened, Summary
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload


def same(value: Any) -> list[Any]:
    return [value]


def pair(
    service_s: Mapping[str, float],
    processors: Mapping[str, int],
    arrivals: SourceLoad,
    seed: int = 0,
    **settings: Any,
) -> Simulation:
    """source → operators in a row → out, for half an hour."""
    t = sj.Topology("row")
    value = t.source("source", sj.sources.paced(lambda n: n, rate=1.0))
    for name, count in processors.items():
        value = t.operator(name, same, value, processors=count)
    t.sink("out", sj.sinks.console(), value)
    loads = {n: OperatorLoad(Distribution("exponential", mean)) for n, mean in service_s.items()}
    control = ControlSettings(**settings)
    return Simulation(
        t,
        Workload(loads, {"source": arrivals}),
        (EngineSettings(), control, SimulatorSettings()),
        1800.0,
        seed,
    )


ORDERS = {"check": 0.025, "price": 0.040}


def late(summary: Summary, after_s: float = 60.0) -> list[Happened]:
    """Changes once it has found its allocation."""
    return [change for change in summary.changes if change.at_s > after_s]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("rate", "processors", "target_s"),
    [(40.0, (2, 3), 0.2), (100.0, (4, 6), 0.2), (400.0, (14, 21), 0.2)],
)
def test_steady_load_changes_next_to_nothing_in_half_an_hour(
    seed: int, rate: float, processors: tuple[int, int], target_s: float
) -> None:
    counts = dict(zip(ORDERS, processors, strict=True))
    arrivals = SourceLoad(((1.0, rate),))
    summary = pair(ORDERS, counts, arrivals, seed, max_sojourn_s=target_s).run()
    assert len(late(summary, 300)) <= 1
    assert summary.within_target is not None
    assert summary.within_target > 0.95 * summary.intervals


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("scv", "most"), [(2.0, 0), (4.0, 4)])
def test_bursty_arrivals_change_little_in_half_an_hour(seed: int, scv: float, most: int) -> None:
    arrivals = SourceLoad(((1.0, 40.0),), Distribution("gamma", 1.0, scv))
    summary = pair(ORDERS, {"check": 3, "price": 4}, arrivals, seed, max_sojourn_s=0.2).run()
    assert len(late(summary, 120)) <= most


@pytest.mark.parametrize("seed", range(4))
def test_a_step_of_twice_the_load_is_answered_within_two_seconds(seed: int) -> None:
    arrivals = SourceLoad(((600.0, 40.0), (3000.0, 80.0)))
    simulation = pair(ORDERS, {"check": 2, "price": 3}, arrivals, seed, max_sojourn_s=0.2)
    records: list[Record] = []
    summary = simulation.run(listeners=[records.append])
    assert [change.action for change in summary.changes if change.at_s <= 600] == []
    above = [
        r.time_s
        for r in records
        if 600 < r.time_s <= 660 and r.samples.sojourn and r.samples.sojourn.mean_s > 0.2
    ]
    assert len([time_s for time_s in above if time_s > 604]) <= 3  # by chance
    assert [change for change in summary.changes if 600 < change.at_s <= 602]


def test_near_saturation_chance_moves_nothing() -> None:
    # 98 % of what 20 processors can carry, in the best placement there is.
    summary = pair(
        ORDERS,
        {"check": 8, "price": 12},
        SourceLoad(((1.0, 290.0),)),
        max_sojourn_s=0.2,
        max_processors=20,
    ).run()
    assert late(summary) == []


def test_processors_in_the_wrong_places_are_moved() -> None:
    summary = pair(
        ORDERS, {"check": 9, "price": 5}, SourceLoad(((1.0, 110.0),)), max_processors=14
    ).run()
    assert summary.changes[0].after == {"check": 6, "price": 8} or summary.changes[0].after == {
        "check": 5,
        "price": 9,
    }
    assert late(summary) == []


def test_what_is_no_longer_needed_is_given_back() -> None:
    arrivals = SourceLoad(((600.0, 100.0), (3000.0, 20.0)))
    summary = pair(ORDERS, {"check": 4, "price": 6}, arrivals, max_sojourn_s=0.2).run()
    assert {change.action for change in summary.changes} == {"remove"}
    assert sum(summary.changes[-1].after.values()) <= 4
    assert summary.within_target is not None
    assert summary.within_target > 0.95 * summary.intervals


@pytest.mark.parametrize("seed", range(3))
def test_a_machine_that_was_asked_for_is_not_given_back_and_asked_for_again(seed: int) -> None:
    """Its coming and going stalls tuples, which would make it look needed and then not."""
    service_s = {"extract": 0.2375, "match": 0.26}
    arrivals = SourceLoad(((1.0, 28.0),), Distribution("uniform", 1.0))
    simulation = pair(
        service_s,
        {"extract": 8, "match": 8},
        arrivals,
        seed,
        max_sojourn_s=0.54,
        interval_s=10.0,
        quiet_s=20.0,
        machine_processors=5,
        max_machines=8,
    )
    capacities: list[int | None] = []
    replace(simulation, machines=4).run(
        listeners=[lambda record: capacities.append(record.capacity)]
    )
    changes = [pair for pair in itertools.pairwise(capacities) if pair[0] != pair[1]]
    assert capacities[0] == 20
    assert capacities[-1] is not None
    assert capacities[-1] > 20
    assert len(changes) <= 2


def test_nothing_is_changed_before_it_may_act_and_advice_goes_on() -> None:
    """Two operators that cannot keep up are told of from the start, and helped later."""
    arrivals = SourceLoad(((1.0, 40.0),))
    late_start = pair(ORDERS, {"check": 1, "price": 1}, arrivals, max_sojourn_s=0.2)
    records: list[Record] = []
    replace(late_start, duration_s=120.0, act_after_s=60.0).run(listeners=[records.append])
    before = [r for r in records if r.time_s < 60.0 and not r.pressures]
    assert len(before) == 59
    assert any(record.decision.allocation is not None for record in before)
    assert not any(record.applied for record in before)
    assert any(record.applied for record in records)
