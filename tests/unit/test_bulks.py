"""Bulks of parts, and verdicts about DRS figure 10, on series made up for them."""

import itertools
import math
import statistics
from dataclasses import replace
from typing import Any

import bulks
import cloudpickle
import coded
import drs_fig10
import pytest
import shapes
from bulks import Bulky, Flow
from lab import Lab
from test_compared import series

import sojourn as sj
from sojourn.engine.driver.build import own_modules_by_value
from sojourn.queueing import Station, assign_processors

EXTRACT, MATCH, LAST = 0.044, 0.014, 0.0004  # seconds, five times as fast


def test_a_queue_with_servers_is_that_of_the_formulas() -> None:
    import numpy as np

    draw = np.random.default_rng(1)
    arrivals = np.cumsum(draw.exponential(1 / 2.4, 200_000))
    times = draw.exponential(1.0, 200_000)
    done = bulks.served(arrivals.tolist(), times.tolist(), 3)
    mean_s = float(np.mean(np.array(done) - arrivals))
    assert mean_s == pytest.approx(Station(2.4, 1.0).mean_sojourn(3), rel=0.05)
    flow = bulks.flow_of(arrivals.tolist(), times.tolist())
    assert flow.rate == pytest.approx(2.4, rel=0.02)
    assert (flow.arrival_scv, flow.service_scv) == pytest.approx((1.0, 1.0), rel=0.05)


def test_first_come_first_served_by_hand() -> None:
    assert bulks.served([0.0, 0.0, 1.0], [3.0, 1.0, 1.0], 2) == [3.0, 1.0, 2.0]
    assert bulks.served([0.0, 0.0, 5.0], [3.0, 1.0, 1.0], 1) == [3.0, 4.0, 6.0]


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_parts_and_times_are_as_they_should_be(seed: int) -> None:
    drawn = bulks.Draw(seed)
    counts = [drawn.parts_of(frame) for frame in range(20_000)]
    assert statistics.fmean(counts) == pytest.approx(4.0, rel=0.06)
    assert min(counts) == 1
    for name in ("extract", "match", "aggregate"):
        times = [
            drawn.seconds_of(name, frame, part)
            for frame, count in enumerate(counts[:8000])
            for part in range(1 if name == "extract" else count)
        ]
        assert statistics.fmean(times) == pytest.approx(bulks.SECONDS[name], rel=0.06)
    many = [frame for frame, count in enumerate(counts) if count > 8]
    few = [frame for frame, count in enumerate(counts) if count < 3]
    for name in ("extract", "match"):
        long, short = (
            statistics.fmean(drawn.seconds_of(name, f) for f in some) for some in (many, few)
        )
        assert long > 1.5 * short


def test_another_seed_draws_other_parts_and_times() -> None:
    one, same, other = (bulks.Draw(seed) for seed in (3, 3, 4))
    first = [[d.parts_of(n), d.seconds_of("match", n, 1)] for d in (one, same, other) for n in [0]]
    assert first[0] == first[1] != first[2]
    assert one.parts != other.parts


@pytest.mark.parametrize("kind", list(drs_fig10.KINDS))
def test_frames_come_as_often_as_they_should(kind: str) -> None:
    for rate, shape in zip(drs_fig10.RATES, drs_fig10.shapes(0)[kind], strict=True):
        times = shape.pace().one
        assert len(times) / 60 == pytest.approx(rate * drs_fig10.FASTER, rel=0.05)
        gaps = [b - a for a, b in itertools.pairwise(times)]
        shares = [gap * rate * drs_fig10.FASTER for gap in gaps]
        if kind == "gaps":
            low, high = drs_fig10.KINDS[kind][0 if rate == 5 else 1]
            assert low - 1e-9 <= min(shares) <= max(shares) <= high + 1e-9
        else:
            assert min(shares) >= 5 / 9
            assert max(shares) <= 2.8
        assert drs_fig10.shapes(1)[kind][0].pace().one != drs_fig10.shapes(0)[kind][0].pace().one


