"""Machines that come and go under the control loop, in the simulator: which loads get one, when,
and what a lost one leads to."""

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.control.loop import ControlLoop
from sojourn.control.policies.provision import provision
from sojourn.control.situation import Action
from sojourn.errors import InputError
from sojourn.provisioning.kinds import Kind, slots_of
from sojourn.provisioning.mended import Options, mended
from sojourn.provisioning.rates import Known, Proposal, Rates
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
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
        start_s: float | None = None,
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
        simulator = SimulatorSettings(machine_pause_s=3.0)
        if start_s is not None:
            simulator = replace(simulator, machine_start_s=start_s)
        self.engine = SimulatedEngine(
            t,
            Workload(loads, {"source": SourceLoad(steps)}),
            simulator,
            EngineSettings(),
            seed=seed,
            machines=machines,
            machine_processors=6,
            max_sojourn_s=0.2,
        )
        self.pool = SimulatedPool(self.engine, 4)
        self.records: list[Record] = []
        self.starts = 0
        self.loop: ControlLoop = control_loop(
            self.engine,
            t,
            control,
            self.pool,
            [self.records.append],
            begin=self.begin,
            clock=lambda: self.engine.now_s,
        )

    def begin(self, action: Callable[[], None], *, starts: bool) -> Any:
        """As the pool does; how often machines were to start is counted."""
        self.starts += starts
        return self.pool.begin(action, starts=starts)

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


@pytest.mark.parametrize("seed", range(2))
def test_nobody_waits_for_a_machine_that_a_short_spike_asks_for(seed: int) -> None:
    bench = Bench(((60.0, CALM), (10.0, BUSY), (1.0, CALM)), 1, seed)
    bench.run(240.0)
    assert bench.moves == []
    assert bench.engine.starts == 1
    assert bench.pool.spare() == []


@pytest.mark.parametrize("seed", range(2))
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
    bench = Bench(((30.0, CALM), (10.0, BUSY)) * 20 + ((1.0, CALM),), 1)
    bench.run(800.0)
    assert len(bench.moves) <= 1


@pytest.mark.parametrize("seed", range(2))
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


@pytest.mark.parametrize("seed", range(2))
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


@pytest.mark.parametrize(("form", "capacity"), [("mended", 6), ("printed", 12)])
def test_provision_gives_machines_back_once_nothing_comes(form: str, capacity: int) -> None:
    """As printed, machines that process nothing tell nothing."""
    bench = Bench(
        ((100.0, 2.5 * CALM), (1.0, 0.0)), 2, shed=0.5, policy="provision", provision_form=form,
        provision_s=10.0, quiet_s=5.0,
    )  # fmt: skip
    bench.run(100.0)
    assert bench.records[-1].capacity == 12
    bench.run(200.0)
    assert bench.records[-1].capacity == capacity
    last = bench.records[-1].decision
    if form == "mended":
        assert "nothing has arrived for" in last.reason
        assert sum(bench.records[-1].wanted.values()) == 2


def test_provision_waits_for_its_period_and_stays_within_the_machines_allowed() -> None:
    bench = Bench(
        ((1.0, 4 * BUSY),), 1, shed=0.5, policy="provision", max_machines=2, provision_s=10.0
    )
    bench.run(120.0)
    assert {r.decision.action for r in bench.records[:8]} <= {Action.NOT_READY, Action.WAIT}
    assert max(r.decision.needed or 0 for r in bench.records) <= 12
    assert bench.records[-1].capacity == 12


def test_a_period_of_more_intervals_than_are_kept_otherwise_ends_all_the_same() -> None:
    bench = Bench(((1.0, 2 * BUSY),), 1, shed=0.5, policy="provision", provision_s=150.0)
    bench.run(320.0)
    assert max(r.decision.needed or 0 for r in bench.records if r.time_s < 149.0) <= 6
    assert max(r.decision.needed or 0 for r in bench.records) > 6


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


def test_provision_measures_how_long_machines_take_and_asks_once() -> None:
    bench = Bench(
        ((20.0, CALM), (1.0, BUSY)), 1, shed=0.5, policy="provision", provision_s=5.0,
        provision_extra="start",
    )  # fmt: skip
    bench.run(80.0)
    assert any("1 still coming" in r.decision.reason for r in bench.records)
    start_s = bench.engine.settings.machine_start_s
    assert bench.loop.controller.memory.outlook.machines_s == pytest.approx(start_s, abs=1.5)
    first = bench.loop.negotiator.answers[0]
    assert (first.wanted, first.had) == (2, 1)
    assert bench.records[-1].capacity == 12


