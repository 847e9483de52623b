"""`sojourn doctor` and the command as a whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_doctor_names_what_it_found(run: Run) -> None:
    shown = run("doctor")
    assert shown.code == 0
    assert "Java " in shown.out


def test_doctor_without_java_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    shown = run("doctor")
    assert shown.code == 2
    assert "pip install 'sojourn[jdk]'" in shown.err


def test_version_and_help(run: Run) -> None:
    assert run("--version").out.startswith("sojourn ")
    assert "plan" in run("--help").out
