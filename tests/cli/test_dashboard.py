"""`sojourn dashboard`: journals of all kinds are shown, as a page and as a report."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from periods import journalled

from sojourn.cli import with_address
from sojourn.cli.dashboard import read_board
from sojourn.cli.profilefile import kept
from sojourn.control import journal
from sojourn.ports import Parallelism
from sojourn.profiler.rounds import Round
from sojourn.profiler.trial import Measured, Proposal, Seen, Verdict

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]
SIMULATE = (
    *("simulate", ROOT / "examples" / "orders.py"),
    *("--service", ROOT / "examples" / "services" / "orders.yaml"),
    *("--max-sojourn", "200ms", "--duration", "60s"),
)


def test_a_simulation_is_reported_and_its_journal_is_shown(run: Run, tmp_path: Path) -> None:
    journal, report = tmp_path / "journal.jsonl", tmp_path / "out.html"
    ended = run(*SIMULATE, "--journal", journal, "--report", report)
    assert ended.code == 0, ended.err
    again = tmp_path / "again.html"
    assert run("dashboard", journal, "--report", again).code == 0
    at_once, later = (path.read_text(encoding="utf-8") for path in (report, again))
    assert "'orders'" not in at_once
    assert "<h1>orders</h1>" in at_once
    assert at_once == later, "a journal has all that is shown"


def test_the_page_is_served_until_it_is_told_to_end(run: Run, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    assert run(*SIMULATE, "--journal", journal).code == 0
    command = [sys.executable, "-m", "sojourn", "dashboard", str(journal)]
    command += ["--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None
        url = shown.stdout.readline().split()[4].rstrip(";")
        with urllib.request.urlopen(f"{url}api/v1/status", timeout=10) as answer:
            status = json.load(answer)
        shown.send_signal(signal.SIGTERM)
    assert shown.returncode == 0
    assert status["finished"] is True
    assert status["intervals"] == 60


def test_a_run_is_shown_with_its_times_of_day_and_a_simulation_is_called_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    assert run(*SIMULATE, "--journal", path).code == 0
    about = read_board(path).about
    assert (about.source, about.began_s) == ("simulation", None)
    shape, records = journal.read_journal(path)
    of_day_s = 1_700_000_000.0
    later = [replace(record, time_s=of_day_s + record.time_s) for record in records]
    monkeypatch.setattr(journal, "read_journal", lambda _path: (shape, iter(later)))
    about = read_board(path).about
    assert (about.source, about.began_s) == ("journal", of_day_s)


def test_an_attached_query_is_shown(tmp_path: Path) -> None:
    board = read_board(journalled(tmp_path / "journal.jsonl", 0.5))
    assert board.about.name == "prices"
    assert board.about.unit == "executors"
    assert board.finished
    assert [row.load for row in board.history.rows()] == [100.0, 200.0, 500.0]
    decision = board.decisions[-1].tick.decision
    assert (decision.action, decision.applied) == ("add", False)
    assert board.tick is not None
    assert board.tick.target_s == 0.5


def test_rounds_of_profiling_are_shown(tmp_path: Path) -> None:
    seen = {
        "words": Seen(1, 100.0, 100.0, None, 0.1, {"count": 1.0}),
        "count": Seen(2, 100.0, 100.0, 0.01, 0.5, {"out": 1.0}),
    }
    rounds = [
        Round(
            number,
            Proposal("enhance", Parallelism({"count": number}, {"words": 1}), "it is the fullest"),
            Measured((90.0 * number,), 0.1, seen),
            Verdict(number < 3, "more is carried" if number < 3 else "no more is carried"),
        )
        for number in (1, 2, 3)
    ]
    path = tmp_path / "guided.jsonl"
    kept(path, "orders on two machines", rounds)
    board = read_board(path)
    assert board.about.kinds == {"words": "source", "count": "operator", "out": "sink"}
    assert [row.load for row in board.history.rows()] == [90.0, 180.0, 270.0]
    assert [one.tick.decision.action for one in board.decisions] == ["keep", "keep", "drop"]
    assert board.layout.places["words"][0] < board.layout.places["count"][0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["none.jsonl"], "none.jsonl: cannot be read"),
        (["none.jsonl", "--report", "out.pdf"], "--report: must end with .html or .png"),
        (["none.jsonl", "--address", "off"], "--address: must be HOST:PORT"),
        (["none.jsonl", "--address", "a:b"], "--address: must be HOST:PORT"),
    ],
)
def test_what_cannot_be_shown_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run("dashboard", *arguments)
    assert ended.code == 2
    assert ended.err.startswith(f"error: {told}")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["run", "a.py", "--dashboard"], ["run", "a.py", "--dashboard", "on"]),
        (["run", "--dashboard", "a.py"], ["run", "--dashboard", "on", "a.py"]),
        (["run", "--dashboard", "a.py:make"], ["run", "--dashboard", "on", "a.py:make"]),
        (["run", "--dashboard", ":0", "a.py"], ["run", "--dashboard", ":0", "a.py"]),
        (["run", "--dashboard", "0.0.0.0:80"], ["run", "--dashboard", "0.0.0.0:80"]),
    ],
)
def test_dashboard_takes_an_address_or_none(given: list[str], read: list[str]) -> None:
    assert with_address(given) == read


def test_a_run_with_a_report_that_cannot_be_is_refused_before_it_starts(run: Run) -> None:
    ended = run("run", ROOT / "examples" / "orders.py", "--max-sojourn", "1s", "--report", "a.txt")
    assert ended.code == 2
    assert "must end with .html or .png" in ended.err