def test_provision_asks_once_for_a_machine_that_never_comes_and_goes_on() -> None:
    bench = Bench(((30.0, CALM), (1.0, 2.5 * CALM)), 1, shed=0.5, start_s=1e6, policy="provision",
                  provision_s=5.0)  # fmt: skip
    bench.run(150.0)
    assert bench.starts == 1
    assert {record.capacity for record in bench.records} == {6}
    late = [record for record in bench.records if record.time_s > 60.0]
    assert min(r.decision.needed for r in late if r.decision.needed is not None) >= 12
    assert {sum(record.wanted.values()) for record in late} == {6}
    assert any("1 → 2 machines of 6 processors" in record.decision.reason for record in late)


@pytest.mark.parametrize("seed", range(2))
def test_provision_has_a_lost_machine_replaced_once(seed: int) -> None:
    bench = Bench(((1.0, BUSY),), 2, seed, shed=0.5, policy="provision", provision_s=10.0)
    bench.run(120.0)
    before = bench.starts
    assert bench.records[-1].capacity == 12
    bench.run(240.0, (124.5, bench.lose_one))
    (lost_s, lost), (_, back) = bench.moves[-2:]
    assert (lost, back) == (6, 12)
    assert 124.5 <= lost_s <= 126.0
    assert bench.starts == before + 1
    after = [r for r in bench.records if r.time_s > 220.0]
    assert {r.capacity for r in after} == {12}, "what a restart repeats is no load"


