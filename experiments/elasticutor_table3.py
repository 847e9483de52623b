"""Elasticutor table 3: throughput of the stock exchange, and how long the scheduler computes, on 8,
16 and 32 machines.

Claim: 32 machines carry 3.28 times what 8 do (218.6 over 66.6 thousand a second), and cores are
shared out in 4.1 to 5.7 ms.

Rule: at least 3.28 times; how many cores executors need and which they get is computed in 20 ms on
32 machines, in the median of the decisions of a run at 80 % of what is carried, so that the model
decides."""

import statistics
import time
from dataclasses import replace
from typing import Any

from lab import Finding, Lab
from paradigms import ENGINES, SSE_NOTES, lines, on_machines, ran, rate, seconds, sse

from sojourn.simulator.elastic.flow import FlowRun
from sojourn.simulator.elastic.job import Setup

__all__ = ["ENGINES", "NOTES"]
NOTES = (
    f"{SSE_NOTES}; a machine has one executor of the transactor and an eighth of one of each other "
    "operator"
)
MACHINES = (8, 16, 32)
PAPER = {8: (66.6, 4.1), 16: (121.3, 5.2), 32: (218.6, 5.7)}
SHARE = 0.8  # of what is carried


def exchange(machines: int) -> Setup:
    """On so many machines."""
    setup = on_machines(sse("elastic"), machines)
    first, *behind = setup.operators
    few = [replace(keyed, executors=machines // 8) for keyed in behind]
    return replace(setup, operators=(first, *few))


def scheduled_ms(setup: Setup, offered: float, seconds_: float) -> float:
    """How long a decision about cores takes, in the median."""
    run = FlowRun(setup, offered)
    share_out, took = run.placing.share_out, list[float]()

    def timed(*given: Any) -> None:
        began = time.perf_counter()
        share_out(*given)
        took.append((time.perf_counter() - began) * 1e3)

    run.placing.share_out = timed  # type: ignore[assignment]
    run.run(seconds_)
    return statistics.median(took)


def run(lab: Lab) -> Finding:
    """The stock exchange on more and more machines."""
    found = {n: rate(ran(exchange(n), seconds(lab))) for n in MACHINES}
    took = {n: scheduled_ms(exchange(n), SHARE * found[n], seconds(lab)) for n in MACHINES}
    ratio = found[32] / found[8]
    rows = [
        (f"thousand orders/s on {n} machines", f"{PAPER[n][0]}", f"{found[n] / 1e3:.1f}")
        for n in MACHINES
    ]
    rows += [
        (f"ms to share out cores of {n} machines", f"{PAPER[n][1]}", f"{took[n]:.1f}")
        for n in MACHINES
    ]
    rows.append(("32 machines over 8", "3.28", f"{ratio:.2f}"))

    def draw(figure: Any) -> None:
        lines(
            figure,
            [
                ("here", MACHINES, [found[n] / 1e3 for n in MACHINES]),
                ("paper", MACHINES, [PAPER[n][0] for n in MACHINES]),
            ],
            xlabel="machines",
            ylabel="thousand orders/s",
            ylim=(0, None),
        )

    verdict = (
        f"32 machines carry {ratio:.2f} times what 8 do, and their cores are shared out in "
        f"{took[32]:.1f} ms"
    )
    figures = {"per_second": found, "scheduled_ms": took}
    return Finding(figures, rows, verdict, ratio >= 3.28 and took[32] <= 20, draw)
