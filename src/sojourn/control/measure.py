"""Measure: from an engine's samples to what the model needs (the measurer of DRS §IV-A). Fed by
`Samples`; `smoothing` makes one measure of several. A step is a function of the past measures and
the new samples.

The rate of an operator is not the one measured at its entrance, which back-pressure distorts. It
follows from the sources' intended rates and the gains, by the traffic equations."""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sojourn.control.shift import Reading
from sojourn.ports import Pressure, Sample, Samples, Sojourn
from sojourn.settings import ControlSettings

MORE = 1.1  # times a rate; what lies below that is the same load
Columns = npt.NDArray[np.float64]
RATE, ARRIVAL_SCV, SERVICE, SCV, BUSY, SERVED = range(6)  # of `Measure.columns`
_LEAST_S = 0.01  # that an urgent tick counts for
_LASTING_S = 2.0  # of a rate that is no chance
_ANOTHER = 1.5  # times a rate; another load
_CHANCE = 3.0  # standard errors


@dataclass(frozen=True)
class OperatorMeasure:
    """One operator (or sink): what the model needs, and how things stand. `together` has the second
    moments of the numbers whose means are `gains`, for each two receivers."""

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
    shards: Mapping[int, int] | None = None  # the busiest, with the tuples that came for each
    arrivals: int = 0
    together: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    executors: Mapping[int, int] | None = None  # if several, with the tuples that came for each
    hottest: Mapping[int, float] = field(default_factory=dict)  # share of each one's busiest shard


class Table(NamedTuple):
    """Figures by name, as an array with a row each."""

    names: tuple[Any, ...]
    rows: Columns


