"""Elasticutor fig. 6 on Spark: throughput of the micro-benchmark while the popularity of keys is
shuffled ω times a minute, with sixteen workers that sleep.

Claims: static is poor and does not mind ω; resource-centric carries more than static where ω is
small, and is of no use at 16; elastic carries most wherever ω > 0, and loses little.

Rule: elastic carries more than both others at every ω > 0; at 16 it carries at least 85 % of
what it does at 0; resource-centric carries more than static at 1 and less at 16; static at 16 is
within 10 % of static at 0. That is the rule of the simulated figure. Sixteen workers are balanced
by chance better than 256, and a pause takes milliseconds on one machine, so the differences may be
too small for it."""

from typing import Any

from elasticutor_fig6 import SHUFFLES, judged
from lab import Finding, Lab
from paradigms import THREE, lines
from saturated import ENGINES, NOTES, mean, served

__all__ = ["ENGINES", "NOTES"]


def run(lab: Lab) -> Finding:
    """Every ω under three paradigms."""
    seconds = 30.0 if lab.quick else 60.0
    rates = {p: [mean(served(lab, p, omega, seconds)) for omega in SHUFFLES] for p in THREE}
    verdict, rows, holds = judged(rates)

    def draw(figure: Any) -> None:
        lines(
            figure,
            [(paradigm, SHUFFLES, rates[paradigm]) for paradigm in THREE],
            xlabel="shuffles a minute",
            ylabel="tuples/s",
            ylim=(0, None),
        )

    return Finding({"shuffles": SHUFFLES, "per_second": rates}, rows, verdict, holds, draw)
