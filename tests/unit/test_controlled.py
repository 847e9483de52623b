"""Verdicts about DRS figures 8 and 9 and ICDCS figure 10, on runs made up for them."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import coded
import controlled
import drs_fig8
import drs_fig9
import icdcs_fig10
import lab
import pytest
from controlled import Change, Run
from test_lab import record

from sojourn.control.situation import Action, Decision
from sojourn.settings import ControlSettings


def wavering(means_s: Sequence[float], noise: float = 0.02, seed: int = 0) -> tuple[float, ...]:
    chance = random.Random(f"{seed} {len(means_s)} {means_s[0]}")
    return tuple(mean * (1 + chance.gauss(0, noise)) for mean in means_s)


def test_minutes_are_those_in_which_a_change_takes_effect() -> None:
    records = [record(5.0 * n, None) for n in range(1, 5)]
    change = record(15.0, Action.ADD)
    change = replace(change, decision=Decision(Action.ADD, "", {"extract": 3}))
    records[2] = change
    found = controlled.run_of(records, ["extract"])
    assert found.changes == (Change(4, (1,), (3,)),)
    assert (found.start, found.end) == ((1,), (3,))
    assert len(found.means_s) == 4
    assert controlled.run_of(records, ["extract"], 5).machines == (0, 0, 0, 0)


def test_a_quick_run_does_not_say_that_something_does_not_hold() -> None:
    runs = {"ExpA": (long_run((14,)), 0.5), "ExpB": (long_run((14,)), 1.0)}
    full, quick = (icdcs_fig10.told_of({"drs-2017": runs}, 14, quick) for quick in (False, True))
    assert False in [claim.holds for claim in full.claims]
    for one, other in zip(full.claims, quick.claims, strict=True):
        assert other.holds is (None if one.holds is False else one.holds)
        assert ("too short to tell" in other.why) or one.holds is not False


# figure 8

BEST, ONE, OTHER = (10, 11, 1), (8, 12, 2), (11, 9, 2)


def curve(
    start: tuple[int, ...],
    before: float,
    after: float = 0.2,
    minute: int | None = 14,
    end: tuple[int, ...] = BEST,
    peak: float = 1.1,
    noise: float = 0.02,
) -> Run:
    changes = () if minute is None else (Change(minute, start, end),)
    means = [before] * 13 + [before * peak] + [after] * 13
    return Run(start, wavering(means, noise), changes)


def application(**changed: Any) -> list[Run]:
    worse = {"before": 0.3, **changed}
    return [curve(BEST, 0.2, minute=None, peak=1.0), curve(ONE, **worse), curve(OTHER, **worse)]


def fig8(
    runs: list[Run], resized_s: Sequence[float] = (0.1,), restart_s: float | None = 9.0
) -> Any:
    found = drs_fig8.told_of({"drs-2017": {"vld": runs}}, 14, resized_s, restart_s, False)
    return [claim.holds for claim in found.claims]


def test_figure_8_holds_where_all_end_at_the_optimum_at_little_cost() -> None:
    assert fig8(application()) == [True] * 7


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({"minute": 15}, [0]),
        ({"minute": None}, [0, 1]),
        ({"end": (9, 12, 1)}, [1]),
        ({"after": 0.4}, [2, 3, 4]),
        ({"after": 0.27}, [3]),
        ({"peak": 2.0}, [4]),
    ],
)
def test_figure_8_fails_where_runs_do_otherwise(changed: Any, fails: list[int]) -> None:
    found = fig8(application(**changed))
    assert [number for number, holds in enumerate(found) if holds is False] == fails


def test_figure_8_is_not_decided_where_nobody_can_tell() -> None:
    vague = fig8(application(noise=0.9), (), None)
    assert vague[:4] == [True, True, None, None]
    assert vague[5:] == [None, None]
    assert fig8(application(minute=None))[4] is None


def test_changes_must_take_seconds_and_less_than_a_restart() -> None:
    assert fig8(application(), (0.1, 12.0), 200.0)[5:] == [False, True]
    assert fig8(application(), (0.1, 2.0), 9.0)[5:] == [True, False]


def test_ours_and_real_code_have_claims_of_their_own() -> None:
    runs = {
        "drs-2017": {"vld": application(), "vld-code": application()},
        "drs": {"vld": application(minute=15)},
    }
    found = drs_fig8.told_of(runs, 14, (0.1,), 9.0, False)
    papers = [claim.paper for claim in found.claims]
    assert papers.count("ours") == 10
    assert [c.holds for c in found.claims if c.says.startswith("with drs, sub")] == [False]


# figure 9

UP, DOWN, HIGH = (
    (drs_fig9.START, (4, 6, 1)),
    ((4, 6, 1), drs_fig9.START),
    (drs_fig9.START, (6, 8, 1)),
)
WAYS = UP, DOWN, HIGH


def long_run(
    minutes: Sequence[int], rise_s: float = 1.2, machines: bool = True, ways: Any = None
) -> Run:
    means = [0.16] * 46
    changes = tuple(Change(m, *way) for m, way in zip(minutes, ways or WAYS, strict=False))
    for change in changes:
        means[change.minute - 1] += rise_s if change.adds else 0.1
    return Run(drs_fig9.START, tuple(means), changes, (2,) * 46 if machines else ())


def short_run(minutes: Sequence[int]) -> Run:
    changes = tuple(Change(m, *way) for m, way in zip(minutes, (UP, DOWN), strict=False))
    return Run(drs_fig9.START, (0.16,) * 20, changes)


def fig9(
    slow: Run | None = None,
    quick: Run | None = None,
    burst: Sequence[int] = (),
    answered: Sequence[int] = (10, 16),
    pattern: Any = drs_fig9.LONG,
) -> list[bool | None]:
    runs = {
        ("drs-2017", "long", 6): slow or long_run((14, 28, 41)),
        ("drs-2017", "long", 3): quick or long_run((10, 25, 38)),
        ("drs-2017", "short", 6): short_run(burst),
        ("drs-2017", "short", 3): short_run(answered),
    }
    patterns = {"long": pattern, "short": drs_fig9.SHORT}
    return [claim.holds for claim in drs_fig9.told_of(runs, patterns, None).claims]


def test_figure_9_holds_where_the_scheduler_does_as_theirs() -> None:
    assert fig9() == [True] * 8


def test_figure_9_fails_where_it_does_otherwise() -> None:
    def fails(**changed: Any) -> list[int]:
        return [number for number, holds in enumerate(fig9(**changed)) if holds is False]

    elsewhere = long_run((14, 28, 41), ways=((drs_fig9.START, (5, 5, 1)), DOWN, HIGH))
    assert fails(slow=elsewhere) == [0]
    assert fails(slow=long_run((12, 28, 41))) == [2]
    assert fails(quick=long_run((14, 28, 41))) == [1, 4]
    assert fails(slow=long_run((14,))) == [2, 3]
    assert fails(slow=long_run((14, 28, 41), rise_s=0.1)) == [7]
    assert fails(burst=(10,)) == [5]
    assert fails(answered=()) == [6]
    assert fails(answered=(10,)) == [6]


def test_figure_9_is_not_decided_by_a_part_of_the_pattern_or_without_machines() -> None:
    cut = drs_fig9.QUICK_LONG
    runs = (
        Run(drs_fig9.START, (0.16,) * 18, (Change(14, *UP),)),
        Run(drs_fig9.START, (0.16,) * 18, (Change(10, *UP),)),
    )
    assert fig9(*runs, pattern=cut) == [True, None, None, None, True, True, True, None]
    assert fig9(slow=long_run((14, 28, 41), machines=False))[7] is None


def test_changes_belong_to_the_change_of_the_rate_before_them() -> None:
    run = long_run((14, 28, 41))
    assert [len(some) for some in drs_fig9.events(run, drs_fig9.LONG)] == [0, 1, 1, 1]
    assert drs_fig9.delays(run, drs_fig9.LONG) == [7.0, 6.0, 6.0]
    early = long_run((3, 28, 41))
    assert [len(some) for some in drs_fig9.events(early, drs_fig9.LONG)] == [1, 0, 1, 1]
    assert drs_fig9.delays(early, drs_fig9.LONG)[0] is None


def test_delays_count_from_when_the_source_began() -> None:
    """Which is before the first minute does, as a start takes time."""
    five = ControlSettings(max_sojourn_s=1.0, interval_s=5.0)
    records = [replace(record(5.0 * n, None), settings=five) for n in range(1, 4)]
    change = Decision(Action.ADD, "", {"extract": 3})
    records.append(replace(record(20.0, Action.ADD), decision=change))
    run = controlled.run_of(records, ["extract"])
    assert run.early == pytest.approx(0.4)  # 7 s instead of the 5 s of its settings
    pattern = ((3, 6.0), (4, 12.0))
    assert drs_fig9.delays(run, pattern) == [pytest.approx(1.4)]
    wrong_way = replace(run, changes=(Change(5, (3,), (1,)),))
    assert drs_fig9.delays(wrong_way, pattern) == [None]
    assert drs_fig9.edges_of(drs_fig9.LONG) == [6, 21, 34]


# ICDCS figure 10


def exp(
    before: float,
    after: float,
    machines: tuple[int, int],
    peak: float,
    end: tuple[int, ...],
    start: tuple[int, ...],
    minute: int = 14,
    noise: float = 0.02,
) -> Run:
    means = [before] * 13 + [peak] + [after] * 13
    up = (machines[0],) * 13 + (machines[1],) * 14
    return Run(start, wavering(means, noise), (Change(minute, start, end),), up)


def fig10(a: Any = (), b: Any = ()) -> list[bool | None]:
    one: dict[str, Any] = {
        "before": 0.75,
        "after": 0.42,
        "machines": (4, 5),
        "peak": 4.7,
        "end": (10, 11, 1),
        "start": (8, 8, 1),
    }
    other: dict[str, Any] = {
        "before": 0.42,
        "after": 0.75,
        "machines": (5, 4),
        "peak": 1.1,
        "end": (8, 8, 1),
        "start": (10, 11, 1),
    }
    runs = {"ExpA": (exp(**one | dict(a)), 0.5), "ExpB": (exp(**other | dict(b)), 1.0)}
    return [claim.holds for claim in icdcs_fig10.told_of({"drs-2017": runs}, 14).claims]


def test_machines_come_and_go_as_theirs() -> None:
    assert fig10() == [True] * 6


@pytest.mark.parametrize(
    ("a", "b", "fails"),
    [
        ({"before": 0.4}, {}, [0]),
        ({"machines": (4, 4)}, {}, [1]),
        ({"minute": 20}, {}, [1]),
        ({"after": 0.6}, {}, [2]),
        ({}, {"after": 1.2}, [3]),
        ({"peak": 0.9}, {}, [4]),
        ({"end": (9, 9, 1)}, {}, [5]),
    ],
)
def test_figure_10_of_icdcs_fails_where_they_do_not(a: Any, b: Any, fails: list[int]) -> None:
    found = fig10(a, b)
    # A change that comes late has its peak elsewhere.
    assert [n for n, holds in enumerate(found) if holds is False] in (fails, sorted({*fails, 4}))


def test_figure_10_of_icdcs_is_not_decided_where_nobody_can_tell() -> None:
    assert fig10({"noise": 2.0}, {"noise": 2.0})[0] is None
    assert fig10({"machines": (4, 4)})[4] is None


def test_they_are_drawn(tmp_path: Path) -> None:
    findings = {
        "fig8": drs_fig8.told_of({"drs-2017": {"vld": application()}}, 14, (), None, False),
        "fig10": icdcs_fig10.told_of(
            {"drs": {"ExpA": (long_run((14,)), 0.5), "ExpB": (long_run((14,)), 1.0)}}, 14
        ),
        "fig9": drs_fig9.told_of(
            {
                ("drs-2017", what, w): long_run((14,)) if what == "long" else short_run((10,))
                for what in ("long", "short")
                for w in (3, 6)
            },
            {"long": drs_fig9.LONG, "short": drs_fig9.SHORT},
            None,
        ),
    }
    for name, finding in findings.items():
        about = {"engine": "simulator", "length": "quick", "seed": 0}
        lab.written(finding, name, about, tmp_path)
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


# real code


class Doubles:
    def open(self) -> None:
        self.opened = True

    def process(self, value: int) -> list[int]:
        assert self.opened
        self.state["seen"] = self.state.get("seen", 0) + 1  # type: ignore[attr-defined]
        return [value, value]


def test_a_call_sleeps_a_multiple_of_its_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    ticks = iter([1.0, 1.5, 2.0, 2.25])
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setattr("time.thread_time", lambda: next(ticks))
    slowed = coded.Slowed(Doubles(), 10.0, one=False)
    slowed.open()
    slowed.state = {}
    assert slowed.process(3) == [3, 3]
    assert slowed.state == {"seen": 1}
    assert coded.Slowed(lambda value: value + 1, 4.0, one=True).process(1) == 2
    assert slept == [5.0, 1.0]


@pytest.mark.parametrize("app", ["vld", "fpd"])
def test_applications_run_with_their_code_and_keep_so_many_busy(app: str) -> None:
    shape = coded.coded(app)
    stations = shape.network().stations
    assert sum(s.offered_load for s in stations.values()) == pytest.approx(coded.BUSY[app])
    assert coded.BUSY[app] / (1 + coded.TIMES[app]) < 0.6 * 2
    allocation = dict.fromkeys(stations, 2)
    topology = shape.topology(allocation, sleep=True)
    topology.check()
    assert list(topology.operators) == list(stations)
    assert set(topology.sources) == set(shape.sources)
    for spec in topology.operators.values():
        assert isinstance(spec.code, coded.Slowed)
        assert spec.processors == 2
