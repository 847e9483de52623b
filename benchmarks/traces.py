"""The control loop over the simulated engine, on loads whose answer is known: the parts steps,
flash, square, hour and traces of `control.py`. Virtual time and fixed seeds: the same code gives
the same figures on every machine.

source → check (25 ms) → price (40 ms) → sink, exponential times, target 200 ms. A second is above
the target if the mean sojourn of the tuples that end in it is, or if none ends though some are
under way.

- steps: 40 tuples/s for 40 s, then 80 or 400 for 62 s, a hundred seeds each. At least 90 % of the
  runs at twice the load and 95 % at ten times are back under the target within 2 s, by the rule of
  `step` in `control.py`. Of the ten seconds after the step, the mean of the worst is in the median
  at most 3 times the mean before the step at twice the load, and 12 times at ten times.
- flash: 40 tuples/s for 300 s, 400 for 300 s, 40 for 600 s, five seeds. Each: at most 1 % of
  seconds above the target, and the 99th percentile over all tuples at most twice the target.
- square: twenty minutes of 40 and 80 tuples/s in turns, with periods of 5, 7 and 12 s. A period is
  a whole wave, and then again half of one; three seeds. Each: at most 6 changes, of which at most 2
  are reversed within a minute: a later change moves one of its operators the other way.
- hour: an hour at each of eight rates, two seeds, from 2 and 3 processors. Each: at most one change
  after five minutes. Processors after five minutes, all rates together: at most 1.15 times those of
  a planner that knows rates, service times and hops. It plans for the target exactly, with at least
  one processor for each operator. At no rate are there more than one above 1.15 times the
  planner's.
- traces: ten loads of twenty minutes, two seeds, the same arrivals for all policies. All begin with
  what the planner takes for the first rate. Seconds above the target and processor-seconds are
  added up over the seeds. On each trace `drs` must be above the target in at most 5 % of seconds,
  and no `threshold` or `ds2` may have both no more seconds above the target and no more
  processor-seconds. Then `drs` has the least time above the target at no more processor-seconds,
  and the fewest processor-seconds at no more time above. Both baselines run with the
  `change.interval` of `drs` (10 s) and at their quickest (1 s), `threshold` also if it adds
  above 70 % instead of 80 %. All of them count, so choosing a baseline for a trace with hindsight
  does not beat `drs` either.
"""

import functools
import importlib
import itertools
import math
import os
import random
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
from scores import Score, Seconds, back_after, made, pooled, reversed_soon, verdict

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.control.summary import Happened
from sojourn.ports import Sojourn
from sojourn.queueing.allocation import min_processors
from sojourn.queueing.network import Network
from sojourn.queueing.station import Station
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload
from sojourn.simulator.draws import Times, quantized

SERVICE_S = {"check": 0.025, "price": 0.040}
TARGET_S = 0.2
MINUTES_20 = 1200.0
SETTLED_S = 300.0
Steps = tuple[tuple[float, float], ...]


class Slower(Distribution):
    """Exponential, and twice as long from one tuple to another."""

    def __init__(self, mean_s: float, since: int, until: int) -> None:
        super().__init__("exponential", mean_s)
        object.__setattr__(self, "which", (since, until))
        object.__setattr__(self, "numbers", itertools.count())

    def draw(self, rng: np.random.Generator, count: int) -> Times:
        since, until = vars(self)["which"]
        number = np.fromiter(itertools.islice(vars(self)["numbers"], count), np.int64, count)
        factor = np.where((number >= since) & (number < until), 2.0, 1.0)
        return quantized(super().draw(rng, count) * factor)


@dataclass(frozen=True)
class Case:
    """One simulation: steps of (seconds, rate), the last of which goes on; the processors at the
    start; from which to which tuple `price` takes twice as long; whose decisions."""

    steps: Steps
    seconds: float
    seed: int = 0
    start: tuple[int, ...] = (2, 3)
    scv: float = 1.0
    slower: tuple[int, int] | None = None
    policy: str = "drs"
    change_interval_s: float = 10.0
    high: float = 0.8  # the threshold of `threshold` above which it adds

    def simulation(self) -> Simulation:
        """To be run."""
        t = sj.Topology("traces")
        value = t.source("source", sj.sources.paced(int, rate=1.0))
        loads = {}
        for (name, mean_s), count in zip(SERVICE_S.items(), self.start, strict=True):
            value = t.map(name, _same, value, processors=count)
            loads[name] = OperatorLoad(Distribution("exponential", mean_s))
        t.sink("out", sj.sinks.console(), value)
        if self.slower is not None:
            loads["price"] = OperatorLoad(Slower(SERVICE_S["price"], *self.slower))
        gap = Distribution("exponential") if self.scv == 1 else Distribution("gamma", 1.0, self.scv)
        control = ControlSettings(
            max_sojourn_s=TARGET_S, policy=self.policy, change_interval_s=self.change_interval_s
        )
        if self.policy == "drs-2017":  # which gives nothing back without T_min
            control = replace(control, min_sojourn_s=TARGET_S / 2)
        return Simulation(
            t,
            Workload(loads, {"source": SourceLoad(self.steps, gap)}),
            (EngineSettings(), control, SimulatorSettings()),
            self.seconds,
            self.seed,
        )


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Outcome:
    """What became of a case. `late` counts processor-seconds and seconds from `SETTLED_S` on."""

    score: Score
    p99_s: float
    changes: tuple[Happened, ...]
    late: tuple[float, float]
    above: tuple[int, ...]
    means_s: Mapping[int, float]  # of every second


