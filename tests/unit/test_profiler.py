"""Stepwise profiling: its three steps, the methods it is compared with, and how trials are read."""

import itertools
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from scipy import stats

import sojourn as sj
from sojourn.confidence import differ, half_width
from sojourn.errors import InputError, TopologyFailed
from sojourn.ports import Parallelism, Sample, Samples, Sojourn
from sojourn.profiler.baselines import effective, projected, stela, threshold
from sojourn.profiler.capability import Best, Limits, capability, most_rounds
from sojourn.profiler.capacity import capacity
from sojourn.profiler.features import Feature, dominated, kind_of, ratios
from sojourn.profiler.guided import guided, tasks_for
from sojourn.profiler.readings import Reading, is_correlated, is_normal, measure, summed
from sojourn.profiler.rounds import Round, run
from sojourn.profiler.stepwise import Found, Shape, stepwise
from sojourn.profiler.trial import Measured, Proposal, Seen

# confidence


def test_means_differ_as_welchs_test_says() -> None:
    draw = random.Random(1)
    agree = 0
    for _ in range(300):
        one = [draw.gauss(100, 3) for _ in range(20)]
        two = [draw.gauss(100 + draw.choice([0, 1, 3]), draw.choice([1, 6])) for _ in range(20)]
        found = stats.ttest_ind(one, two, equal_var=False)
        expected = 0 if found.pvalue > 0.05 else (1 if found.statistic < 0 else -1)
        agree += differ(one, two) == expected
    assert agree >= 298  # Student's t is known within 1 %
    assert differ([1.0, 1.0], [2.0, 2.0]) == 1
    assert differ([1.0], [2.0]) == 0
    assert half_width([1.0]) == math.inf


def test_readings_that_are_not_normal_or_hang_together_are_found() -> None:
    draw = random.Random(2)
    normal = [[draw.gauss(0, 1) for _ in range(20)] for _ in range(500)]
    skewed = [[draw.expovariate(1) for _ in range(20)] for _ in range(500)]
    assert sum(not is_normal(some) for some in normal) / 500 == pytest.approx(0.05, abs=0.03)
    assert sum(not is_normal(some) for some in skewed) / 500 > 0.5  # 0.6, say tables
    walks = []
    for some in normal:
        walk = [some[0]]
        for step in some[1:]:
            walk.append(0.9 * walk[-1] + step)
        walks.append(walk)
    assert sum(map(is_correlated, normal)) / 500 < 0.08
    assert sum(map(is_correlated, walks)) / 500 > 0.6


# features


def test_equal_operators_start_with_one_task_each() -> None:
    same = {name: Feature(0.001, 1.0) for name in "abc"}
    senders = {"a": ["in"], "b": ["a"], "c": ["b"]}
    found = ratios(same, senders, 0.3, 100)
    assert found.scaled == {"a": 1, "b": 1, "c": 1}
    assert found.fixed == {}


def test_ratios_follow_what_operators_have_to_do() -> None:
    features = {
        "parse": Feature(0.4e-3, 1.0),
        "split": Feature(0.2e-3, 1.0),
        "count": Feature(1e-4, 12),
    }
    senders = {"parse": ["in"], "split": ["parse"], "count": ["split"]}
    assert ratios(features, senders, 0.3, 100).scaled == {"parse": 2, "split": 1, "count": 4}
    assert ratios(features, senders, 1.0, 100).scaled == {"parse": 1, "split": 1, "count": 1}
    for slice_ in (0.0, 1.1):
        with pytest.raises(InputError, match="slice must be above 0"):
            ratios(features, senders, slice_, 100)


