"""`sojourn replay` on the journal of an attached query. That of a topology is in test_run.py and in
the unit tests of journals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sojourn.attached.decide import Memory, decided, wished
from sojourn.attached.journal import Journal, Period
from sojourn.attached.seen import Seen
from sojourn.provisioning.rates import Rates
from sojourn.queueing.batches import Batches, Stage

Run = Callable[..., Any]
QUERY = Batches(0.1, (Stage(8, 0.01, 0.004),))


def journalled(path: Path, max_latency_s: float | None, policy: str = "model") -> Path:
    """Periods of a query under a load that rises, on one executor that nobody adds to."""
    wish = wished(policy, max_latency_s, 1, None, 30)
    lines, memory = Journal(path, "prices", wish), Memory()
    for number, rate in enumerate((100.0, 200.0, 500.0), 1):
        time_s = 1000.0 + 30 * number
        seen = Seen(time_s, 1, 1, 1, Rates(time_s, rate, (rate,)), batches=QUERY)
        decision = decided(seen, memory, wish)
        lines(Period(number, seen, memory, decision, applied=False))
        memory = decision.memory
    lines.close()
    return path


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


def test_what_such_a_journal_cannot_do_is_refused(run: Run, tmp_path: Path) -> None:
    model = journalled(tmp_path / "model.jsonl", 20.0)
    mended = journalled(tmp_path / "mended.jsonl", None, "mended")
    for path, options, words in (
        (model, ("--max-processors", "3"), "for which only --max-sojourn is an option"),
        (model, ("--max-sojourn", "soon"), "--max-sojourn"),
        (model, ("--max-sojourn", "0s"), "--max-sojourn"),
        (mended, ("--max-sojourn", "1s"), "a journal of the policy 'mended'"),
    ):
        ended = run("replay", path, *options)
        assert (ended.code, ended.out) == (2, "")
        assert words in ended.err
        assert len(ended.err.splitlines()) == 1
    assert run("replay", mended).out == "prices: 3 periods, none decided differently\n"