def outcome(case: Case) -> Outcome:
    """Run a case."""
    seconds, sojourns, spent = Seconds(), list[Sojourn](), list[tuple[float, float, float]]()

    def listen(record: Record) -> None:
        samples = record.samples
        if record.pressures:
            return  # it ends no interval
        seconds.add(record.time_s, samples.sojourn, samples.open_trees > 0)
        if samples.sojourn is not None:
            sojourns.append(replace(samples.sojourn, critical={}))
        own = [samples.vertices[name] for name in SERVICE_S]
        interval_s = own[0].interval_s
        spent.append((record.time_s, interval_s, sum(s.processors for s in own) * interval_s))

    vars(importlib.import_module("sojourn.control.policies.threshold"))["_HIGH"] = case.high
    summary = case.simulation().run(listeners=[listen])
    late = [(cost, s) for time_s, s, cost in spent if time_s > SETTLED_S]
    above = seconds.above(TARGET_S)
    return Outcome(
        Score(len(above), round(case.seconds), sum(cost for _, _, cost in spent)),
        pooled(sojourns, 99.0),
        tuple(made(summary.changes)),
        (sum(cost for cost, _ in late), sum(s for _, s in late)),
        tuple(above),
        {second: seconds.mean_s(second) for second in sorted(seconds.count)},
    )


