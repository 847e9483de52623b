"""Elasticutor fig. 16: throughput and mean latency of the stock exchange over time, under four
paradigms.

Claims: the executor-centric ones about double the throughput and have a latency lower by one or two
orders of magnitude; naive and elastic are close to each other.

Rule: where sources send as much as is taken, elastic carries at least 1.7 times what static and
what resource-centric do, and naive at least 0.8 times what elastic does. Where orders come at 80 %
of what elastic carries, its mean latency, counted from when an order is due, is a tenth of that of
each or less. (Where as much comes as is taken, all queues are full, and latency only says how long
they may be.) The same is told for a load that all four carry, 80 % of what the weakest does; the
rule does not ask about that."""

from typing import Any

import numpy as np
from lab import Finding, Lab
from paradigms import ENGINES, SSE_NOTES, WARM_S, ran, rate, seconds, sse

from sojourn.simulator.elastic.job import PARADIGMS, Paradigm

__all__ = ["ENGINES", "NOTES"]
NOTES = SSE_NOTES
SHARE = 0.8  # of what elastic carries, or the weakest


def run(lab: Lab) -> Finding:
    """All four."""
    outcomes = {p: ran(sse(p), seconds(lab)) for p in PARADIGMS}
    rates = {p: rate(outcome) for p, outcome in outcomes.items()}
    offered = SHARE * rates["elastic"]
    given = {p: ran(sse(p), seconds(lab), offered) for p in PARADIGMS}
    means = {p: outcome.mean_since_due_s(offered, WARM_S) for p, outcome in given.items()}
    easy = SHARE * min(rates.values())
    easily = {p: ran(sse(p), seconds(lab), easy).mean_since_due_s(easy, WARM_S) for p in PARADIGMS}
    others: tuple[Paradigm, ...] = ("static", "resource-centric")
    more = [rates["elastic"] / rates[p] for p in others]
    less = [means[p] / means["elastic"] for p in others]
    close = rates["naive"] / rates["elastic"]
    holds = min(more) >= 1.7 and min(less) >= 10 and close >= 0.8
    verdict = (
        f"elastic carries {more[0]:.2f} times what static does and {more[1]:.2f} times what "
        f"resource-centric does, and at 80 % of that their latency is {less[0]:.0f} and "
        f"{less[1]:.0f} times its own"
    )
    rows = [
        ("throughput, elastic over static", "about 2", f"{more[0]:.2f}"),
        ("throughput, elastic over resource-centric", "about 2", f"{more[1]:.2f}"),
        ("mean latency at 80 % of that, static over elastic", "10 to 100", f"{less[0]:.1f}"),
        (
            "mean latency at 80 % of that, resource-centric over elastic",
            "10 to 100",
            f"{less[1]:.1f}",
        ),
        ("throughput, naive over elastic", "close to 1", f"{close:.2f}"),
    ]
    rows += [
        (f"mean latency at 80 % of what the weakest carries, {p}, ms", "", f"{s * 1e3:.1f}")
        for p, s in easily.items()
    ]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for paradigm, outcome in outcomes.items():
            by_second = outcome.rates(1.0)
            times = 1.0 + np.arange(len(by_second)) * outcome.step_s
            left.plot(times, by_second / 1e3, label=paradigm, lw=1)
            right.plot(*given[paradigm].means_since_due_s(offered), label=paradigm, lw=1)
        left.set(xlabel="seconds", ylabel="thousand orders/s, as many as are taken", ylim=(0, None))
        right.set(xlabel="seconds", ylabel="seconds an order takes, at 80 %", yscale="log")
        left.legend()

    figures = {"per_second": rates, "mean_s": means, "easy": easy, "easily_mean_s": easily}
    return Finding(figures, rows, verdict, bool(holds), draw)
