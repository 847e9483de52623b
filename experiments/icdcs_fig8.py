"""DRS ICDCS fig. 8: how far the model underestimates a chain of three operators, against the CPU
time that a tuple takes in all: the model leaves out what carrying tuples costs, so measured over
estimated sojourn falls towards 1 as operators work longer. Theirs went from 0.567 to 309.1 ms. On
real CPU-bound operators, so on Spark only."""

import itertools
from functools import partial
from typing import Any

from lab import INTERVAL_S, Finding, Lab, summed, work_off
from shapes import example

import sojourn as sj
from sojourn.queueing import Network, Station

chain = example("chain")
NAMES = chain.NAMES
ENGINES = ("spark",)
TOTAL_MS = (0.567, 3.0, 15.0, 75.0, 309.1)
BUSY = 0.4  # cores in all
LEAST = 40  # tuples
NOTES = (
    "operators compute; one processor each, Poisson arrivals, GI/G/k with the measured variability"
)


def run(lab: Lab) -> Finding:
    """Each CPU time at the same share of the cores, but for the shortest, of which 200 tuples a
    second are enough; the longest first, as it minds a cold start least."""
    points = []
    for total_ms in reversed(TOTAL_MS):
        rate = min(200.0, BUSY / (total_ms / 1e3))
        each_ms = (total_ms / len(NAMES),) * len(NAMES)
        topology = chain.topology(chain.Settings(rate, cpu=each_ms, sleep=(0.0, 0.0, 0.0)))
        with sj.start(topology, spark=lab.session(), settings={"batch": 600.0}) as running:
            work_off(running, partial(lab.let_pass, running))
            parts = []
            for _ in range(round(max(lab.seconds(12, 60), LEAST / rate) / INTERVAL_S)):
                lab.let_pass(running, INTERVAL_S)
                parts.append(running.samples())
        found = summed(dict.fromkeys(NAMES, 1), parts)
        stations = {}
        for name in NAMES:
            measures = [p.vertices[name] for p in parts if p.vertices[name].service_s]
            served = sum(m.served for m in measures)
            service_s = sum(m.served * (m.service_s or 0.0) for m in measures) / served
            scv = sum(m.served * (m.service_scv or 0.0) for m in measures) / served
            stations[name] = Station(rate, 1 / service_s, 1.0, scv)
        estimated_s = Network(stations, rate).mean_sojourn(dict.fromkeys(NAMES, 1))
        points.append(
            {
                "cpu_ms": total_ms,
                "rate": rate,
                "measured_ms": found.mean_s * 1e3,
                "estimated_ms": estimated_s * 1e3,
                "ratio": found.mean_s / estimated_s,
                "half_of_interval_ms": found.half_s * 1e3,
            }
        )
    points.reverse()
    first, last = points[0]["ratio"], points[-1]["ratio"]
    ratios = [point["ratio"] for point in points]
    falls = sum(sooner > later for sooner, later in itertools.pairwise(ratios))
    holds = first > last and 0.8 < last < 1.5 and falls >= len(ratios) - 2
    verdict = f"measured over estimated falls from {first:.1f} to {last:.2f}"
    rows = [
        ("measured over estimated at 0.567 ms", "highest", f"{first:.1f}"),
        ("measured over estimated at 309.1 ms", "close to 1", f"{last:.2f}"),
    ]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.loglog([p["cpu_ms"] for p in points], [p["ratio"] for p in points], "o-")
        axes.axhline(1.0, ls=":", c="grey")
        axes.set(xlabel="CPU time per tuple, ms", ylabel="measured over estimated sojourn")

    return Finding({"points": points}, rows, verdict, bool(holds), draw)