@pytest.mark.parametrize("extra", ["none", "predict", "latency", "idle", "spread", "start", "all"])
def test_each_extra_of_provision_reaches_the_algorithm(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the measures that it looks at."""
    given: list[tuple[Rates, Options]] = []

    def noted(rates: Rates, known: Known, coming: int, options: Options) -> Proposal:
        given.append((rates, options))
        return mended(rates, known, coming, options)

    monkeypatch.setattr(sys.modules[provision.__module__], "mended", noted)
    bench = Bench(((1.0, 2.5 * CALM),), 1, shed=0.5, policy="provision", provision_s=5.0,
                  provision_extra=extra)  # fmt: skip
    bench.run(20.0)
    rates, options = given[-1]
    on = {name for name in ("predict", "latency", "idle", "spread") if getattr(options, name)}
    on |= {"start"} if options.start_s > 0 else set()
    every = {"predict", "latency", "idle", "spread", "start"}
    assert on == (every if extra == "all" else {extra} - {"none"})
    assert options.period_s == 5.0
    assert rates.idle is not None
    assert 0 <= rates.idle < 0.5, "it is overloaded"
    assert rates.latency_s is not None
    assert 0.1 < rates.latency_s < 5.0
    assert 0 < rates.spread < rates.input


def test_provision_keeps_machines_ready_and_says_so() -> None:
    """A machine that is ready is in use as soon as the next decision finds that it is needed."""
    steps = ((60.0, CALM), (1.0, BUSY))
    benches = {}
    for ready in (0, 1):
        bench = Bench(
            steps, 1, shed=0.5, policy="provision", provision_s=10.0, provision_ready=ready
        )
        bench.run(110.0)
        benches[ready] = bench
    before = {n: [r for r in b.records if 30 < r.time_s < 60] for n, b in benches.items()}
    assert {r.capacity for r in before[0]} == {6}
    assert {r.capacity for r in before[1]} == {12}
    assert any("1 → 1 machines of 6 processors, and 1 kept ready" in r.decision.reason
               for r in before[1])  # fmt: skip
    assert {sum(r.wanted.values()) for r in before[1]} == {6}  # it is idle
    assert 0 < shed(benches[1], 60.0, 110.0) < shed(benches[0], 60.0, 110.0)
    assert benches[1].records[-1].capacity == 18
    allowed = Bench(((1.0, CALM),), 1, shed=0.5, policy="provision", provision_s=10.0,
                    provision_ready=3, max_machines=2)  # fmt: skip
    allowed.run(60.0)
    assert max(r.decision.needed or 0 for r in allowed.records) == 12


def test_a_machine_that_comes_late_in_a_period_is_not_taken_for_a_slow_one() -> None:
    t = sj.Topology("row")
    value = t.source("source", sj.sources.paced(lambda n: n, rate=1.0, shed_after=0.25))
    t.sink("out", sj.sinks.console(), t.operator("only", lambda v: [v], value))
    load = OperatorLoad(Distribution("constant", 0.010))
    control = ControlSettings(
        max_sojourn_s=0.5, policy="provision", provision_s=15.0, machine_processors=1
    )
    found: list[Record] = []
    Simulation(
        t,
        Workload({"only": load}, {"source": SourceLoad(((30.0, 60.0), (1.0, 160.0)))}),
        (EngineSettings(), control, SimulatorSettings(machine_start_s=10.0)),
        90.0,
        machines=1,
    ).run(listeners=[found.append])
    rates = [r.decision.known.max_rate for r in found if r.decision.known]
    assert found[-1].capacity == 2
    assert all(rate is None or 80 < rate < 105 for rate in rates)
    assert any(rates)


SMALL_AND_LARGE = (Kind("small", 2, 1.0, 5.0), Kind("large", 8, 3.0, 10.0))


def mixed(steps: Steps, until_s: float, **settings: Any) -> list[Record]:
    """Both operators of 25 ms on machines of two kinds."""
    t = sj.Topology("row")
    value = t.source("source", sj.sources.paced(lambda n: n, rate=1.0, shed_after=0.5))
    for name in ("check", "price"):
        value = t.operator(name, lambda v: [v], value)
    t.sink("out", sj.sinks.console(), value)
    load = OperatorLoad(Distribution("exponential", 0.025))
    control = ControlSettings(
        max_sojourn_s=0.5, policy="provision", provision_s=10.0, quiet_s=0.0,
        provision_kinds=SMALL_AND_LARGE, **settings,
    )  # fmt: skip
    found: list[Record] = []
    Simulation(
        t,
        Workload({"check": load, "price": load}, {"source": SourceLoad(steps)}),
        (EngineSettings(), control, SimulatorSettings()),
        until_s,
        machines=1,
    ).run(listeners=[found.append])
    return [record for record in found if not record.pressures]


def test_provision_chooses_kinds_by_price_and_switches_once_that_pays() -> None:
    records = mixed(((40.0, 25.0), (200.0, 130.0), (1.0, 25.0)), 320.0)
    in_use = [dict(record.machines or {}) for record in records]
    assert in_use[0] == {"small": 1, "large": 0}
    small_first = next(i for i, mix in enumerate(in_use) if mix["small"] >= 2)
    large = next(i for i, mix in enumerate(in_use) if mix["large"])
    assert records[small_first].time_s < records[large].time_s < 240.0
    # the others stay until the large one is there, and go then
    assert in_use[large]["small"] == in_use[large - 1]["small"] >= 2
    assert any(mix == {"small": 0, "large": 1} for mix in in_use[large:])
    assert in_use[-1] == {"small": 1, "large": 0}
    for record, mix in zip(records, in_use, strict=True):
        assert record.capacity == slots_of(mix, SMALL_AND_LARGE)
    told = [record.decision.reason for record in records]
    assert any("→ 1 large (3 an hour)" in reason for reason in told)
    settled = [r.samples.vertices["source"].shed for r in records if 150 < r.time_s < 240]
    assert sum(settled) == 0


def test_of_several_kinds_the_cheapest_is_kept_ready() -> None:
    records = mixed(((1.0, 25.0),), 60.0, provision_ready=1)
    assert records[-1].machines == {"small": 2, "large": 0}
    assert "1 small (1 an hour) kept ready" in " ".join(r.decision.reason for r in records)


def test_kinds_go_with_neither_a_number_of_machines_nor_without_any() -> None:
    with pytest.raises(InputError, match=r"machines\.most does not go with .*provision\.kinds"):
        ControlSettings(provision_kinds=SMALL_AND_LARGE, max_machines=2)
    with pytest.raises(InputError, match="needs machines to begin with"):
        replace(_plain(), machines=None).check()


def _plain() -> Simulation:
    t = sj.Topology("row")
    t.sink("out", sj.sinks.console(), t.source("source", sj.sources.paced(str, rate=1.0)))
    control = ControlSettings(
        max_sojourn_s=1.0, policy="provision", provision_kinds=SMALL_AND_LARGE
    )
    return Simulation(t, Workload({}), (EngineSettings(), control, SimulatorSettings()), 9.0)