def test_more_processors_help_the_simulated_frames() -> None:
    shape = Bulky("x", 5.0, (2.0, 8.0), None, 5.0, 0, turn_s=60.0)
    few, seen = bulks.simulated(shape, {"extract": 2, "match": 4, "aggregate": 1}, 6.0, 4)
    many, _ = bulks.simulated(shape, {"extract": 4, "match": 8, "aggregate": 2}, 6.0, 4)
    assert [part[0] for part in few] == [part[0] for part in many]
    assert all(a[1] > b[1] for a, b in zip(few, many, strict=True))
    assert seen["match"].rate == pytest.approx(4 * seen["extract"].rate, rel=0.1)
    assert seen["match"].arrival_scv > 3 > seen["extract"].arrival_scv


def flows(
    rate: float, arrival: float = 1.1, service: float = 1.0, bulk: float = 12.0
) -> dict[str, Flow]:
    return {
        "extract": Flow(5 * rate, arrival, EXTRACT, service),
        "match": Flow(20 * rate, bulk, MATCH, 1.0),
        "aggregate": Flow(20 * rate, 1.0, LAST, 1.0),
    }


def both(of: Any, seen: Any = flows, noise: float = 1e-4) -> Any:
    """At both rates, with the mean sojourn of an allocation given by its estimates."""
    found = []
    for rate in drs_fig10.RATES:
        some = []
        for allocation in drs_fig10.allocations():
            estimated = {
                model: drs_fig10.network(seen(rate), model).mean_sojourn(allocation)
                for model in ("mmk", "gigk")
            }
            some.append(series(allocation, of(estimated), noise=noise, common=noise))
        found.append((some, seen(rate)))
    return found


def case(same: bool, ratio: float, furthest: float = 1.0, waiting: float = 0.5) -> Any:
    return drs_fig10.Case("x", same, ratio, furthest, waiting)


def verdicts(of: Any, **more: Any) -> list[bool | None]:
    agree = [case(True, 1.05), case(True, 1.0), case(False, 1.3)]
    found = drs_fig10.told({"rates": both(of, **more)}, agree, quick=False)
    return [claim.holds for claim in found.claims[:-3]]


def test_figure_10_holds_where_what_is_measured_follows_the_extended_model() -> None:
    found = verdicts(lambda models: models["gigk"])
    assert found[:6] == [None, True, True, None, True, True]
    # Along one branch there is less load in the estimate, so that it need not fall behind more.
    assert found[6:] == [False, True]


def test_figure_10_fails_where_it_follows_the_basic_one() -> None:
    found = verdicts(lambda models: 0.5 * models["mmk"])
    assert found[:4] == [None, False, True, None]
    assert found[4:6] == [False, False]


def test_figure_10_tells_what_our_own_times_and_parts_lead_to_and_does_not_judge_it() -> None:
    even = both(lambda models: models["gigk"], seen=lambda rate: flows(rate, 3.0, 3.0, 0.1))
    for given, picks, varies in (
        (both(lambda models: models["gigk"]), "they do", "all are"),
        (even, "they pick others", "it is 0."),
    ):
        claims = drs_fig10.told({"rates": given}, [case(True, 1.05)], quick=False).claims
        assert (claims[0].holds, claims[3].holds) == (None, None)
        assert picks in claims[0].why
        assert varies in claims[3].why


def test_figure_10_is_not_decided_where_nobody_can_tell() -> None:
    found = verdicts(lambda models: models["mmk"], noise=0.8)
    assert found[1] is None
    assert None in found[4:6]


def test_real_code_is_judged_by_what_the_extended_model_picks() -> None:
    def verdict(pick_s: float, other_s: float, noise: float = 1e-4, pick: int = 0) -> bool | None:
        some = [
            series(drs_fig10.allocations()[pick], pick_s, noise=noise),
            series(drs_fig10.allocations()[2], other_s, noise=noise),
        ]
        return drs_fig10._real(some, flows(5.0)).holds

    assert verdict(1.0, 1.1) is True
    assert verdict(1.0, 0.9) is False
    assert verdict(1.0, 1.01, noise=0.5) is None
    assert verdict(1.0, 1.1, pick=1) is None  # which it does not pick


def test_models_agree_in_most_cases_or_do_not() -> None:
    def claims(*agree: Any) -> list[bool | None]:
        return [claim.holds for claim in drs_fig10._agreeing(list(agree))]

    assert claims(case(True, 1.0), case(True, 1.2), case(False, 1.01)) == [True, True, True]
    assert claims(case(True, 1.0), case(False, 1.2), case(False, 0.5)) == [False, False, True]
    assert claims(case(True, 1.0, 0.5), case(True, 1.0, 1.2)) == [True, True, False]


