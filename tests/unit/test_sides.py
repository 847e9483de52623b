"""How the side by side of executors finds the best of both sides, on made-up runs."""

import json
from pathlib import Path

import provisioning_close as close
import provisioning_sides as sides
import pytest
from lab import Runs

from sojourn.errors import InputError

SPARK: list[sides.Own] = [(3, 1, 1), (10, 1, 1), (30, 1, 1), (30, 3, 1)]
Some = dict[tuple[float, ...], tuple[float, float]]
MODEL: list[sides.Asked] = [(1.0, 1), (1.1, 1), (1.2, 1), (1.2, 2), (1.2, 3)]


def runs(path: Path, kind: str, some: Some) -> Runs:
    """Machine-seconds and lateness, by what was tried, and the number of the repeated run."""
    found = Runs(path / "runs.jsonl")
    for what, (seconds, late_s) in some.items():
        found.add({"name": ["day", kind, *what], "machine_s": seconds, "late_s": {"95": late_s}})
    return found


def test_sparks_best_has_the_lowest_product_of_medians(tmp_path: Path) -> None:
    once: Some = {(3, 1, 1): (280, 3.4), (10, 1, 1): (270, 3.6), (30, 1, 1): (290, 3.5)}
    found = runs(tmp_path, "sweep", {**once, (30, 3, 1): (190, 6.9)})
    some = sides.ranked(found, "day", SPARK)[: sides.HOPEFUL]
    assert some == [(3, 1, 1), (10, 1, 1), (30, 1, 1)]
    more: Some = {(*one, n): of for one, of in once.items() for n in (1, 2)}
    more |= {(3, 1, 1, 1): (290, 3.7), (3, 1, 1, 2): (285, 3.6)}
    found = runs(tmp_path, "sweep", more)
    assert sides.ranked(found, "day", some, 2)[0] == (10, 1, 1)
    assert sides.middle(found, ("day", "sweep", 3, 1, 1), 2) == (285, 3.6)
    # Who goes on after an interruption repeats the same ones.
    assert sides.ranked(found, "day", SPARK)[: sides.HOPEFUL] == some


def test_the_models_best_takes_the_least_of_those_that_are_not_late(tmp_path: Path) -> None:
    late: Some = {(1.0, 1): (290, 3.3), (1.1, 1): (250, 3.5), (1.2, 1): (220, 3.9)}
    found = runs(tmp_path, "limit", {**late, (1.2, 2): (240, 3.9), (1.2, 3): (200, 4.2)})
    assert sides.cheapest(found, "day", 3.6, MODEL)[:2] == [(1.1, 1), (1.0, 1)]
    assert sides.cheapest(found, "day", 3.2, MODEL)[0] == (1.0, 1)  # the least late
    more: Some = {(*one, n): (255, 3.8) for one in MODEL for n in (1, 2)}
    more |= {(1.2, 2, 1): (245, 3.4), (1.2, 2, 2): (245, 3.5)}
    found = runs(tmp_path, "limit", more)
    assert sides.cheapest(found, "day", 3.6, MODEL, 2)[0] == (1.2, 2)  # the first was luck
    assert sides.cheapest(found, "day", 3.0, MODEL, 2)[0] == (1.2, 2)


def test_runs_are_made_again_with_what_they_had() -> None:
    jobs: list[sides.Job] = [(("day", "limit", x, 1), {"trace": "t"}, None) for x in (1.0, 1.1)]
    names = [name for name, *same in sides.again(jobs) if same == [{"trace": "t"}, None]]
    assert names == [("day", "limit", x, 1, n) for n in (1, 2) for x in (1.0, 1.1)]
    assert sides.again(jobs, 0) == []


def test_the_second_side_by_side_has_the_settings_of_the_newest_result(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no full result of provisioning_sides"):
        close.before(tmp_path)
    run = {"name": ["day", "limit", 1.1, 2, 1], "machine_s": 240.0, "late_s": {"95": 3.4}}
    best: dict[str, object] = {trace: {"best": [10, 1, 1]} for trace in sides.TRACES}
    told = {"experiment": "provisioning_sides", "engine": "spark", "seconds": 1, "notes": ""}
    told |= {"holds": None, "verdict": "", "rows": []}
    for name, length, day, figures in (
        ("old", "full", 1, {trace: {"best": [3, 1, 1]} for trace in sides.TRACES}),
        ("new", "full", 2, best),
        ("quick", "quick", 3, {}),
    ):
        of = {
            "length": length,
            "date": f"2026-11-0{day}",
            "figures": {**figures, "runs": {"": run}},
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(told | of), encoding="utf-8")
    runs, found = close.before(tmp_path)
    assert found == dict.fromkeys(sides.TRACES, (10, 1, 1))
    assert runs.found["day", "limit", 1.1, 2, 1]["machine_s"] == 240
