"""Machines that are full, in virtual time: against formulas of queueing theory."""

import math
from dataclasses import replace
from typing import Any

import pytest

import sojourn as sj
from sojourn.errors import InputError
from sojourn.placement.tasks import packed, round_robin
from sojourn.ports import Parallelism, Samples
from sojourn.settings import SimulatorSettings
from sojourn.simulator.crowded import CrowdedEngine
from sojourn.simulator.draws import Distribution
from sojourn.simulator.trials import SimulatedPlatform
from sojourn.simulator.workload import OperatorLoad, Workload

FREE = replace(
    SimulatorSettings(), hop_cpu_s=0.0, hand_over_cpu_s=0.0, task_share=0.0, hop_s=0.0, sink_s=0.0
)


def chain(*names: str, **options: Any) -> sj.Topology:
    t = sj.Topology("chain")
    last: Any = t.source("in", sj.sources.iterable(list))
    for name in names:
        last = t.operator(name, lambda value: [value], last, **options)
    t.sink("out", sj.sinks.call(print), last)
    return t


def load(mean_s: float, kind: Any = "exponential", **more: Any) -> OperatorLoad:
    return OperatorLoad(Distribution(kind, mean_s), **more)


def ran(
    topology: sj.Topology,
    operators: dict[str, OperatorLoad],
    seconds: float,
    settings: SimulatorSettings = FREE,
    **more: Any,
) -> tuple[CrowdedEngine, Samples]:
    engine = CrowdedEngine(topology, Workload(operators), settings, **{"machines": 1, **more})
    engine.advance(seconds / 10)
    engine.samples()
    engine.advance(seconds)
    return engine, engine.samples()


def throughput(samples: Samples) -> float:
    assert samples.sojourn is not None
    return samples.sojourn.count / samples.vertices["in"].interval_s


def closed(service_s: float, think_s: float, customers: int) -> float:
    """Tuples a second where so many tuples sleep and then share one core (mean value analysis)."""
    queue = rate = 0.0
    for n in range(1, customers + 1):
        stays_s = service_s * (1 + queue)
        rate = n / (think_s + stays_s)
        queue = rate * stays_s
    return rate


@pytest.mark.parametrize("kind", ["exponential", "constant"])
@pytest.mark.parametrize("customers", [1, 4, 12])
def test_busy_workers_share_a_core_and_sleepers_use_none(kind: str, customers: int) -> None:
    """Where workers are plenty, what tuples take on a shared core depends on its mean only."""
    operators = {"sleep": load(0.010, cpu=0.0), "work": load(0.002, kind)}
    _, found = ran(
        chain("sleep", "work"),
        operators,
        100.0,
        cores=1,
        processors={"sleep": 12, "work": 12},
        in_flight=customers,
    )
    assert throughput(found) == pytest.approx(closed(0.002, 0.010, customers), rel=0.03)
    work = found.vertices["work"]
    assert work.busy <= 1.0
    assert found.vertices["sleep"].service_s == pytest.approx(0.010, rel=0.03)


def test_more_workers_than_cores_carry_no_more_and_take_longer() -> None:
    rates, times = [], []
    for count in (1, 2, 4, 8):
        options: Any = {"cores": 2, "processors": {"work": count}, "in_flight": 50}
        _, found = ran(chain("work"), {"work": load(0.002)}, 20.0, **options)
        rates.append(throughput(found))
        times.append(found.vertices["work"].service_s)
    assert rates == pytest.approx([500, 1000, 1000, 1000], rel=0.05)
    assert times == pytest.approx([0.002, 0.002, 0.004, 0.008], rel=0.05)


def test_hops_and_workers_cost_cpu_time() -> None:
    idle = {"work": load(0.0, "constant")}
    hops = replace(FREE, hop_cpu_s=0.001)
    options: Any = {"cores": 1, "in_flight": 10}
    _, found = ran(chain("work"), idle, 10.0, hops, **options)
    assert throughput(found) == pytest.approx(1 / 0.004, rel=0.02)  # it leaves, comes, goes, comes
    shares = replace(FREE, task_share=0.01)
    busy = {"work": load(0.001, "constant")}
    options = {"cores": 1, "in_flight": 10, "processors": {"work": 48}}
    _, found = ran(chain("work"), busy, 10.0, shares, **options)
    assert throughput(found) == pytest.approx(1000 / 2, rel=0.02)  # 50 workers take half of it


def test_tuples_under_way_are_bounded_and_messages_wait() -> None:
    options: Any = {"cores": 4, "in_flight": 7, "rates": {"in": 2000.0}}
    engine, found = ran(chain("work"), {"work": load(0.001)}, 10.0, **options)
    assert found.open_trees <= 7
    assert throughput(found) == pytest.approx(1000, rel=0.05)
    assert engine.waiting() == pytest.approx(10_000, rel=0.1)
    assert found.sojourn is not None
    assert found.sojourn.mean_s == pytest.approx(7 / 1000, rel=0.05)  # Little's law


def test_a_small_load_takes_what_it_takes() -> None:
    hops = replace(FREE, hop_s=0.0015)
    options: Any = {"cores": 2, "rates": {"in": 10.0}}
    engine, found = ran(chain("work"), {"work": load(0.004, "constant")}, 20.0, hops, **options)
    assert found.sojourn is not None
    assert found.sojourn.max_s == pytest.approx(0.004 + 2 * 0.0015)
    assert throughput(found) == pytest.approx(10.0, rel=0.02)
    assert engine.waiting() <= 1


