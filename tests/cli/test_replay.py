"""`sojourn replay` on the journal of an attached query. That of a topology is in test_run.py and in
the unit tests of journals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from periods import journalled

Run = Callable[..., Any]


def test_a_journal_is_decided_as_it_was(run: Run, tmp_path: Path) -> None:
    ended = run("replay", journalled(tmp_path / "journal.jsonl", 20.0))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "prices: 3 periods, none decided differently\n"


def test_another_latency_tells_where_it_would_differ(run: Run, tmp_path: Path) -> None:
    """One executor keeps 20 s until the last period; for 0.5 s two are needed before."""
    path = journalled(tmp_path / "journal.jsonl", 20.0)
    ended = run("replay", path, "--max-sojourn", "0.5s")
    assert (ended.code, ended.err) == (0, "")
    *differing, last = ended.out.splitlines()
    assert [line.strip() for line in differing[::3]] == ["0.0 s", "30.0 s", "60.0 s"]
    assert differing[1].startswith("    then  executors 1: 100 rows/s come: batches of")
    assert differing[2].startswith("    now   executors 2: 100 rows/s come: batches of")
    assert last == "prices: 3 periods, 3 decided differently"


def test_another_policy_with_an_option_is_compared_on_the_same_journal(
    run: Run, tmp_path: Path
) -> None:
    path = journalled(tmp_path / "journal.jsonl", None)
    ended = run("replay", path, "--conf", "min_executors=2", "--conf", "full=0.5")
    assert (ended.code, ended.err) == (0, "")
    assert "at least 2 are wished for" in ended.out
    assert ended.out.splitlines()[-1] == "prices: 3 periods, 3 decided differently"
    other = ("--conf", "policy=mended", "--conf", "idle=true")
    ended = run("replay", path, *other)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1].startswith("prices: 3 periods, ")


def test_what_such_a_journal_cannot_do_is_refused(run: Run, tmp_path: Path) -> None:
    model = journalled(tmp_path / "model.jsonl", 20.0)
    mended = journalled(tmp_path / "mended.jsonl", None, "mended")
    for path, options, words in (
        (model, ("--max-processors", "3"), "for which only --max-sojourn and --conf are options"),
        (model, ("--max-sojourn", "soon"), "--max-sojourn"),
        (model, ("--max-sojourn", "0s"), "max_latency: must be above 0"),
        (mended, ("--max-sojourn", "1s"), "by the policy 'model' alone; got policy 'mended'"),
        (model, ("--conf", "predict"), "must be name=value, such as predict=true; got 'predict'"),
        (model, ("--conf", "predict=soon"), "predict must be True or False; got 'soon'"),
        (model, ("--conf", "idle=true"), "got 'idle'; leave it out, or take the policy 'mended'"),
        (model, ("--conf", "min_executors=0"), "min_executors: must be a whole number"),
    ):
        ended = run("replay", path, *options)
        assert (ended.code, ended.out) == (2, "")
        assert words in ended.err
        assert len(ended.err.splitlines()) == 1
    assert run("replay", mended).out == "prices: 3 periods, none decided differently\n"
