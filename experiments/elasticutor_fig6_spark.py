"""Elasticutor fig. 6 on Spark: throughput of the micro-benchmark while the popularity of keys is
shuffled ω times a minute, with sixteen workers that sleep.

Claims: static is poor and does not mind ω; resource-centric carries more than static where ω is
small, and is of no use at 16; elastic carries most wherever ω > 0, and loses little.

Rule: so much comes as sixteen evenly busy workers could carry. Elastic serves at least 97 % of it
at every ω. Static serves at least 3 % less than elastic at every ω, and so does resource-centric at
every ω > 0. At 1 resource-centric serves more than static, and at 16 less."""

from typing import Any

from elasticutor_fig6 import SHUFFLES
from lab import Finding, Lab
from paced import ENGINES, JOB, NOTES, mean, served
from paradigms import THREE, lines

__all__ = ["ENGINES", "NOTES"]


def run(lab: Lab) -> Finding:
    """Every ω under three paradigms."""
    seconds = 30.0 if lab.quick else 60.0
    rates = {p: [mean(served(lab, p, omega, seconds)) for omega in SHUFFLES] for p in THREE}
    shares = {p: [rate / JOB.rate for rate in of] for p, of in rates.items()}
    static, divided, elastic = (shares[p] for p in THREE)
    holds = (
        min(elastic) >= 0.97
        and all(e - s >= 0.03 for e, s in zip(elastic, static, strict=True))
        and all(e - d >= 0.03 for e, d in zip(elastic[1:], divided[1:], strict=True))
        and divided[1] > static[1]
        and divided[-1] < static[-1]
    )
    verdict = (
        f"of what comes, elastic serves at least {min(elastic):.0%}, static at most "
        f"{max(static):.0%}, and resource-centric {divided[0]:.0%} without shuffles and "
        f"{divided[-1]:.0%} with 16 a minute"
    )
    rows = [
        (f"served at ω = {omega}: static, resource-centric, elastic", "", told)
        for omega, *three in zip(SHUFFLES, static, divided, elastic, strict=True)
        if (told := ", ".join(f"{share:.0%}" for share in three))
    ]

    def draw(figure: Any) -> None:
        lines(
            figure,
            [(paradigm, SHUFFLES, rates[paradigm]) for paradigm in THREE],
            xlabel="shuffles a minute",
            ylabel="tuples/s",
            ylim=(0, None),
        )

    return Finding({"shuffles": SHUFFLES, "per_second": rates}, rows, verdict, holds, draw)
