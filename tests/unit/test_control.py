"""The control loop over a fake engine that behaves as the model says, in virtual time."""

import copy
import itertools
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sojourn.control.bias import Bias
from sojourn.control.controller import Record, Shape
from sojourn.control.journal import Journal, read_journal, replay
from sojourn.control.loop import ControlLoop
from sojourn.control.measure import Measure, measured
from sojourn.control.negotiator import Negotiator
from sojourn.control.remember import adopted
from sojourn.control.situation import Action, Change, Limits, Memory, Short
from sojourn.control.smoothing import smoothed
from sojourn.errors import InputError
from sojourn.ports import Allocation, Pressure, Sample, Samples, Sojourn
from sojourn.queueing.station import Station
from sojourn.settings import ControlSettings

SHAPE = Shape(
    "chain",
    {"in": "source", "parse": "operator", "match": "operator", "out": "sink"},
    Limits({"parse": 1, "match": 1}, {"match": 64}, {"out": 1}),
    {"parse": 1, "match": 2},
)


@dataclass
class FakeEngine:
    """in → parse → match → out. Queues grow where processors are too few, and sojourns are what
    M/M/k says plus the time to work the queue off; a resize takes effect at once, or not at all."""

    rate: float = 50.0
    service_s: Mapping[str, float] = field(
        default_factory=lambda: {"parse": 0.010, "match": 0.030, "out": 0.0001}
    )
    allocation_now: dict[str, int] = field(default_factory=lambda: {**SHAPE.start, "out": 1})
    interval_s: float = 5.0
    time_s: float = 1000.0
    noise: float = 0.0
    overhead_s: float = 0.005
    deaf: bool = False
    contention: float = 1.0  # service gets so much slower per processor beyond four
    queues: dict[str, float] = field(default_factory=lambda: {"parse": 0, "match": 0, "out": 0})
    draw: random.Random = field(default_factory=lambda: random.Random(1))
    resizes: list[dict[str, int]] = field(default_factory=list)
    on_pressure: Callable[[Pressure], None] | None = None
    starts: int = 1

    def samples(self, peek: bool = False) -> Samples:
        if peek:
            twin = replace(self, on_pressure=None, queues=dict(self.queues))
            return replace(twin.samples(), sojourn=None)
        self.time_s += self.interval_s
        rate = self.rate * max(0.1, self.draw.gauss(1, self.noise))
        slower = self.contention ** max(0, sum(self.allocation().values()) - 4)
        vertices = {"in": self._sample("in", rate, None, {"parse": round(rate * 5)})}
        total = self.overhead_s
        onward = {"parse": "match", "match": "out"}
        for name, base_s in self.service_s.items():
            service_s = base_s * slower
            k = self.allocation_now[name]
            capacity = k / service_s
            waiting = max(0.0, self.queues[name] + (rate - capacity) * self.interval_s)
            total += (self.queues[name] + waiting) / 2 / capacity
            if rate < capacity:
                total += Station(rate, 1 / service_s).mean_sojourn(k)
            self.queues[name] = waiting
            emitted = {onward[name]: round(rate * 5)} if name in onward else {}
            vertices[name] = self._sample(name, rate, service_s, emitted)
        total *= max(0.1, self.draw.gauss(1, self.noise))
        sojourn = Sojourn(round(rate), total, total, 2 * total, 3 * total, 4 * total)
        return Samples(self.time_s, vertices, sojourn, 0, self.starts)

    def _sample(
        self, name: str, rate: float, service_s: float | None, emitted: dict[str, int]
    ) -> Sample:
        k = self.allocation_now.get(name, 1)
        return Sample(
            name=name,
            interval_s=self.interval_s,
            processors=k,
            wanted=k,
            queue=round(self.queues.get(name, 0)),
            arrivals=round(rate * 5),
            served=round(rate * 5),
            arrival_rate=rate,
            arrival_scv=1.0,
            service_s=service_s,
            service_scv=1.0,
            busy=0.5,
            emitted=emitted,
            lag_s=0.0 if name == "in" else None,
        )

    def allocation(self) -> dict[str, int]:
        return {n: k for n, k in self.allocation_now.items() if n != "out"}

    def resize(self, allocation: Allocation) -> None:
        counts = {name: count for name, count in allocation.items() if isinstance(count, int)}
        self.resizes.append(counts)
        if not self.deaf:
            self.allocation_now.update(counts)


def by_fives(**settings: Any) -> ControlSettings:
    """A tick every five seconds, as the fake engine has them."""
    return ControlSettings(**{"interval_s": 5.0, "window_s": 15.0, **settings})


class OnePool:
    """This machine, without a bound."""

    processors_per_machine: int | None = None
    pause_s = 0.0

    def machines(self) -> list[str]:
        return ["here"]

    def spare(self) -> list[str]:
        return []

    def start(self, machines: int) -> str:
        raise AssertionError(f"nobody should ask for {machines}")

    def use(self, machines: int) -> str:
        raise AssertionError(f"nobody should ask for {machines}")


