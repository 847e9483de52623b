"""`sojourn measure`: two ends of a link, tables, JSON and plots, and refusals."""

import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sojourn.cli import measure_view
from sojourn.probing.echo import Echo
from sojourn.probing.figures import Jitter, Link, Machine, Report, RoundTrips, Stream

Run = Callable[..., Any]
TOKEN = bytes(16)


@pytest.fixture
def to() -> Iterator[list[str]]:
    """Arguments to measure the link to an echo server on loopback."""
    with Echo(TOKEN) as echo:
        yield [
            *("--to", f"127.0.0.1:{echo.address[1]}", "--token", TOKEN.hex()),
            *("--seconds", "0.04"),
        ]


def test_a_link_is_shown_as_tables(run: Run, to: list[str]) -> None:
    shown = run("measure", *to)
    assert shown.code == 0, shown.err
    for head in ("round trips", "jitter", "throughput", "capacity", "buffer needed"):
        assert head in shown.out
    assert len(re.findall(r"here → 127\.0\.0\.1:\d+ +(?:10|100) kbps|1 Mbps", shown.out)) == 3
    assert "here → " in shown.err


def test_a_link_is_told_as_json_and_drawn(run: Run, to: list[str], tmp_path: Path) -> None:
    out = tmp_path / "some" / "out"
    shown = run("measure", *to, "--json", "--out", out)
    assert shown.code == 0, shown.err
    found = json.loads(shown.out)
    assert found == json.loads((out / "measure.json").read_text(encoding="utf-8"))
    (link,) = found["links"]
    assert [stream["sent"] for stream in link["streams"]] == [2, 4, 40]
    assert len(found["machines"][0]["capacity"]) == 1
    for name in ("jitter", "round_trips", "capacity"):
        assert (out / f"{name}.png").stat().st_size > 5000


def test_without_matplotlib_figures_are_written_all_the_same(
    run: Run, to: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    shown = run("measure", *to, "--out", tmp_path)
    assert shown.code == 0, shown.err
    assert "pip install 'sojourn[plot]'" in shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["measure.json"]


def test_the_other_end_prints_what_to_type(run: Run) -> None:
    command = [sys.executable, "-m", "sojourn", "measure", "--serve", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        try:
            _, *arguments = other.stdout.readline().split()
            shown = run(*arguments, "--seconds", "0.04", "--json")
            assert shown.code == 0, shown.err
            assert json.loads(shown.out)["failed"] == []
        finally:
            other.send_signal(signal.SIGINT)
        assert other.wait(30) == 0


def test_what_could_not_be_measured_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    trips = RoundTrips(1, 0.0, 0.1, 0.1, 0.1, 0.1, 0.1)
    streams = (
        Stream(10_000, 10, 1.0, None),
        Stream(100_000, 10, 0.5, Jitter(0.001, 0.002, 0.003, 0.25)),
    )
    link = Link("a", "b", "ICMP is not allowed here", trips, streams, 2.5e6)
    machines = (Machine("a", 2, (0.0,), (10.0,)),)
    measure_view.show(Report((link,), machines, (("b", "a", "nobody answers"),)))
    shown = capsys.readouterr().out
    assert "no ICMP round trips: ICMP is not allowed here" in shown
    assert "b → a could not be measured: nobody answers" in shown
    assert re.search(r"10 kbps +– +– +– +– +100\.0%", shown)
    assert re.search(r"100 kbps +1 ms +2 ms +3 ms +25\.0% +50\.0%", shown)
    assert "2.5 Mbps" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "measure needs one of --master, --serve and --to"),
        (["--serve", "127.0.0.1:0", "--to", "127.0.0.1:1"], "needs one of --master"),
        (["--to", "127.0.0.1:1"], "--to needs the --token that --serve has printed"),
        (["--master", "spark://m:7077", "--token", "00"], "--to needs the --token"),
        (["--to", "127.0.0.1:1", "--token", "00"], "--token: must be the one that --serve"),
        (["--to", "127.0.0.1:1", "--token", "x"], "--token: must be the one that --serve"),
        (["--to", "nowhere", "--token", "00" * 16], "--to: must be ADDRESS:PORT"),
        (["--to", "127.0.0.1:1", "--token", "00" * 16], "127.0.0.1:1: must be where"),
        (["--serve", "127.0.0.1:0", "--machines", "3"], "--machines is for --master"),
        (["--master", "local[4]"], "--master local[4]: must have several machines"),
        (["--serve", "127.0.0.1:0", "--seconds", "0"], "--seconds must be above 0"),
        (["--serve", "192.0.2.1:0"], "192.0.2.1:0: must be an address of this machine"),
        (["--master", "spark://m:7077", "--out", "{tmp}/file"], "cannot be a directory"),
    ],
)
def test_mistakes_are_refused(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "file").touch()
    ended = run("measure", *(argument.format(tmp=tmp_path) for argument in arguments))
    assert ended.code == 2
    assert message in ended.err
