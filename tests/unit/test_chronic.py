"""Misses that come again and again have a name, a cause and a remedy."""

from dataclasses import replace
from typing import Any

import pytest

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.control.situation import Action
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload


def same(value: Any) -> list[Any]:
    return [value]


def decided(simulation: Simulation) -> list[Record]:
    records: list[Record] = []
    simulation.run(listeners=[records.append])
    return records


def one(service: Distribution, processors: int, batch_s: float, **control: Any) -> Simulation:
    """source → work → out, 40 tuples a second for seven minutes."""
    t = sj.Topology("one")
    source = t.source("source", sj.sources.paced(lambda n: n, rate=1.0))
    t.sink("out", sj.sinks.console(), t.operator("work", same, source, processors=processors))
    return Simulation(
        t,
        Workload({"work": OperatorLoad(service)}, {"source": SourceLoad(((1.0, 40.0),))}),
        (
            EngineSettings(batch_s=batch_s),
            ControlSettings(**control),
            SimulatorSettings(stall_s=0.5),
        ),
        420.0,
    )


def words(records: list[Record]) -> str:
    found = [r.decision.reason for r in records if r.decision.action is Action.CHRONIC]
    assert found
    return found[-1]


def test_commits_that_stall_are_named() -> None:
    work = Distribution("exponential", 0.02)
    reason = words(decided(one(work, 3, 7.0, max_sojourn_s=0.1, max_processors=3)))
    assert "of these lie beside a commit; commit less often" in reason
    assert "the mean sojourn was above 100 ms in 1" in reason


def test_a_floor_just_below_the_target_is_named() -> None:
    work = Distribution("gamma", 0.094, 0.05)
    found = decided(one(work, 40, 3600.0, max_sojourn_s=0.1, percentile=70.0))
    assert "without any waiting; make operators faster, or raise the target" in words(found)


def test_where_tuples_wait_a_processor_is_added_and_kept() -> None:
    """Bursts make the mean of a second exceed the target now and then."""
    work = Distribution("exponential", 0.02)
    bursts = SourceLoad(((1.0, 40.0),), Distribution("gamma", 1.0, 4.0))
    simulation = one(work, 2, 3600.0, max_sojourn_s=0.05)
    workload = Workload({"work": OperatorLoad(work)}, {"source": bursts})
    done = [r for r in decided(replace(simulation, workload=workload)) if r.applied]
    assert [r.decision.allocation for r in done] == [{"work": 3}]
    assert done[0].decision.short
    assert "of the last 180 s: they wait for 'work', which is" in done[0].decision.reason


@pytest.mark.parametrize("percentile", [None, 95.0])
def test_a_target_that_is_kept_has_no_such_word(percentile: float | None) -> None:
    found = decided(
        one(
            Distribution("exponential", 0.02),
            3,
            3600.0,
            max_sojourn_s=0.3,
            percentile=percentile,
        )
    )
    assert not [r for r in found if r.decision.action is Action.CHRONIC]
