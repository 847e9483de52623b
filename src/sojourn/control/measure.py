"""Measure: from an engine's samples to what the model needs, smoothed (the measurer of DRS §IV-A).
Fed by `Samples`; feeds `model`. A step is a function of the past measures and the new samples.

The rate of an operator is not the one measured at its entrance, which back-pressure distorts. It
follows from the sources' intended rates and the gains, by the traffic equations."""

import math
import operator
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sojourn.ports import Sample, Samples, Sojourn
from sojourn.settings import ControlSettings

MORE = 1.1  # times a rate; anything below is the same load
_OUTLIER = 5.0  # times the median of the window


@dataclass(frozen=True)
class OperatorMeasure:
    """One operator (or sink): what the model needs, and how things stand."""

    processors: int
    wanted: int
    queue: int
    arrival_rate: float
    arrival_scv: float | None
    service_s: float | None
    service_scv: float | None
    busy: float
    gains: Mapping[str, float]
    served: int


@dataclass(frozen=True)
class Measure:
    """One interval, or several smoothed into one. `backlog_s` is how far behind sources are.
    `entering` is how many tuples per second each operator gets from outside."""

    time_s: float
    interval_s: float
    external_rate: float
    entering: Mapping[str, float]
    operators: Mapping[str, OperatorMeasure]
    sojourn: Sojourn | None
    backlog_s: float


@dataclass(frozen=True)
class NotReady:
    """No decision can be based on this interval. `idle` says that nothing arrived in it."""

    reason: str
    idle: bool = False


def measured(
    samples: Samples,
    before_s: float | None,
    known: Mapping[str, str],
    settings: ControlSettings,
    first: bool = False,
) -> Measure | NotReady:
    """The measures of one interval. `known` has the kind of every vertex, `before_s` is the time of
    the samples before, `first` says that the topology started in this interval."""
    missing = [name for name in known if name not in samples.vertices]
    if missing:
        return NotReady(f"no samples from {_listed(missing)}")
    if before_s is not None and samples.time_s <= before_s:
        return NotReady("the clock went backwards")
    if before_s is not None and samples.time_s - before_s > 10 * settings.interval_s:
        return NotReady(
            f"the last samples are {samples.time_s - before_s:.0f} s old; the interval is too long"
        )
    interval_s = max(sample.interval_s for sample in samples.vertices.values())
    if not interval_s > 0.05 * settings.interval_s:
        return NotReady("the interval is too short")
    sources = {n: samples.vertices[n] for n, kind in known.items() if kind == "source"}
    rates = {name: source.arrival_rate for name, source in sources.items()}
    stuck = [name for name, rate in rates.items() if rate is None or not math.isfinite(rate)]
    if stuck:
        return NotReady(f"the rate of {_listed(stuck)} is unknown: held back all the time")
    if not any(rates.values()):
        return NotReady("nothing arrives", idle=True)
    if first:
        return NotReady("the first interval mostly measures the start")
    entering: dict[str, float] = {}
    for name, source in sources.items():
        for edge, count in source.emitted.items():
            receiver = receiver_of(edge)
            share = count / max(1, source.served - source.shed)
            entering[receiver] = entering.get(receiver, 0.0) + (rates[name] or 0.0) * share
    operators = {
        name: _operator(samples.vertices[name]) for name, kind in known.items() if kind != "source"
    }
    return Measure(
        time_s=samples.time_s,
        interval_s=interval_s,
        external_rate=sum(rate or 0.0 for rate in rates.values()),
        entering=entering,
        operators=operators,
        sojourn=samples.sojourn,
        backlog_s=max((source.lag_s or 0.0 for source in sources.values()), default=0.0),
    )


def receiver_of(edge: str) -> str:
    """The operator that an edge leads to. Samples name edges `match` or `match[rejected]`."""
    return edge.split("[", 1)[0]


def _operator(sample: Sample) -> OperatorMeasure:
    gains: dict[str, float] = {}
    for edge, count in sample.emitted.items():
        receiver = receiver_of(edge)
        gains[receiver] = gains.get(receiver, 0.0) + count / max(1, sample.served)
    return OperatorMeasure(
        processors=sample.processors,
        wanted=sample.wanted,
        queue=sample.queue,
        arrival_rate=sample.arrival_rate or 0.0,
        arrival_scv=sample.arrival_scv,
        service_s=sample.service_s,
        service_scv=sample.service_scv,
        busy=sample.busy,
        gains=gains,
        served=sample.served,
    )


