"""DRS Table II: milliseconds of CPU time that the optimizer takes for 12 to 192 processors, and
that making measures of one interval's reports takes, on the three operators of logo detection.
Both are means over 100 000 calls, as theirs.

An elastic executor reports for all its processors, so there are as many reports whatever K_max is.
What a report for each processor would take, as from Storm's tasks, is measured as well."""

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from lab import Claim, Finding, Lab, judged
from shapes import vld

from sojourn.confidence import differ, half_width
from sojourn.control.measure import Measure, measured
from sojourn.engine.driver.merge import Change, merge
from sojourn.engine.wire import messages as m
from sojourn.ports import Samples, Sojourn
from sojourn.queueing import assign_processors
from sojourn.settings import ControlSettings

PAPER_MS = {12: 0.083, 24: 0.158, 48: 0.323, 96: 0.665, 192: 1.250}
PAPER_MEASURE_MS = 0.1
SIZES = list(PAPER_MS)
CHAIN = ("frames", "extract", "match", "aggregate", "out")
CALLS, PARTS = 100_000, 20
QUICK_CALLS, QUICK_PARTS = 1_000, 5
WITHIN = 0.25  # of what a further processor costs
SAME = 0.1  # of the time with the fewest
NOTES = (
    "the same for both engines; Python; 4 frames a second instead of 13, for which 12 processors "
    "are enough; sizes take turns, a twentieth of the calls each time; a tenth of the calls where "
    "each processor has a report"
)

Parts = dict[int, list[float]]  # milliseconds of a call by size, in each part of the run


def cpu_ms(work: Callable[[], object], calls: int) -> float:
    """Of a call, on average."""
    start = time.thread_time()
    for _ in range(calls):
        work()
    return (time.thread_time() - start) / calls * 1e3


