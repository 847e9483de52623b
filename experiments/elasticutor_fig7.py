"""Elasticutor fig. 7: throughput over a sliding second at ω = 2, a shuffle every 30 seconds.

Claims: resource-centric dips for 10 to 20 seconds after each shuffle, elastic for 1 to 3.

Rule: a dip is the time in which less than 90 % is carried of what was in the five seconds before
the shuffle. In the median over shuffles it takes at most 3 s for elastic, and at least 3 s and 3
times as long for resource-centric."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from lab import Finding, Lab
from paradigms import ENGINES, NOTES, THREE, dips, micro, ran, rate, seconds

from sojourn.simulator.elastic.job import Paradigm

__all__ = ["ENGINES", "NOTES"]


def run(lab: Lab) -> Finding:
    """Three paradigms at ω = 2."""
    outcomes = {p: ran(micro(p), max(120.0, seconds(lab))) for p in THREE}
    lasting = {p: dips(outcome, 30.0) for p, outcome in outcomes.items()}
    verdict, rows, holds = judged(lasting)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for paradigm, outcome in outcomes.items():
            by_second = outcome.rates(1.0)
            times = 1.0 + np.arange(len(by_second)) * outcome.step_s
            axes.plot(times, by_second / 1e3, label=paradigm, lw=1)
        axes.set(xlabel="seconds", ylabel="thousand tuples/s", ylim=(0, None))
        axes.legend()

    figures = {
        "dips_s": lasting,
        "per_second": {p: rate(outcome) for p, outcome in outcomes.items()},
        "pauses_s": outcomes["resource-centric"].pauses_s,
    }
    return Finding(figures, rows, verdict, holds, draw)


def judged(
    lasting: Mapping[Paradigm, Sequence[float]],
) -> tuple[str, list[tuple[str, str, str]], bool]:
    """The verdict on dips by paradigm, rows beside the paper's, and whether the claims hold."""
    elastic, divided = (statistics.median(lasting[p]) for p in (THREE[2], THREE[1]))
    verdict = f"elastic dips for {elastic:.1f} s after a shuffle, resource-centric {divided:.1f} s"
    rows = [
        ("seconds of a dip, elastic", "1 to 3", f"{elastic:.1f}"),
        ("seconds of a dip, resource-centric", "10 to 20", f"{divided:.1f}"),
    ]
    return verdict, rows, elastic <= 3 and divided >= max(3 * elastic, 3.0)
