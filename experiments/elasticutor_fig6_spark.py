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

from lab import Finding, Lab
from paradigms import lines
from saturated import ENGINES, NOTES, THREE, mean, served

__all__ = ["ENGINES", "NOTES"]
SHUFFLES = (0, 1, 2, 4, 8, 16)


def run(lab: Lab) -> Finding:
    """Every ω under three paradigms."""
    seconds = 30.0 if lab.quick else 60.0
    rates = {p: [mean(served(lab, p, omega, seconds)) for omega in SHUFFLES] for p in THREE}
    static, divided, elastic = (rates[paradigm] for paradigm in THREE)
    best = all(e > max(s, d) for s, d, e in list(zip(static, divided, elastic, strict=True))[1:])
    kept = elastic[-1] / elastic[0]
    holds = (
        best
        and kept >= 0.85
        and divided[1] > static[1]
        and divided[-1] < static[-1]
        and abs(static[-1] / static[0] - 1) <= 0.1
    )
    verdict = (
        f"at ω = 16 elastic keeps {kept:.0%} of its throughput, resource-centric "
        f"{divided[-1] / divided[0]:.0%}; elastic is {'' if best else 'not '}best wherever ω > 0"
    )
    rows = [
        ("throughput at ω = 2, of elastic over static", "about 2", f"{elastic[2] / static[2]:.2f}"),
        (
            "throughput at ω = 16, of elastic over resource-centric",
            "resource-centric is of no use",
            f"{elastic[-1] / divided[-1]:.2f}",
        ),
    ]

    def draw(figure: Any) -> None:
        lines(
            figure,
            [(paradigm, SHUFFLES, rates[paradigm]) for paradigm in THREE],
            xlabel="shuffles a minute",
            ylabel="tuples/s",
            ylim=(0, None),
        )

    return Finding({"shuffles": SHUFFLES, "per_second": rates}, rows, verdict, bool(holds), draw)
