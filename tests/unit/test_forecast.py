"""Forecasts of the load: when there is one, when it counts, and what it gains."""

import itertools
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_control_simulated import ORDERS, pair

from sojourn.control import forecast as forecasts
from sojourn.control.controller import Record
from sojourn.control.forecast import Case, Forecast, Outlook, Score, foreseen, slope_of
from sojourn.control.journal import read_journal, replay
from sojourn.control.measure import Measure
from sojourn.control.situation import Action
from sojourn.control.smoothing import smoothed
from sojourn.control.summary import Summary
from sojourn.settings import ControlSettings
from sojourn.simulator import SourceLoad

TARGET_S = 0.2
SEASON_S = 600.0
SURGE = ((240.0, 40.0), (120.0, 120.0), (240.0, 40.0))
CALM = ((SEASON_S, 40.0),)
SHORT_S = 240.0
SHORT = ((90.0, 40.0), (60.0, 120.0), (90.0, 40.0))


def measure(time_s: float, rate: float) -> Measure:
    return Measure(time_s, 1.0, rate, {}, {}, None, 0.0, 1.0)


def drawn(rate: Callable[[int], float], seconds: int, seed: int = 0) -> list[Measure]:
    """Poisson's arrivals, second by second, by their normal approximation."""
    draw = random.Random(seed)
    rates = [rate(second) for second in range(seconds)]
    return [
        measure(float(second + 1), max(0.0, draw.gauss(rate, rate**0.5)))
        for second, rate in enumerate(rates)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_ramp_has_a_slope(seed: int) -> None:
    line = slope_of(drawn(lambda second: 40 + 3 * second, 40, seed))
    assert line is not None
    assert line.slope == pytest.approx(3.0, abs=5 * line.error)
    assert line.at(52.0) == pytest.approx(40 + 3 * 51.5, rel=0.2)


def test_steady_load_has_a_slope_by_rare_chance_only() -> None:
    found = [slope_of(drawn(lambda _second: 40.0, 60, seed)) for seed in range(200)]
    assert sum(line is not None for line in found) <= 2


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ago", [3, 10, 30])
def test_a_jump_is_no_slope(seed: int, ago: int) -> None:
    assert slope_of(drawn(lambda second: 80.0 if second >= 60 - ago else 40.0, 60, seed)) is None


def test_a_ramp_that_begins_is_told_from_what_was_before() -> None:
    line = slope_of(drawn(lambda second: 100 + max(0, 10 * (second - 45)), 60))
    assert line is not None
    assert line.slope == pytest.approx(10.0, rel=0.5)


def scored(*errors: tuple[float, float]) -> Score:
    score = Score()
    for own, now in errors:
        score = score.judged(Case(0.0, 100 + own, 100 + now), 100.0, 30)
    return score


def test_a_forecast_has_proved_right_after_enough_better_cases() -> None:
    assert not scored(*[(1.0, 10.0)] * 9).proved
    assert scored(*[(1.0, 10.0)] * 10).proved
    assert not scored(*[(9.0, 10.0)] * 30).proved  # by no margin
    assert not scored(*[(10.0, 1.0)] * 30).proved


def test_old_cases_are_forgotten() -> None:
    assert not scored(*[(1.0, 10.0)] * 30, *[(5.0, 5.0)] * 30).proved


def test_one_case_out_of_line_ends_it_until_the_next_in_line() -> None:
    right = [(1.0, 10.0)] * 29
    assert not scored(*right, (9.0, 1.0)).proved
    assert scored(*right, (9.0, 12.0)).proved  # as now was worse
    assert scored(*right, (9.0, 1.0), (1.0, 10.0)).proved


def followed(
    past: Sequence[Measure], settings: ControlSettings, outlook: Outlook | None = None
) -> tuple[Outlook, list[Forecast]]:
    """The forecast of every second."""
    outlook, found = outlook or Outlook(), []
    for end in range(1, len(past) + 1):
        newest, seen = past[end - 1], past[max(0, end - 120) : end]
        outlook = outlook.with_interval(newest.time_s, newest.external_rate, 1.0, settings)
        outlook, forecast = foreseen(outlook, seen, smoothed(seen, settings), settings, None)
        found.append(forecast)
    return outlook, found


def test_a_slope_is_followed_once_it_has_proved_right_and_never_down() -> None:
    ramp = drawn(lambda second: 40.0 + 4 * max(0, min(second - 60, 180 - second)), 240)
    _, found = followed(ramp, ControlSettings())
    assert {f.by for f in found[:70]} == {"now"}
    assert "slope" in {f.by for f in found[70:120]}
    assert any(f.slope is not None and f.slope < 0.9 * f.now for f in found[130:180])
    for f in found:
        assert f.highest >= f.rate >= f.soon >= f.now
        assert f.rate <= 2 * f.now
        assert (f.by == "now") == (f.rate == f.now)


def test_chance_is_no_forecast() -> None:
    _, found = followed(drawn(lambda _second: 60.0, 1800), ControlSettings())
    assert {f.by for f in found} == {"now"}


def test_where_room_is_limited_a_change_takes_as_long_as_machines() -> None:
    settings = ControlSettings()
    outlook = Outlook()
    assert outlook.lead_s(settings, None) == 2.0
    assert outlook.lead_s(settings, 8) == 30.0  # until it is known
    for now_s, needed, room in ((10.0, 8, 8), (11.0, 12, 8), (20.0, 12, 8), (25.0, 12, 12)):
        outlook = outlook.with_room(now_s, needed, room)
    assert outlook.lead_s(settings, 12) == 14.0


def seasons(*which: tuple[tuple[float, float], ...]) -> list[Measure]:
    steps = [rate for season in which for seconds, rate in season for _ in range(int(seconds))]
    return drawn(lambda second: steps[second], len(steps))


def test_a_pattern_is_learned_proves_right_and_is_dropped_when_it_breaks_off() -> None:
    settings = ControlSettings(season_s=SEASON_S)
    _, found = followed(seasons(*[SURGE] * 5, CALM, CALM), settings)
    assert {f.by for f in found[:1200]} == {"now"}
    before_a_surge = found[4 * 600 + 235]
    assert before_a_surge.by == "pattern"
    assert before_a_surge.now < 60
    assert before_a_surge.rate == pytest.approx(120.0, rel=0.1)
    assert found[5 * 600 + 235].by == "pattern"  # it is to come as always
    assert {f.by for f in found[5 * 600 + 255 :]} == {"now"}  # it has not, and was dropped for good


def test_a_clock_that_is_set_back_forgets_no_season() -> None:
    settings = ControlSettings(season_s=SEASON_S)
    past = seasons(*[SURGE] * 4)
    outlook, _ = followed(past, settings)
    moved = outlook.moved(-3600.0)
    newest_s = past[-1].time_s
    assert moved.seasons.expected(newest_s - 3600.0 + 250.0, settings) == pytest.approx(
        outlook.seasons.expected(newest_s + 250.0, settings)
    )


def test_what_was_not_seen_is_as_a_season_ago() -> None:
    settings = ControlSettings(season_s=SEASON_S)
    past = [m for m in seasons(*[SURGE] * 4) if not 1900 < m.time_s <= 1950]
    outlook, _ = followed(past, settings)
    assert len(outlook.seasons.history) == 4 * 120 - 1


def test_without_the_library_there_is_no_pattern(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "statsforecast.models", None)
    forecasts._forecaster.cache_clear()
    settings = ControlSettings(season_s=60.0)
    forecasts.prepare(settings)
    _, found = followed(drawn(lambda _second: 40.0, 240), settings)
    forecasts._forecaster.cache_clear()
    assert {f.pattern for f in found} == {None}
    assert [record.message for record in caplog.records] == [
        "no pattern forecaster is installed, so no pattern is learned: "
        "pip install 'sojourn[forecast]'"
    ]


def run(
    steps: tuple[tuple[float, float], ...],
    seed: int = 0,
    journal: Path | None = None,
    machines: int | None = None,
    **settings: Any,
) -> tuple[Summary, list[Record]]:
    """The records of a simulated run, perhaps with so many machines at first."""
    records: list[Record] = []
    counts, load = {"check": 2, "price": 3}, SourceLoad(steps)
    simulation = pair(ORDERS, counts, load, seed, max_sojourn_s=TARGET_S, **settings)
    seconds = sum(seconds for seconds, _ in steps)
    summary = replace(simulation, duration_s=seconds, machines=machines).run(
        journal=journal, listeners=[records.append]
    )
    return summary, records


def above(records: Sequence[Record]) -> int:
    """Seconds above the target."""
    return sum(
        r.samples.sojourn is not None and r.samples.sojourn.mean_s > TARGET_S for r in records
    )


def mean_processors(records: Sequence[Record]) -> float:
    return sum(sum(r.wanted.values()) for r in records) / len(records)


def test_a_learned_pattern_has_machines_come_before_its_surges() -> None:
    room: dict[str, Any] = {"machines": 1, "machine_processors": 6}
    without = run(SHORT * 6, **room)[1]
    learned = run(SHORT * 6, season_s=SHORT_S, **room)[1]

    def surges(records: Sequence[Record]) -> list[Record]:
        """Once the pattern may be known."""
        return [r for r in records if r.time_s > 3 * SHORT_S and 90 < r.time_s % SHORT_S <= 150]

    assert above(surges(learned)) <= 0.3 * above(surges(without))
    assert above(learned) < above(without)
    assert mean_processors(learned) <= 1.03 * mean_processors(without)
    ahead = [r for r in learned if r.applied and 50 < r.time_s % SHORT_S <= 90]
    assert len(ahead) >= 3
    for record in ahead:
        assert record.decision.action is Action.ADD
        assert "(its pattern)" in record.decision.reason
        assert record.forecast is not None
        assert record.forecast.by == "pattern"


def ramp(seconds: int) -> tuple[tuple[float, float], ...]:
    rise = tuple((1.0, 40 + 360 * second / seconds) for second in range(seconds))
    return ((300.0, 40.0), *rise, (120.0, 400.0))


@pytest.mark.parametrize("seconds", [120, 300])
def test_a_slope_adds_before_a_ramp_misses_the_target(
    seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = [r for seed in range(2) for r in run(ramp(seconds), seed)[1]]
    monkeypatch.setattr(forecasts, "slope_of", lambda _past: None)
    without = [r for seed in range(2) for r in run(ramp(seconds), seed)[1]]
    assert above(followed) <= 0.85 * above(without)
    assert mean_processors(followed) <= 1.05 * mean_processors(without)
    assert any("(its slope)" in r.decision.reason for r in followed if r.applied)


@pytest.mark.parametrize("period_s", [5.0, 7.0, 12.0])
def test_a_square_wave_is_no_slope(period_s: float) -> None:
    steps = ((period_s, 40.0), (period_s, 80.0)) * int(300 / period_s)
    summary, records = run(steps)
    assert {r.forecast.by for r in records if r.forecast} == {"now"}
    assert len(summary.changes) <= 6
    undone = [
        (first, then)
        for first, then in itertools.pairwise(summary.changes)
        if then.at_s - first.at_s < 60 and then.after == first.before
    ]
    assert len(undone) <= 2


def test_the_journal_says_which_and_a_replay_agrees(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _, records = run(SHORT * 4, journal=path, season_s=SHORT_S)
    shape, written = read_journal(path)
    read = list(written)
    assert [r.forecast for r in read] == [r.forecast for r in records]
    assert {r.forecast.by for r in read if r.forecast} >= {"now", "pattern"}
    assert not any(again.differs for again in replay(shape, iter(read), {}))


def test_an_addition_for_a_load_to_come_is_not_taken_back_when_it_comes() -> None:
    """Before it there was less load, so tuples took less time."""
    _, records = run(ramp(300), seed=1)
    assert any(r.applied and r.is_ahead for r in records)
    assert Action.ROLL_BACK not in {r.decision.action for r in records}