def loop(engine: FakeEngine, advise: bool = False, **settings: Any) -> ControlLoop:
    shape = replace(SHAPE, start=engine.allocation())
    made = ControlLoop(engine, shape, by_fives(**settings), Negotiator(OnePool()), advise=advise)
    assert made.tick().decision.action is Action.NOT_READY  # the first interval
    return made


def ticks(control: ControlLoop, count: int) -> list[Record]:
    return [control.tick() for _ in range(count)]


def acted(records: list[Record]) -> list[Record]:
    return [record for record in records if record.applied]


def test_a_load_step_is_answered_within_three_intervals() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 10)
    engine.rate = 100
    after = ticks(control, 3)
    assert acted(after)[0].decision.action is Action.ADD
    assert after[-1].samples.sojourn is not None
    assert after[-1].samples.sojourn.mean_s < 0.1
    assert "'match'" in acted(after)[0].decision.reason


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.1])
def test_steady_load_causes_no_change(noise: float) -> None:
    engine = FakeEngine(rate=50, noise=noise)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 20)
    assert acted(ticks(control, 120)) == []


def test_a_falling_load_gives_processors_back_when_it_has_been_calm() -> None:
    engine = FakeEngine(rate=200)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 20)
    high = sum(engine.allocation().values())
    engine.rate = 30
    records = ticks(control, 20)
    removed = acted(records)
    assert {r.decision.action for r in removed} == {Action.REMOVE}
    assert removed[0].number > 20 + 30 / 5
    assert sum(engine.allocation().values()) < high
    last = records[-1].samples.sojourn
    assert last is not None
    assert last.mean_s < 0.1


def test_the_fewest_processors_are_used() -> None:
    engine = FakeEngine(rate=50)
    engine.allocation_now.update(parse=5, match=20)
    control = loop(engine, max_sojourn_s=0.3)
    ticks(control, 20)
    assert engine.allocation() == {"parse": 1, "match": 2}


def test_with_a_lower_bound_nothing_is_given_back_above_it() -> None:
    engine = FakeEngine(rate=50)
    engine.allocation_now.update(parse=5, match=20)
    control = loop(engine, max_sojourn_s=0.2, min_sojourn_s=0.02)
    assert acted(ticks(control, 20)) == []


def test_with_only_a_number_of_processors_they_are_placed_best() -> None:
    engine = FakeEngine(rate=80)
    control = loop(engine, max_processors=7)
    ticks(control, 5)
    assert sum(engine.allocation().values()) <= 7
    assert engine.allocation()["match"] == 5
    assert len(engine.resizes) == 1


def test_the_right_number_in_the_wrong_places_is_moved() -> None:
    engine = FakeEngine(rate=70)
    engine.allocation_now.update(parse=6, match=3)
    control = loop(engine, max_sojourn_s=0.15, min_sojourn_s=0.01)
    assert acted(ticks(control, 4)) == []  # chance may have it so for a while
    moved = acted(ticks(control, 12))
    assert [r.decision.action for r in moved] == [Action.MOVE]
    assert sum(engine.allocation().values()) == 9


def test_too_few_processors_are_placed_best_and_it_says_how_many_are_needed() -> None:
    engine = FakeEngine(rate=80)
    control = loop(engine, max_sojourn_s=0.06, max_processors=5)
    (first, *_) = acted(ticks(control, 3))
    assert sum(engine.allocation().values()) == 5
    assert first.decision.needed is not None
    assert first.decision.needed > 5
    assert "the limit is 5" in first.decision.reason


def test_a_target_below_the_bound_is_told_and_the_best_is_done() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.02)
    records = ticks(control, 30)
    assert any("is out of reach" in r.decision.reason for r in records)
    assert sum(engine.allocation().values()) < 12  # not ever more
    assert acted(records[10:]) == []


def test_an_overload_whatever_it_gets_is_infeasible() -> None:
    engine = FakeEngine(rate=5000)
    control = loop(engine, max_sojourn_s=0.1, max_processors=20)
    first, *rest = ticks(control, 8)
    assert first.decision.action is Action.ADD
    assert "using as many as help" in first.decision.reason
    assert sum(engine.allocation().values()) == 20
    assert rest[-1].decision.action is Action.INFEASIBLE
    assert "nothing more can be done" in rest[-1].decision.reason
    assert len(engine.resizes) == 1


def test_a_topology_that_is_slower_with_more_processors_goes_back() -> None:
    """As on a machine with too few cores."""
    engine = FakeEngine(rate=60, contention=1.6)
    engine.allocation_now.update(parse=1, match=3)
    control = loop(engine, max_sojourn_s=0.06)
    records = ticks(control, 30)
    done = acted(records)
    assert {r.decision.action for r in done[::2]} == {Action.ADD}
    assert {r.decision.action for r in done[1::2]} == {Action.ROLL_BACK}
    tried = [sum((r.decision.allocation or {}).values()) for r in done[::2]]
    assert tried == sorted(tried, reverse=True)  # less each time, and then nothing
    assert len(set(tried)) == len(tried)
    assert engine.allocation() == {"parse": 1, "match": 3}
    assert "rolled back" in records[-1].decision.reason
    assert acted(ticks(control, 120))  # it is tried again after the hold-off


