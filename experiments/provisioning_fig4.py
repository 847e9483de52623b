"""Cervino fig. 4: one small machine at a constant rate that is more than it carries, ten runs over
two hours. A small machine has one slot; its operator sleeps for 10 ms. 120 tuples a second come,
and the machine sheds what would wait for more than a quarter of a second. Each run lasts 40 s.

Claims: throughput remains stable from run to run; latency suffers more from outliers; neither
follows the time of day.

Rule: throughput varies by less than 5 % (standard deviation over mean, of the runs' means), the
latency of the slowest tuples of each run varies more than that (the highest 99th percentile of a
second), and the rank correlation of neither with the time is significant (5 %, ten runs). Seconds
with more than 5 % of the CPU stolen are left out, and their share is told. With too few left, it is
undecided.

Runs are kept beside the result (`provisioning_fig4.full.jsonl`), so an experiment that was
interrupted goes on, not earlier than 800 s after its last run. With
`--out experiments/unfinished` it goes on with runs that are there."""

import math
import statistics
import sys
import threading
import time
from typing import Any

from lab import Finding, Lab, Runs
from scipy.stats import spearmanr
from stolen import Steal, alone

import sojourn as sj

ENGINES = ("spark",)
NOTES = (
    "local Spark; the operator sleeps for 10 ms, so the CPU that others take shows in how late it "
    "wakes; ten runs of 40 s over two hours; with --quick three, one right after the other"
)
RATE, SERVICE_S, SHED_S = 120.0, 0.010, 0.25
WARM_S, SECONDS = 10.0, 40
APART_S, RUNS = 800.0, 10
LEAST_S = 20  # clean seconds of a run that counts
STABLE, SURE = 0.05, 0.05


def topology() -> sj.Topology:
    """trades → maxima → out."""
    t = sj.Topology("stocks")
    trades = t.source("trades", sj.sources.paced(lambda n: n, rate=RATE))

    def maxima(number: int) -> list[int]:
        time.sleep(SERVICE_S)
        return [number]

    kept = t.operator("maxima", maxima, trades, processors=1, shed_after=SHED_S)
    t.sink("out", sj.sinks.call(lambda _: None), kept)
    return t


def measured(lab: Lab) -> dict[str, Any]:
    """A run, second by second."""
    each: list[tuple[float, float, float, float, float]] = []  # seconds, and what was seen in them
    shed = arrived = 0
    with alone(), sj.start(topology(), spark=lab.session(), settings={"batch": 3600.0}) as running:
        lab.let_pass(running, WARM_S)
        running.engine.samples()
        with Steal() as steal:
            for _ in range(SECONDS):
                began_s = time.monotonic()
                lab.let_pass(running, 1.0)
                found = running.engine.samples()
                shed += found.vertices["maxima"].shed
                arrived += found.vertices["maxima"].arrivals
                if found.sojourn is not None:
                    of, served = found.sojourn, found.vertices["maxima"]
                    rate = served.served / served.interval_s
                    each.append((began_s, time.monotonic(), rate, of.p95_s, of.p99_s))
    clean = [one for one in each if steal.was_clean(one[0], one[1])]
    kept, late, slow = ([one[place] for one in clean] for place in (2, 3, 4))
    return {
        "time_s": time.time(),
        "seconds": len(kept),
        "throughput": statistics.fmean(kept) if kept else math.nan,
        "p95_s": statistics.median(late) if late else math.nan,
        "worst_s": max(slow, default=math.nan),
        "shed": shed / max(1, arrived),
        "stolen": steal.told(),
    }


def varies(values: list[float]) -> float:
    """Standard deviation over mean."""
    return statistics.stdev(values) / statistics.fmean(values)


def run(lab: Lab) -> Finding:
    """One after the other, far apart."""
    kept = Runs(lab.out / f"provisioning_fig4.{'quick' if lab.quick else 'full'}.jsonl")
    waits = threading.Event()
    for number in range(3 if lab.quick else RUNS):
        if number in kept.found:
            continue
        if number and not lab.quick:
            since_s = time.time() - kept.found[number - 1]["time_s"]
            waits.wait(max(0.0, APART_S - since_s))
        found = kept.add({"name": number, **measured(lab)})
        print(f"run {number + 1}: {found}", file=sys.stderr, flush=True)
    kept.done()
    runs = [kept.found[number] for number in sorted(kept.found)]
    good = [one for one in runs if one["seconds"] >= LEAST_S]
    enough = len(good) >= 0.8 * len(runs) and len(good) >= 3
    figures: dict[str, Any] = {"runs": runs}
    if not enough:
        told = f"{len(good)} of {len(runs)} runs have {LEAST_S} seconds without stolen CPU"
        return Finding(figures, [], told, None, lambda _: None)
    times = [one["time_s"] for one in good]
    through, late = ([one[what] for one in good] for what in ("throughput", "worst_s"))
    chances = {
        what: float(spearmanr(times, values).pvalue)
        for what, values in (("throughput", through), ("latency", late))
    }
    is_stable, is_worse = varies(through) < STABLE, varies(late) > varies(through)
    is_still = all(not chance < SURE for chance in chances.values())
    stolen = 1 - sum(one["stolen"]["clean_seconds"] for one in runs) / (len(runs) * SECONDS)
    rows = [
        ("throughput varies by", "relatively stable", f"{varies(through):.1%}"),
        ("latency of the slowest varies by", "more", f"{varies(late):.1%}"),
        ("slowest of all over the median 95th percentile", "outliers",
         f"{max(late) / statistics.median(one['p95_s'] for one in good):.2f}"),
        ("chance that neither follows the time", "no pattern",
         f"{chances['throughput']:.2f}, {chances['latency']:.2f}"),
        ("seconds with more than 5 % of the CPU stolen", "", f"{max(0.0, stolen):.1%}"),
        ("shed", "", f"{statistics.fmean(one['shed'] for one in runs):.1%}"),
    ]  # fmt: skip
    verdict = (
        f"throughput varies by {varies(through):.1%} and latency by {varies(late):.1%} from run to "
        f"run; {'neither follows' if is_still else 'one follows'} the time"
    )
    holds = is_stable and is_worse and is_still

    def draw(figure: Any) -> None:
        above, below = figure.subplots(2, 1, sharex=True)
        minutes = [(at - times[0]) / 60 for at in times]
        above.plot(minutes, through, "o-")
        above.set(ylabel="tuples a second", ylim=(0, None))
        below.plot(minutes, [1e3 * one["p95_s"] for one in good], "o-", label="95th percentile")
        below.plot(minutes, [1e3 * of for of in late], "x", label="slowest")
        below.set(xlabel="minutes", ylabel="latency, ms", ylim=(0, None))
        below.legend()

    return Finding(figures, rows, verdict, None if lab.quick else holds, draw)
