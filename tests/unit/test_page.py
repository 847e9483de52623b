"""The page of kept results, on results made up for it."""

import json
from pathlib import Path
from typing import Any

import kept
import page
import pytest

import sojourn as sj


def claim(holds: bool | None, **other: str) -> dict[str, Any]:
    told = {"paper": "ToN fig. 6", "says": "it is best", "rule": "none is better"}
    why = "" if holds else "another is better"
    return told | {"found": "none was", "holds": holds, "why": why} | other


def result(*claims: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {
        "experiment": "drs_fig6",
        "about": "DRS fig. 6.",
        "engine": "spark",
        "length": "full",
        "seed": 0,
        "seconds": 12.4,
        "date": "2026-11-18T05:00:00.000Z",
        "run": {"commit": "a" * 40, "changed": []},
        "rule": {"commit": "b" * 40, "changed": []},
        "stolen": {"seconds": 12, "clean_seconds": 10, "most_stolen": 0.203, "busy": 0.5},
        "notes": "five times as fast",
        "holds": True,
        "verdict": "of 1 claim 1 holds",
        "rows": [["best", "10:11:1", "9:12:1"]],
        "claims": list(claims),
        "plot": False,
        **other,
    }


def made(*results: dict[str, Any]) -> str:
    return page.page({f"{number}": one for number, one in enumerate(results)})


def row(text: str, start: str) -> list[str]:
    """The cells of the first line that starts so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def verdicts(*results: dict[str, Any]) -> list[str]:
    """On Spark, in the simulator, and why."""
    return row(made(*results), "[ToN fig. 6](#drs_fig6)")[2:]


def test_verdicts_are_over_all_seeds_of_an_engine() -> None:
    spark = [result(claim(True), seed=seed) for seed in (1, 0)]
    simulator = result(claim(False), engine="simulator")
    assert verdicts(*spark, simulator) == [
        "holds (seeds 0, 1)",
        "does not hold (seed 0)",
        "Spark: none was; simulator: another is better",
    ]
    assert verdicts(*spark)[1:] == ["not run", "none was"]
    spark[0]["claims"] = [claim(None)]
    assert verdicts(*spark)[::2] == [
        "seeds disagree: holds (seed 0), cannot be decided (seed 1)",
        "another is better",
    ]


def test_quick_runs_decide_only_where_there_are_no_full_ones() -> None:
    quick, full = result(claim(None), length="quick", seed=7), result(claim(True))
    assert verdicts(quick)[0] == "cannot be decided (quick, seed 7)"
    assert verdicts(quick, full)[0] == "holds (seed 0)"
    assert "- Spark, quick, seed 7: **cannot be decided** (another is better)" in made(quick, full)


def test_the_newest_rule_decides_and_an_earlier_one_is_told() -> None:
    later = {"date": "2026-11-19T05:00:00.000Z", "rule": {"commit": "c" * 40, "changed": []}}
    before, after = result(claim(True)), result(claim(False, rule="none is as good"), **later)
    for order in ((before, after), (after, before)):
        assert verdicts(*order)[0] == "does not hold (seed 0)"
        text = made(*order)
        rules = text.index("- Rule: none is as good."), text.index("- An earlier rule: none is be")
        assert rules[0] < rules[1]
    assert "Spark, seed 0, rule" in text


def test_the_same_seed_run_again_counts_once_with_its_last_run() -> None:
    """The rule's file was touched in between, but not its words."""
    again = result(claim(False), date="2026-11-18T09:00:00.000Z")
    assert verdicts(again, result(claim(True)))[0] == "does not hold (seed 0)"


def test_a_figure_has_rows_side_by_side_commits_stolen_cpu_and_plots() -> None:
    changed = {"commit": "d" * 40, "changed": ["experiments/lab.py", "src/sojourn/ports.py"]}
    other = result(
        claim(True), engine="simulator", plot=True, run=changed, rows=[["worst", "", "2"]]
    )
    text = made(result(claim(True)), other)
    assert row(text, "what") == ["what", "paper", "Spark, seed 0", "simulator, seed 0"]
    assert row(text, "best") == ["best", "10:11:1", "9:12:1", ""]
    assert row(text, "worst") == ["worst", "", "", "2"]
    told = row(text, "Spark, seed 0 | of")
    assert told[2:6] == ["12 s", "2026-11-18 05:00", "`aaaaaaa`", "`bbbbbbb`"]
    assert told[6] == "stolen in 2 of 12 s, at most 20.3%; used 50%"
    assert "`ddddddd`, 2 files changed since" in text
    assert "Scaled (Spark, seed 0; simulator, seed 0): five times as fast." in text
    assert "![drs_fig6, simulator, seed 0](results/1.png)" in text
    assert "results/0.png" not in text
    assert "**ToN fig. 6**: it is best." in text


def test_own_claims_are_told_apart_from_the_papers() -> None:
    text = made(result(claim(True), claim(True, paper="ours", says="it is | always")))
    of_papers, own = text.split("## Claims of this project")
    assert "it is best" in of_papers
    assert "always" not in of_papers
    assert "| [drs_fig6](#drs_fig6) | it is \\| always | holds (seed 0) |" in own


def test_results_without_claims_keep_their_rows() -> None:
    one = result(experiment="elasticutor_fig6", holds=False, verdict="it is not so")
    two = {**one, "experiment": "elasticutor_fig10", "note": "taken over"}
    for name in ("stolen", "date", "run", "rule", "about"):
        del two[name]
    text = made(two, one)
    assert "All claims" not in text
    assert "| elasticutor_fig6 | spark, full | best | 10:11:1 | 9:12:1 |" in text
    assert "- elasticutor_fig6, 12 s, 2 with CPU stolen: does not hold. it is not so." in text
    assert "- elasticutor_fig10, 12 s: does not hold. it is not so." in text
    assert "taken over." in text
    assert text.index("elasticutor_fig6 ") < text.index("elasticutor_fig10 ")


def test_what_was_taken_over_gives_way_to_runs() -> None:
    old = result(verdict="of old", note="taken over")
    assert "of old" in made(old)
    assert "of old" not in made(old, result(claim(True)))


def test_long_lists_are_thinned_when_a_result_is_kept(tmp_path: Path) -> None:
    figures = {"few": [1, 2], "deep": [{"many": list(range(205))}]}
    path = tmp_path / "drs_fig6.json"
    path.write_text(json.dumps(result(figures=figures)), encoding="utf-8")
    to = kept.keep(path, tmp_path / "results")
    assert to.name == "drs_fig6.spark.full.seed0.bbbbbbb.json"
    found = kept.read(to)["figures"]
    assert found["few"] == [1, 2]
    assert found["deep"][0]["many"] == {"items": 205, "every": 3, "kept": list(range(0, 205, 3))}


def test_a_run_with_other_code_stands_beside_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "drs_fig6.json"
    names = []
    for commit in ("a" * 40, "a" * 40, "c" * 40):
        told = result()
        told["run"] = {"commit": "e" * 40, "code": commit, "changed": []}
        path.write_text(json.dumps(told), encoding="utf-8")
        names.append(kept.keep(path, tmp_path / "results").name)
    assert names[0] == names[1] == "drs_fig6.spark.full.seed0.bbbbbbb.json"
    assert names[2] == "drs_fig6.spark.full.seed0.bbbbbbb.ccccccc.json"


def test_results_of_before_seeds_are_read_and_others_refused(tmp_path: Path) -> None:
    told = result()
    del told["seed"], told["claims"], told["rule"], told["date"]
    path = tmp_path / "some.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    found = kept.read(path)
    assert (found["seed"], found["claims"]) == (0, [])
    assert kept.name_of(found) == "drs_fig6.spark.full.seed0.unknown"
    del told["verdict"]
    path.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(sj.InputError, match=r"some\.json: is not the result of an experiment"):
        kept.read(path)
