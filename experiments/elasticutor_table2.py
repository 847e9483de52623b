"""Elasticutor table 2: state that is moved and tuples that go to other machines, of the stock
exchange under naive-EC and elastic.

Claims: 13.9 against 2.4 MB/s of state, 235.3 against 21.6 MB/s of tuples.

Rule: naive moves at least 5 times as much state as elastic, and sends at least 10 times as much
to other machines."""

from typing import Any

from lab import Finding, Lab
from paradigms import ENGINES, SSE_NOTES, ran, seconds, sse

from sojourn.simulator.elastic.job import Paradigm

__all__ = ["ENGINES", "NOTES"]
NOTES = SSE_NOTES
TWO: tuple[Paradigm, ...] = ("naive", "elastic")
PAPER = {"state": (13.9, 2.4), "remote": (235.3, 21.6)}


def run(lab: Lab) -> Finding:
    """Both, in megabytes a second."""
    length_s = seconds(lab)
    found: dict[str, dict[str, float]] = {}
    for paradigm in TWO:
        outcome = ran(sse(paradigm), length_s)
        found[paradigm] = {
            "state": outcome.migrated / length_s / 1e6,
            "remote": outcome.remote / length_s / 1e6,
        }
    ratios = {w: found["naive"][w] / max(1e-9, found["elastic"][w]) for w in PAPER}
    holds = ratios["state"] >= 5 and ratios["remote"] >= 10
    verdict = (
        f"naive moves {ratios['state']:.1f} times as much state and sends {ratios['remote']:.1f} "
        "times as much to other machines"
    )
    rows = []
    for what, words in (("state", "state moved"), ("remote", "tuples to other machines")):
        for place, paradigm in enumerate(TWO):
            theirs, ours = PAPER[what][place], found[paradigm][what]
            rows.append((f"{words}, {paradigm}, MB/s", f"{theirs}", f"{ours:.1f}"))
        theirs = PAPER[what][0] / PAPER[what][1]
        rows.append((f"{words}, ratio", f"{theirs:.1f}", f"{ratios[what]:.1f}"))

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for offset, paradigm in enumerate(TWO):
            at = [place + 0.4 * offset for place in range(len(PAPER))]
            axes.bar(at, [found[paradigm][w] for w in PAPER], 0.4, label=paradigm)
        axes.set_xticks([0.2, 1.2], ["state moved", "tuples to other machines"])
        axes.set(ylabel="MB/s", yscale="log")
        axes.legend()

    return Finding({"megabytes_per_s": found}, rows, verdict, bool(holds), draw)
