"""Elasticutor's paradigms in virtual time: the flow agrees with single tuples, nothing is lost, and
each paradigm does what it should."""

from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from sojourn.errors import InputError
from sojourn.simulator.elastic.flow import FlowRun
from sojourn.simulator.elastic.job import (
    PARADIGMS,
    Cluster,
    Costs,
    Keyed,
    Paradigm,
    Popularity,
    Setup,
)
from sojourn.simulator.elastic.placing import Placing
from sojourn.simulator.elastic.tuples import TupleRun

SMALL = Setup(
    popularity=Popularity(shuffles=10),
    cluster=Cluster(machines=2),
    costs=Costs(max_queue=500),
    executors=2,
    shards=1024,
)
LARGE = Setup(popularity=Popularity(shuffles=6), costs=Costs(max_queue=1000))


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_the_flow_agrees_with_single_tuples_on_four_machines(paradigm: Paradigm) -> None:
    setup = replace(
        SMALL,
        paradigm=paradigm,
        cluster=Cluster(machines=4),
        costs=Costs(max_queue=1000),
        executors=4,
    )
    flow, tuples = FlowRun(setup, 60_000).run(30.0), TupleRun(setup, 60_000).run(30.0)
    found, true = flow.rate(6, 30), tuples.rate(6, 30)
    assert found == pytest.approx(true, rel=0.05)
    found, true = flow.percentile_s(99, 6), tuples.percentile_s(99, 6)
    assert found == pytest.approx(true, rel=0.15)
    assert bool(flow.moves) == bool(tuples.moves) == (paradigm != "static")


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_what_comes_is_served_or_waits(paradigm: Paradigm) -> None:
    setup = replace(SMALL, paradigm=paradigm)
    flow = FlowRun(setup, offered=9000.0)
    outcome = flow.run(5.0)
    waits = float(flow.operators[0].queue.sum())
    assert outcome.came == pytest.approx(sum(outcome.served) + waits)
    assert outcome.came + flow.held == pytest.approx(5 * 9000.0)
    assert outcome.came > 0.5 * 5 * 9000.0
    longer = outcome.mean_since_due_s(9000.0) > outcome.mean_s()
    assert longer == any(outcome.held)
    assert waits <= 16 * SMALL.costs.max_queue
    tuples = TupleRun(setup, 9000.0)
    outcome = tuples.run(2.0)
    assert outcome.came == sum(outcome.served) + tuples.in_system


def test_tuples_keep_the_order_of_their_shard() -> None:
    class Watched(TupleRun):
        seen: ClassVar[dict[int, float]] = {}
        wrong = 0

        def _work(self, core: int) -> None:
            if not self.working[core] and self.queues[core]:
                shard, at_s = self.queues[core][0]
                self.wrong += at_s < self.seen.get(shard, 0.0)
                self.seen[shard] = at_s
            super()._work(core)

    shuffled = replace(SMALL, popularity=Popularity(keys=300, zipf=0.7, shuffles=60))
    run = Watched(shuffled, 14_000)
    outcome = run.run(10.0)
    assert outcome.moves > 100
    assert run.wrong == 0


def test_elastic_executors_carry_more_than_fixed_ones() -> None:
    rates, outcomes = {}, {}
    for paradigm in PARADIGMS:
        outcomes[paradigm] = FlowRun(replace(LARGE, paradigm=paradigm)).run(25.0)
        rates[paradigm] = outcomes[paradigm].rate(10, 25)
    assert rates["elastic"] > 1.2 * rates["static"]
    assert rates["elastic"] > 1.2 * rates["resource-centric"]
    assert outcomes["naive"].migrated > 2 * outcomes["elastic"].migrated
    assert outcomes["naive"].remote > 2 * outcomes["elastic"].remote
    assert outcomes["resource-centric"].pauses_s
    assert min(outcomes["resource-centric"].pauses_s) > 1.0  # full queues are drained first


def test_a_card_bounds_what_one_executor_can_use() -> None:
    """8 KB a tuple fill 1 Gb/s at about fifteen cores of 1 ms."""
    one = Setup(
        operators=(Keyed("calculator", in_bytes=8192.0),),
        popularity=Popularity(shuffles=0),
        cluster=Cluster(machines=8),
        executors=1,
        phi=float("inf"),
    )
    few, many = (FlowRun(replace(one, cores=cores)).run(20.0).rate(10, 20) for cores in (8, 64))
    assert few == pytest.approx(8000, rel=0.2)
    assert 12_000 < many < 18_000


@pytest.mark.parametrize("paradigm", ["naive", "elastic", "resource-centric"])
def test_every_core_has_at_most_one_executor(paradigm: Paradigm) -> None:
    setup = replace(
        LARGE,
        paradigm=paradigm,
        operators=(Keyed("a"), Keyed("b", per_order=0.5, behind="a")),
    )
    placing = Placing(setup)
    draw = np.random.default_rng(0)
    nothing, still = [np.zeros(setup.shards)] * 2, [np.zeros(setup.shards, bool)] * 2
    for _ in range(5):
        loads = [draw.exponential(1.0, setup.shards) ** 3 for _ in setup.operators]
        placing.note(loads)
        placing.decide(loads, True, nothing, still)
        cores = Counter(core for executor in placing.executors for core in executor.cores)
        assert max(cores.values()) == 1
        assert sum(cores.values()) <= setup.usable
        for executor in placing.executors:
            core_of = placing.core_of[executor.operator]
            assert set(core_of[executor.shards].tolist()) <= set(executor.cores)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="every executor needs a core"):
        Setup(cluster=Cluster(machines=2), executors=32)
    with pytest.raises(InputError, match="must be one of static"):
        Setup(paradigm="magic")  # type: ignore[arg-type]
