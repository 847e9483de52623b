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


def test_conf_prints_what_a_session_needs(run: Run) -> None:
    options, properties = run("conf"), run("conf", "--properties")
    assert (options.code, properties.code) == (0, 0)
    needed = "spark.python.udf.pipelined.enabled"
    assert f"--conf {needed}=true" in options.out.splitlines()
    assert f"{needed} true" in properties.out.splitlines()
    assert len(options.out.splitlines()) == len(properties.out.splitlines())


def test_version_and_help(run: Run) -> None:
    assert run("--version").out.startswith("sojourn ")
    assert "plan" in run("--help").out
