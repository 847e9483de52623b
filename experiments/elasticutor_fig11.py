"""Elasticutor fig. 11: the 99th percentile of the latency of one elastic executor with 1 to 256
cores, of which 8 are on its own machine, by the CPU time and by the size of a tuple.

Claims: it hardly rises, but does where a tuple takes 0.1 ms or less, or has 2 KB or more; even then
it stays bounded, because sources are held back.

Rule: sources send 80 % of what the cores could do. With 1 ms and 128 bytes, 256 cores have at
most 3 times the percentile of 8; with 0.01 ms, 0.1 ms, 2 KB and 8 KB at least 10 times it; and
none is above 15 s, which is what the longest queue takes."""

from typing import Any

from lab import Finding, Lab
from paradigms import ENGINES, NOTES, WARM_S, lines, micro, ran

__all__ = ["ENGINES", "NOTES"]
CORES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COSTS_MS = (0.01, 0.1, 1.0, 10.0)
SIZES = (128, 512, 2048, 8192)


def percentile(cost_ms: float, size: int, cores: int, seconds: float) -> float:
    """Of one executor with so many cores."""
    setup = micro(
        "elastic",
        0.0,
        cost_s=cost_ms / 1e3,
        size=float(size),
        executors=1,
        cores=cores,
        phi=float("inf"),
    )
    offered = 0.8 * cores / (cost_ms / 1e3)
    return ran(setup, seconds, offered).percentile_s(99, WARM_S)


def run(lab: Lab) -> Finding:
    """Both series."""
    seconds = 30.0 if lab.quick else 180.0
    by_cost = {c: [percentile(c, 128, k, seconds) for k in CORES] for c in COSTS_MS}
    by_size = {s: [percentile(1.0, s, k, seconds) for k in CORES] for s in SIZES}
    at = CORES.index
    usual = by_cost[1.0][at(256)] / by_cost[1.0][at(8)]
    rises = {
        "0.01 ms": by_cost[0.01][at(256)] / by_cost[0.01][at(8)],
        "0.1 ms": by_cost[0.1][at(256)] / by_cost[0.1][at(8)],
        "2 KB": by_size[2048][at(256)] / by_size[2048][at(8)],
        "8 KB": by_size[8192][at(256)] / by_size[8192][at(8)],
    }
    longest = max(max(found) for of in (by_cost, by_size) for found in of.values())
    holds = usual <= 3 and min(rises.values()) >= 10 and longest <= 15
    told = ", ".join(f"{ratio:.0f} times with {name}" for name, ratio in rises.items())
    verdict = f"from 8 to 256 cores it rises {usual:.1f} times at 1 ms and 128 B; {told}"
    rows = [("256 cores over 8, at 1 ms and 128 B", "hardly rises", f"{usual:.1f}")]
    rows += [(f"256 cores over 8, at {n}", "rises greatly", f"{r:.1f}") for n, r in rises.items()]
    rows.append(("the longest, s", "bounded", f"{longest:.1f}"))

    def draw(figure: Any) -> None:
        left, right = figure.subfigures(1, 2)
        for part, of, unit in ((left, by_cost, "ms"), (right, by_size, "B")):
            axes = lines(
                part,
                [(f"{k} {unit}", CORES, [1e3 * s for s in found]) for k, found in of.items()],
                xlabel="cores",
                ylabel="99th percentile, ms",
            )
            axes.set(xscale="log", yscale="log")

    figures = {"cores": CORES, "by_cost_ms": by_cost, "by_size": by_size}
    return Finding(figures, rows, verdict, bool(holds), draw)
