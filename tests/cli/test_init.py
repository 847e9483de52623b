"""`sojourn init`: what it writes runs at once. On Spark, the test of the wheel runs it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sojourn.cli.app import load_topology
from sojourn.cli.init import FILES

Run = Callable[..., Any]


def test_what_it_writes_has_a_test_that_passes(run: Run, tmp_path: Path) -> None:
    made = tmp_path / "my first"
    shown = run("init", made)
    assert (shown.code, shown.err) == (0, "")
    assert sorted(path.name for path in made.iterdir()) == sorted(FILES)
    assert shown.out.splitlines() == [
        f"{made} has app.py, test_app.py, sojourn.yaml. Now type:",
        f"    cd '{made}'",
        "    python -m unittest",
        "    sojourn run app.py --config sojourn.yaml",
    ]
    tested = subprocess.run(
        [sys.executable, "-m", "unittest"],
        cwd=made,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert tested.returncode == 0, tested.stderr
    assert "Ran 2 tests" in tested.stderr


def test_its_settings_and_its_topology_are_used(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as Spark is not needed: a mistake after them is told, so they have none."""
    run("init", tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = run("run", "app.py", "--config", "sojourn.yaml", "--duration", "-1s")
    assert "--duration must be above zero" in shown.err
    text = (tmp_path / "sojourn.yaml").read_text(encoding="utf-8")
    every = text.replace("# maxP", "maxP").replace("# min", "min").replace("# per", "per")
    (tmp_path / "sojourn.yaml").write_text(every.replace("# commit", "commit"), encoding="utf-8")
    shown = run("run", "app.py", "--config", "sojourn.yaml", "--checkpoint", "app.py")
    assert shown.err.splitlines()[-1].startswith(f"error: checkpoint {tmp_path}/app.py: must be")
    assert list(load_topology("app.py").operators) == ["convert", "alarm"]


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("mine", encoding="utf-8")
    shown = run("init", tmp_path)
    assert shown.code == 2
    assert "has app.py already, which is not overwritten" in shown.err
    assert (tmp_path / "app.py").read_text(encoding="utf-8") == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_directory_that_cannot_be_made_is_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    shown = run("init", file / "new")
    assert shown.code == 2
    assert "cannot be written to" in shown.err
