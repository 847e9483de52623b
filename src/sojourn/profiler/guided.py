"""Stepwise profiling led by the queueing model, which the paper does not have: the model says where
to start and which rounds cannot win. Pure.

Every operator is a station that has so much work for each source tuple as the features say. If all
that were computing, the cores would bound what is carried, so the start has as many tasks as that
takes. What is measured then tells what is in short supply. If tuples take longer than they must,
cores are full, and no further task can win. Else the operators without time to spare need tasks, as
many as twice the load takes. If nobody is busy, sources are in short supply."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sojourn.ports import Parallelism
from sojourn.profiler.capability import Best, Limits, throttled
from sojourn.profiler.features import Feature
from sojourn.profiler.stepwise import Found, Shape, featured
from sojourn.profiler.trial import Measured, Method, Proposal, Verdict, measured

STEP = "model"
_BUSY = 0.85  # of its time: it has none to spare
_CROWDED = 1.25  # times what tuples take at least, on average over the work: cores are full
_MORE = 2.0  # times the load, where cores are not full
_ROUNDS = 12
_THROTTLES = 3


def guided(shape: Shape, limits: Limits, small: float, found: Found) -> Method:
    """The first step as it is; then as the model says."""
    yield from featured(shape, limits, small, found)
    features = found.features
    work_s = math.fsum(f.least_s * f.visits for f in features.values())
    target = limits.cores / work_s if work_s else 1.0
    now = Parallelism(tasks_for(target, features), dict.fromkeys(shape.sources, 1))
    why = f"cores could carry {target:.4g} tuples a second"
    best: Best | None = None
    for _ in range(_ROUNDS):
        seen = measured((yield Proposal(STEP, now, why)))
        this = Best(now, seen)
        if best is not None and seen.change(best.measured) <= 0:
            yield Verdict(False, "no more is carried, so nothing is in short supply any more")
            break
        best = this
        then, why = _next(now, seen, features, shape)
        yield Verdict(True, f"more is carried; {why}" if then else why)
        if then is None:
            break
        now = then
    assert best is not None
    for number in range(_THROTTLES):
        if best.is_met(limits):
            break
        now, why = throttled(best, now, "throttle" if number else "", False, limits)
        seen = measured((yield Proposal(STEP, now, why)))
        this = Best(now, seen)
        if this.is_met(limits) and seen.throughput >= limits.alpha * best.measured.throughput:
            best = this
        yield Verdict(best is this, f"tuples take {seen.latency_s * 1e3:.0f} ms")
    found.best.append(best)
    return best.parallelism


def tasks_for(rate: float, features: Mapping[str, Feature]) -> dict[str, int]:
    """Tasks with which every operator keeps up with so many source tuples a second."""
    return {
        name: max(1, math.ceil(rate * f.least_s * f.visits / _BUSY - 1e-9)) if f.parallel else 1
        for name, f in features.items()
    }


def crowded(seen: Measured, features: Mapping[str, Feature]) -> float:
    """How many times as long tuples take as they must, over all work."""
    least = real = 0.0
    for name, feature in features.items():
        of = seen.seen[name]
        if of.service_s is not None:
            least += of.served * feature.least_s
            real += of.served * of.service_s
    return real / least if least else 1.0


def _next(
    now: Parallelism, seen: Measured, features: Mapping[str, Feature], shape: Shape
) -> tuple[Parallelism | None, str]:
    """What to try next, and what is in short supply; nothing if no round can win."""
    times = crowded(seen, features)
    if times > _CROWDED:
        return None, f"tuples take {times:.2f} times what they must: the cores are full"
    busy = [name for name in features if seen.seen[name].capacity > _BUSY]
    single = [name for name in busy if name in shape.single]
    if single:
        return None, f"{single[0]} has one task, and no time to spare"
    if busy:
        more = tasks_for(_MORE * seen.throughput, features)
        then = {
            n: max(k, more[n]) if n not in shape.single else 1 for n, k in now.processors.items()
        }
        if then == dict(now.processors):
            then = {n: k + (n in busy) for n, k in now.processors.items()}
        return replace(now, processors=then), f"{', '.join(busy)} without time to spare"
    parts = {name: 2 * count for name, count in now.parts.items()}
    return replace(now, parts=parts), "nobody is busy, so sources are in short supply"
