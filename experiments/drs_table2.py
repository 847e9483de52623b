"""DRS Table II: milliseconds that the optimizer takes for 12 to 192 processors, and that one
interval's measures take, on the three operators of logo detection."""

import time
from typing import Any

from lab import Finding, Lab
from shapes import vld

from sojourn.control.measure import measured
from sojourn.queueing import assign_processors
from sojourn.settings import ControlSettings

PAPER_MS = {12: 0.083, 24: 0.158, 48: 0.323, 96: 0.665, 192: 1.250}
PAPER_MEASURE_MS = 0.1
NOTES = "the same whatever the engine"


def timed_ms(work: Any, times: int) -> float:
    """The fastest of some rounds, per call."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, (time.perf_counter() - start) / times)
    return best * 1e3


def run(lab: Lab) -> Finding:
    """Time both."""
    network = vld(rate=4.0).network()
    times = 50 if lab.quick else 1000
    ours = {k: timed_ms(lambda k=k: assign_processors(network, k), times) for k in PAPER_MS}
    shape = vld()
    simulator = Lab("simulator", quick=True)
    with simulator.running(shape, {"extract": 10, "match": 11, "aggregate": 1}) as (engine, let):
        let(5.0)
        samples = engine.samples()
    known = dict.fromkeys(samples.vertices, "operator") | {"frames": "source"}
    settings = ControlSettings(max_sojourn_s=1.0)
    measure_ms = timed_ms(lambda: measured(samples, None, known, settings), times)
    rows = [
        (f"optimizer, K = {k}", f"{PAPER_MS[k]:.3f} ms", f"{ms:.3f} ms") for k, ms in ours.items()
    ]
    rows.append(("measures of one interval", f"{PAPER_MEASURE_MS} ms", f"{measure_ms:.3f} ms"))
    holds = all(ours[k] < ms for k, ms in PAPER_MS.items())
    fewer = sum(ours[k] < PAPER_MS[k] for k in ours)
    verdict = f"faster than the paper's figure at {fewer} of {len(ours)} sizes, in Python"

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.loglog(list(PAPER_MS), list(PAPER_MS.values()), "o-", label="paper, Java")
        axes.loglog(list(ours), list(ours.values()), "s-", label="here, Python")
        axes.set(xlabel="processors", ylabel="ms")
        axes.legend()

    return Finding({"optimizer_ms": ours, "measure_ms": measure_ms}, rows, verdict, holds, draw)