def test_advice_changes_nothing() -> None:
    engine = FakeEngine(rate=200)
    control = loop(engine, advise=True, max_sojourn_s=0.1)
    records = ticks(control, 10)
    assert any(r.decision.action is Action.ADD for r in records)
    assert not acted(records)
    assert engine.resizes == []


def test_an_executor_that_never_answers_is_asked_again() -> None:
    engine = FakeEngine(rate=100, deaf=True)
    control = loop(engine, max_sojourn_s=0.1)
    records = ticks(control, 12)
    actions = [r.decision.action for r in records]
    assert actions[0] is Action.ADD
    assert Action.SETTLING in actions
    retried = [r for r in records if r.decision.action is Action.RETRY]
    assert retried
    assert "asking again" in retried[0].decision.reason
    assert all(resize == engine.resizes[0] for resize in engine.resizes)


def broken(samples: Samples, how: str) -> Samples:
    vertices = dict(samples.vertices)
    match how:
        case "missing":
            del vertices["match"]
        case "backwards":
            return replace(samples, time_s=samples.time_s - 3600)
        case "stale":
            return replace(samples, time_s=samples.time_s + 3600)
        case "stuck":
            vertices["in"] = replace(vertices["in"], arrival_rate=None)
        case "nothing":
            vertices["in"] = replace(vertices["in"], arrival_rate=0.0, emitted={}, served=0)
        case "unserved":
            vertices["match"] = replace(vertices["match"], service_s=None, served=0)
        case "nan":
            vertices["in"] = replace(vertices["in"], arrival_rate=float("nan"))
    return replace(samples, vertices=vertices)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("missing", "no samples from 'match'"),
        ("backwards", "the clock went backwards"),
        ("stale", "old"),
        ("stuck", "unknown"),
        ("nothing", "nothing arrives"),
        ("nan", "unknown"),
    ],
)
def test_bad_data_changes_nothing(how: str, reason: str) -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 5)
    engine.rate = 200
    record = control.controller.step(broken(engine.samples(), how), None)
    assert record.decision.action is Action.NOT_READY
    assert reason in record.decision.reason
    assert not record.applied


def test_without_service_times_there_is_no_decision() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    record = control.controller.step(broken(engine.samples(), "unserved"), None)
    assert record.decision.action is Action.NOT_READY
    assert "no service times for 'match'" in record.decision.reason


def test_samples_of_a_past_allocation_are_not_judged() -> None:
    engine = FakeEngine(rate=100)
    control = loop(engine, max_sojourn_s=0.1)
    first = control.tick()
    assert first.applied
    late = replace(engine.samples(), time_s=first.time_s + 1)
    record = control.controller.step(late, None)
    assert record.decision.action is Action.SETTLING


def test_a_target_can_be_changed_while_it_runs() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.5)
    ticks(control, 12)
    before = sum(engine.allocation().values())
    control.submit(by_fives(max_sojourn_s=0.06))
    ticks(control, 5)
    assert sum(engine.allocation().values()) > before


def test_percentile_targets() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.3, percentile=99.0)
    ticks(control, 12)
    sojourn = engine.samples().sojourn
    assert sojourn is not None
    assert sojourn.p99_s < 0.3


def test_a_journal_decides_the_same_again_and_says_where_it_would_differ(tmp_path: Path) -> None:
    engine = FakeEngine(rate=50, noise=0.03)
    journal = Journal(tmp_path / "journal.jsonl", SHAPE)
    settings = by_fives(max_sojourn_s=0.1)
    control = ControlLoop(engine, SHAPE, settings, Negotiator(OnePool()), [journal])
    ticks(control, 8)
    engine.rate = 110
    ticks(control, 8)
    engine.rate = 40
    ticks(control, 15)
    journal.close()
    shape, records = read_journal(tmp_path / "journal.jsonl")
    again = list(replay(shape, records, {}))
    assert len(again) == 31
    assert [r.record.number for r in again if r.differs] == []
    shape, records = read_journal(tmp_path / "journal.jsonl")
    stricter = [r for r in replay(shape, records, {"max_sojourn_s": 0.055}) if r.differs]
    assert stricter
    (tmp_path / "other").write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not a journal"):
        read_journal(tmp_path / "other")


def test_bias_is_an_offset_or_a_slope_as_the_data_say() -> None:
    offset = Bias()
    for estimate in (0.005, 0.010, 0.020, 0.040) * 10:
        offset = offset.learn(estimate, 0.005, estimate + 0.010, estimate)
    assert offset.correct(0.1, 0.005) == pytest.approx(0.11, rel=0.05)
    slope = Bias()
    for waiting in (0.1, 0.2, 0.4) * 10:
        slope = slope.learn(0.1 + waiting, 0.1, 0.1 + 0.6 * waiting, waiting)
    assert slope.correct(1.1, 0.1) == pytest.approx(0.7, rel=0.1)
    assert slope.estimate_for(slope.correct(0.3, 0.1), 0.1) == pytest.approx(0.3)


