"""Elasticutor fig. 13: throughput by the number of executors y and of shards in each, z, under
three workloads, with static and resource-centric beside.

Claims: more shards help, less and less; y = 256 falls to static; with 8 KB a tuple y = 1 is poor;
with ω = 16 few executors are worse than many.

Rule: at 128 B and ω = 2, y = 32 with z = 256 carries at least 1.1 times what z = 1 does, and y =
256 is within 10 % of static; at 8 KB y = 1 carries at most half of what y = 32 does; at ω = 16 y
= 1 carries less than y = 32."""

from typing import Any

from lab import Finding, Lab
from paradigms import ENGINES, NOTES, lines, micro, ran, rate

__all__ = ["ENGINES", "NOTES"]
EXECUTORS = (1, 8, 32, 64, 256)
SHARDS = (1, 4, 16, 64, 256)
WORKLOADS = {"128 B, ω = 2": (128, 2), "8 KB, ω = 2": (8192, 2), "128 B, ω = 16": (128, 16)}


def run(lab: Lab) -> Finding:
    """Every y and z, so from 1 to 65 536 shards."""
    seconds = 30.0 if lab.quick else 180.0
    found: dict[str, dict[int, list[float]]] = {}
    beside: dict[str, dict[str, float]] = {}
    for name, (size, shuffles) in WORKLOADS.items():
        found[name] = {
            y: [
                rate(
                    ran(
                        micro("elastic", shuffles, size=float(size), executors=y, shards=y * z),
                        seconds,
                    )
                )
                for z in SHARDS
            ]
            for y in EXECUTORS
        }
        beside[name] = {
            "static": rate(ran(micro("static", shuffles, size=float(size)), seconds)),
            "resource-centric": rate(
                ran(micro("resource-centric", shuffles, size=float(size)), seconds)
            ),
        }
    usual, large, quick = WORKLOADS
    more = found[usual][32][-1] / found[usual][32][0]
    single = found[usual][256][-1] / beside[usual]["static"]
    far = found[large][1][-1] / found[large][32][-1]
    few = found[quick][1][-1] / found[quick][32][-1]
    holds = more >= 1.1 and abs(single - 1) <= 0.1 and far <= 0.5 and few < 1
    verdict = (
        f"y = 256 carries {single:.2f} times what static does; y = 1 carries {far:.0%} of y = 32 "
        f"at 8 KB, and {few:.0%} at ω = 16"
    )
    rows = [
        ("y = 32: z = 256 over z = 1", "above 1", f"{more:.2f}"),
        ("y = 256 over static", "1", f"{single:.2f}"),
        ("8 KB: y = 1 over y = 32", "poor", f"{far:.2f}"),
        ("ω = 16: y = 1 over y = 32", "below 1", f"{few:.2f}"),
    ]

    def draw(figure: Any) -> None:
        for part, (name, of) in zip(figure.subfigures(1, 3), found.items(), strict=True):
            lines(
                part,
                [(f"y = {y}", SHARDS, [r / 1e3 for r in rates]) for y, rates in of.items()],
                xlabel="shards in an executor",
                ylabel="thousand tuples/s",
                title=name,
                xscale="log",
            )

    figures = {
        "executors": EXECUTORS,
        "shards": SHARDS,
        "per_second": found,
        "beside": beside,
    }
    return Finding(figures, rows, verdict, bool(holds), draw)