def test_what_follows_logic_is_not_scaled() -> None:
    """It gets as many tasks as what can come takes; an operator with a single task bounds that."""
    senders = {"a": ["in"], "window": ["a"], "b": ["window"], "c": ["b"], "d": ["a", "b"]}
    kinds: Any = {
        "a": "proportional",
        "window": "logic",
        "b": "workload",
        "c": "logic",
        "d": "logic",
    }
    assert dominated(kinds, senders) == {"b", "c"}
    features = {
        "a": Feature(0.001, 1.0),
        "window": Feature(0.002, 1.0, "logic"),
        "b": Feature(0.003, 0.5),
        "c": Feature(0.0005, 0.5),
        "d": Feature(0.001, 1.5),
    }
    found = ratios(features, senders, 0.5, 100)
    assert found.scaled == {"a": 1, "window": 2, "d": 2}
    assert found.fixed == {"b": 6, "c": 1}  # over the least load, that of c
    one = {**features, "c": replace(features["c"], parallel=False)}
    found = ratios(one, senders, 0.5, 100)
    assert found.fixed == {"c": 1, "b": 6}  # c takes 4000/s at most, and b then needs 6
    assert found.start == {"a": 1, "window": 2, "d": 2, "c": 1, "b": 6}


@pytest.mark.parametrize(
    ("out_1", "out_2", "scv", "kind"),
    [
        (100, 200, 0.0, "proportional"),
        (1200, 2400, 0.2, "workload"),
        (50, 101, 1.0, "workload"),  # a filter
        (10, 10, 3.0, "logic"),
        (10, 13, 3.0, "logic"),
        (0, 0, 0.0, "proportional"),
    ],
)
def test_kinds_show_when_the_load_doubles(
    out_1: float, out_2: float, scv: float, kind: str
) -> None:
    assert kind_of(100, out_1, 200, out_2, scv) == kind


# a platform of formulas


SHAPE = Shape(
    sources=("in",),
    operators=("a", "b"),
    senders={"in": (), "a": ("in",), "b": ("a",), "out": ("b",)},
    receivers={"in": ("a",), "a": ("b",), "b": ("out",), "out": ()},
)


@dataclass
class Formula:
    """Carries what its weakest part does. Beyond its cores, every task costs a little. Tuples take
    long where sources are not the weakest part, unless few may be under way."""

    least_s: dict[str, float] = field(default_factory=lambda: {"a": 0.010, "b": 0.020})
    machines: int = 2
    cores: int = 4
    per_source: float = 150.0
    costs: float = 0.02
    most_parts: int | None = None
    tried: list[tuple[Parallelism, float | None]] = field(default_factory=list)

    def close(self) -> None:
        """Nothing to end."""

    def does(self, p: Parallelism) -> float:
        tasks = {n: k / self.least_s[n] for n, k in p.processors.items()}
        busy = sum(self.least_s.values())
        crowd = max(0, sum(p.processors.values()) - self.machines * self.cores)
        platform = self.machines * self.cores / busy * max(0.1, 1 - self.costs * crowd)
        return min(*tasks.values(), platform)

    @contextmanager
    def trial(self, parallelism: Parallelism, rate: float | None) -> Iterator["Formula.Trial"]:
        self.tried.append((parallelism, rate))
        yield Formula.Trial(self, parallelism, rate, random.Random(len(self.tried)))

    @dataclass
    class Trial:
        of: "Formula"
        parallelism: Parallelism
        rate: float | None
        draw: random.Random
        now_s: float = 0.0

        def read(self, seconds: float) -> Samples:
            self.now_s += seconds
            p, does = self.parallelism, self.of.does(self.parallelism)
            comes = self.of.per_source * sum(p.parts.values()) if self.rate is None else self.rate
            rate = min(does, comes)
            under_way = 10.0 if comes < does else (p.in_flight or 2000.0)
            rate *= self.draw.gauss(1, 0.005)
            took_s = under_way / rate
            vertices = {"in": _sample("in", seconds, rate, 1, 0.0)}
            for name, k in p.processors.items():
                vertices[name] = _sample(name, seconds, rate, k, self.of.least_s[name])
            vertices["out"] = _sample("out", seconds, rate, 1, 0.0)
            return Samples(self.now_s, vertices, Sojourn.of([took_s] * 10), 0)

        def completed(self, samples: Samples) -> float:
            return samples.vertices["in"].served / samples.vertices["in"].interval_s

        def waiting(self) -> float:
            return 0.0


def _sample(name: str, seconds: float, rate: float, tasks: int, service_s: float) -> Sample:
    served = round(rate * seconds * 1000)  # so that rounding does not matter
    return Sample(
        name=name,
        interval_s=seconds * 1000,
        processors=tasks,
        wanted=tasks,
        queue=0,
        arrivals=served,
        served=served,
        arrival_rate=rate,
        arrival_scv=1.0,
        service_s=service_s or None,
        service_scv=1.0,
        busy=min(1.0, rate * service_s / tasks),
        emitted={"next": served},
        together={"next": {"next": served}},
    )