@pytest.mark.parametrize("count", [1, 5, 40])
def test_what_was_learned_under_load_hardly_shortens_what_takes_no_waiting(count: int) -> None:
    """Measured 0.8 s where 1.2 were expected: that is the waiting, not the 0.5 s of service."""
    bias = Bias()
    for _ in range(count):
        bias = bias.learn(1.2, 0.5, 0.8)
    assert bias.correct(1.2, 0.5) < 1.2
    assert bias.correct(0.52, 0.5) == pytest.approx(0.5, rel=0.15)


def test_branches_beside_one_another_take_a_factor_of_what_the_model_adds_up() -> None:
    bias = Bias()
    for _ in range(40):
        bias = bias.learn(1.0, 0.5, 0.3)
    assert bias.correct(1.0, 0.5) == pytest.approx(0.3, rel=0.05)
    assert bias.correct(0.5, 0.25) == pytest.approx(0.15, rel=0.3)
    assert bias.estimate_for(0.3, 0.5) == pytest.approx(1.0, rel=0.05)


def test_estimates_that_waver_are_not_taken_for_a_small_slope() -> None:
    draw = random.Random(3)
    bias = Bias()
    for _ in range(50):
        bias = bias.learn(0.1 * draw.uniform(0.5, 1.5), 0.05, 0.1 * draw.uniform(0.5, 1.5))
    assert bias.correct(0.1, 0.05) == pytest.approx(0.1, rel=0.1)
    assert bias.correct(0.2, 0.05) == pytest.approx(0.2, rel=0.15)


def test_what_waited_while_nothing_was_measured_is_not_learned_from() -> None:
    engine = FakeEngine()
    controller = loop(engine, max_sojourn_s=1.0).controller
    for _ in range(5):
        controller.step(engine.samples(), None)
    known = controller.memory.bias
    assert len(known.pairs) == 2  # the start is not learned from, nor the window after it
    controller.step(replace(engine.samples(), vertices={}), None)
    engine.overhead_s = 0.5  # of tuples that had to wait until it ran again
    controller.step(engine.samples(), None)
    assert controller.memory.bias == known
    engine.overhead_s = 0.005
    engine.starts = 2
    again = controller.step(engine.samples(), None)
    assert again.decision.reason == "the first interval mostly measures the start"
    for _ in range(4):
        assert controller.memory.bias == known
        controller.step(engine.samples(), None)
    assert len(controller.memory.bias.pairs) == 3


def test_what_sources_read_again_after_a_restart_is_no_load() -> None:
    """A source without a pace reads at once what it had read since the last commit."""
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 5)
    before = engine.allocation()
    down = replace(engine.samples(), vertices={}, starts=2)
    assert control.controller.step(down, None).decision.action is Action.NOT_READY
    engine.starts, engine.rate = 2, 500.0
    (again,) = ticks(control, 1)
    assert again.decision.reason == "the first interval mostly measures the start"
    engine.rate = 50.0
    engine.queues = dict.fromkeys(engine.queues, 0)
    after = ticks(control, 5)
    assert engine.allocation() == before
    assert all(r.measure is not None and r.measure.external_rate == 50.0 for r in after)


def test_a_loss_is_told_with_what_the_target_takes() -> None:
    engine = FakeEngine(rate=150)
    engine.allocation_now.update(parse=3, match=7)
    pool = SlowPool()
    pool.names = ["m0", "m1", "m2"]
    control = ControlLoop(engine, SHAPE, by_fives(max_sojourn_s=0.1), Negotiator(pool))
    control.controller.memory = replace(control.controller.memory, wanted={"parse": 3, "match": 7})
    ticks(control, 3)
    control.negotiator.close()
    needed = sum(engine.allocation().values())
    assert needed > 4
    pool.names, pool.most = ["m0"], 1
    (lost,) = ticks(control, 1)
    assert lost.decision.action is Action.REMOVE
    assert sum(engine.allocation().values()) == 4
    assert lost.decision.needed is not None
    assert 4 < lost.decision.needed <= needed
    control.negotiator.close()
    assert control.negotiator.answers[-1].wanted > 1


def test_a_tick_makes_its_memory_anew() -> None:
    engine = FakeEngine(rate=50)
    controller = loop(engine, max_sojourn_s=0.1).controller
    for rate in (50, 50, 150, 150, 150, 0, 150):
        engine.rate = rate
        samples, before = engine.samples(), controller.memory
        untouched = copy.deepcopy(before)
        record = controller.step(samples, None)
        after = controller.memory
        assert before == untouched != after
        controller.memory = before
        assert controller.step(samples, None) == record
        assert controller.memory == after
        if record.decision.allocation is not None:
            engine.resize(record.decision.allocation)
    assert engine.resizes


