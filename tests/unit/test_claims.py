"""Verdicts about Table II and ICDCS fig. 8, on times made up for them: each rule can fail."""

import random
from collections.abc import Callable
from typing import Any

import drs_table2
import icdcs_fig8
import pytest

FULL, QUICK = 100_000, 1_000


def parts(ms: Callable[[int], float], noise: float = 0.01) -> drs_table2.Parts:
    chance = random.Random(1)
    return {
        size: [ms(size) * (1 + chance.uniform(-noise, noise)) for _ in range(20)]
        for size in drs_table2.SIZES
    }


def linear(size: int) -> float:
    return 0.01 + 0.0008 * size


def table2(
    scaling: Callable[[int], float] = linear,
    measuring: Callable[[int], float] = lambda _: 0.2,
    by_tasks: Callable[[int], float] = linear,
    calls: int = FULL,
    noise: float = 0.01,
) -> list[bool | None]:
    one, two, three = (parts(of, noise) for of in (scaling, measuring, by_tasks))
    return [claim.holds for claim in drs_table2.told(one, two, three, calls).claims]


def test_table_2_holds_for_linear_growth_whatever_is_fixed() -> None:
    assert table2() == [True, None, True, True]  # the second holds by construction
    assert table2(scaling=lambda size: 0.1 + 0.0008 * size)[0] is True
    assert table2(scaling=lambda size: drs_table2.PAPER_MS[size])[0] is True


@pytest.mark.parametrize(
    "scaling",
    [lambda size: 1e-5 * size**2, lambda size: 0.01 * size**0.5, lambda size: 1e-4 * size**1.3],
)
def test_table_2_fails_for_other_growth(scaling: Callable[[int], float]) -> None:
    assert table2(scaling)[0] is False


def test_table_2_fails_where_measuring_depends_on_processors_and_not_on_tasks() -> None:
    assert table2(measuring=lambda size: 0.2 + 0.001 * size)[1] is False
    assert table2(by_tasks=lambda _: 0.2)[2] is False


def test_table_2_fails_where_most_take_a_millisecond() -> None:
    assert table2(measuring=lambda _: 1.1)[3] is False
    mostly = table2(scaling=lambda size: 0.02 * size, measuring=lambda _: 0.1)
    assert mostly[3] is False
    assert table2(scaling=lambda size: 0.01 * size, measuring=lambda _: 0.1)[3] is True


def test_table_2_is_not_decided_by_quick_runs_or_wide_intervals() -> None:
    assert table2(calls=QUICK) == [None, None, None, True]
    assert table2(noise=0.9)[:2] == [None, None]


def test_measuring_has_reports_of_so_many_processors() -> None:
    allocation = {"extract": 9, "match": 10, "aggregate": 1}
    for each in (False, True):
        found = drs_table2.measures(drs_table2.changes(allocation, each))
        assert {name: found.operators[name].processors for name in allocation} == allocation
    assert len(drs_table2.changes(allocation, each=True)) == 22
    assert len(drs_table2.changes(allocation, each=False)) == 5


def workloads(ratios: list[float], error: float = 0.01) -> list[dict[str, Any]]:
    return [
        {
            "cpu_ms": ms,
            "measured_ms": ratio * ms,
            "gigk_ms": ms,
            "ratio": ratio,
            "error": error,
            "parts": 10,
        }
        for ms, ratio in zip(icdcs_fig8.TOTAL_MS, ratios, strict=True)
    ]


def fig8(ratios: list[float], error: float = 0.01, quick: bool = False) -> list[bool | None]:
    return [claim.holds for claim in icdcs_fig8.told(workloads(ratios, error), quick).claims]


def test_workloads_are_spread_from_the_shortest_to_the_longest() -> None:
    assert icdcs_fig8.TOTAL_MS[0] == pytest.approx(0.567)
    assert icdcs_fig8.TOTAL_MS[-1] == pytest.approx(309.1)
    assert len(icdcs_fig8.TOTAL_MS) == 6


def test_figure_8_holds_where_the_ratio_falls_to_1() -> None:
    assert fig8([12.0, 4.0, 2.0, 1.3, 1.1, 1.02]) == [True, True]
    assert fig8([12.0, 4.0, 2.0, 1.3, 1.02, 1.03]) == [True, True]  # two of six in another order


@pytest.mark.parametrize("ratios", [[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], [3.0, 1.0, 4.0, 2.0, 5.0, 1.1]])
def test_figure_8_fails_where_it_does_not_fall(ratios: list[float]) -> None:
    assert fig8(ratios)[0] is False
    assert fig8(ratios, quick=True)[0] is None


def test_figure_8_fails_where_the_ratio_stays_above_1() -> None:
    assert fig8([12.0, 4.0, 2.5, 2.2, 2.1, 2.0]) == [True, False]
    assert fig8([12.0, 4.0, 2.5, 2.2, 2.1, 2.0], quick=True) == [True, None]
    assert fig8([12.0, 4.0, 2.5, 2.2, 2.1, 0.5])[1] is False
    assert fig8([12.0, 4.0, 2.0, 1.3, 1.2, 1.19])[1] is None


def test_figure_8_is_not_decided_where_chance_may_have_made_the_trend() -> None:
    assert fig8([1.05, 1.04, 1.03, 1.02, 1.01, 1.0], error=0.1)[0] is None