def test_where_nobody_waits_any_models_agree() -> None:
    trivial = [case(True, 1.0, waiting=0.01)] * 100
    other = drs_fig10.Case("random1", True, 1.0, 1.0, 0.5, own=False)
    apart = case(False, 1.5, 1.5)
    found = drs_fig10._agreeing([*trivial, other, apart])
    assert [claim.holds for claim in found] == [False, False, False]
    assert "100% of 101 others" in found[0].found
    assert [claim.holds for claim in drs_fig10._agreeing(trivial)] == [None, None, None]


def test_models_are_compared_where_waiting_counts() -> None:
    """Those of the applications are enough of them, and differ."""
    bench = Lab("simulator", quick=True)
    found = drs_fig10.agreements(bench)
    counting = [one for one in found if one.counts]
    assert {one.name.split(",")[0] for one in counting} >= {"vld", "fpd"}
    assert 8 <= len(counting) < len(found) / 2
    assert all(0 <= one.waiting < 1 for one in found)


def test_real_code_has_two_rivals_that_keep_up() -> None:
    rate = coded.coded("vld").rate * drs_fig10.REAL_BUSY / coded.BUSY["vld"]
    shape = coded.coded("vld", ((1.0, rate),), rate)
    network, some = shape.network(), drs_fig10.of_code(shape)
    assert len({tuple(one.values()) for one in some}) == 3
    for one in some:
        assert sum(one.values()) == 7
        assert all(network.stations[name].offered_load < k for name, k in one.items())
    busy = coded.coded("vld", ((1.0, 1.7 * rate),), 1.7 * rate)
    with pytest.raises(sj.InputError, match="there must be two allocations beside the best"):
        drs_fig10.of_code(busy)


def test_rates_of_real_code_repeat_themselves_by_turn() -> None:
    steps = tuple((1.0, float(number)) for number in range(1, 100))
    shape = replace(coded.coded("vld", steps, 5.0), turn_s=2.5)
    found = shape.rates()
    assert found[:6] == ((1.0, 1.0), (1.0, 2.0), (0.5, 3.0)) * 2
    assert sum(seconds for seconds, _ in found) >= 7200
    assert coded.coded("vld", steps, 5.0).rates() == steps


def test_one_branch_has_one_visit_each() -> None:
    allocation = drs_fig10.allocations()[0]
    alone = drs_fig10.network(flows(5.0), "mmk", one_branch=True)
    stations = alone.stations
    expected = sum(stations[n].mean_sojourn(k) for n, k in allocation.items())
    assert alone.mean_sojourn(allocation) == pytest.approx(expected)
    assert drs_fig10.network(flows(5.0), "mmk").mean_sojourn(allocation) > expected


def test_times_lead_to_both_picks_by_the_formulas_alone() -> None:
    """Which is how they were chosen."""
    for rate in drs_fig10.RATES:
        seen = flows(rate, 0.2, 1.3, 6.0)
        for model, pick in drs_fig10.THEIRS.items():
            best = assign_processors(drs_fig10.network(seen, model), 7).allocation
            assert ":".join(map(str, best.values())) == pick
    assert math.isclose(EXTRACT * 5, bulks.SECONDS["extract"])
    assert math.isclose(MATCH * 5, bulks.SECONDS["match"])


def test_what_runs_on_spark_can_go_to_workers() -> None:
    """With the experiments' own modules by value, as workers do not have them."""
    allocation = drs_fig10.allocations()[0]
    rates, gaps = (drs_fig10.shapes(0)[kind][0] for kind in drs_fig10.KINDS)
    again = replace(shapes.vld(scale=5.0, drawn=1), turn_s=25.0)
    for topology in (
        rates.topology(allocation),
        gaps.topology(allocation),
        again.topology(allocation, sleep=True),
        coded.coded("vld").topology(allocation, sleep=True),
    ):
        with own_modules_by_value() as modules:
            assert {module.__name__ for module in modules} >= {"bulks", "shapes", "coded"}
            for spec in topology.vertices.values():
                assert cloudpickle.dumps(spec)