def test_smoothing_by_window_and_by_alpha() -> None:
    engine = FakeEngine()
    control = loop(engine, max_sojourn_s=1.0)
    for rate in (50.0, 52.0, 54.0):
        engine.rate = rate
        control.tick()
    past = control.controller.memory.past
    window = by_fives(window_s=10.0, interval_s=3.0)
    assert smoothed(past, window).external_rate == pytest.approx(53)
    for late_s in (-0.01, 0.01):  # that a tick comes late
        some = [replace(past[0], time_s=past[0].time_s + late_s), *past[1:]]
        assert smoothed(some, window).external_rate == pytest.approx(53)
    alpha = by_fives(smoothing="alpha", alpha=0.5)
    assert smoothed(past, alpha).external_rate == pytest.approx((50 / 4 + 52 / 2 + 54) / 1.75)


def test_a_load_that_has_changed_for_sure_counts_at_once() -> None:
    engine = FakeEngine()
    control = loop(engine, max_sojourn_s=1.0)
    ticks(control, 3)
    engine.rate = 100.0
    control.tick()
    found = smoothed(control.controller.memory.past, by_fives())
    assert found.external_rate == pytest.approx(100)
    assert found.rising
    engine.rate = 95.0
    control.tick()
    found = smoothed(control.controller.memory.past, by_fives())
    assert found.external_rate == pytest.approx(97.5)


def test_of_a_rate_that_was_told_the_past_before_it_rose_does_not_count() -> None:
    """Neither then nor later, though the rate alone is no sure sign."""
    engine = FakeEngine(rate=50.0)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 3)
    record = pressed(control, Pressure("in", rate=62.0, over_s=1.0))
    assert record.forecast is not None
    assert record.forecast.now == pytest.approx(62)
    engine.rate = 60.0
    control.tick()
    memory = control.controller.memory
    found = smoothed(memory.past, by_fives(), memory.risen_s)
    assert found.external_rate == pytest.approx(60)
    assert found.rising


def test_a_service_time_that_has_changed_for_sure_counts_at_once() -> None:
    engine = FakeEngine()
    control = loop(engine, max_sojourn_s=1.0)
    ticks(control, 4)
    engine.service_s = {**engine.service_s, "match": 0.060}
    control.tick()
    past = control.controller.memory.past
    found = smoothed(past, by_fives()).operators["match"]
    assert found.service_s == pytest.approx(0.060)
    assert found.served == 250


def test_where_tuples_take_much_longer_processors_come_step_by_step() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 10)
    had = engine.allocation()["match"]
    engine.service_s = {**engine.service_s, "match": 0.3}
    additions = [r for r in ticks(control, 3) if r.applied]
    assert "tuples take longer than before at 'match'" in additions[0].decision.reason
    counts = [had, *(r.decision.allocation["match"] for r in additions if r.decision.allocation)]
    assert all(then <= 2 * now for now, then in itertools.pairwise(counts))
    ticks(control, 20)
    assert engine.allocation()["match"] >= 50 * 0.3  # it was the operator after all


def test_a_wild_service_time_of_few_tuples_counts_as_few() -> None:
    engine = FakeEngine()
    control = loop(engine, max_sojourn_s=1.0)
    ticks(control, 4)
    past = list(control.controller.memory.past)
    wild = replace(past[-1].operators["match"], service_s=0.5, served=3)
    past[-1] = replace(past[-1], operators={**past[-1].operators, "match": wild})
    found = smoothed(past, by_fives()).operators["match"].service_s
    assert found == pytest.approx((0.5 * 3 + 0.030 * 500) / 503)


class SlowPool:
    """Machines of four processors; may refuse."""

    processors_per_machine = 4
    pause_s = 0.0

    def __init__(self, most: int = 10) -> None:
        self.names = ["m0"]
        self.ready: list[str] = []
        self.most = most

    def machines(self) -> list[str]:
        return list(self.names)

    def spare(self) -> list[str]:
        return list(self.ready)

    def start(self, machines: int) -> str:
        if machines > self.most:
            raise RuntimeError("the quota is used up")
        self.ready = [f"m{i}" for i in range(len(self.names), machines)]
        return "came up"

    def use(self, machines: int) -> str:
        self.names, self.ready = [*self.names, *self.ready][:machines], []
        return "done"


def test_machines_follow_the_processors() -> None:
    engine = FakeEngine(rate=50)
    pool = SlowPool()
    negotiator = Negotiator(pool)
    control = ControlLoop(engine, SHAPE, by_fives(max_sojourn_s=0.1), negotiator)
    for rate in (50.0, 150.0):
        engine.rate = rate
        for _ in range(10):
            control.tick()
            negotiator.close()
    assert len(pool.names) > 1
    assert sum(engine.allocation().values()) <= 4 * len(pool.names)
    sojourn = engine.samples().sojourn
    assert sojourn is not None
    assert sojourn.mean_s < 0.1
    asked = len(negotiator.answers)
    engine.rate = 30
    for _ in range(30):
        control.tick()
        negotiator.close()
    assert len(pool.names) == 1
    assert len(negotiator.answers) <= asked + 2


