"""How the side by side of executors finds the best of both sides, on made-up runs."""

from pathlib import Path
from typing import Any

import provisioning_sides as sides
from lab import Runs

SPARK: list[sides.Own] = [(3, 1, 1), (10, 1, 1), (30, 1, 1)]
MODEL: list[sides.Asked] = [(1.0, 1), (1.1, 1), (1.2, 1)]


def runs(path: Path, **of: tuple[float, float]) -> Runs:
    """Machine-seconds and lateness, by name."""
    found = Runs(path / "runs.jsonl")
    for name, (seconds, late_s) in of.items():
        kind, *numbers = name.split("_")
        parts = [float(n) if "." in n else int(n) for n in (m.replace("p", ".") for m in numbers)]
        found.add({"name": ["day", kind, *parts], "machine_s": seconds, "late_s": {"95": late_s}})
    return found


def test_sparks_best_has_the_lowest_product_of_medians(tmp_path: Path) -> None:
    once: dict[str, Any] = {
        "sweep_3_1_1": (280, 3.4),
        "sweep_10_1_1": (270, 3.6),
        "sweep_30_1_1": (190, 6.9),
    }
    first = sides.ranked(runs(tmp_path, **once), "day", SPARK)
    assert first == [(3, 1, 1), (10, 1, 1), (30, 1, 1)]
    more = {"sweep_3_1_1_1": (290, 3.7), "sweep_3_1_1_2": (285, 3.6)}
    found = runs(tmp_path, **once, **more)
    assert sides.ranked(found, "day", first[: sides.SPARKS])[0] == (10, 1, 1)
    assert sides.late_s(found, "day", (3, 1, 1)) == 3.6


def test_the_models_best_takes_the_least_of_those_that_are_not_late(tmp_path: Path) -> None:
    once: dict[str, Any] = {
        "limit_1p0_1": (290, 3.3),
        "limit_1p1_1": (250, 3.5),
        "limit_1p2_1": (220, 4.2),
    }
    found = runs(tmp_path, **once)
    assert sides.cheapest(found, "day", 3.6, MODEL) == [(1.1, 1), (1.0, 1)]
    found = runs(tmp_path, limit_1p1_1_1=(255, 3.9), limit_1p1_1_2=(255, 3.8))
    assert sides.cheapest(found, "day", 3.6, MODEL[:2]) == [(1.0, 1)]  # it was luck
    assert sides.cheapest(found, "day", 3.0, MODEL) == [(1.0, 1), (1.1, 1), (1.2, 1)]


def test_runs_are_made_again_with_what_they_had() -> None:
    job: sides.Job = (("day", "limit", 1.0, 1), {"trace": "t"}, None)
    names = [name for name, *same in sides.again([job]) if same == [job[1], job[2]]]
    assert names == [("day", "limit", 1.0, 1, 1), ("day", "limit", 1.0, 1, 2)]
    assert sides.again([job], 0) == []
