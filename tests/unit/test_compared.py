"""Allocations under the same chance, and verdicts about DRS figures 6 and 7, on series made up for
them: each rule can hold, fail, and be left open."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import coded
import cpu_times
import drs_fig6
import drs_fig7
import numpy as np
import origin
import paired
import pytest
import shapes
from lab import Lab

import sojourn as sj
from sojourn.ports import Sample, Samples, Sojourn
from sojourn.queueing import assign_processors
from sojourn.simulator import Distribution

PARTS, TREES = 20, 500


def series(
    allocation: Mapping[str, int],
    mean_s: float,
    deviation_s: float = 0.1,
    noise: float = 0.002,
    common: float = 0.05,
    seed: int = 0,
) -> paired.Series:
    """Whatever is common to all hides nothing; noise is each one's own."""
    same, own = random.Random(1), random.Random(f"{allocation} {seed}")
    parts = []
    for _ in range(PARTS):
        mean = mean_s * (1 + same.gauss(0, common)) * (1 + own.gauss(0, noise))
        deviation = deviation_s * (1 + own.gauss(0, noise))
        parts.append((TREES, TREES * mean, TREES * (mean**2 + deviation**2)))
    return paired.Series(allocation, tuple(parts))


def test_students_t_is_exact() -> None:
    for freedom, point in ((1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (19, 2.093)):
        assert paired.both_tails(point, freedom) == pytest.approx(0.05, abs=1e-4)
    assert paired.both_tails(0.0, 7) == 1.0
    assert paired.both_tails(1e9, 19) < 1e-12


def test_equal_allocations_are_told_apart_as_seldom_as_they_should() -> None:
    told = 0
    for seed in range(400):
        one, other = (series({"a": k}, 1.0, seed=seed) for k in (1, 2))
        told += paired.ratio(one, other).above(1.0) <= paired.SURE
    assert 0.02 < told / 400 < 0.09


def test_what_chance_did_to_both_is_gone() -> None:
    slow, fast = series({"a": 1}, 1.02, common=0.3), series({"a": 2}, 1.0, common=0.3)
    assert paired.ratio(slow, fast).value == pytest.approx(1.02, abs=0.003)
    assert paired.ratio(slow, fast).half < 0.005
    assert paired.jackknife(lambda totals: paired.mean(totals[0]), [slow]).half > 0.05


def test_holms_correction() -> None:
    assert paired.rejected([0.01, 0.04, 0.03]) == 1
    assert paired.rejected([0.01, 0.02, 0.03]) == 3
    assert paired.rejected([0.04, 0.03, 0.06]) == 0
    assert paired.rejected([]) == 0


def test_all_must_be_sure_and_one_can_break_it() -> None:
    high, low, vague = (
        paired.Estimate(1.1, 0.01, 19),
        paired.Estimate(0.9, 0.01, 19),
        paired.Estimate(1.1, 0.2, 19),
    )
    assert paired.every([high, high], 1.0) is True
    assert paired.every([high, low], 1.0) is False
    assert paired.every([high, vague], 1.0) is None
    assert paired.every([paired.Estimate(1.1, float("nan"), 0)], 1.0) is None
    assert paired.between(high, 1.0, 1.25) is True
    assert paired.between(low, 1.0, 1.25) is False
    assert paired.between(vague, 1.0, 1.25) is None


def test_the_simulator_gives_all_the_same_chance() -> None:
    shape = shapes.vld(scale=5.0, drawn=0)
    best, other = ({"extract": 10 - n, "match": 11 + n, "aggregate": 1} for n in (0, 1))
    one, same, worse = (paired.simulated(shape, a, 60.0, 0) for a in (best, best, other))
    assert one == same
    assert [part[0] for part in one.parts] == pytest.approx(
        [part[0] for part in worse.parts], abs=20
    )
    alone = paired.jackknife(lambda totals: paired.mean(totals[0]), [worse])
    assert paired.ratio(worse, one).half < alone.half / alone.value
    assert paired.simulated(shape, best, 60.0, 1) != one


def test_traffic_on_spark_repeats_itself() -> None:
    load = shapes.varied(3, 1.0, 25.0, 5.0)
    pace = shapes.Turns(load.steps, "constant", turn_s=7.0)
    per = len(pace.one)
    times = [time_s for time_s, _ in itertools.islice(pace.times(), 3 * per)]
    assert times[per : 2 * per] == pytest.approx([7.0 + t for t in times[:per]])
    assert [t for t, _ in itertools.islice(pace.times(per + 2), 2)] == times[per + 2 : per + 4]
    source = shapes.Again(pace)
    numbers = [number for number, _ in itertools.islice(source.read(per - 1), 3)]
    assert numbers == [per - 1, 0, 1]
    assert next(iter(source.read(2 * per)))[1] == 2 * per + 1


class Patient:
    """An engine on which nothing happens but resizes, in time that is told to it."""

    def __init__(self, late: int = 0) -> None:
        self.has: dict[str, int] = {}
        self.now_s, self.late, self.asked = 0.0, late, 0

    def resize(self, allocation: Mapping[str, int]) -> None:
        self.asked += 1
        self.has = dict(allocation) if self.asked > self.late else {"a": 99}

    def samples(self) -> Samples:
        processors = self.has.get("a", 1)
        vertex = Sample("a", 2.0, processors, processors, 0, 30, 30, 15.0, 1.0, 0.1, 1.0, 0.5)
        return Samples(self.now_s, {"a": vertex}, Sojourn.of([0.1 * processors] * 30), 0)


@pytest.mark.parametrize("late", [0, 3])
def test_each_allocation_has_each_turn_once(late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if processors come late in some of them."""
    engine, bench = Patient(late), Lab("spark", quick=True)
    monkeypatch.setattr("time.monotonic", lambda: engine.now_s)

    @contextmanager
    def running(shape: Any, allocation: Mapping[str, int]) -> Iterator[Any]:
        turn_s = 1.1 * paired.QUICK_TURN_S + 3.0
        assert shape.turn_s == pytest.approx(paired.QUICK_TURNS * turn_s)
        engine.has = dict(allocation)

        def let_pass(seconds: float) -> None:
            engine.now_s += seconds

        yield engine, let_pass

    monkeypatch.setattr(bench, "running", running)
    one, other = paired.in_turns(bench, shapes.vld(), [{"a": 1}, {"a": 3}])
    assert [len(some.parts) for some in (one, other)] == [paired.QUICK_TURNS] * 2
    assert [one.mean_s, other.mean_s] == pytest.approx([0.1, 0.3])
    assert one.seen["a"] == pytest.approx((12.0, 180.0, 180.0, 18.0, 180.0, 180.0))


def test_turns_that_never_come_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, bench = Patient(10**6), Lab("spark", quick=True)

    @contextmanager
    def running(*_: Any) -> Iterator[Any]:
        yield engine, lambda _seconds: None

    monkeypatch.setattr(bench, "running", running)
    with pytest.raises(sj.TopologyFailed, match="vld: 3 of 3 turns were not measured"):
        paired.in_turns(bench, shapes.vld(), [{"a": 1}])


def test_estimates_are_made_of_what_was_measured() -> None:
    network = shapes.vld(scale=5.0).network()
    seen = dict.fromkeys(network.stations, (10.0, 500.0, 400.0, 30.0, 750.0, 100.0))
    some = [paired.Series({}, (), seen)] * 2
    extended = paired.measured_network(network, "extract", some, "gigk").stations["match"]
    assert (extended.arrival_scv, extended.service_scv) == (1.5, 0.25)
    found = paired.measured_network(network, "extract", some)
    assert found.stations["match"].arrival_scv == 1.0
    assert found.stations["match"].arrival_rate == pytest.approx(50.0)
    assert found.stations["match"].service_rate == pytest.approx(400 / 30)
    assert found.external_rate == pytest.approx(50.0)


def test_a_tuple_takes_as_long_in_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    service = Distribution("exponential", 0.2)
    one, same, other = (shapes.Nap(seed, service, {"b": 1.5, "c": 0.25}) for seed in (1, 1, 2))
    sent = [[(o.name, o.value) for o in nap.process(7)] for nap in (one, same)]
    assert sent[0] == sent[1]
    assert slept[0] == slept[1]
    list(other.process(7))
    assert slept[2] != slept[0]
    slept.clear()
    counts = {"b": 0, "c": 0}
    for number in range(4000):
        for made in one.process(number):
            counts[made.name] += 1
    assert np.mean(slept) == pytest.approx(0.2, rel=0.05)
    assert counts["b"] / 4000 == pytest.approx(1.5, rel=0.05)
    assert counts["c"] / 4000 == pytest.approx(0.25, rel=0.1)


def test_rates_are_the_papers() -> None:
    load = shapes.varied(0, 1.0, 25.0)
    rates = [rate for _, rate in load.steps]
    assert np.mean(rates) == pytest.approx(13.0)
    assert min(rates) == pytest.approx(1.0, abs=0.2)
    assert max(rates) == pytest.approx(25.0, abs=0.4)
    assert shapes.vld(scale=5.0, drawn=0).rate == pytest.approx(65.0)
    assert shapes.varied(1, 1.0, 25.0) != load


def test_another_seed_draws_other_gaps_and_times() -> None:
    shape = replace(shapes.fpd(), turn_s=5.0)
    drawn = []
    for seed in (0, 0, 1):
        topology = replace(shape, drawn=seed).topology(
            {"generate": 1, "detect": 1, "report": 1}, sleep=True
        )
        code: Any = topology.operators["detect"].code
        source: Any = topology.sources["entering"].source
        drawn.append((code.drawn[:5], code.seed, source.pace.one))
    one, same, other = drawn
    assert one == same
    assert all(a != b for a, b in zip(one, other, strict=True))


def test_neighbours_are_the_nearest_that_keep_up() -> None:
    network = shapes.fpd().network()
    best = dict(assign_processors(network, 22).allocation)
    found = shapes.neighbours(network, best, 5)
    assert all(network.stations[n].offered_load < k for one in found for n, k in one.items())
    tight = [
        k for one in found for n, k in one.items() if network.stations[n].offered_load > 0.9 * k
    ]
    assert tight == []
    barely = shapes.neighbours(network, best, 40)
    assert any(
        network.stations[n].offered_load > 0.95 * k for one in barely for n, k in one.items()
    )


def test_the_committed_sample_is_of_calls_of_all_operators() -> None:
    assert list(cpu_times.kept("vld")) == ["extract", "match", "aggregate"]
    assert list(cpu_times.kept("fpd")) == ["generate", "detect", "report"]
    assert list(cpu_times.kept("fpd-all")) == list(cpu_times.kept("fpd"))
    for app in ("vld", "fpd", "fpd-all"):
        for told in cpu_times.kept(app).values():
            assert told["calls"] >= len(told["ms"]) > 0
            assert told["mean_ms"] > 0


def test_a_sample_belongs_to_the_rule_of_what_reads_it() -> None:
    folder = Path(cpu_times.__file__).parent
    for name, reads in (("drs_fig6", True), ("drs_table2", True), ("stolen", False)):
        files = [path.name for path in origin.files_of(folder, name)]
        assert f"{name}.py" in files
        assert ("cpu_times.json" in files) is reads


def test_calls_sleep_fewer_times_where_they_take_longer_than_in_the_sample() -> None:
    def times(app: str, slower: float) -> float:
        shape = coded.coded(app)
        took_s = {name: slower * service.mean_s for name, service in shape.service.items()}
        return coded.times_for(shape, took_s)

    assert times("fpd", 1.0) == pytest.approx(20_000.0)
    assert times("fpd", 2.0) == pytest.approx(9999.5)
    with pytest.raises(sj.TopologyFailed, match=r"9.0 times the CPU time .* on a faster machine"):
        times("vld", 9.0)


def test_calls_are_counted() -> None:
    found = cpu_times.called_fpd(window=20)
    assert len(found["generate"].ms) == 3 * 20 + 2 * 20
    assert found["generate"].emitted["detect"] > len(found["generate"].ms)
    assert len(found["detect"].ms) == sum(
        found[name].emitted.get("detect", 0) for name in ("generate", "detect")
    )
    told = found["detect"].told()
    assert len(told["ms"]) <= cpu_times.KEPT
    assert told["gains"]["detect"] >= 0


# figures 6 and 7


def application(
    shape: shapes.Shape,
    over: Sequence[float],
    deviations: Sequence[float] | None = None,
    **more: Any,
) -> tuple[shapes.Shape, list[paired.Series]]:
    """The recommended allocation and five others, whose means are so many times its."""
    network = shape.network()
    best = dict(assign_processors(network, 22).allocation)
    some = [best, *shapes.neighbours(network, best, 5)]
    base = network.mean_sojourn(best)
    return shape, [
        series(allocation, base * times, 0.1 * wide, **more)
        for allocation, times, wide in zip(some, over, deviations or over, strict=True)
    ]


WORSE = (1.0, 1.15, 1.2, 1.25, 1.3, 1.35)


def fig6(vld: Any, fpd: Any, quick: bool = False) -> list[bool | None]:
    return [claim.holds for claim in drs_fig6.told([vld, fpd], quick).claims]


def test_figure_6_holds_where_all_neighbours_are_considerably_worse() -> None:
    both = application(shapes.vld(scale=5.0), WORSE), application(shapes.fpd(), WORSE)
    assert fig6(*both) == [None, True, True, True]


def test_figure_6_fails_where_one_neighbour_is_better_or_hardly_worse() -> None:
    good = application(shapes.vld(scale=5.0), WORSE)
    better = application(shapes.fpd(), (1.0, 0.97, *WORSE[2:]))
    hardly = application(shapes.fpd(), (*WORSE[:5], 1.05))
    steadier = application(shapes.fpd(), WORSE, (1.0, 0.9, *WORSE[2:]))
    assert fig6(good, better) == [None, False, False, False]
    assert fig6(good, hardly) == [None, True, True, False]
    assert fig6(good, steadier) == [None, True, False, True]


def test_figure_6_is_not_decided_where_nobody_can_tell() -> None:
    good = application(shapes.vld(scale=5.0), WORSE)
    vague = application(shapes.fpd(), (1.0, 1.1, *WORSE[2:]), noise=0.5)
    found = drs_fig6.told([good, vague], quick=True)
    assert [claim.holds for claim in found.claims] == [None] * 4
    assert "too short to tell" in found.claims[1].why
    assert found.holds is None


def test_our_own_applications_have_claims_of_their_own() -> None:
    good = application(shapes.vld(scale=5.0), WORSE), application(shapes.fpd(), WORSE)
    own = (
        application(shapes.real("vld"), WORSE),
        application(shapes.real("fpd"), (1.0, 0.9, *WORSE[2:])),
    )
    claims = drs_fig6.told([*good, *own], quick=False).claims
    assert {c.paper: c.holds for c in claims if "mean sojourn" in c.says} == {
        drs_fig6.BOTH: True,
        "ours": False,
    }


def test_what_follows_from_times_that_we_chose_is_told_and_decides() -> None:
    """Neighbours of vld are 1.009 to 1.037 times as slow by the model."""
    good = [application(shapes.vld(scale=5.0), WORSE), application(shapes.fpd(), WORSE)]
    claim = drs_fig6.told(good, quick=False).claims[3]
    assert "considerably" in claim.says
    assert (claim.holds, claim.why) == (True, "")
    close = [application(shape, (1.0, 1.05, *WORSE[2:])) for shape, _ in good]
    claim = drs_fig6.told(close, quick=False).claims[3]
    assert (claim.holds, "with the times that we chose" in claim.why) == (False, True)
    ratios = drs_fig6._expected(*good[1])
    assert min(ratios) < drs_fig6.WORSE < max(ratios)


def fig7(vld: Any, fpd: Any, quick: bool = False) -> list[bool | None]:
    return [claim.holds for claim in drs_fig7.told([vld, fpd], quick).claims]


def as_estimated(
    shape: shapes.Shape, over: float, order: Sequence[int] = range(6), **more: Any
) -> tuple[shapes.Shape, list[paired.Series]]:
    """Measured is so many times what is estimated; `order` puts them in another one."""
    _, some = application(shape, WORSE)
    expected = drs_fig7.estimates(shape, some)
    return shape, [
        series(one.allocation, over * expected[place], **more)
        for one, place in zip(some, order, strict=True)
    ]


def test_figure_7_holds_where_measured_follows_estimated() -> None:
    vld = as_estimated(shapes.vld(scale=5.0), 1.1, noise=1e-7)
    fpd = as_estimated(shapes.fpd(), 1.5, noise=1e-7)
    assert fig7(vld, fpd) == [True, True, True, True, True, True, True]


def test_figure_7_fails_where_it_does_not() -> None:
    vld = as_estimated(shapes.vld(scale=5.0), 1.6, noise=1e-7)
    fpd = as_estimated(shapes.fpd(), 0.7, [5, 4, 3, 2, 1, 0], noise=1e-7)
    assert fig7(vld, fpd) == [False, False, False, False, False, False, False]
    swapped = as_estimated(shapes.fpd(), 1.5, [0, 1, 2, 3, 5, 4], noise=1e-7)
    good = as_estimated(shapes.vld(scale=5.0), 1.1, noise=1e-7)
    assert fig7(good, swapped)[:2] == [False, True]


def test_figure_7_asks_for_the_order_of_patterns_alone() -> None:
    vld = as_estimated(shapes.vld(scale=5.0), 1.05, [0, 2, 1, 5, 3, 4], noise=1e-7)
    fine = as_estimated(shapes.fpd(), 1.1, noise=1e-7)
    swapped = as_estimated(shapes.fpd(), 1.1, [0, 2, 1, 5, 3, 4], noise=1e-7)
    for fpd, holds in ((fine, True), (swapped, False)):
        claims = drs_fig7.told([vld, fpd], quick=False).claims
        assert [c.holds for c in claims if "relative performance order" in c.says] == [holds]


@pytest.mark.parametrize(("over", "holds"), [(1.3, True), (0.5, False)])
def test_the_extended_model_is_poorer_where_the_basic_one_is_too_low(
    over: float, holds: bool
) -> None:
    both = application(shapes.vld(scale=5.0), WORSE), application(shapes.fpd(), WORSE)
    own = as_estimated(shapes.real("vld"), over), as_estimated(shapes.real("fpd"), over)
    claims = drs_fig7.told([*both, *own], quick=False).claims
    found = [c for c in claims if "more poorly" in c.says]
    assert [claim.holds for claim in found] == [holds]
    assert "vld-as-measured" in found[0].found
    assert "fpd-as-measured" not in found[0].found  # its times vary more


def test_where_arrivals_were_more_variable_than_told_the_extended_model_is_not_judged() -> None:
    both = application(shapes.vld(scale=5.0), WORSE), application(shapes.fpd(), WORSE)
    shape, some = as_estimated(shapes.real("vld"), 1.3)
    stations = shape.network("gigk").stations
    seen = {
        name: (1.0, s.arrival_rate, 1.0, 1 / s.service_rate, 2 * s.arrival_rate, s.service_scv)
        for name, s in stations.items()
    }
    own = shape, [replace(one, seen=seen) for one in some]
    (claim,) = (
        c for c in drs_fig7.told([*both, own], quick=False).claims if "more poorly" in c.says
    )
    assert (claim.holds, claim.found) == (None, "there is none")


def test_allocations_that_the_model_has_close_together_are_told_apart() -> None:
    shape, some = as_estimated(shapes.vld(scale=5.0), 1.1)
    expected = sorted(drs_fig7.estimates(shape, some))
    close = sum(high <= drs_fig7.CLOSE * low for low, high in itertools.combinations(expected, 2))
    assert close > 0
    pairs = drs_fig7.pairs(shape, some)
    assert (len(pairs), sum(one for _, one in pairs.values())) == (15, close)


def test_close_allocations_in_the_wrong_order_contradict() -> None:
    shape, some = as_estimated(shapes.vld(scale=5.0), 1.1, noise=1e-7)
    close = next(name for name, (_, one) in drs_fig7.pairs(shape, some).items() if one)
    slow, fast = close.removeprefix(f"{shape.name} ").split(" and ")
    labels = {slow: fast, fast: slow}
    swapped = [
        replace(one, allocation=other.allocation)
        for one in some
        for other in some
        if other.label == labels.get(one.label, one.label)
    ]
    fpd = as_estimated(shapes.fpd(), 1.5, noise=1e-7)
    assert fig7((shape, swapped), fpd)[0] is False


def test_figure_7_is_not_decided_where_nobody_can_tell() -> None:
    vld = as_estimated(shapes.vld(scale=5.0), 1.0, [0, 2, 1, 5, 3, 4], noise=0.2)
    fpd = as_estimated(shapes.fpd(), 1.0, [0, 2, 1, 5, 3, 4], noise=0.2)
    assert fig7(vld, fpd, quick=True) == [None] * 7


def test_one_branch_is_less_where_a_tuple_becomes_several() -> None:
    _, some = application(shapes.fpd(), WORSE)
    printed, branch = (drs_fig7.estimates(shapes.fpd(), some, one) for one in (False, True))
    assert all(b < 0.8 * p for b, p in zip(branch, printed, strict=True))
    shape, chain = application(shapes.vld(scale=5.0), WORSE)
    assert drs_fig7.estimates(shape, chain, True) == pytest.approx(drs_fig7.estimates(shape, chain))


def test_figures_are_drawn_and_kept(tmp_path: Any) -> None:
    import lab

    both = application(shapes.vld(scale=5.0), WORSE), application(shapes.fpd(), WORSE)
    for number, of in ((6, drs_fig6.told), (7, drs_fig7.told)):
        about = {"engine": "simulator", "length": "quick", "seed": 0}
        lab.written(of(list(both), True), f"fig{number}", about, tmp_path)
        assert (tmp_path / f"fig{number}.png").stat().st_size > 10_000


def test_seconds_are_those_that_were_written_down() -> None:
    assert paired.SIMULATED_S == 1200.0
    with pytest.raises(sj.TopologyFailed, match="fewer than 5 tuples"):
        paired.series({"a": 1}, [(3, 1.0, 1.0), (900, 1.0, 1.0)])
    assert Lab("simulator", quick=True).seed_of("rates") != Lab("simulator", True, 1).seed_of(
        "rates"
    )
