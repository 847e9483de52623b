"""Measuring one trial (Liu 2017, §6.1.2): when it is steady, and for how long each of twenty
readings must last. Fed by a trial that runs; feeds methods.

The paper waits ten minutes and takes a reading of 30 s twenty times. Here a trial is steady once
the last readings are like those before. A reading is long enough if readings hang together no more
than by chance and pass for normal (Lilliefors, 5 %); else two become one, and more are taken. That
ends some time, and readings that do not pass even then are told as such."""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sojourn.confidence import differ, half_width
from sojourn.errors import TopologyFailed
from sojourn.ports import Sample, Samples, Trial
from sojourn.profiler.trial import Measured, Progress, Seen

_NORMAL = 0.895  # of Lilliefors' test at 5 %, as Stephens has it


@dataclass(frozen=True)
class Reading:
    """How to measure: so many readings, of so many seconds at first, which may double so often. A
    start counts as steady after `steadies` pairs of groups of readings at the latest."""

    seconds: float = 1.0
    count: int = 20
    doublings: int = 3
    group: int = 5
    steadies: int = 12
    close: float = 0.03  # half of the 95 % interval of the mean, over it


def measure(
    trial: Trial,
    sources: Sequence[str],
    how: Reading,
    told: Callable[[Progress], None] = lambda _progress: None,
) -> Measured:
    """Wait until a trial is steady, and read it. `told` hears of every reading."""
    calm = steady(trial, how, told)
    parts: list[Samples] = []
    size, doublings = 1, 0
    while True:
        while len(parts) < how.count * size:
            parts.append(trial.read(how.seconds))
            last = trial.completed(parts[-1])
            told(Progress(True, len(parts), how.count * size, how.seconds, last))
        readings = [
            statistics.fmean(trial.completed(part) for part in parts[i : i + size])
            for i in range(0, len(parts), size)
        ]
        sound = is_sound(readings, how.close)
        if sound or doublings == how.doublings:
            found = summed(parts, readings, sources, trial.waiting())
            return replace(found, sound=sound and calm)
        size, doublings = 2 * size, doublings + 1


def steady(trial: Trial, how: Reading, told: Callable[[Progress], None]) -> bool:
    """Let time pass until a group of readings is like the one before, as far as can be told. False
    if that never comes."""
    before: list[float] = []
    for number in range(how.steadies):
        group: list[float] = []
        for _ in range(how.group):
            group.append(trial.completed(trial.read(how.seconds)))
            done = number * how.group + len(group)
            least = max(2, number + 1) * how.group + how.count
            told(Progress(False, done, least, how.seconds, group[-1]))
        mean = statistics.fmean(group)
        same = before and not differ(before, group)
        if same and abs(mean - statistics.fmean(before)) <= how.close * max(mean, 1e-9):
            return True
        before = group
    return False


def is_sound(readings: Sequence[float], close: float) -> bool:
    """Whether readings can be taken for independent and normal, and their mean is known well."""
    mean = statistics.fmean(readings)
    if not any(readings) or len(set(readings)) == 1:
        return True
    sure = half_width(readings) <= close * mean
    return sure and not is_correlated(readings) and is_normal(readings)


def is_correlated(readings: Sequence[float]) -> bool:
    """Whether each reading tells something about the next, at 5 %."""
    mean = statistics.fmean(readings)
    off = [value - mean for value in readings]
    square = math.fsum(one * one for one in off)
    if not square:
        return False
    product = math.fsum(one * other for one, other in itertools.pairwise(off))
    return abs(product / square) > 1.96 / math.sqrt(len(readings))


def is_normal(readings: Sequence[float]) -> bool:
    """Whether Lilliefors' test does not reject that readings are normal, at 5 %."""
    count, deviation = len(readings), statistics.stdev(readings)
    if not deviation:
        return True
    normal = statistics.NormalDist(statistics.fmean(readings), deviation)
    distance = 0.0
    for rank, value in enumerate(sorted(readings)):
        share = normal.cdf(value)
        distance = max(distance, share - rank / count, (rank + 1) / count - share)
    root = math.sqrt(count)
    return distance * (root - 0.01 + 0.85 / root) <= _NORMAL


def summed(
    parts: Sequence[Samples], readings: Sequence[float], sources: Sequence[str], waiting: float
) -> Measured:
    """All samples of a trial as one. If so many tuples wait that none that is followed got through,
    they take at least as long as all readings."""
    sojourns = [part.sojourn for part in parts if part.sojourn is not None]
    count = sum(sojourn.count for sojourn in sojourns)
    if not count and not any(readings):
        raise TopologyFailed(f"no tuple was completed in {len(parts)} readings of a trial")
    latency_s = (
        sum(sojourn.mean_s * sojourn.count for sojourn in sojourns) / count
        if count
        else sum(next(iter(part.vertices.values())).interval_s for part in parts)
    )
    # What is chained to an operator is part of it.
    heads = [name for name, of in parts[0].vertices.items() if of.head is None]
    names = [name for name in heads if name not in sources]
    seen = {name: _seen([part.vertices[name] for part in parts]) for name in names}
    return Measured(tuple(readings), latency_s, seen, waiting)


def _seen(samples: Sequence[Sample]) -> Seen:
    seconds = sum(sample.interval_s for sample in samples)
    served = sum(sample.served for sample in samples)
    timed = [(s.service_s, s.served) for s in samples if s.service_s is not None]
    service_s = sum(s * n for s, n in timed)
    spread = [(s.service_scv, s.served) for s in samples if s.service_scv is not None]
    return Seen(
        tasks=samples[-1].processors,
        arrivals=sum(sample.arrivals for sample in samples) / seconds,
        served=served / seconds,
        service_s=service_s / sum(n for _, n in timed) if timed else None,
        capacity=sum(sample.busy * sample.interval_s for sample in samples) / seconds,
        emitted=_per_tuple([sample.emitted for sample in samples], served),
        squares=_per_tuple(
            [{e: of.get(e, 0) for e, of in sample.together.items()} for sample in samples], served
        ),
        service_scv=sum(v * n for v, n in spread) / sum(n for _, n in spread) if spread else 1.0,
    )


def _per_tuple(counts: Sequence[Mapping[str, int]], served: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for of in counts:
        for edge, count in of.items():
            found[edge] = found.get(edge, 0.0) + count
    return {edge: count / served for edge, count in found.items()} if served else {}