def smoothed(past: Sequence[Measure], settings: ControlSettings) -> Measure:
    """The measures of several intervals, the newest last, as one: averaged over the window, or
    weighted by alpha. Values that an interval lacks are left out. A service time far from those
    around it is not believed until it comes again. `served` counts all intervals; the present state
    is that of the newest."""
    past = past[-settings.window :] if settings.smoothing == "window" else past
    newest = past[-1]
    if settings.smoothing == "window":
        weights = [1.0] * len(past)
    else:
        ages = range(len(past) - 1, -1, -1)
        weights = [settings.alpha**age for age in ages]

    def mean(values: Iterable[float | None]) -> float | None:
        pairs = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
        total = sum(w for _, w in pairs)
        return sum(v * w for v, w in pairs) / total if total else None

    def of(name: str, read: Callable[[OperatorMeasure], float | None]) -> float | None:
        return mean(read(m.operators[name]) for m in past)

    def served_mean(name: str, read: Callable[[OperatorMeasure], float | None]) -> float | None:
        values = [read(m.operators[name]) if m.operators[name].served else None for m in past]
        return mean(_believed(values))

    operators = {}
    for name, last in newest.operators.items():
        receivers = dict.fromkeys(to for m in past for to in m.operators[name].gains)
        gains = {
            receiver: mean(
                m.operators[name].gains.get(receiver, 0.0) if m.operators[name].served else None
                for m in past
            )
            or 0.0
            for receiver in receivers
        }
        operators[name] = OperatorMeasure(
            processors=last.processors,
            wanted=last.wanted,
            queue=last.queue,
            arrival_rate=of(name, lambda o: o.arrival_rate) or 0.0,
            arrival_scv=of(name, lambda o: o.arrival_scv),
            service_s=served_mean(name, lambda o: o.service_s),
            service_scv=served_mean(name, lambda o: o.service_scv),
            busy=of(name, lambda o: o.busy) or 0.0,
            gains=gains,
            served=round(
                sum(m.operators[name].served * w for m, w in zip(past, weights, strict=True))
            ),
        )
    entering = {
        receiver: mean(m.entering.get(receiver, 0.0) for m in past) or 0.0
        for receiver in dict.fromkeys(to for m in past for to in m.entering)
    }
    return Measure(
        time_s=newest.time_s,
        interval_s=newest.interval_s,
        external_rate=mean(m.external_rate for m in past) or 0.0,
        entering=entering,
        operators=operators,
        sojourn=_pooled([m.sojourn for m in past if m.sojourn is not None]),
        backlog_s=newest.backlog_s,
    )


def newest_of(found: Measure, smooth: Measure) -> Measure:
    """The last interval, for use beside the smoothed ones. Service times and gains are the smoothed
    ones, because only the load and what waits change from one interval to the next. The load is the
    higher of the two."""
    return replace(
        found,
        operators={
            name: replace(
                smooth.operators[name],
                queue=last.queue,
                processors=last.processors,
                wanted=last.wanted,
            )
            for name, last in found.operators.items()
        },
        entering={
            name: max(found.entering.get(name, 0.0), smooth.entering.get(name, 0.0))
            for name in dict.fromkeys((*found.entering, *smooth.entering))
        },
        external_rate=max(found.external_rate, smooth.external_rate),
    )


def is_rising(past: Sequence[Measure], window: int) -> bool:
    """Whether more arrived in the last interval than chance explains, had the load stayed as it was
    in the intervals before."""
    *before, last = (measure.external_rate for measure in past[-window - 1 :])
    if not before:
        return False
    usual = sum(before) / len(before)
    chance = 3 * math.sqrt(usual / past[-1].interval_s)
    return last > max(MORE * usual, usual + chance)


def metric_of(sojourn: Sojourn | None, percentile: float | None) -> float | None:
    """The measured mean or percentile that the target applies to."""
    if sojourn is None:
        return None
    return sojourn.mean_s if percentile is None else sojourn.percentile(percentile)


def _believed(values: Sequence[float | None]) -> list[float | None]:
    """The values without a newest one that is far from all before it: once, it may be a pause of
    the machine."""
    earlier = [value for value in values[:-1] if value is not None]
    last = values[-1] if values else None
    if len(earlier) >= 2 and last is not None:
        middle = statistics.median(earlier)
        if last > _OUTLIER * middle or last < middle / _OUTLIER:
            return [*values[:-1], None]
    return list(values)


def _pooled(found: Sequence[Sojourn]) -> Sojourn | None:
    """Sojourns of several intervals as one: means weighted by count, and percentiles likewise,
    which is exact where they agree."""
    counts = [s.count for s in found]
    count = sum(counts)
    if not count:
        return None

    def mean(read: Callable[[Sojourn], float]) -> float:
        return sum(read(s) * s.count for s in found) / count

    return Sojourn(
        count,
        mean(lambda s: s.mean_s),
        mean(lambda s: s.p50_s),
        mean(lambda s: s.p95_s),
        mean(lambda s: s.p99_s),
        max(s.max_s for s in found),
        tuple(
            sum(map(operator.mul, row, counts)) / count
            for row in zip(*(s.quantiles for s in found), strict=False)
        ),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
