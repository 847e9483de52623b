"""DRS Table II: milliseconds that the optimizer takes for 12 to 192 processors, and that making
measures of one interval's reports takes, on the three operators of logo detection; means over many
calls, as theirs."""

import time
from typing import Any

from lab import Finding, Lab
from shapes import vld

from sojourn.control.measure import Measure, measured
from sojourn.engine.driver.merge import Change, merge
from sojourn.engine.wire import messages as m
from sojourn.ports import Samples, Sojourn
from sojourn.queueing import assign_processors
from sojourn.settings import ControlSettings

PAPER_MS = {12: 0.083, 24: 0.158, 48: 0.323, 96: 0.665, 192: 1.250}
PAPER_MEASURE_MS = 0.1
CHAIN = ("frames", "extract", "match", "aggregate", "out")
NOTES = "the same for both engines"


def timed_ms(work: Any, times: int) -> float:
    """On average."""
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times * 1e3


def report(number: int, tuples: int) -> m.Report:
    """What the executor of one of the vertices says after so many tuples."""
    return m.Report(
        vertex=CHAIN[number],
        executor=0,
        processors=1 if number in (0, 4) else 10,
        wanted=10,
        queue=3,
        arrivals=tuples,
        gaps=tuples,
        gap_s=tuples / 13,
        gap_s2=2 * tuples / 13**2,
        served=tuples,
        timed=tuples,
        service_s=tuples * 0.4,
        service_s2=tuples * 0.32,
        processor_s=tuples / 1.3,
        emitted={CHAIN[number + 1]: tuples} if number < 4 else {},
        dropped=0,
        shed=0,
        lag_s=0.0 if number == 0 else None,
        started_s=0.0,
        at_s=tuples / 13,
        received=tuples,
        sent=tuples,
        idle=False,
        exhausted=False,
        number=tuples,
    )


def measures(changes: list[Change]) -> Measure:
    """From the executors' reports, and the sojourns of 130 trees, to what the model takes."""
    samples = Samples(20.0, merge(changes), Sojourn.of([1.0] * 130), 13)
    known = dict.fromkeys(CHAIN, "operator") | {"frames": "source", "out": "sink"}
    found = measured(samples, None, known, ControlSettings(max_sojourn_s=1.0))
    assert isinstance(found, Measure), found
    return found


def run(lab: Lab) -> Finding:
    """Time both."""
    network = vld(rate=4.0).network()
    times = 1_000 if lab.quick else 20_000
    ours = {k: timed_ms(lambda k=k: assign_processors(network, k), times) for k in PAPER_MS}
    changes = [Change(report(n, 260), report(n, 130)) for n in range(len(CHAIN))]
    measure_ms = timed_ms(lambda: measures(changes), times)
    rows = [
        (f"optimizer, K = {k}", f"{PAPER_MS[k]:.3f} ms", f"{ms:.3f} ms") for k, ms in ours.items()
    ]
    rows.append(("measuring one interval", f"{PAPER_MEASURE_MS} ms", f"{measure_ms:.3f} ms"))
    holds = all(ours[k] < ms for k, ms in PAPER_MS.items()) and measure_ms < 1
    fewer = sum(ours[k] < PAPER_MS[k] for k in ours)
    verdict = (
        f"the optimizer is faster than the paper's at {fewer} of {len(ours)} sizes, in Python; "
        f"measuring takes {measure_ms:.2f} ms, theirs {PAPER_MEASURE_MS} ms: both below 1 ms"
    )

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.loglog(list(PAPER_MS), list(PAPER_MS.values()), "o-", label="paper, Java")
        axes.loglog(list(ours), list(ours.values()), "s-", label="here, Python")
        axes.set(xlabel="processors", ylabel="ms")
        axes.legend()

    return Finding({"optimizer_ms": ours, "measure_ms": measure_ms}, rows, verdict, holds, draw)