def test_keys_bind_tuples_to_workers() -> None:
    """The busiest of eight workers bounds what is carried."""
    skewed = {"work": load(0.001, "constant", zipf=1.5)}
    options: Any = {"cores": 8, "in_flight": 1000, "processors": {"work": 8}}
    _, found = ran(chain("work", key=abs, shards=8), skewed, 10.0, **options)
    first = 1 / math.fsum(rank**-1.5 for rank in range(1, 9))
    assert throughput(found) == pytest.approx(1000 / first, rel=0.05)


def test_gains_and_what_is_told_of_them() -> None:
    t = sj.Topology("gains")
    lines = t.source("in", sj.sources.iterable(list))
    words = t.operator("split", lambda value: [value], lines)
    counts = t.operator("count", lambda value: [value], words)
    t.sink("out", sj.sinks.call(print), counts)
    operators = {
        "split": load(0.001, gains={"count": 2.5}),
        "count": load(0.0001, gains={"out": 0.0}),
    }
    _, found = ran(t, operators, 20.0, cores=4, in_flight=20)
    split = found.vertices["split"]
    assert split.emitted["count"] / split.served == pytest.approx(2.5, rel=0.02)
    squares = split.together["count"]["count"] / split.served
    assert squares == pytest.approx((2**2 + 3**2) / 2, rel=0.02)
    assert found.vertices["count"].arrivals == pytest.approx(2.5 * split.served, rel=0.02)
    assert found.vertices["out"].arrivals == 0


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> Samples:
        operators = {"a": load(0.001), "b": load(0.002)}
        return ran(chain("a", "b"), operators, 5.0, cores=2, in_flight=9, seed=seed)[1]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_every_task_needs_a_machine() -> None:
    with pytest.raises(InputError, match="each of 3 tasks needs one of 1 machines"):
        ran(
            chain("work"),
            {"work": load(0.001)},
            1.0,
            cores=1,
            in_flight=1,
            place=lambda *_: [0, 0, 1],
        )
    with pytest.raises(InputError, match="tuples under way must be bounded"):
        ran(chain("work"), {"work": load(0.001)}, 1.0, cores=1)


def test_a_timer_emits_whatever_comes() -> None:
    topology = chain("rank", "total")
    for rate in (10.0, 1000.0):
        _, samples = ran(
            topology,
            {"rank": load(0.0, "constant", gains={"total": 16.0}, every_s=0.5), "total": load(0.0)},
            10.0,
            cores=1,
            rates={"in": rate},
        )
        assert samples.vertices["rank"].served == pytest.approx(9 * rate, rel=0.01)
        assert samples.vertices["total"].arrivals == 18 * 16
        # What a timer emits belongs to no tree: trees end where their tuples are taken in.
        assert samples.sojourn is not None
        assert samples.sojourn.count == pytest.approx(9 * rate, rel=0.01)


def test_tasks_are_where_they_are_placed() -> None:
    assert round_robin({"in": 1, "work": 4}, 2) == [0, 1, 0, 1, 0]
    assert packed({"in": 1, "work": 4}, 2) == [0, 0, 0, 1, 1]
    operators = {"work": load(0.001, "constant")}
    apart, together = (
        throughput(
            ran(chain("work"), operators, 2.0, machines=2, cores=1, in_flight=100, place=place,
                processors={"work": 2})[1]
        )
        for place in (lambda *_: [0, 0, 1, 0], lambda *_: [0, 1, 1, 0])
    )  # fmt: skip
    assert apart == pytest.approx(2000, rel=0.01)
    assert together == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize(("service_s", "rate"), [(0.001, 1 / 0.0015), (0.0001, 1 / 0.00015)])
def test_handing_tuples_to_workers_costs_cpu_time_that_short_ones_share(
    service_s: float, rate: float
) -> None:
    settings = replace(FREE, hand_over_cpu_s=0.0005)
    operators = {"work": load(service_s, "constant")}
    _, samples = ran(chain("work"), operators, 1.0, settings, cores=1, in_flight=10)
    assert throughput(samples) == pytest.approx(rate, rel=0.01)


def test_service_times_leave_out_what_hops_and_hand_overs_cost() -> None:
    """So that a profile made in virtual time can be simulated again."""
    t = chain("work")
    costs = SimulatorSettings(hop_cpu_s=0.001, hand_over_cpu_s=0.002)
    for cpu in (1.0, 0.0):
        load = OperatorLoad(Distribution("constant", 0.005), cpu=cpu)
        engine = CrowdedEngine(
            t, Workload({"work": load}), costs, machines=1, cores=4, rates={"in": 10.0}
        )
        engine.advance(2.0)
        work = engine.samples().vertices["work"]
        assert work.service_s == pytest.approx(0.005)
        assert work.busy == pytest.approx(10 * 0.008, rel=0.1)


def test_a_trial_is_the_same_whenever_it_is_made() -> None:
    t = chain("work")
    workload = Workload({"work": OperatorLoad(Distribution("exponential", 0.005))})

    def read(platform: SimulatedPlatform, tasks: int) -> Samples:
        with platform.trial(Parallelism({"work": tasks}, {"in": 1}), None) as trial:
            return trial.read(1.0)

    one = SimulatedPlatform(t, workload, SimulatorSettings(), 1, 2)
    other = SimulatedPlatform(t, workload, SimulatorSettings(), 1, 2)
    read(one, 1)
    assert read(one, 2) == read(other, 2)
    assert read(one, 2) != read(
        SimulatedPlatform(t, workload, SimulatorSettings(), 1, 2, seed=1), 2
    )
