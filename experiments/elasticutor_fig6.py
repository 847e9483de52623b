"""Elasticutor fig. 6: throughput and mean latency of the micro-benchmark while the popularity of
keys is shuffled ω times a minute.

Claims: static is poor and does not mind ω; resource-centric carries more than static where ω is
small, and is of no use at 16; elastic carries most wherever ω > 0, and loses little.

Rule: elastic carries more than both others at every ω > 0; at 16 it carries at least 85 % of
what it does at 0; resource-centric carries more than static at 1 and less at 16; static at 16 is
within 10 % of static at 0."""

from collections.abc import Mapping, Sequence
from typing import Any

from lab import Finding, Lab
from paradigms import ENGINES, NOTES, THREE, WARM_S, lines, micro, ran, rate, seconds

from sojourn.simulator.elastic.job import Paradigm

__all__ = ["ENGINES", "NOTES"]
SHUFFLES = (0, 1, 2, 4, 8, 16)


def run(lab: Lab) -> Finding:
    """Every ω under three paradigms."""
    rates: dict[Paradigm, list[float]] = {paradigm: [] for paradigm in THREE}
    means: dict[Paradigm, list[float]] = {paradigm: [] for paradigm in THREE}
    for paradigm in THREE:
        for shuffles in SHUFFLES:
            outcome = ran(micro(paradigm, shuffles), seconds(lab))
            rates[paradigm].append(rate(outcome))
            means[paradigm].append(outcome.mean_s(WARM_S))
    verdict, rows, holds = judged(rates)
    rows.append(
        (
            "mean latency at ω = 16, of resource-centric over elastic",
            "100 to 1000",
            f"{means[THREE[1]][-1] / means[THREE[2]][-1]:.1f}",
        )
    )

    def draw(figure: Any) -> None:
        left, right = figure.subfigures(1, 2)
        lines(
            left,
            [(paradigm, SHUFFLES, [r / 1e3 for r in rates[paradigm]]) for paradigm in THREE],
            xlabel="shuffles a minute",
            ylabel="thousand tuples/s",
            ylim=(0, None),
        )
        lines(
            right,
            [(paradigm, SHUFFLES, means[paradigm]) for paradigm in THREE],
            xlabel="shuffles a minute",
            ylabel="seconds a tuple takes",
            yscale="log",
        )

    figures = {"shuffles": SHUFFLES, "per_second": rates, "mean_s": means}
    return Finding(figures, rows, verdict, holds, draw)


def judged(
    rates: Mapping[Paradigm, Sequence[float]],
) -> tuple[str, list[tuple[str, str, str]], bool]:
    """The verdict on tuples per second by paradigm and ω, rows beside the paper's, and whether the
    claims hold."""
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
    return verdict, rows, bool(holds)
