"""`sojourn doctor` and the command as a whole."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_doctor_has_a_line_for_each_thing_it_looks_at(run: Run) -> None:
    shown = run("doctor", "--quick")
    assert shown.code == 0, shown
    lines = [line.split()[:2] for line in shown.out.splitlines()]
    names = ["Python", "Java", "Spark", "sockets", "cores", "memory", "disk", "clock"]
    assert [name for _, name in lines] == names
    assert {state for state, _ in lines} <= {"ok", "note"}


def test_doctor_without_java_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    shown = run("doctor")
    assert shown.code == 1
    (java,) = (line for line in shown.out.splitlines() if line.startswith("wrong"))
    assert "Spark needs Java 17 or newer" in java
    assert "pip install 'sojourn[jdk]'" in java
    assert "not looked at, as Spark could not run" in shown.out.splitlines()[-1]
    assert shown.err == "1 of these is wrong\n"


def test_doctor_says_that_nobody_listens_where_the_master_should(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    shown = run("doctor", "--quick", "--master", f"spark://{address}")
    assert shown.code == 1
    assert f"wrong cluster   cannot be reached: {address} (" in shown.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--master", "local[2]"), "--master local[2]: is this machine; leave it out"),
        (("--master", "elsewhere"), "must be spark://HOST:PORT"),
        (("--checkpoint", "/tmp"), "--checkpoint is for --master"),
    ],
)
def test_doctor_refuses_what_it_cannot_look_at(
    run: Run, options: tuple[str, ...], message: str
) -> None:
    shown = run("doctor", *options)
    assert shown.code == 2
    assert message in shown.err


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
