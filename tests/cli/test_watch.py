"""`sojourn watch` as a user sees it: what it says where, and with which code it ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from test_eventlog import logged, packed

Run = Callable[..., Any]


def test_a_log_that_is_cut_off_is_told_beside_the_advice(run: Run, tmp_path: Path) -> None:
    path = packed(tmp_path / "app.zstd.inprogress", logged(20, 2))
    path.write_bytes(path.read_bytes()[:-7])
    ended = run("watch", "--event-log", path, "--period", "5s", "--json")
    assert ended.code == 0
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [line["executors"] for line in lines[:-1]] == [2, 2, 2]
    assert lines[-1].keys() == {"used_s", "advised_s", "saved"}
    assert "is cut off after line" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_several_queries_are_listed_and_nothing_else_is_said(run: Run, tmp_path: Path) -> None:
    events = logged(20, 2)
    events[-1]["progress"]["id"] = "another"
    path = packed(tmp_path / "app.zstd", events)
    ended = run("watch", "--event-log", path, "--period", "5s")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: --query: must be given where there are several queries")
    assert ended.err.endswith("there are query, another\n")
    assert run("watch", "--event-log", path, "--period", "5s", "--query", "query").code == 0


def test_a_number_of_periods_goes_with_a_query_that_runs(run: Run, tmp_path: Path) -> None:
    path = packed(tmp_path / "app.zstd", logged(20, 2))
    ended = run("watch", "--event-log", path, "--periods", "3")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: --periods goes with --app; got 3 with --event-log")
    assert run("watch", "--app", "http://localhost:1", "--periods", "0").code == 2