@dataclass(frozen=True)
class Measure:
    """One interval, or several smoothed into one. `backlog_s` is how far the latest source is
    behind, and `late` the tuples that each operator will get when sources have caught up.
    `entering` is how many each gets from outside per second, `arrival_scv` how irregularly they
    come, and `rising` says that the load has gone up for sure. `shares` are how many each operator
    gets for one from a source."""

    time_s: float
    interval_s: float
    external_rate: float
    entering: Mapping[str, float]
    operators: Mapping[str, OperatorMeasure]
    sojourn: Sojourn | None
    backlog_s: float
    arrival_scv: float | None = None
    rising: bool = False
    late: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)  # of sources
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    shed: float = 0.0  # by sources and operators right behind them, tuples a second

    @cached_property
    def columns(self) -> Columns:
        """The figures of all operators that are averaged, a row each; not a number if unknown."""
        rows = [
            (o.arrival_rate, o.arrival_scv, o.service_s, o.service_scv, o.busy, o.served)
            for o in self.operators.values()
        ]
        return np.array(rows, float).reshape(len(rows), SERVED + 1)

    @cached_property
    def edges(self) -> Table:
        """The gains of all edges, by the place of the sender and the name of the receiver."""
        gains = [
            ((place, to), gain)
            for place, o in enumerate(self.operators.values())
            for to, gain in o.gains.items()
        ]
        return Table(tuple(edge for edge, _ in gains), np.array([gain for _, gain in gains]))

    @cached_property
    def critical(self) -> Table:
        """What critical paths have of each vertex."""
        found = {} if self.sojourn is None else self.sojourn.critical
        return Table(tuple(found), np.array(list(found.values()), float))


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
    the samples before, `first` says that it is the first whole interval since a start. Sources then
    read again, all at once, what they had read since the last commit, which is no load."""
    if not is_whole(samples, known):
        return _not_whole(samples, known)
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
        waiting = sum(samples.vertices[n].queue for n, kind in known.items() if kind != "source")
        if waiting or samples.open_trees:
            return NotReady(f"nothing arrives; {max(waiting, samples.open_trees)} tuples are left")
        return NotReady("nothing arrives", idle=True)
    if first:
        return NotReady("the first interval mostly measures the start")
    known_rates = {name: rate or 0.0 for name, rate in rates.items()}
    shares = {name: _shares(source) for name, source in sources.items()}
    operators = {
        name: _operator(samples.vertices[name], together=settings.percentile is not None)
        for name, kind in known.items()
        if kind != "source"
    }
    return Measure(
        time_s=samples.time_s,
        interval_s=interval_s,
        external_rate=sum(rate or 0.0 for rate in rates.values()),
        entering=_entering(known_rates, shares),
        operators=operators,
        sojourn=samples.sojourn,
        backlog_s=max((source.behind_s for source in sources.values()), default=0.0),
        arrival_scv=mean_of((s.arrival_scv, s.arrivals) for s in sources.values()),
        late=_late(known_rates, sources, shares),
        rates=known_rates,
        shares=shares,
        shed=sum(one.shed / one.interval_s for one in samples.vertices.values() if one.shed),
    )


def urged(
    samples: Samples,
    past: Sequence[Measure],
    known: Mapping[str, str],
    pressures: Sequence[Pressure],
) -> Measure | NotReady:
    """The measure of an urgent tick: rates are those of the last interval, but where pressure tells
    others, and the rest is as it is now. It counts for as long as the new rates have been so, or
    hardly, as the old ones have been counted."""
    if not is_whole(samples, known):
        return _not_whole(samples, known)
    if not past:
        return NotReady("nothing was measured yet")
    last = past[-1]
    risen = {p.vertex: p for p in pressures if p.rate is not None and p.vertex in last.rates}
    rates = {**last.rates, **{name: _believed(p, past) for name, p in risen.items()}}
    over_s = min((p.over_s for p in risen.values()), default=0.0)
    sources = {name: samples.vertices[name] for name in rates}
    return replace(
        last,
        time_s=samples.time_s,
        interval_s=max(_LEAST_S, over_s),
        external_rate=sum(rates.values()),
        entering=_entering(rates, last.shares),
        operators={
            name: _operator(samples.vertices[name])
            for name, kind in known.items()
            if kind != "source"
        },
        sojourn=None,
        backlog_s=max((source.behind_s for source in sources.values()), default=0.0),
        late=_late(rates, sources, last.shares),
        rates=rates,
    )


def _believed(told: Pressure, past: Sequence[Measure]) -> float:
    """The rate that a source tells, or one that it is back at: what is told is of a short time,
    which was chosen because much came in it."""
    assert told.rate is not None
    rates = [(m.interval_s, m.rates.get(told.vertex, 0.0)) for m in past]
    known = back_at(told.rate, told.over_s, rates)
    return told.rate if known is None else known


def back_at(rate: float, over_s: float, before: Iterable[tuple[float, float]]) -> float | None:
    """The rate that a source or all of them had not long ago, if it was well above that before the
    rise, and the rate now is higher by no more than chance."""
    means = lasting(before)
    high = max(means, default=0.0)
    error = math.sqrt(high / max(_LEAST_S, over_s))
    back = means and _ANOTHER * means[-1] < high < rate < high + _CHANCE * error
    return high if back else None


def lasting(rates: Iterable[tuple[float, float]]) -> list[float]:
    """Means over a few seconds each, of seconds and rates: chance has less part in them than in
    those of single intervals."""
    means, kept, seconds = list[float](), deque[tuple[float, float]](), 0.0
    for interval_s, rate in rates:
        kept.append((interval_s, rate))
        seconds += interval_s
        while seconds - kept[0][0] >= _LASTING_S:
            seconds -= kept.popleft()[0]
        if seconds >= _LASTING_S:
            means.append(sum(s * r for s, r in kept) / seconds)
    return means


def is_whole(samples: Samples, known: Mapping[str, str]) -> bool:
    """Whether there are samples from every vertex, and processors."""
    return all(
        name in samples.vertices and (kind == "source" or samples.vertices[name].processors > 0)
        for name, kind in known.items()
    )


def _not_whole(samples: Samples, known: Mapping[str, str]) -> NotReady:
    missing = [name for name in known if name not in samples.vertices]
    if missing:
        return NotReady(f"no samples from {_listed(missing)}")
    bare = [
        name
        for name, kind in known.items()
        if kind != "source" and samples.vertices[name].processors < 1
    ]
    return NotReady(f"{_listed(bare)} has no processors yet")


def _shares(source: Sample) -> dict[str, float]:
    """How many tuples each operator gets for one from a source."""
    found: dict[str, float] = {}
    for edge, count in source.emitted.items():
        receiver = receiver_of(edge)
        found[receiver] = found.get(receiver, 0.0) + count / max(1, source.served - source.shed)
    return found


def _entering(
    rates: Mapping[str, float], shares: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """How many tuples each operator gets from outside per second."""
    found: dict[str, float] = {}
    for name, receivers in shares.items():
        for receiver, share in receivers.items():
            found[receiver] = found.get(receiver, 0.0) + rates[name] * share
    return found


def _late(
    rates: Mapping[str, float],
    sources: Mapping[str, Sample],
    shares: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """How many tuples each operator will get when sources have caught up."""
    behind = {name: rate * sources[name].behind_s for name, rate in rates.items()}
    return _entering(behind, shares) if any(behind.values()) else {}


def receiver_of(edge: str) -> str:
    """The operator that an edge leads to. Samples name edges `match` or `match[rejected]`."""
    return edge.split("[", 1)[0]


def _operator(sample: Sample, together: bool = True) -> OperatorMeasure:
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
        shards=sample.shards,
        arrivals=sample.arrivals,
        together=_together(sample) if together else {},
        executors={p.executor: p.arrivals for p in sample.parts if p.used}
        if len(sample.parts) > 1
        else None,
        hottest={p.executor: p.hottest for p in sample.parts if p.hottest},
    )


def _together(sample: Sample) -> dict[str, dict[str, float]]:
    """Per tuple, and by receivers instead of edges."""
    found: dict[str, dict[str, float]] = {}
    for edge, others in sample.together.items():
        row = found.setdefault(receiver_of(edge), {})
        for other, product in others.items():
            to = receiver_of(other)
            row[to] = row.get(to, 0.0) + product / max(1, sample.served)
    return found


def metric_of(sojourn: Sojourn | None, percentile: float | None) -> float | None:
    """The measured mean or percentile that the target applies to."""
    if sojourn is None:
        return None
    return sojourn.mean_s if percentile is None else sojourn.percentile(percentile)


def reading_of(measure: Measure) -> Reading:
    """The load of an interval."""
    scv = 1.0 if measure.arrival_scv is None else measure.arrival_scv
    return Reading(measure.external_rate, measure.interval_s, max(1.0, scv))


def mean_of(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """Weighed; of what is known."""
    total = weights = 0.0
    for value, weight in pairs:
        if value is not None:
            total += value * weight
            weights += weight
    return total / weights if weights > 0 else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
