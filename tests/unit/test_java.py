"""Finding Java: the user's, PyPI's, none, or one that is too old."""

import os
import subprocess
from pathlib import Path

import pytest

from sojourn.engine.spark.java import find_java
from sojourn.errors import InputError


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o700)
    return java


def test_java_home_comes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21.0.3")
    fake_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "other" / "bin")}
    assert find_java(environ, tmp_path).version == 21


def test_the_path_comes_second(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "jdk", "17.0.1")
    found = find_java({"PATH": str(java.parent)}, tmp_path)
    assert (found.version, found.home) == (17, tmp_path / "jdk")


def test_without_java_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(
        InputError, match=r"needs Java 17 or newer: .* pip install 'sojourn\[jdk\]'"
    ):
        find_java({"PATH": ""}, tmp_path)


def test_an_old_java_is_refused(tmp_path: Path) -> None:
    fake_java(tmp_path, "1.8.0_392")
    with pytest.raises(InputError, match="is Java 8, but Spark needs 17 or newer"):
        find_java({"JAVA_HOME": str(tmp_path)}, tmp_path)


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no working Java there"):
        find_java({"JAVA_HOME": str(tmp_path / "nothing")}, tmp_path)


def test_the_jdk_from_pypi_runs_without_the_module_it_lacks(tmp_path: Path) -> None:
    found = find_java({"PATH": ""}, tmp_path)
    assert found.version >= 17
    java = found.home / "bin" / "java"
    assert java.is_relative_to(tmp_path)
    assert os.stat(java).st_mode & 0o077 == 0
    arguments = ["--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    subprocess.run([str(java), *arguments], check=True, capture_output=True)
