"""Jars from Maven Central, with a Maven and a Java that only pretend to fetch."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from sojourn.engine.spark.jars import jars
from sojourn.errors import InputError

WANTED = ("org.example:thing:1.0",)
COPIES = "for a; do case $a in *DoutputDirectory=*) d=${a#*=};; *jars/*) d=${a%/*};; esac; done\n"
FETCHES = f'{COPIES}mkdir -p "$d"; echo by $0 > "$d/thing-1.0.jar"; echo . >> "$FETCHED"\n'
FAILS = "echo no route to the repository; exit 1\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java home whose Java fetches, and a path with the system's tools only."""
    program(tmp_path / "java" / "bin" / "java", FETCHES)
    monkeypatch.setenv("PATH", f"{tmp_path / 'maven'}:/usr/bin:/bin")
    monkeypatch.setenv("FETCHED", str(tmp_path / "fetched"))
    return tmp_path


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


def fetched(machine: Path) -> str:
    found = jars("thing", WANTED, machine / "java", machine / "cache")
    return (found / "thing-1.0.jar").read_text().strip()


def test_maven_fetches_where_it_is_installed(machine: Path) -> None:
    program(machine / "maven" / "mvn", FETCHES)
    assert fetched(machine) == f"by {machine}/maven/mvn"


def test_ivy_fetches_where_maven_cannot(machine: Path) -> None:
    program(machine / "maven" / "mvn", FAILS)
    assert fetched(machine) == f"by {machine}/java/bin/java"


def test_ivy_fetches_where_maven_takes_too_long(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(machine / "maven" / "mvn", "exec sleep 60\n")
    run = subprocess.run

    def impatient(command: list[str], **given: Any) -> Any:
        if command[0].endswith("mvn"):
            given["timeout"] = 0.05
        return run(command, **given)

    monkeypatch.setattr(subprocess, "run", impatient)
    assert fetched(machine) == f"by {machine}/java/bin/java"


def test_jars_are_fetched_once(machine: Path) -> None:
    program(machine / "maven" / "mvn", FETCHES)
    for _ in range(2):
        fetched(machine)
    assert (machine / "fetched").read_text() == ".\n"
    assert [path.name.startswith("thing-") for path in (machine / "cache").iterdir()] == [True]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("tool", ["maven/mvn", "java/bin/java"])
def test_jars_may_be_wanted_without_what_they_need(machine: Path, tool: str, alone: bool) -> None:
    tells = 'echo "$@" > "$FETCHED"; cat *.xml >> "$FETCHED"; '
    program(machine / "maven" / "mvn", FAILS)
    program(machine / tool, f"{tells}{FETCHES}")
    jars("thing", WANTED, machine / "java", machine / "cache", alone)
    asked = (machine / "fetched").read_text()
    assert ("excludeTransitive=true" in asked or 'transitive="false"' in asked) == alone


def test_what_cannot_be_fetched_is_told(machine: Path) -> None:
    program(machine / "maven" / "mvn", FAILS)
    program(machine / "java" / "bin" / "java", FAILS)
    with pytest.raises(InputError, match=r"org.example:thing:1.0: cannot be .* no route") as told:
        fetched(machine)
    assert "DEFAULT_ARTIFACT_REPOSITORY" in str(told.value)
    assert list((machine / "cache").iterdir()) == []