def in_turns(
    works: Mapping[int, Callable[[], object]], calls: int, parts: int, order: random.Random
) -> Parts:
    """So many calls of each in all, in turns, as the machine's speed wavers."""
    found: Parts = {size: [] for size in works}
    turns = list(works)
    for _ in range(parts):
        order.shuffle(turns)
        for size in turns:
            found[size].append(cpu_ms(works[size], max(1, calls // parts)))
    return found


def report(vertex: str, executor: int, processors: int, tuples: int) -> m.Report:
    """What an executor says after so many tuples."""
    onward = dict(itertools.pairwise(CHAIN)).get(vertex)
    return m.Report(
        vertex=vertex,
        executor=executor,
        processors=processors,
        wanted=processors,
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
        emitted={onward: tuples} if onward else {},
        dropped=0,
        shed=0,
        lag_s=0.0 if vertex == "frames" else None,
        started_s=0.0,
        at_s=tuples / 13,
        received=tuples,
        sent=tuples,
        idle=False,
        exhausted=False,
        number=tuples,
    )


def changes(allocation: Mapping[str, int], each: bool) -> list[Change]:
    """Two reports of each executor. Each processor is an executor of its own, or all of an operator
    have one together."""
    found = []
    for vertex in CHAIN:
        processors = allocation.get(vertex, 1)
        for executor in range(processors if each else 1):
            of = partial(report, vertex, executor, 1 if each else processors)
            found.append(Change(of(260), of(130)))
    return found


def measures(some: list[Change]) -> Measure:
    """From the executors' reports, and the sojourns of 130 trees, to what the model takes."""
    samples = Samples(20.0, merge(some), Sojourn.of([1.0] * 130), 13)
    known = dict.fromkeys(CHAIN, "operator") | {"frames": "source", "out": "sink"}
    found = measured(samples, None, known, ControlSettings(max_sojourn_s=1.0))
    assert isinstance(found, Measure), found
    return found


def run(lab: Lab) -> Finding:
    """Time all of them."""
    network = vld(rate=4.0).network()
    calls, parts = (QUICK_CALLS, QUICK_PARTS) if lab.quick else (CALLS, PARTS)
    order = random.Random(lab.seed_of("table2"))
    plans = {size: assign_processors(network, size) for size in SIZES}
    assert all(plan.processors == size for size, plan in plans.items()), plans
    optimizer = {size: partial(assign_processors, network, size) for size in SIZES}
    some, every = (
        {size: partial(measures, changes(plan.allocation, each)) for size, plan in plans.items()}
        for each in (False, True)
    )
    return told(
        in_turns(optimizer, calls, parts, order),
        in_turns(some, calls, parts, order),
        in_turns(every, calls // 10, parts, order),
        calls,
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean of some parts, and half of its interval of 95 % confidence."""
    return statistics.fmean(values), half_width(values)


def inside(intervals: Sequence[tuple[float, float]], low: float, high: float) -> bool | None:
    """Whether all intervals lie between two bounds, or one lies outside."""
    if any(mean + half < low or mean - half > high for mean, half in intervals):
        return False
    return (
        True
        if all(low <= mean - half and mean + half <= high for mean, half in intervals)
        else None
    )


def slopes(times: Parts) -> dict[str, list[float]]:
    """By part, what a further processor costs from each size to the next, over what it costs from
    the first to the last."""

    def slope(one: int, other: int, part: int) -> float:
        return (times[other][part] - times[one][part]) / (other - one)

    parts = range(len(times[SIZES[0]]))
    return {
        f"{one} to {other}": [slope(one, other, p) / slope(SIZES[0], SIZES[-1], p) for p in parts]
        for one, other in itertools.pairwise(SIZES)
    }


def exponents(times: Parts) -> list[float]:
    """By part, the power of K_max with which the time grows, by least squares of the logarithms."""
    logs = [math.log(size) for size in SIZES]
    return [
        statistics.linear_regression(logs, [math.log(times[size][part]) for size in SIZES]).slope
        for part in range(len(times[SIZES[0]]))
    ]


def pm(value: tuple[float, float], digits: int = 3) -> str:
    """With half of its interval."""
    return f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}"


def told(optimizer: Parts, measuring: Parts, every: Parts, calls: int) -> Finding:
    """What these times show."""
    enough = calls >= CALLS
    short = "" if enough else f"too short to tell: {calls} calls instead of 100 000"
    of_slopes = {name: interval(some) for name, some in slopes(optimizer).items()}
    power, power_of_tasks = interval(exponents(optimizer)), interval(exponents(every))
    first = measuring[SIZES[0]]
    of_first = {
        size: interval([a / b for a, b in zip(measuring[size], first, strict=True)])
        for size in SIZES[1:]
    }
    both = {
        size: interval([a + b for a, b in zip(optimizer[size], measuring[size], strict=True)])
        for size in SIZES
    }
    linear = inside(list(of_slopes.values()), 1 - WITHIN, 1 + WITHIN)
    same = inside(list(of_first.values()), 1 - SAME, 1 + SAME)
    more = differ(every[SIZES[0]], every[SIZES[-1]]) > 0
    below = sum(mean + half < 1 for mean, half in both.values())
    above = sum(mean - half >= 1 for mean, half in both.values())
    most = len(SIZES) // 2 + 1
    wide = "intervals are too wide to tell"
    claims = [
        Claim(
            "ToN and ICDCS Table II",
            "computing the allocation takes time that is linear in K_max, from 12 to 192",
            "over 100 000 calls for each K_max, a further processor costs the same: from each "
            "K_max to the next, within a quarter of what it costs from 12 to 192, by the whole "
            f"95 % interval over {PARTS} parts",
            "over what it costs from 12 to 192: "
            + ", ".join(f"{pm(of, 2)} from {name}" for name, of in of_slopes.items())
            + f"; the time grows with K_max to the power {pm(power, 2)} (theirs 0.98)",
            linear if enough else None,
            short or ("" if linear else wide if linear is None else _off(of_slopes)),
        ),
        Claim(
            "ToN and ICDCS Table II",
            "processing the measurements takes time that does not depend on K_max",
            "cannot hold by a run: an elastic executor reports for all its processors, so there "
            "are as many reports whatever K_max is, and it holds by construction. It does not hold "
            "if, over 100 000 calls for each K_max, the time differs from that with 12 by more "
            f"than a tenth, by the whole 95 % interval over {PARTS} parts",
            "over the time with 12: "
            + ", ".join(f"{pm(of, 2)} with {size}" for size, of in of_first.items()),
            False if enough and same is False else None,
            "it grows or falls with K_max"
            if enough and same is False
            else short or (wide if same is None else "it holds by construction here"),
        ),
        Claim(
            "ToN and ICDCS Table II",
            "processing the measurements is affected by the number of tasks",
            "over 10 000 calls each, a report for each of 192 processors takes longer than "
            "for each of 12, by Welch's test with 95 % confidence",
            f"{pm(interval(every[SIZES[0]]))} ms with 12 and {pm(interval(every[SIZES[-1]]))} ms "
            f"with 192; it grows to the power {pm(power_of_tasks, 2)}",
            more if enough else None,
            short or ("" if more else "it does not grow"),
        ),
        Claim(
            "ToN and ICDCS Table II",
            "the overhead is less than milliseconds in most of the cases",
            f"both together take less than 1 ms, by the upper end of the 95 % interval, for at "
            f"least {most} of the {len(SIZES)} K_max; it does not hold if as many take more, by "
            "the lower end",
            ", ".join(f"{pm(of)} ms for {size}" for size, of in both.items()),
            True if below >= most else False if above >= most else None,
            "" if below >= most else "both take longer" if above >= most else wide,
        ),
    ]
    ours = {size: interval(times) for size, times in optimizer.items()}
    measure = {size: interval(times) for size, times in measuring.items()}
    rows = [
        *(
            (f"scaling, K_max = {k}", f"{PAPER_MS[k]:.3f} ms", f"{pm(of)} ms")
            for k, of in ours.items()
        ),
        *(
            (f"measurement, K_max = {k}", f"{PAPER_MEASURE_MS:.3f} ms", f"{pm(of)} ms")
            for k, of in measure.items()
        ),
        (
            "K_max at which scaling is faster than the paper's Java",
            "",
            f"{sum(of[0] < PAPER_MS[k] for k, of in ours.items())} of {len(SIZES)}",
        ),
    ]
    figures = {
        "calls": calls,
        "scaling_ms": ours,
        "measurement_ms": measure,
        "measurement_by_tasks_ms": {size: interval(times) for size, times in every.items()},
        "processor_from_to": of_slopes,
        "exponent": power,
    }

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharex=True)
        theirs = [PAPER_MEASURE_MS] * len(SIZES)
        for axes, title, paper, here in (
            (left, "scaling", list(PAPER_MS.values()), ours),
            (right, "measurement", theirs, measure),
        ):
            axes.plot(SIZES, paper, "o-", label="paper, Java")
            means, halves = zip(*here.values(), strict=True)
            axes.errorbar(SIZES, means, halves, fmt="s-", capsize=3, label="here, Python")
            axes.set(title=title, xlabel="K_max", ylabel="CPU time, ms", ylim=(0, None))
            axes.set_xticks(SIZES)
            axes.legend()

    return judged(claims, figures, rows, draw)


def _off(intervals: Mapping[str, tuple[float, float]]) -> str:
    """Where a further processor costs something else."""
    name, (mean, _) = max(intervals.items(), key=lambda one: abs(one[1][0] - 1))
    return f"from {name} a further processor costs {mean:.2f} times as much"
