"""`sojourn experiment`: the papers' figures made again, here in the simulator, and refusals."""

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


NAMES = (
    "drs_table2",
    "drs_fig8",
    "drs_fig9",
    "drs_fig10",
    "icdcs_fig8",
    "icdcs_fig10",
    "elasticutor_fig7",
)
SURE = {  # claims of which a short simulated run is enough to see that they hold
    "drs_fig9": ("with drs, the same burst leads to two re-allocations with w = 3",),
    "drs_fig10": (
        "(2:4:1) is the measured best (frame rates",
        "in most cases, both models suggest",
    ),
    "icdcs_fig10": ("ExpA quickly gets a machine more", "ExpA ends with (10:11:1) of K_max = 22"),
}


def test_experiments_write_figures_and_plots(run: Run, tmp_path: Path) -> None:
    shown = run("experiment", *NAMES, "--engine", "simulator", "--out", tmp_path, "--json")
    assert shown.code == 0, shown.err
    results = json.loads(shown.out)
    assert sorted(results) == sorted(NAMES)
    for name, found in results.items():
        assert found == json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        assert f"{name} (simulator, quick, seed 0, " in shown.err
        assert found["notes"] in shown.err
        assert found["verdict"] in shown.err
        for claim in found["claims"]:
            assert f"{claim['paper']}: {claim['says']}: " in shown.err
            assert claim["found"] in shown.err
        for what, _, ours in found["rows"]:
            assert f"{what}: " in shown.err
            assert ours in shown.err
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        # Those of the table are a matter of the machine.
        sure = [c for c in found["claims"] if c["says"].startswith(SURE.get(name, ()))]
        assert all(claim["holds"] for claim in sure), found["verdict"]
        assert len(sure) == len(SURE.get(name, ()))
        if name in ("icdcs_fig8", "elasticutor_fig7"):
            assert found["holds"], found["verdict"]


TINY = '''
"""DRS fig. 0: whether the seed
is small.

More of it."""

from lab import Claim, Finding, Lab, judged
from small import RULE

NOTES = "nothing is scaled"


def run(lab: Lab) -> Finding:
    holds = lab.seed < 2
    why = "" if holds else "it is not"
    claim = Claim("ToN fig. 0", "the seed is small", RULE, f"it is {lab.seed}", holds, why)
    figures = {"seed": lab.seed, "many": list(range(1000))}
    rows = [("the seed", "0", str(lab.seed))]
    return judged([claim], figures, rows, lambda figure: figure.add_subplot().plot([1]))
'''
SHARED = ("lab.py", "shapes.py", "cpu_times.py", "stolen.py", "origin.py", "kept.py", "page.py")


