"""`sojourn run` and `sojourn replay`: how they find an application and refuse mistakes. What they
do when all is well needs Spark, and is tested there."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sojourn.cli.app import load_topology
from sojourn.errors import InputError

Run = Callable[..., Any]
run = importlib.import_module("sojourn.cli.run")  # the package has a function of that name

APP = """
import sojourn as sj

def make(name):
    t = sj.Topology(name)
    source = t.source("numbers", sj.sources.iterable(lambda: range(3)))
    t.sink("out", sj.sinks.console(), t.operator("same", lambda n: [n], source))
    return t

"""


def app(directory: Path, text: str) -> str:
    path = directory / "app.py"
    path.write_text(APP + text, encoding="utf-8")
    return str(path)


def test_the_only_topology_is_found(tmp_path: Path) -> None:
    assert load_topology(app(tmp_path, "mine = make('one')")).name == "one"
    assert load_topology(app(tmp_path, "def topology(): return make('two')")).name == "two"


def test_one_of_several_is_named(tmp_path: Path) -> None:
    several = app(tmp_path, "a, b = make('one'), make('two')\ndef c(): return make('three')")
    assert load_topology(f"{several}:b").name == "two"
    assert load_topology(f"{several}:c").name == "three"
    with pytest.raises(InputError, match="has several topologies"):
        load_topology(several)
    with pytest.raises(InputError, match="'make_none' must be a Topology"):
        load_topology(f"{several}:make_none")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no Topology"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("def (", "cannot be loaded: SyntaxError"),
        ("import sys; sys.exit(3)", "cannot be loaded: SystemExit"),
        ("def topology(): raise ValueError('not today')", "ValueError: not today"),
        ("def topology(size): return size", "cannot be loaded: TypeError"),
        ("t = make('a b')", "topology name 'a b'"),
    ],
)
def test_an_application_that_is_none_is_refused(
    run: Run, tmp_path: Path, text: str, message: str
) -> None:
    ended = run("run", app(tmp_path, text), "--max-sojourn", "1s")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "a target is missing; give a sojourn"),
        (("--max-sojourn", "soon"), "spark.sojourn.maxSojourn"),
        (("--max-sojourn", "1s", "--min-sojourn", "2s"), "must be below"),
        (("--max-processors", "0"), "at least 1"),
        (("--max-sojourn", "1s", "--percentile", "100"), "at most 99.99"),
        (("--max-sojourn", "1s", "--conf", "windw=3"), "there is no such setting"),
        (("--max-sojourn", "1s", "--config", "none.yaml"), "cannot be read"),
        (("--max-sojourn", "1s", "--duration", "long"), "--duration"),
        (("--max-sojourn", "1s", "--duration", "-5s"), "above zero"),
        (("--max-sojourn", "1s", "--conf", "spark.executor.memory=2g"), "is a setting of Spark"),
    ],
)
def test_bad_options_are_refused_before_spark_starts(
    run: Run, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    ended = run("run", app(tmp_path, "t = make('one')"), *options)
    assert ended.code == 2
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_checkpoint_that_is_a_file_is_refused_before_spark_starts(
    run: Run, tmp_path: Path
) -> None:
    path = app(tmp_path, "t = make('one')")
    ended = run("run", path, "--max-sojourn", "1s", "--checkpoint", path)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith(f"error: checkpoint {path}: must be a directory")


def test_a_journal_that_cannot_be_written_is_refused_before_spark_starts(
    run: Run, tmp_path: Path
) -> None:
    path = app(tmp_path, "t = make('one')")
    ended = run("run", path, "--max-sojourn", "1s", "--journal", f"{path}/journal.jsonl")
    assert ended.code == 2
    assert f"cannot be written, as {path} must be a directory" in ended.err.splitlines()[-1]


def test_a_missing_file_is_refused(run: Run) -> None:
    ended = run("run", "none.py", "--max-sojourn", "1s")
    assert ended.code == 2
    assert "none.py: no such file" in ended.err
    ended = run("replay", "none.jsonl")
    assert ended.code == 2
    assert "none.jsonl: cannot be read" in ended.err


def test_what_is_no_journal_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"sojourn_journal": 1}\n', encoding="utf-8")
    ended = run("replay", path)
    assert ended.code == 2
    assert "is not a journal" in ended.err


def test_that_a_run_which_has_failed_ends_is_told_until_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    @contextlib.contextmanager
    def noted(begins: str, ends: str) -> Iterator[None]:
        said.append(begins)
        try:
            yield
        finally:
            said.append(ends)

    monkeypatch.setattr(run, "busy", lambda what: noted(what, "over"))
    with run._ended(noted("runs", "has ended")):
        pass
    with pytest.raises(ZeroDivisionError), run._ended(noted("runs", "has ended")):
        raise ZeroDivisionError
    assert said == ["runs", "has ended", "runs", "ending the query", "has ended", "over"]