def test_a_refusal_of_machines_is_an_answer() -> None:
    engine = FakeEngine(rate=150)
    negotiator = Negotiator(SlowPool(most=1))
    control = ControlLoop(engine, SHAPE, by_fives(max_sojourn_s=0.1), negotiator)
    for _ in range(3):
        control.tick()
        negotiator.close()
    assert "quota" in negotiator.answers[0].words
    assert sum(engine.allocation().values()) <= 4


def test_a_machine_that_is_lost_takes_its_processors_with_it() -> None:
    engine = FakeEngine(rate=60)
    pool = SlowPool()
    pool.names = ["m0", "m1"]
    pool.most = 1  # and there is no other to be had
    negotiator = Negotiator(pool)
    control = ControlLoop(engine, SHAPE, by_fives(max_sojourn_s=0.065), negotiator)
    ticks(control, 5)
    negotiator.close()
    assert sum(engine.allocation().values()) > 4
    pool.names = ["m0"]
    ticks(control, 10)
    negotiator.close()
    assert sum(engine.allocation().values()) == 4
    assert "quota" in negotiator.answers[-1].words


def test_lowering_the_number_of_processors_takes_effect() -> None:
    engine = FakeEngine(rate=60)
    control = loop(engine, max_processors=12)
    ticks(control, 5)
    control.submit(by_fives(max_processors=5))
    (change,) = acted(ticks(control, 3))
    assert "12 processors are in use and the limit is 5" in change.decision.reason
    assert sum(engine.allocation().values()) == 5


def test_a_pool_that_hangs_does_not_hold_the_loop_up() -> None:
    release = threading.Event()

    class Hanging(SlowPool):
        def start(self, machines: int) -> str:
            release.wait(60)
            return super().start(machines)

    engine = FakeEngine(rate=150)
    negotiator = Negotiator(Hanging())
    control = ControlLoop(engine, SHAPE, by_fives(max_sojourn_s=0.1), negotiator)
    records = ticks(control, 4)
    assert sum(engine.allocation().values()) <= 4
    assert records[-1].capacity == 4
    release.set()
    negotiator.close()
    ticks(control, 4)
    assert sum(engine.allocation().values()) > 4


def test_a_rolled_back_removal_does_not_stand_in_the_way_of_more() -> None:
    engine = FakeEngine(rate=40)
    engine.allocation_now.update(parse=2, match=4)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 7)
    assert sum(engine.allocation().values()) < 6
    engine.overhead_s = 0.15  # as if it were the removal's doing
    backs = [r for r in ticks(control, 4) if r.decision.action is Action.ROLL_BACK]
    assert len(backs) == 1
    engine.overhead_s, engine.rate = 0.005, 200
    ticks(control, 4)
    assert sum(engine.allocation().values()) > 6


def test_lowering_the_number_of_processors_is_not_rolled_back() -> None:
    engine = FakeEngine(rate=40)
    engine.allocation_now.update(parse=4, match=8)
    control = loop(engine, max_sojourn_s=0.1, max_processors=12)
    ticks(control, 2)
    control.submit(by_fives(max_sojourn_s=0.1, max_processors=4))
    ticks(control, 2)
    engine.overhead_s = 0.5
    assert Action.ROLL_BACK not in {r.decision.action for r in ticks(control, 10)}
    assert sum(engine.allocation().values()) == 4


def test_a_sink_that_cannot_keep_up_costs_nobody_else_processors() -> None:
    engine = FakeEngine(rate=40, service_s={"parse": 0.01, "match": 0.03, "out": 0.05})
    engine.allocation_now.update(parse=3, match=5)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 12)
    assert engine.allocation()["parse"] >= 3
    assert engine.allocation()["match"] >= 5


def test_a_clock_that_is_set_back_costs_one_interval() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 5)
    engine.time_s -= 3600
    engine.rate = 150
    first, *rest = ticks(control, 4)
    assert first.decision.reason == "the clock went backwards"
    assert acted(rest)


def test_nothing_that_fails_gets_out_of_a_tick() -> None:
    def broken_listener(record: Record) -> None:
        raise OSError(f"no space left for {record.number}")

    class Broken(SlowPool):
        def machines(self) -> list[str]:
            raise RuntimeError("not reachable")

    class Refusing(FakeEngine):
        def resize(self, allocation: Allocation) -> None:
            raise RuntimeError(f"not now: {allocation}")

    engine = Refusing(rate=150)
    settings = by_fives(max_sojourn_s=0.1, max_processors=30)
    control = ControlLoop(engine, SHAPE, settings, Negotiator(Broken()), [broken_listener])
    assert len(ticks(control, 5)) == 5
    control = ControlLoop(engine, SHAPE, settings, Negotiator(OnePool()), [broken_listener])
    assert acted(ticks(control, 5))


def test_without_any_load_the_least_is_kept() -> None:
    engine = FakeEngine(rate=200)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 10)
    assert sum(engine.allocation().values()) > 5
    engine.rate = 0.0
    ticks(control, 12)
    assert engine.allocation() == {"parse": 1, "match": 1}


