"""The micro-benchmark of Elasticutor on Spark. Its operator sleeps, so that two cores can host its
sixteen workers. So much comes as these could carry if they were evenly busy: they do about 92 a
second each, as figure 6 shows where a worker is full. With more, thousands of tuples wait on their
way to executors, and resource-centric pauses for longer to work these off than it runs.

With 256 cores and 10 000 keys, the most popular key of the paper takes more than a core. Here there
are as many keys for a worker, so there are 625. Popularity is shuffled by the clock, whatever is
taken."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from lab import Lab

import sojourn as sj
from sojourn.engine.driver.repartitioning import Repartitioning

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import micro

ENGINES = ("spark",)
NOTES = (
    "two cores; 16 workers that sleep 10 ms a tuple, 128 bytes a tuple, 625 keys by zipf 0.5, 512 "
    "shards of 32 KB, at most 100 tuples waiting at an executor; elastic: 2 executors; static and "
    "resource-centric: 16; the source offers 1200 tuples a second"
)
WORKERS = 16
LOOK_S = 0.5  # between two samples, after which shards may move
WARM_S = 15.0
JOB = micro.Settings(
    rate=1200.0, seconds=1e6, keys=625, cost_ms=10.0, wait=True, shards=512, processors=WORKERS
)
Served = list[tuple[float, float, float]]
"""When a look ended, by the clock, its seconds, and the tuples per second in them."""


class ByClock(micro.Generator):
    """Popularity is drawn anew when the clock says so, so that others know when. Every run has the
    same draws."""

    def __init__(self, settings: micro.Settings) -> None:
        super().__init__(settings)
        self.zero_s = time.time() // 60 * 60

    def passed_s(self, number: int) -> float:  # noqa: ARG002  # whichever tuple it is
        """Since the minute began in which this was made."""
        return time.time() - self.zero_s


def served(
    lab: Lab, paradigm: str, shuffles: float, seconds: float, paused_s: list[float] | None = None
) -> Served:
    """What is served under a paradigm, for so long. Seconds for which shards that were divided anew
    paused it are added to a list."""
    executors = 2 if paradigm == "elastic" else WORKERS
    job = replace(JOB, shuffles=shuffles, executors=executors)
    found: Served = []
    settings = {"paradigm": paradigm, "maxQueue": 100, "batch": 3600.0}
    with sj.start(micro.topology(job, ByClock), spark=lab.session(), settings=settings) as running:
        until_s = time.time() + WARM_S + seconds
        while time.time() < until_s:
            lab.let_pass(running, LOOK_S)
            sample = running.samples().vertices["calculator"]
            if time.time() > until_s - seconds:
                span_s = sample.interval_s
                found.append((time.time(), span_s, sample.served / span_s))
        if paused_s is not None and isinstance(running.engine.placing, Repartitioning):
            done = (d for d in running.engine.placing.divisions if d.done.is_set())
            paused_s += [d.drained_s + d.moved_s for d in done]
    return found


def mean(of: Served) -> float:
    """Tuples per second."""
    _, spans_s, rates = np.array(of).T
    return float(np.average(rates, weights=spans_s))


def dips(of: Served, turn_s: float) -> list[float]:
    """After each shuffle, for how many seconds less than 90 % is served of the mean of the five
    seconds before it, over a sliding second."""
    times, spans_s, rates = np.array(of).T
    sliding = np.convolve(rates, np.ones(2) / 2, "same")
    first = np.ceil((times[0] + 5) / turn_s) * turn_s
    found = []
    for shuffled_s in np.arange(first, times[-1] - turn_s + LOOK_S, turn_s):
        usual = rates[(times > shuffled_s - 5) & (times <= shuffled_s)].mean()
        after = (times > shuffled_s) & (times <= shuffled_s + turn_s)
        found.append(float(spans_s[after & (sliding < 0.9 * usual)].sum()))
    return found
