"""Elasticutor fig. 10: throughput of one elastic executor with 1 to 256 cores, of which 8 are on
its own machine, by the CPU time and by the size of a tuple.

Claims: it scales to the whole cluster, but not past 16 cores with 0.01 ms or 8 KB a tuple.

Rule: with 1 ms and 128 bytes, 256 cores carry at least 80 times what one does; with 0.01 ms, and
with 8 KB, 256 cores carry at most 1.2 times what 16 do."""

from typing import Any

from lab import Finding, Lab
from paradigms import ENGINES, NOTES, lines, micro, ran, rate

__all__ = ["ENGINES", "NOTES"]
CORES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COSTS_MS = (0.01, 0.1, 1.0, 10.0)
SIZES = (128, 512, 2048, 8192)


def scaled(cost_ms: float, size: int, cores: int, seconds: float) -> float:
    """What one executor with so many cores carries."""
    setup = micro(
        "elastic",
        cost_s=cost_ms / 1e3,
        size=float(size),
        executors=1,
        cores=cores,
        phi=float("inf"),
    )
    return rate(ran(setup, seconds))


def run(lab: Lab) -> Finding:
    """Both series."""
    seconds = 30.0 if lab.quick else 180.0
    by_cost = {c: [scaled(c, 128, k, seconds) for k in CORES] for c in COSTS_MS}
    by_size = {s: [scaled(1.0, s, k, seconds) for k in CORES] for s in SIZES}
    at = CORES.index
    whole = by_cost[1.0][at(256)] / by_cost[1.0][at(1)]
    quick = by_cost[0.01][at(256)] / by_cost[0.01][at(16)]
    large = by_size[8192][at(256)] / by_size[8192][at(16)]
    holds = whole >= 80 and quick <= 1.2 and large <= 1.2
    verdict = (
        f"256 cores carry {whole:.0f} times what one does; past 16 cores there is a gain of "
        f"{quick - 1:.0%} with 0.01 ms and of {large - 1:.0%} with 8 KB"
    )
    rows = [
        ("256 cores over 1, at 1 ms", "scales to the cluster", f"{whole:.0f}"),
        ("256 cores over 16, at 0.01 ms", "no gain", f"{quick:.2f}"),
        ("256 cores over 16, at 8 KB", "no gain", f"{large:.2f}"),
    ]

    def draw(figure: Any) -> None:
        left, right = figure.subfigures(1, 2)
        for part, of, unit in ((left, by_cost, "ms"), (right, by_size, "B")):
            axes = lines(
                part,
                [(f"{k} {unit}", CORES, found) for k, found in of.items()],
                xlabel="cores",
                ylabel="tuples/s",
            )
            axes.set(xscale="log", yscale="log")

    figures = {"cores": CORES, "by_cost_ms": by_cost, "by_size": by_size}
    return Finding(figures, rows, verdict, bool(holds), draw)