def test_an_executor_that_stays_deaf_does_not_freeze_the_others() -> None:
    class Deaf(FakeEngine):
        def resize(self, allocation: Allocation) -> None:
            super().resize({**allocation, "parse": self.allocation_now["parse"]})

    engine = Deaf(rate=90)
    control = loop(engine, max_sojourn_s=0.06)
    ticks(control, 30)
    before = engine.allocation()["match"]
    engine.rate = 95
    engine.service_s = {**engine.service_s, "match": 0.08}
    records = ticks(control, 40)
    assert any("despite 3 retries" in r.decision.reason for r in records)
    assert engine.allocation()["match"] > before


def pressed(control: ControlLoop, pressure: Pressure) -> Record:
    control.press(pressure)
    return control.tick(urgent=True)


def test_a_rate_that_has_risen_is_answered_before_the_next_tick() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 10)
    past = control.controller.memory.past
    engine.rate = 500
    record = pressed(control, Pressure("in", rate=500.0, over_s=0.2))
    assert record.decision.action is Action.ADD
    assert record.applied
    assert "500/s arrive" in record.decision.reason
    assert engine.allocation()["match"] >= 500 * 0.030
    assert control.controller.memory.past[-1].time_s == past[-1].time_s  # it is no measure


def test_a_rise_beyond_the_limit_is_given_all_that_is_free_at_once() -> None:
    engine = FakeEngine(rate=50)
    engine.allocation_now |= {"parse": 4, "match": 4}
    control = loop(engine, max_sojourn_s=0.1, max_processors=12)
    control.controller.memory = replace(control.controller.memory, wanted={"parse": 4, "match": 4})
    ticks(control, 3)
    record = pressed(control, Pressure("in", rate=900.0, over_s=0.2))
    assert record.applied
    assert engine.allocation() == {"parse": 4, "match": 8}, "none is taken away"


def test_what_was_added_for_a_rise_is_not_judged_by_the_time_before_it() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 10)
    record = pressed(control, Pressure("in", rate=500.0, over_s=0.2))
    assert record.applied
    assert record.change.reviewed


def test_a_source_that_is_behind_is_work_only_for_those_behind_it() -> None:
    engine = FakeEngine()
    known = {"in": "source", "also": "source", "parse": "operator", "match": "operator"}
    vertices = dict(engine.samples().vertices)
    for name, receiver, lag_s in (("in", "parse", 5.0), ("also", "match", 0.0)):
        vertices[name] = replace(vertices["in"], name=name, emitted={receiver: 250}, lag_s=lag_s)
    vertices["parse"] = replace(vertices["parse"], emitted={})
    found = measured(Samples(1.0, vertices, None, 0), None, known, ControlSettings(), first=False)
    assert isinstance(found, Measure)
    assert found.backlog_s == 5.0
    assert found.late == {"parse": pytest.approx(250), "match": 0.0}


def test_while_operators_are_not_there_the_target_is_not_kept() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.5)
    record = ticks(control, 3)[-1]
    assert record.within_target
    assert record.settings.max_sojourn_s == 0.5
    some = {name: v for name, v in record.samples.vertices.items() if name != "match"}
    assert not replace(record, samples=Samples(1.0, some, None, 0)).within_target


def test_pressure_that_the_processors_can_take_changes_nothing() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.5)
    ticks(control, 10)
    for pressure in (Pressure("in", rate=55.0, over_s=5.0), Pressure("match", wait_s=0.3)):
        record = pressed(control, pressure)
        assert record.decision.action is Action.HOLD
        assert "match" in record.decision.reason or "55/s" in record.decision.reason


def test_nothing_is_given_back_until_long_after_pressure() -> None:
    engine = FakeEngine(rate=200)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 20)
    engine.rate = 30
    for _ in range(10):  # 25 s each, less than change.quiet
        assert acted(ticks(control, 5)) == []
        pressed(control, Pressure("in", rate=31.0, over_s=5.0))
    assert {r.decision.action for r in acted(ticks(control, 8))} == {Action.REMOVE}


def test_pressure_wakes_the_loop_and_stopping_ends_it() -> None:
    engine = FakeEngine(rate=50)
    records: list[Record] = []
    told = threading.Event()

    def listen(record: Record) -> None:
        records.append(record)
        told.set()

    control = ControlLoop(
        engine,
        replace(SHAPE, start=engine.allocation()),
        by_fives(max_sojourn_s=0.1, interval_s=3600.0),
        Negotiator(OnePool()),
        [listen],
    )
    thread = threading.Thread(target=control.run)
    thread.start()
    assert engine.on_pressure is not None
    engine.on_pressure(Pressure("in", rate=90.0, over_s=1.0))
    assert told.wait(30)
    control.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert [record.pressures[0].rate for record in records] == [90.0]


