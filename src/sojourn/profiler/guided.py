"""Stepwise profiling led by the queueing model, which the paper does not have: the model says where
to start and which rounds cannot win. Pure.

Every operator is a station that has so much work for each source tuple as the features say. If all
that were computing, the cores would bound what is carried, so the start has as many tasks as that
takes. Once nearly that is carried, no further task can win. Until then, what is measured tells what
is in short supply. If somebody has no time to spare, operators get the tasks that twice the load
takes, by how busy they are. If tuples take longer than they must, cores are full, but not evenly:
with more tasks machines share the work more evenly. Operators that only wait gain nothing by that,
so they are left out unless they have no time to spare themselves. If nobody is busy, sources are in
short supply; but where tuples wait for longer than they may, the busiest operators are, as they get
their tuples in bursts. Where no more is carried because another operator has no time to spare now,
that one gets more as well."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from sojourn.ports import Parallelism
from sojourn.profiler.capability import Best, Limits, throttled
from sojourn.profiler.features import Feature
from sojourn.profiler.stepwise import Found, Shape, featured
from sojourn.profiler.trial import Measured, Method, Proposal, Verdict, capped, measured
from sojourn.units import format_rate

STEP = "model"
_BUSY = 0.85  # of its time: it has none to spare
_CROWDED = 1.25  # times what tuples take at least, on average over the work: cores are full
_MORE = 2.0  # times the load
_AMONG = 0.8  # of the busiest one's time: it is among the busiest
_NEAR = 0.97, 1.05  # of what the cores could carry; more is carried where operators wait
_ROUNDS = 12
_THROTTLES = 3


def guided(shape: Shape, limits: Limits, small: float, found: Found) -> Method:
    """The first step as it is; then as the model says."""
    yield from featured(shape, limits, small, found)
    features, steady = found.features, found.steady
    work_s = math.fsum(f.least_s * f.visits for n, f in features.items() if n not in steady)
    target = limits.cores / work_s if work_s else 1.0
    start = capped(tasks_for(target, features, steady), limits.most)
    now = Parallelism(start, dict.fromkeys(shape.sources, 1))
    why = f"cores could carry {format_rate(target)} tuples a second"
    best: Best | None = None
    met: Best | None = None  # the best that keeps the limit
    last = ""
    for _ in range(_ROUNDS):
        seen = measured((yield Proposal(STEP, now, why)))
        more = best is None or seen.change(best.measured) > 0
        this = Best(now, seen)
        best = this if more or best is None else best
        met = _better(this, met, limits)
        then: Parallelism | None = None
        if more:
            then, why = _next(now, seen, found, shape, target, limits)
            if then is not None:
                then = replace(then, processors=capped(then.processors, limits.most))
                then = None if then == now else then
        elif last != "sources" and (blocked := _blocked(now, best.parallelism, seen, shape)):
            then = replace(now, processors=capped(_grown(now, seen, blocked), limits.most))
            then = None if then == now else then
            why = f"{', '.join(blocked)} had no more tasks, and no time to spare"
        elif last != "sources" and not short_of_time(seen, limits):
            then = more_sources(best.parallelism, limits)
            why = "so sources may be in short supply, with the best so far"
        else:
            why = "so nothing is in short supply any more"
        yield Verdict(more, f"{'more' if more else 'no more'} is carried; {why}")
        if then is None:
            break
        last = "sources" if then.parts != best.parallelism.parts else "operators"
        if then == best.parallelism:  # there is no room for more
            break
        now = then
    assert best is not None
    for number in range(_THROTTLES):
        if best.is_met(limits):
            break
        now, why = throttled(best, now, "throttle" if number else "", False, limits)
        seen = measured((yield Proposal(STEP, now, why)))
        this = Best(now, seen)
        met = _better(this, met, limits)
        yield Verdict(met is this, f"tuples take {seen.latency_s * 1e3:.0f} ms")
        if this.is_met(limits):
            break
    found.best.append(met or best)
    return found.best[-1].parallelism


def _better(this: Best, met: Best | None, limits: Limits) -> Best | None:
    """The one of two that keeps the limit and carries more for sure."""
    if not this.is_met(limits):
        return met
    return this if met is None or this.measured.change(met.measured) > 0 else met


def tasks_for(
    rate: float, features: Mapping[str, Feature], steady: Mapping[str, int]
) -> dict[str, int]:
    """Tasks with which every operator keeps up with so many source tuples a second. What comes to
    the `steady` ones does not grow with the load."""
    found = {}
    for name, f in features.items():
        needed = max(1, math.ceil(rate * f.least_s * f.visits / _BUSY - 1e-9)) if f.parallel else 1
        found[name] = steady.get(name, needed)
    return found


def busiest(seen: Measured, share: float) -> list[str]:
    """Operators and sinks that are busy for more than that share of their time."""
    return [name for name, of in seen.seen.items() if of.capacity > share]


def short_of_time(seen: Measured, limits: Limits) -> list[str]:
    """Operators and sinks without time to spare. Where tuples wait for too long somebody is, so
    then it is the busiest ones."""
    busy = busiest(seen, _BUSY)
    if busy or seen.latency_s <= limits.latency_s:
        return busy
    most = max((of.capacity for of in seen.seen.values()), default=0.0)
    return busiest(seen, _AMONG * most) if most else []


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
    now: Parallelism,
    seen: Measured,
    found: Found,
    shape: Shape,
    bound: float,
    limits: Limits,
) -> tuple[Parallelism | None, str]:
    """What to try next, and what is in short supply; nothing if no round can win."""
    features = found.features
    share, times = seen.throughput / bound, crowded(seen, features)
    if times > _CROWDED and _NEAR[0] <= share <= _NEAR[1]:
        return None, f"that is {share:.0%} of what the cores could carry"
    busy = short_of_time(seen, limits)
    single = [name for name in busy if name in shape.single or name not in features]
    if single:
        return None, f"{single[0]} has one task, and no time to spare"
    full = times > _CROWDED
    if busy:
        names = [n for n, f in features.items() if not full or n in busy or _takes(n, seen, f)]
        then = _grown(now, seen, set(names) - set(shape.single))
        why = f"{', '.join(busy)} without time to spare"
        if full:
            why = f"tuples take {times:.2f} times what they must: the cores are full, if unevenly"
        return replace(now, processors=then), why
    return more_sources(now, limits), "nobody is busy, so sources are in short supply"


def _blocked(now: Parallelism, best: Parallelism, seen: Measured, shape: Shape) -> list[str]:
    """Operators without time to spare that had no more tasks than before. What others were given
    cannot have helped then."""
    tasks = now.processors
    same = [n for n in busiest(seen, _BUSY) if n in tasks and tasks[n] <= best.processors[n]]
    return [name for name in same if name not in shape.single]


def _takes(name: str, seen: Measured, feature: Feature) -> bool:
    """Whether its tuples take much longer than they must, as those of operators that only wait
    never do."""
    service_s = seen.seen[name].service_s
    return service_s is not None and service_s > _CROWDED * feature.least_s


def _grown(now: Parallelism, seen: Measured, names: Collection[str]) -> dict[str, int]:
    """Tasks with which these have time to spare at twice the load, by how busy they are."""
    found = dict(now.processors)
    for name in names:
        need = _MORE * found[name] * seen.seen[name].capacity / _BUSY
        found[name] = max(found[name], math.ceil(need - 1e-9))
    return found


def more_sources(now: Parallelism, limits: Limits) -> Parallelism:
    """The same, with twice the tasks of sources, as far as there is room."""
    return replace(now, parts={name: limits.parts(2 * count) for name, count in now.parts.items()})