def outcomes(cases: Mapping[Any, Case]) -> dict[Any, Outcome]:
    """All cases, on all cores."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        return dict(zip(cases, pool.map(outcome, cases.values()), strict=True))


@functools.cache
def planned(rate: float, factor: float = 1.0) -> tuple[int, ...]:
    """The fewest processors for the target at a rate, by one who knows everything; `factor` times
    the service time of `price`."""
    simulator = SimulatorSettings()
    stations = {
        name: Station(
            rate, 1 / (mean_s * (factor if name == "price" else 1) + simulator.hand_over_s)
        )
        for name, mean_s in SERVICE_S.items()
    }
    hops_s = simulator.hop_s * (len(SERVICE_S) + 1) + simulator.sink_s
    plan = min_processors(Network(stations, rate), TARGET_S - hops_s)
    return tuple(plan.allocation[name] for name in SERVICE_S)


def told(changes: tuple[Happened, ...]) -> list[str]:
    """For people."""
    return [f"{change.at_s:.0f} s: {change.action}, {change.reason}" for change in changes]


def steps(quick: bool) -> dict[str, Any]:
    """A step up, often."""
    before, after = 40, 62
    cases = {
        (times, seed): Case(
            ((float(before), 40.0), (float(after), times * 40.0)), float(before + after), seed
        )
        for times in (2, 10)
        for seed in range(100, 110 if quick else 200)
    }
    runs: dict[int, list[tuple[int | None, float]]] = {2: [], 10: []}
    for (times, _), found in outcomes(cases).items():
        means_s = found.means_s
        usual_s = statistics.fmean(means_s[s] for s in means_s if 10 <= s < before)
        later = [means_s[s] for s in means_s if s >= before]
        runs[times].append((back_after([m > TARGET_S for m in later]), max(later[:10]) / usual_s))
    rows, missed = {}, []
    for times, least, most in ((2, 0.9, 3.0), (10, 0.95, 12.0)):
        backs = [back for back, _ in runs[times]]
        share = sum(back is not None and back <= 2 for back in backs) / len(backs)
        peaks = sorted(peak for _, peak in runs[times])
        peak = statistics.median(peaks)
        rows[f"times_{times}"] = {
            "back_within_2_s": share,
            "back_after_s": backs,
            "median_peak": peak,
            "worst_peak": peaks[-1],
        }
        if share < least:
            missed.append(f"{times} times: {share:.0%} are back within 2 s, at least {least:.0%}")
        if peak > most:
            missed.append(f"{times} times: the median of peaks is {peak:.1f}, at most {most:.0f}")
    return {**rows, "missed": missed}


def flash(quick: bool) -> dict[str, Any]:
    """The flash crowd."""
    steps = ((300.0, 40.0), (300.0, 400.0), (600.0, 40.0))
    cases = {seed: Case(steps, MINUTES_20, seed) for seed in range(1 if quick else 5)}
    runs, missed = [], []
    for seed, found in outcomes(cases).items():
        row = {
            "seed": seed,
            "share_above": found.score.share_above,
            "above_s": found.above,
            "p99_ms": found.p99_s * 1e3,
            "processor_s": found.score.processor_s,
            "changes": told(found.changes),
        }
        runs.append(row)
        if found.score.share_above > 0.01:
            missed.append(
                f"seed {seed}: {found.score.share_above:.2%} above the target, at most 1 %"
            )
        if found.p99_s > 2 * TARGET_S:
            missed.append(f"seed {seed}: p99 {found.p99_s * 1e3:.0f} ms, at most 400")
    return {"runs": runs, "missed": missed}


def square(quick: bool) -> dict[str, Any]:
    """Square waves."""
    seconds = 300.0 if quick else MINUTES_20
    cases = {
        (f"{period} s {what}", seed): Case(waves(half_s, seconds), seconds, seed)
        for period in (5.0, 7.0, 12.0)
        for what, half_s in (("a wave", period / 2), ("half a wave", period))
        for seed in range(1 if quick else 3)
    }
    runs, missed = [], []
    for (name, seed), found in outcomes(cases).items():
        changes, back = len(found.changes), len(reversed_soon(found.changes))
        runs.append(
            {
                "period": name,
                "seed": seed,
                "changes": changes,
                "reversed": back,
                "share_above": found.score.share_above,
                "processors": found.score.processor_s / seconds,
                "told": told(found.changes),
            }
        )
        if changes > 6:
            missed.append(f"{name}, seed {seed}: {changes} changes, at most 6")
        if back > 2:
            missed.append(f"{name}, seed {seed}: {back} reversed within a minute, at most 2")
    return {"runs": runs, "missed": missed}


def waves(half_s: float, seconds: float) -> Steps:
    """40 and 80 tuples/s in turns."""
    return ((half_s, 40.0), (half_s, 80.0)) * math.ceil(seconds / half_s / 2)


def hour(quick: bool) -> dict[str, Any]:
    """Steady load."""
    rates = (40.0, 400.0) if quick else (20.0, 40.0, 60.0, 100.0, 150.0, 200.0, 300.0, 400.0)
    seconds = 600.0 if quick else 3600.0
    seeds = range(1 if quick else 2)
    cases = {(rate, seed): Case(((1.0, rate),), seconds, seed) for rate in rates for seed in seeds}
    runs, missed = [], []
    used = wanted = 0.0
    for (rate, seed), found in outcomes(cases).items():
        late = [change for change in found.changes if change.at_s > SETTLED_S]
        mean, plan = found.late[0] / found.late[1], sum(planned(rate))
        used, wanted = used + mean, wanted + plan
        runs.append(
            {
                "rate": rate,
                "seed": seed,
                "changes_after": len(late),
                "processors": mean,
                "planner": plan,
                "ratio": mean / plan,
                "share_above": found.score.share_above,
                "changes": told(found.changes),
            }
        )
        if len(late) > 1:
            missed.append(f"{rate:.0f}/s, seed {seed}: {len(late)} changes, at most 1")
        if mean > 1.15 * plan + 1:
            missed.append(f"{rate:.0f}/s, seed {seed}: {mean:.1f} processors, the planner {plan}")
    if used > 1.15 * wanted:
        missed.append(f"{used / wanted:.3f} times the planner's processors in all, at most 1.15")
    return {"runs": runs, "ratio": used / wanted, "missed": missed}


# the ten traces


def curve(rate: Callable[[float], float], each_s: float = 5.0) -> Steps:
    """Twenty minutes of a rate that changes with time, in small steps."""
    times = np.arange(0.0, MINUTES_20, each_s)
    return tuple((each_s, rate(float(time_s + each_s / 2))) for time_s in times)


def walk(seed: int) -> Steps:
    """A rate that is multiplied by chance every ten seconds, and drawn back to 80."""
    draw, log, found = random.Random(seed), 0.0, []
    for _ in range(round(MINUTES_20 / 10)):
        log = 0.97 * log + draw.gauss(0.0, 0.12)
        found.append((10.0, 80.0 * math.exp(log)))
    return tuple(found)


TRACES: dict[str, tuple[str, Callable[[int], Case]]] = {
    "step": (
        "40/s, 80 after 400 s, 40 after 800 s",
        lambda seed: Case(((400.0, 40.0), (400.0, 80.0), (400.0, 40.0)), MINUTES_20, seed),
    ),
    "flash": (
        "40/s, 400 after 300 s, 40 after 600 s",
        lambda seed: Case(((300.0, 40.0), (300.0, 400.0), (600.0, 40.0)), MINUTES_20, seed),
    ),
    "ramp": (
        "from 40 to 240/s in ten minutes, and there it stays",
        lambda seed: Case(curve(lambda t: 40 + 200 * min(1.0, t / 600)), MINUTES_20, seed),
    ),
    "days": (
        "two days of ten minutes: 20 to 180/s, a sine",
        lambda seed: Case(
            curve(lambda t: 100 - 80 * math.cos(2 * math.pi * t / 600)), MINUTES_20, seed
        ),
    ),
    "square": (
        "40 and 80/s in turns, 30 s each",
        lambda seed: Case(waves(30.0, MINUTES_20), MINUTES_20, seed),
    ),
    "bursts": (
        "60/s, gaps with a squared coefficient of variation of 4",
        lambda seed: Case(((1.0, 60.0),), MINUTES_20, seed, scv=4.0),
    ),
    "saw": (
        "from 40 to 160/s in two minutes, back at once, ten times",
        lambda seed: Case(curve(lambda t: 40 + t % 120), MINUTES_20, seed),
    ),
    "spikes": (
        "40/s, with 200 for 15 s after 300 s and again after 800 s",
        lambda seed: Case(
            ((300.0, 40.0), (15.0, 200.0), (485.0, 40.0), (15.0, 200.0), (385.0, 40.0)),
            MINUTES_20,
            seed,
        ),
    ),
    "walk": (
        "about 80/s, multiplied by chance every ten seconds",
        lambda seed: Case(walk(seed), MINUTES_20, seed),
    ),
    "slower": (
        "60/s; price takes 80 ms instead of 40 for five minutes",
        lambda seed: Case(((1.0, 60.0),), MINUTES_20, seed, slower=(24_000, 42_000)),
    ),
}
POLICIES: dict[str, dict[str, Any]] = {
    "drs": {},
    "threshold": {"policy": "threshold"},
    "threshold, 1 s": {"policy": "threshold", "change_interval_s": 1.0},
    "threshold, 1 s, 70 %": {"policy": "threshold", "change_interval_s": 1.0, "high": 0.7},
    "ds2": {"policy": "ds2"},
    "ds2, 1 s": {"policy": "ds2", "change_interval_s": 1.0},
    "drs-2017": {"policy": "drs-2017"},
    "static": {"policy": "static"},
}


def traces(quick: bool) -> dict[str, Any]:
    """All policies on all traces."""
    names = list(TRACES)[:2] if quick else list(TRACES)
    cases = {}
    for name, seed, (policy, how) in itertools.product(
        names, range(1 if quick else 2), POLICIES.items()
    ):
        case = TRACES[name][1](seed)
        start = planned(case.steps[0][1])
        cases[name, seed, policy] = replace(case, start=start, **how)
    found = outcomes(cases)
    scores = {
        (name, policy): sum(
            (found[key].score for key in cases if (key[0], key[2]) == (name, policy)), Score()
        )
        for name in names
        for policy in POLICIES
    }
    rows, missed = {}, []
    for name in names:
        own = {policy: scores[name, policy] for policy in POLICIES}
        rivals = {p: s for p, s in own.items() if p.startswith(("threshold", "ds2"))}
        rows[name] = {p: [s.above, s.seconds, round(s.processor_s)] for p, s in own.items()}
        missed += [f"{name}: {wrong}" for wrong in verdict(own["drs"], rivals, 0.05)]
    wins = sum(
        scores[name, "drs"].above <= s.above and scores[name, "drs"].processor_s <= s.processor_s
        for (name, policy), s in scores.items()
        if policy.startswith(("threshold", "ds2"))
    )
    return {"rows": rows, "better_in_both": wins, "table": table(scores), "missed": missed}


def table(scores: Mapping[tuple[str, str], Score]) -> str:
    """For the documents."""
    names, policies = dict.fromkeys(n for n, _ in scores), dict.fromkeys(p for _, p in scores)
    lines = [
        "| seconds above · processors | " + " | ".join(policies) + " |",
        "| --- |" + " --- |" * len(policies),
    ]
    for name in names:
        row = [scores[name, policy] for policy in policies]
        cells = [f"{s.share_above:.1%} · {s.processor_s / s.seconds:.1f}" for s in row]
        lines.append(f"| {name}: {TRACES[name][0]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "steps": steps,
    "flash": flash,
    "square": square,
    "hour": hour,
    "traces": traces,
}