def test_the_journal_keeps_why_a_tick_was_urgent(tmp_path: Path) -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    journal = Journal(tmp_path / "journal", control.shape)
    control.listeners = (*control.listeners, journal)
    ticks(control, 10)
    engine.rate = 500
    pressed(control, Pressure("in", rate=500.0, over_s=0.2))
    ticks(control, 5)
    journal.close()
    shape, records = read_journal(tmp_path / "journal")
    again = list(replay(shape, records, {}))
    assert [r.record.pressures for r in again if r.record.pressures] == [
        (Pressure("in", rate=500.0, over_s=0.2),)
    ]
    urgent = next(r for r in again if r.record.pressures)
    assert urgent.decision.action is Action.ADD


def test_an_operator_without_processors_is_waited_for() -> None:
    """As while the topology starts on other machines."""
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 10)
    there = dict(engine.allocation_now)
    samples = engine.samples()
    gone = {**samples.vertices, "match": replace(samples.vertices["match"], processors=0)}
    record = control.controller.step(replace(samples, vertices=gone), None)
    assert record.decision.action is Action.NOT_READY
    assert record.decision.reason == "'match' has no processors yet"
    assert engine.allocation_now == there


def test_what_presses_while_samples_are_taken_has_an_urgent_tick_of_its_own() -> None:
    """And no tick takes place for nothing."""
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.5)
    ticks(control, 5)
    plain = engine.samples

    def disturbed(peek: bool = False) -> Samples:
        control.press(Pressure("in", rate=55.0, over_s=5.0))
        return plain(peek)

    engine.samples = disturbed  # type: ignore[method-assign]
    assert control.tick().pressures == ()
    engine.samples = plain  # type: ignore[method-assign]
    assert [p.rate for p in control.tick(urgent=True).pressures] == [55.0]
    assert not control.pressures


def test_an_urgent_tick_right_after_another_knows_where_tuples_go() -> None:
    engine = FakeEngine(rate=50)
    control = loop(engine, max_sojourn_s=0.1)
    ticks(control, 10)
    samples = engine.samples(peek=True)
    nothing = {
        name: replace(sample, interval_s=0.001, arrivals=0, served=0, emitted={}, arrival_rate=0.0)
        for name, sample in samples.vertices.items()
    }
    peeked = replace(samples, vertices=nothing, sojourn=None)
    record = control.controller.step(
        peeked, None, pressures=(Pressure("in", rate=500.0, over_s=0.1),)
    )
    assert record.decision.action is Action.ADD
    assert "500/s arrive" in record.decision.reason
    quiet = control.controller.step(peeked, None, pressures=(Pressure("match", wait_s=0.3),))
    assert quiet.decision.action is not Action.NOT_READY


@pytest.mark.parametrize(
    ("highest", "told", "believed"),
    [
        (80.0, 100.0, 80.0),  # chance alone makes that of 80
        (80.0, 160.0, 160.0),  # but not that
        (80.0, 70.0, 70.0),  # less needs less
        (55.0, 75.0, 75.0),  # 55 was the same load
    ],
)
def test_a_rate_that_is_told_may_be_one_that_was_there_before(
    highest: float, told: float, believed: float
) -> None:
    engine = FakeEngine(rate=40)
    control = loop(engine, max_sojourn_s=0.1)
    for engine.rate in (40.0, highest, 40.0, 40.0):
        ticks(control, 2)
    pressed = (Pressure("in", rate=told, over_s=0.7),)
    record = control.controller.step(engine.samples(peek=True), None, pressures=pressed)
    assert record.measure is not None
    assert record.measure.external_rate == pytest.approx(believed)


def test_a_move_or_removal_that_has_cost_much_is_not_soon_followed_by_another() -> None:
    change = Change(0.0, {"parse": 3}, Action.REMOVE, 0.05, 0.06, 50.0, True, cost_s=4.0)
    memory = Memory({"parse": 2}, change=change)
    added = replace(change, time_s=5.0, action=Action.ADD, cost_s=0.0)
    then = adopted(memory, added, {"parse": 3}, 600.0)
    assert then.cost_s == 2.0  # although it did not last until all was known
    forced = adopted(replace(memory, change=added), replace(change, time_s=9.0), {}, 600.0)
    assert forced.cost_s == 0.0  # an addition was needed


@pytest.mark.parametrize(
    ("before", "since", "now", "asked"),
    [(50.0, 50.0, 50.0, False), (50.0, 80.0, 50.0, True), (50.0, 50.0, 20.0, True)],
)
def test_what_was_not_enough_is_not_tried_again_at_the_same_load(
    before: float, since: float, now: float, asked: bool
) -> None:
    """Unless the load was higher meanwhile, or is lower now."""
    engine = FakeEngine(rate=now)
    engine.allocation_now.update(parse=4, match=8)
    control = loop(engine, max_sojourn_s=0.1)
    time_s = engine.time_s
    tried = Short({"parse": 2, "match": 4}, time_s - 700, 0.0, time_s - 600, 100 * before)
    control.controller.memory = replace(
        control.controller.memory, short=(tried,), tuples=100 * before + 600 * since
    )
    done = acted(ticks(control, 10))
    fewest = min((sum((r.decision.allocation or {}).values()) for r in done), default=12)
    assert (fewest <= 6) == asked