HOW = Reading(seconds=1.0)


def tried(method: Any, platform: Formula) -> tuple[Parallelism, list[Round]]:
    return run(method, platform, SHAPE.sources, HOW)


def test_the_whole_method_finds_what_the_platform_carries() -> None:
    platform = Formula()
    found = Found()
    limits = Limits(latency_s=0.5, cores=8)
    result, rounds = tried(stepwise(SHAPE, limits, 1.0, found), platform)
    assert found.ratios is not None
    assert found.ratios.scaled == {"a": 1, "b": 2}  # 2:4
    best = 8 / 0.030
    reached = found.best[-1].measured
    assert reached.throughput > 0.85 * best
    assert reached.latency_s <= 0.5
    assert platform.does(result) > 0.85 * best
    assert len(rounds) <= 2 + most_rounds(2, limits, found.ratios.scaled) + 6
    assert [r.number for r in rounds] == list(range(1, len(rounds) + 1))
    assert rounds[0].proposal.rate == 1.0
    assert all(r.verdict.why for r in rounds)


def test_the_model_needs_fewer_rounds() -> None:
    limits = Limits(latency_s=0.5, cores=8)
    plain, led = Found(), Found()
    platform = Formula(per_source=1000.0)
    _, rounds = tried(stepwise(SHAPE, limits, 1.0, plain), platform)
    result, fewer = tried(guided(SHAPE, limits, 1.0, led), platform)
    assert len(fewer) < len(rounds)
    assert led.best[-1].is_met(limits)
    assert led.best[-1].measured.throughput > 0.97 * plain.best[-1].measured.throughput
    assert platform.does(result) > 0.85 * 8 / 0.030


def test_the_model_gives_no_tasks_to_what_does_not_grow_with_the_load() -> None:
    features = {
        "window": Feature(0.001, 1.0, "logic"),
        "enrich": Feature(0.001, 0.8),
        "merge": Feature(0.001, 1.0, parallel=False),
    }
    assert tasks_for(1700.0, features, {"enrich": 2}) == {"window": 2, "enrich": 2, "merge": 1}


def test_a_platform_without_room_gets_no_more_parts_of_sources() -> None:
    """Nobody tries the same again, and the method ends all the same."""
    platform = Formula(per_source=150.0, most_parts=1)
    limits = Limits(latency_s=0.5, cores=8, most_parts=1)
    for method in (stepwise, guided):
        result, rounds = tried(method(SHAPE, limits, 1.0, Found()), platform)
        assert result.parts == {"in": 1}
        tries = [r.proposal.parallelism for r in rounds if r.proposal.rate is None]
        assert all(one != other for one, other in itertools.pairwise(tries))


def test_a_topology_that_cannot_keep_up_is_told_of() -> None:
    with pytest.raises(TopologyFailed, match="does not keep up even with 100 messages a second"):
        tried(stepwise(SHAPE, Limits(), 100.0, Found()), Formula())


