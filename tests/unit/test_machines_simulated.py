"""Machines that come and go under the control loop, in the simulator: which loads get one, when,
and what a lost one leads to."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.control.loop import ControlLoop
from sojourn.control.situation import Action
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload
from sojourn.simulator.engine import SimulatedEngine
from sojourn.simulator.machines import SimulatedPool
from sojourn.wiring import control_loop

Steps = tuple[tuple[float, float], ...]
CALM, BUSY = 40.0, 100.0  # tuples a second, for five processors and for ten


class Bench:
    """check → price on machines of six processors, under control."""

    def __init__(
        self,
        steps: Steps,
        machines: int,
        seed: int = 0,
        shed: float | None = None,
        **settings: Any,
    ) -> None:
        t = sj.Topology("row")
        value = t.source("source", sj.sources.paced(lambda n: n, rate=1.0, shed_after=shed))
        for name in ("check", "price"):
            value = t.operator(name, lambda v: [v], value, processors=3)
        t.sink("out", sj.sinks.console(), value)
        loads = {
            name: OperatorLoad(Distribution("exponential", mean))
            for name, mean in (("check", 0.025), ("price", 0.040))
        }
        control = ControlSettings(max_sojourn_s=0.2, machine_processors=6, **settings)
        self.engine = SimulatedEngine(
            t,
            Workload(loads, {"source": SourceLoad(steps)}),
            SimulatorSettings(machine_pause_s=3.0),
            EngineSettings(),
            seed=seed,
            machines=machines,
            machine_processors=6,
            max_sojourn_s=0.2,
        )
        self.pool = SimulatedPool(self.engine, 4)
        self.records: list[Record] = []
        self.loop: ControlLoop = control_loop(
            self.engine,
            t,
            control,
            self.pool,
            [self.records.append],
            begin=self.pool.begin,
            clock=lambda: self.engine.now_s,
        )

    def run(self, until_s: float, at: tuple[float, Callable[[], None]] | None = None) -> None:
        """A tick a second; `at` is something that happens at a time."""
        if at is not None:
            self.engine.later(at[0] - self.engine.now_s, at[1])
        while self.engine.now_s < until_s:
            due_s = self.engine.now_s + 1.0
            while self.engine.advance(due_s):
                self.loop.tick(urgent=True)
            self.loop.tick()

    def lose_one(self) -> None:
        assert self.engine.cluster.machines is not None
        self.engine.cluster.lose(self.engine.cluster.machines[-1])
        self.engine.fail()

    @property
    def moves(self) -> list[tuple[float, int | None]]:
        """When the room changed, and to what."""
        pairs = itertools.pairwise(self.records)
        return [(b.time_s, b.capacity) for a, b in pairs if a.capacity != b.capacity]

    def processors(self, at_s: float) -> int:
        return sum(next(r.wanted for r in self.records if r.time_s >= at_s).values())


@pytest.mark.parametrize("seed", range(3))
def test_nobody_waits_for_a_machine_that_a_short_spike_asks_for(seed: int) -> None:
    bench = Bench(((60.0, CALM), (10.0, BUSY), (1.0, CALM)), 1, seed)
    bench.run(240.0)
    assert bench.moves == []
    assert bench.engine.starts == 1
    assert bench.pool.spare() == []


@pytest.mark.parametrize("seed", range(3))
def test_a_step_that_lasts_gets_its_machine_as_soon_as_it_is_up(seed: int) -> None:
    bench = Bench(((60.0, CALM), (1.0, BUSY)), 1, seed)
    bench.run(240.0)
    ((at_s, capacity),) = bench.moves
    start_s = bench.engine.settings.machine_start_s
    assert capacity == 12
    assert 60.0 + start_s < at_s <= 60.0 + start_s + 5.0
    late = [record.metric for record in bench.records if record.time_s > 120.0]
    assert sum(metric is not None and metric <= 0.2 for metric in late) > 0.95 * len(late)


def test_a_load_that_goes_up_and_down_does_not_move_the_topology_each_time() -> None:
    bench = Bench(((30.0, CALM), (10.0, BUSY)) * 30 + ((1.0, CALM),), 1)
    bench.run(1200.0)
    assert len(bench.moves) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_what_a_failure_repeats_is_no_load(seed: int) -> None:
    bench = Bench(((1.0, CALM),), 1, seed)
    bench.run(400.0, (124.5, bench.engine.fail))
    assert bench.engine.restarts == 1
    rates = [r.measure.external_rate for r in bench.records if r.measure and r.time_s > 120.0]
    entering = [r.measure.entering for r in bench.records if r.measure and r.time_s > 120.0]
    assert max(rates) < 2 * CALM
    assert all(e["check"] == pytest.approx(r) for e, r in zip(entering, rates, strict=True))
    assert bench.loop.negotiator.answers == []
    assert bench.processors(399.0) <= bench.processors(120.0)


@pytest.mark.parametrize("seed", range(3))
def test_after_a_loss_the_machine_is_asked_for_at_once(seed: int) -> None:
    bench = Bench(((1.0, BUSY),), 2, seed)
    bench.run(120.0)
    before = bench.processors(120.0)
    assert before > 6
    bench.run(300.0, (124.5, bench.lose_one))
    lost, back = bench.moves
    assert lost[1] == 6
    assert 124.5 <= lost[0] <= 125.0
    assert back[1] == 12
    settings = bench.engine.settings
    assert back[0] <= 125.0 + settings.machine_start_s + settings.recover_s + 2.0
    assert bench.processors(200.0) > 6


# the policy `provision`


def shed(bench: Bench, from_s: float, to_s: float) -> int:
    """Tuples that the source shed meanwhile."""
    some = [r for r in bench.records if from_s < r.time_s <= to_s]
    return sum(r.samples.vertices["source"].shed for r in some)


def test_provision_follows_the_rates_up_and_down() -> None:
    steps = ((60.0, CALM), (150.0, 2.5 * CALM), (1.0, CALM))
    bench = Bench(steps, 1, shed=0.5, policy="provision", quiet_s=5.0)
    bench.run(330.0)
    capacities = [capacity for _, capacity in bench.moves]
    assert capacities[0] == 12
    assert capacities[-1] == 6
    assert shed(bench, 0.0, 59.0) == 0
    assert shed(bench, 60.0, 120.0) > 0
    # two periods after the rise, and for the time that a machine takes to come
    start_s = bench.engine.settings.machine_start_s
    assert shed(bench, 60.0 + 60.0 + start_s + 10.0, 210.0) == 0
    assert any("machines of 6 processors" in r.decision.reason for r in bench.records)


def test_provision_waits_for_its_period_and_stays_within_the_machines_allowed() -> None:
    bench = Bench(
        ((1.0, 4 * BUSY),), 1, shed=0.5, policy="provision", max_machines=2, provision_s=10.0
    )
    bench.run(120.0)
    assert {r.decision.action for r in bench.records[:8]} <= {Action.NOT_READY, Action.WAIT}
    assert max(r.decision.needed or 0 for r in bench.records) <= 12
    assert bench.records[-1].capacity == 12


def test_where_rates_have_no_noise_both_forms_keep_one_machine() -> None:
    needed = {}
    for form in ("printed", "mended"):
        bench = Bench(
            ((1.0, CALM),), 1, shed=0.5, policy="provision", provision_form=form,
            provision_s=10.0,
        )  # fmt: skip
        bench.run(100.0)
        needed[form] = max(r.decision.needed or 0 for r in bench.records)
    assert needed == {"printed": 6, "mended": 6}
