"""Elasticutor fig. 7 on Spark: throughput over a sliding second at ω = 2, a shuffle every 30
seconds, with sixteen workers that sleep.

Claims: resource-centric dips for 10 to 20 seconds after each shuffle, elastic for 1 to 3.

Rule: a dip is the time in which less than 90 % is served of what was in the five seconds before
the shuffle. In the median over shuffles it takes at most 3 s for elastic, and at least 3 s and 3
times as long for resource-centric. Of resource-centric it is also told for how long each division
paused it; the rest is the time in which executors were unequally busy and that was not yet sure."""

from typing import Any

import numpy as np
from elasticutor_fig7 import judged
from lab import Finding, Lab
from paced import ENGINES, NOTES, dips, mean, served
from paradigms import THREE

__all__ = ["ENGINES", "NOTES"]
TURN_S = 30.0


def run(lab: Lab) -> Finding:
    """Three paradigms at ω = 2."""
    seconds = (3 if lab.quick else 7) * TURN_S
    paused_s: list[float] = []
    found = {p: served(lab, p, 60 / TURN_S, seconds, paused_s) for p in THREE}
    lasting = {p: dips(of, TURN_S) for p, of in found.items()}
    verdict, rows, holds = judged(lasting)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for paradigm, of in found.items():
            times, _, rates = np.array(of).T
            # Shuffles lie on each other.
            axes.plot(times - np.ceil(times[0] / TURN_S) * TURN_S, rates, label=paradigm, lw=1)
        axes.set(xlabel="seconds since a shuffle", ylabel="tuples/s", ylim=(0, None))
        axes.legend()

    longest = f"{np.median(paused_s):.1f}" if paused_s else "none"
    rows.append(("seconds of a pause, resource-centric, in the median", "", longest))
    figures = {
        "dips_s": lasting,
        "paused_s": paused_s,
        "per_second": {p: mean(of) for p, of in found.items()},
    }
    return Finding(figures, rows, verdict, holds, draw)