def test_an_interrupted_method_goes_on() -> None:
    def method() -> Any:
        return stepwise(SHAPE, Limits(cores=8), 1.0, Found())

    platform = Formula()
    result, rounds = tried(method(), platform)
    again = Formula()
    half = [(r.proposal, r.measured) for r in rounds[: len(rounds) // 2]]
    same, told = run(method(), again, SHAPE.sources, HOW, half)
    assert len(again.tried) == len(rounds) - len(half)
    assert [r.measured for r in told[: len(half)]] == [m for _, m in half]
    assert same == result


def test_a_trial_that_is_known_is_not_repeated() -> None:
    platform, memo = Formula(), {}  # type: tuple[Formula, dict[str, Measured]]
    limits = Limits(cores=8)
    first = run(stepwise(SHAPE, limits, 1.0, Found()), platform, SHAPE.sources, HOW, memo=memo)
    count = len(platform.tried)
    again = run(stepwise(SHAPE, limits, 1.0, Found()), platform, SHAPE.sources, HOW, memo=memo)
    assert len(platform.tried) == count == len(memo)
    assert again == first


def test_too_many_tuples_under_way_are_throttled() -> None:
    """Where nothing is carried in time, sources are throttled until it is."""
    platform = Formula(per_source=1000.0, costs=0.05)
    limits = Limits(latency_s=0.2, cores=8)
    found: list[Best] = []
    start = Parallelism({"a": 1, "b": 2}, {"in": 1})
    _, rounds = tried(capability(start, {"a": 1, "b": 2}, limits, found), platform)
    assert found[-1].is_met(limits)
    assert found[-1].parallelism.in_flight is not None
    assert found[-1].measured.throughput > 0.8 * max(r.measured.throughput for r in rounds)


def test_a_single_operator_gets_tasks_until_that_does_not_help() -> None:
    platform = Formula(per_source=1e6)
    start = Parallelism({"a": 3, "b": 3}, {"in": 1}, in_flight=20)
    with platform.trial(start, None) as trial:
        first = measure(trial, SHAPE.sources, HOW)
    features = {"a": Feature(0.001, 1.0), "b": Feature(0.001, 1.0)}  # so that none is ample
    found: list[Best] = []
    result, rounds = tried(
        capacity(Best(start, first), features, ("a", "b"), Limits(), found), platform
    )
    assert result.processors == {"a": 3, "b": 6}
    assert [r.verdict.kept for r in rounds[-2:]] == [False, False]
    ample = {"a": Feature(0.006, 1.0), "b": Feature(0.011, 1.0)}
    _, none = tried(capacity(Best(start, first), ample, ("a", "b"), Limits(), found), platform)
    assert none == []


def test_the_methods_it_is_compared_with_never_go_back() -> None:
    platform = Formula(per_source=1e6)
    result, rounds = tried(threshold(SHAPE.ones(), 6, SHAPE.operators, {}), platform)
    assert [sum(r.proposal.parallelism.processors.values()) for r in rounds] == [2, 3, 4, 5, 6, 7]
    assert sum(result.processors.values()) == 8
    assert all(r.verdict.kept for r in rounds)
    easy = Formula(per_source=10.0)
    _, rounds = tried(threshold(SHAPE.ones(), 6, SHAPE.operators, {}), easy)
    assert len(rounds) == 1
    _, rounds = tried(stela(SHAPE.ones(), 3, SHAPE.operators, SHAPE.receivers, 2, {}), platform)
    tasks = [sum(r.proposal.parallelism.processors.values()) for r in rounds]
    assert 1 <= tasks[1] - tasks[0] <= 2


def seen(capacity_: float, served: float = 100.0, tasks: int = 1, to: str = "") -> Seen:
    return Seen(tasks, served, served, 0.001, capacity_, {to: 1.0} if to else {})


def test_stela_prefers_what_reaches_most_results() -> None:
    receivers = {"a": ["x"], "b": ["y"], "x": [], "y": []}
    measured = Measured(
        (100.0,),
        0.1,
        {
            "a": seen(0.9, to="x"),
            "b": seen(0.95, to="y"),
            "x": seen(0.1, 300.0),
            "y": seen(0.1, 100.0),
        },
    )
    busy = {name: of.capacity for name, of in measured.seen.items()}
    assert effective("a", busy, measured, receivers) == 0.75
    assert effective("b", busy, measured, receivers) == 0.25
    assert projected(measured, ["a", "b"], receivers, 1, {}) == {"a": 1}
    assert projected(measured, ["a", "b"], receivers, 3, {}) == {"a": 1, "b": 1}
    assert projected(measured, ["a", "b"], receivers, 3, {"a": 1}) == {"b": 1}
    behind = {**busy, "x": 0.99}
    assert effective("a", behind, measured, receivers) == 0.0
    # Where operators count and pass nothing on, results end with them.
    ends = {**measured.seen, "y": seen(0.9, 0.0), "b": seen(0.9, 100.0)}
    counted = Measured((100.0,), 0.1, ends)
    assert effective("b", busy, counted, receivers) == 0.25


def test_a_shape_knows_what_a_topology_says() -> None:
    t = sj.Topology("shape")
    words = t.source("words", sj.sources.iterable(list))
    count = t.operator("count", lambda w: [w], words, key=abs)
    ranks = t.operator("rank", lambda w: [w], count, key=abs, shards=1)
    t.sink("out", sj.sinks.call(print), ranks)
    shape = Shape.of(t, {"count": "logic"})
    assert shape.single == {"rank"}
    assert shape.ones() == Parallelism({"count": 1, "rank": 1}, {"words": 1})
    assert shape.senders["rank"] == ("count",)
    with pytest.raises(InputError, match="operator 'cuont' is not in the topology"):
        Shape.of(t, {"cuont": "logic"})


def test_an_operator_that_nothing_reaches_is_told_of() -> None:
    platform = Formula()
    with platform.trial(SHAPE.ones(), 1.0) as trial:
        one = measure(trial, SHAPE.sources, HOW)
    none = replace(one, seen={**one.seen, "b": replace(one.seen["b"], service_s=None)})
    method = stepwise(SHAPE, Limits(), 1.0, Found())
    assert isinstance(next(method), Proposal)
    method.send(none)
    next(method)
    with pytest.raises(InputError, match="operator 'b': no tuple came to it in the first trial"):
        method.send(none)


def test_a_load_that_is_not_small_is_made_smaller() -> None:
    platform = Formula()  # b takes 20 ms, so 20 a second keep it busy for 40 % of its time
    found = Found()
    _, rounds = tried(stepwise(SHAPE, Limits(cores=8), 20.0, found), platform)
    first = [r for r in rounds if r.proposal.step == "application"]
    assert [r.verdict.kept for r in first] == [False, True, True]
    assert "busy for 40% of its time, so this is not small" in first[0].verdict.why
    rates = [r.proposal.rate or 0.0 for r in first]
    assert rates[1] == pytest.approx(20 * 0.075 / 0.4, rel=0.02)
    assert rates[2] == pytest.approx(15.0, rel=0.02)  # which keeps it busy for 30 %
    assert found.features["b"].visits == pytest.approx(1.0, rel=0.05)


def test_no_operator_gets_more_tasks_than_it_can_use() -> None:
    limits = Limits(cores=8, most={"b": 3})
    for method in (
        stepwise(SHAPE, limits, 1.0, Found()),
        guided(SHAPE, limits, 1.0, Found()),
        threshold(SHAPE.ones(), 12, SHAPE.operators, limits.most),
        stela(SHAPE.ones(), 6, SHAPE.operators, SHAPE.receivers, 2, limits.most),
    ):
        _, rounds = tried(method, Formula(per_source=1e6))
        tasks = [r.proposal.parallelism.processors["b"] for r in rounds]
        assert max(tasks) == 3


def test_a_limit_that_an_early_round_keeps_is_not_said_to_be_out_of_reach() -> None:
    """More is carried later, but too late, and throttling does not help."""

    class Late(Formula):
        """Only with few tasks tuples are in time."""

        @contextmanager
        def trial(self, parallelism: Parallelism, rate: float | None) -> Iterator[Any]:
            with super().trial(parallelism, rate) as trial:
                late = sum(parallelism.processors.values()) > 12
                read = trial.read

                def delayed(seconds: float) -> Samples:
                    samples = read(seconds)
                    return replace(samples, sojourn=Sojourn.of([2.0 if late else 0.1]))

                trial.read = delayed  # type: ignore[method-assign]
                yield trial

    limits = Limits(latency_s=0.5, cores=8)
    for method in (stepwise, guided):
        found = Found()
        tried(method(SHAPE, limits, 1.0, found), Late(cores=40, per_source=1e6))
        assert found.best[-1].is_met(limits)


def test_where_no_followed_tuple_gets_through_latency_is_at_least_as_long_as_all_readings() -> None:
    parts = [Samples(float(i), {"in": _sample("in", 0.001, 10, 1, 0.0)}, None, 0) for i in range(4)]
    found = summed(parts, [10.0] * 4, ["in"], 0.0)
    assert found.latency_s == pytest.approx(4.0)
    assert found.throughput == 10.0
    with pytest.raises(TopologyFailed, match="no tuple was completed in 4 readings"):
        summed(parts, [0.0] * 4, ["in"], 0.0)
