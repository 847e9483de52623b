"""Elasticutor table 3: throughput and scheduling on 8, 16 and 32 machines.

Claim: 32 machines carry 3.28 times what 8 do (218.6 over 66.6 thousand a second).

Rule: at least 3.28 times."""

from typing import Any

from lab import Finding, Lab
from paradigms import ENGINES, NOTES, lines, micro, on_machines, ran, rate, seconds

__all__ = ["ENGINES", "NOTES"]
MACHINES = (8, 16, 32)
PAPER = {8: 66.6, 16: 121.3, 32: 218.6}


def run(lab: Lab) -> Finding:
    """The micro-benchmark with an executor for each machine."""
    found = {n: rate(ran(on_machines(micro("elastic"), n), seconds(lab))) for n in MACHINES}
    ratio = found[32] / found[8]
    rows = [
        (f"thousand tuples/s on {n} machines", f"{PAPER[n]}", f"{found[n] / 1e3:.1f}")
        for n in MACHINES
    ]
    rows.append(("32 machines over 8", "3.28", f"{ratio:.2f}"))

    def draw(figure: Any) -> None:
        lines(
            figure,
            [
                ("here", MACHINES, [found[n] / 1e3 for n in MACHINES]),
                ("paper", MACHINES, [PAPER[n] for n in MACHINES]),
            ],
            xlabel="machines",
            ylabel="thousand tuples/s",
            ylim=(0, None),
        )

    verdict = f"32 machines carry {ratio:.2f} times what 8 do"
    return Finding({"per_second": found}, rows, verdict, ratio >= 3.28, draw)
