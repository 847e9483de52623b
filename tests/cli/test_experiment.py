"""`sojourn experiment`: the papers' figures made again, here in the simulator, and refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", ["drs_table2", "drs_fig8", "drs_fig10"])
def test_an_experiment_writes_its_figures_and_a_plot(run: Run, tmp_path: Path, name: str) -> None:
    shown = run("experiment", name, "--engine", "simulator", "--out", tmp_path)
    assert shown.code == 0, shown.err
    assert f"{name} (simulator, quick" in shown.out
    found = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert found["rows"]
    assert found["verdict"] in shown.out
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    if name != "drs_table2":  # that one is a matter of the machine
        assert found["holds"], found["verdict"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["drs_fig5"], "there is no experiment 'drs_fig5'; known are"),
        ([], "name an experiment, or give --all"),
        (["drs_fig6", "--engine", "storm"], "--engine must be spark or simulator"),
        (["drs_fig6", "--folder", "/tmp"], "has no experiments"),
    ],
)
def test_mistakes_are_refused(run: Run, arguments: list[str], message: str) -> None:
    ended = run("experiment", *arguments)
    assert ended.code == 2
    assert message in ended.err