class Project:
    """A repository with one small experiment, which is run and kept."""

    def __init__(self, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.call, self.monkeypatch = folder / "experiments", run, monkeypatch
        self.results, self.page = self.folder / "results", self.folder / "README.md"
        self.folder.mkdir()
        for name in SHARED:
            shutil.copyfile(ROOT / "experiments" / name, self.folder / name)
        (self.folder / "drs_tiny.py").write_text(TINY, encoding="utf-8")
        self.rule("below 2")
        self.git("init", "-q")
        self.commit()

    def rule(self, text: str) -> None:
        """The experiment imports it."""
        (self.folder / "small.py").write_text(f"RULE = {text!r}\n", encoding="utf-8")

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=some", "-c", "user.email=some@one")
        command = ["git", *who, "-C", str(self.folder.parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "so")
        return self.git("rev-parse", "HEAD")

    def run(self, *arguments: str) -> Any:
        for name in ("drs_tiny", "drs_there", "drs_broken", "small"):
            self.monkeypatch.delitem(sys.modules, name, raising=False)
        out = self.folder.parent / "out"
        fixed = ("--engine", "simulator", "--folder", self.folder, "--out", out)
        return self.call("experiment", *fixed, *arguments)

    def keep(self, *arguments: str) -> dict[str, Any]:
        """The result in the file that the command names."""
        ended = self.run("drs_tiny", "--keep", *arguments)
        assert ended.code == 0, ended.err
        path = Path(ended.err.rsplit("kept as ", 1)[1].strip())
        assert path.parent == self.results
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def kept(self, ending: str = "json") -> list[str]:
        return sorted(path.name for path in self.results.glob(f"*.{ending}"))


@pytest.fixture
def project(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, run, monkeypatch)


def test_kept_results_stand_beside_each_other_and_make_the_page(project: Project) -> None:
    first = project.git("rev-parse", "HEAD")
    (project.folder / "unfinished").mkdir()  # runs of others, which nothing is made with
    (project.folder / "unfinished" / "drs_other.full.jsonl").touch()
    found = project.keep("--full")
    assert found["rule"] == {"commit": first, "changed": []}
    assert found["run"] == {**found["rule"], "code": first}
    assert (found["seed"], found["length"], found["about"]) == (
        0,
        "full",
        "DRS fig. 0: whether the seed is small.",
    )
    assert datetime.fromisoformat(found["date"]).tzinfo is not None
    assert found["figures"]["many"]["items"] == 1000
    assert len(found["figures"]["many"]["kept"]) == 100
    project.keep("--full", "--seed", "1")
    project.keep("--full", "--seed", "1")  # the same once more
    two = [f"drs_tiny.simulator.full.seed{seed}.{first[:7]}.json" for seed in (0, 1)]
    assert project.kept() == two
    assert project.kept("png") == [Path(name).with_suffix(".png").name for name in two]

    project.rule("at most 1")
    changed = project.keep("--full", "--seed", "1")
    assert changed["rule"] == {"commit": first, "changed": ["experiments/small.py"]}
    second = project.commit()
    (project.folder / "drs_other.py").write_text('"""Another."""\n', encoding="utf-8")
    third = project.commit()
    found = project.keep("--full", "--seed", "1")
    assert (found["run"]["commit"], found["rule"]["commit"]) == (third, second)
    assert len(project.kept()) == 4
    assert set(two) < set(project.kept())

    assert project.run("--table", str(project.page)).code == 0
    text = project.page.read_text(encoding="utf-8")
    assert "| [ToN fig. 0](#drs_tiny) | the seed is small | not run | holds (seed 1) |" in text
    assert "- Rule: at most 1.\n" in text
    assert "- An earlier rule: below 2.\n" in text
    for name in project.kept() + project.kept("png"):
        assert f"(results/{name})" in text
    for commit in (second, third):
        assert f"`{commit[:7]}`" in text
    assert "1 files changed since" in text


BROKEN = '''
"""DRS fig. 0: one that fails."""

from pathlib import Path

from lab import Finding, Lab, judged

NOTES = "nothing is scaled"
COUNT = Path(__file__).parent.parent / "count"


def make(number: int) -> int:
    COUNT.write_text(COUNT.read_text(encoding="utf-8") + str(number), encoding="utf-8")
    if number == 2 and COUNT.read_text(encoding="utf-8").count("2") == 1:
        raise ValueError("the second of these broke")
    return number


def run(lab: Lab) -> Finding:
    found = lab.each(make, [1, 2, 3])
    return judged([], {"found": found}, [], lambda figure: figure.add_subplot().plot([1]))
'''


def test_one_that_fails_keeps_no_other_from_running_and_goes_on_later(project: Project) -> None:
    (project.folder / "drs_broken.py").write_text(BROKEN, encoding="utf-8")
    project.commit()
    count = project.folder.parent / "count"
    count.touch()
    ended = project.run("drs_broken", "drs_tiny", "--json")
    assert ended.code == 1
    assert "drs_broken: FAILED" in ended.err
    assert "ValueError: the second of these broke" in ended.err
    assert "failed: drs_broken; see above" in ended.err
    assert list(json.loads(ended.out)) == ["drs_tiny"]
    again = project.run("drs_broken", "--json")
    assert again.code == 0, again.err
    found = json.loads(again.out)["drs_broken"]
    assert found["figures"]["found"] == [1, 2, 3]
    assert count.read_text(encoding="utf-8") == "1223"  # what was made is not made again
    assert project.run("drs_broken").code == 0
    assert count.read_text(encoding="utf-8") == "1223123"  # but for what is through


def test_a_page_may_come_with_a_run_and_is_of_what_is_kept_alone(project: Project) -> None:
    ended = project.run("drs_tiny", "--table", str(project.page))
    assert ended.code == 0, ended.err
    assert "drs_tiny" not in project.page.read_text(encoding="utf-8")
    project.keep("--table", str(project.page))
    assert "holds (quick, seed 0)" in project.page.read_text(encoding="utf-8")
    project.keep("--seed", "2", "--table", str(project.page))
    text = project.page.read_text(encoding="utf-8")
    assert "| seeds disagree: holds (quick, seed 0), does not hold (quick, seed 2) |" in text
    assert "| it is not |" in text


def test_without_a_repository_commits_are_unknown(project: Project) -> None:
    shutil.rmtree(project.folder.parent / ".git")
    found = project.keep()
    assert found["rule"] == {"commit": None, "changed": None}
    assert found["run"] == {**found["rule"], "code": None}
    (name,) = project.kept()
    assert name.startswith("drs_tiny.simulator.quick.seed0.unknown-20")
    project.run("--table", str(project.page))
    assert "| unknown | unknown |" in project.page.read_text(encoding="utf-8")


def test_a_page_is_not_made_of_something_else(project: Project) -> None:
    project.results.mkdir()
    for other in ("{}", "no JSON", "3"):
        (project.results / "some.json").write_text(other, encoding="utf-8")
        ended = project.run("drs_tiny", "--table", str(project.page))
        assert ended.code == 2
        assert "some.json: is not the result of an experiment; remove it" in ended.err
        assert "…" not in ended.err  # nothing was run


def test_the_page_of_the_project_is_made_of_what_it_keeps(run: Run, tmp_path: Path) -> None:
    assert run("experiment", "--table", tmp_path / "page.md").code == 0
    made = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert made == (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")


def test_patterns_name_experiments_and_leave_out_those_of_another_engine(project: Project) -> None:
    other = TINY.replace("NOTES", 'ENGINES = ("spark",)\nNOTES')
    (project.folder / "drs_there.py").write_text(other, encoding="utf-8")
    shown = project.run("drs_t?ny", "drs_*", "drs_tiny", "--json")
    assert shown.code == 0, shown.err
    assert list(json.loads(shown.out)) == ["drs_tiny"]
    assert shown.err.count("drs_tiny …") == 1
    assert "drs_there: skipped, because it runs only on spark" in shown.err


def test_what_is_not_installed_is_told_before_the_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "cv2" else found(name)
    )
    ended = run("experiment", "drs_table2", "drs_fig8", "--engine", "simulator", "--out", tmp_path)
    assert ended.code == 2
    assert "drs_fig8: needs cv2; pip install 'sojourn[plot,vision]'" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["drs_fig5"], "there is no experiment 'drs_fig5'; known:"),
        ([], "name an experiment, or give --all"),
        (["drs_fig6", "--engine", "storm"], "--engine must be spark or simulator"),
        (["drs_fig6", "--folder", "{tmp}"], "has no experiments"),
        (["drs_fig6", "--out", "{tmp}/file"], "cannot be a directory"),
        (["drs_fig6", "--table", "{tmp}/none/page.md"], "there is no directory"),
        (["drs_fig6", "--table", "{tmp}"], "cannot be written; give the name of a file"),
        (["drs_fig6", "--all"], "name an experiment, or give --all"),
        (["--keep"], "name an experiment, or give --all"),
        (["--keep", "--table", "{tmp}/page.md"], "name an experiment, or give --all"),
        (["drs_fig6", "nothing_*"], "there is no experiment like 'nothing_*'; known:"),
        (["drs_fig6", "--seed", "-1"], "--seed must be at least 0; got -1"),
        (["drs_fig6", "--seed", "one"], "'--seed': Input should be a valid integer"),
        (["elasticutor_fig8", "--engine", "simulator"], "runs only with --engine spark"),
    ],
)
def test_mistakes_are_refused(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "file").touch()
    ended = run("experiment", *(argument.format(tmp=tmp_path) for argument in arguments))
    assert ended.code == 2
    assert message in ended.err
