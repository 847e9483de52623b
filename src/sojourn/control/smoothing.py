"""Smoothing: the measures of several intervals as one, from which the model is made. What was
before a change that is sure does not count. Fed by `measure`; feeds `model`. Pure."""

import bisect
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sojourn.control.measure import (
    ARRIVAL_SCV,
    BUSY,
    RATE,
    SCV,
    SERVED,
    SERVICE,
    Columns,
    Measure,
    OperatorMeasure,
    Table,
    mean_of,
    reading_of,
)
from sojourn.control.shift import since, since_each
from sojourn.paths import Critical
from sojourn.ports import Sojourn
from sojourn.settings import ControlSettings

_TREES = 30  # whose mean says something


def smoothed(
    past: Sequence[Measure], settings: ControlSettings, risen_s: float | None = None
) -> Measure:
    """The measures of several intervals as one, the newest last: those of the window, or all with
    less weight the older they are. Rates count by their seconds, service times and gains by the
    tuples served. Where the load or a service time has changed for sure, what was before does not
    count; a source may have told that the load rose at `risen_s`. `served` counts all; the present
    state is the newest's."""
    newest = past[-1]
    past = [m for m in past if m.time_s > newest.time_s - settings.about(settings.memory_s)]
    ages = [newest.time_s - m.time_s for m in past]
    weights = [settings.weight(age) * m.interval_s for age, m in zip(ages, past, strict=True)]
    first, rising = _load_since(past, risen_s)
    load = list(zip(past, weights, strict=True))[first:]
    seconds = np.array([m.interval_s for m in past])
    each = np.array(weights)
    columns = np.stack([m.columns for m in past])  # intervals × operators × figures
    by_tuples = (each / seconds)[:, None] * columns[:, :, SERVED]
    by_tuples[np.arange(len(past))[:, None] < _service_since(columns)] = 0.0
    loaded = np.where(np.arange(len(past)) >= first, each, 0.0)[:, None]
    rates, busy = (_means(columns[:, :, i], loaded) for i in (RATE, BUSY))
    arrival_scvs = _means(columns[:, :, ARRIVAL_SCV], each[:, None])
    service_s, service_scvs = (_means(columns[:, :, i], by_tuples) for i in (SERVICE, SCV))
    counts = by_tuples.sum(axis=0).tolist()
    gains = _gains(past, by_tuples)
    operators = {}
    for place, (name, last) in enumerate(newest.operators.items()):
        shards = arrivals = None
        if last.shards is not None:
            shards = _summed([m.operators[name].shards for m, _ in load])
            arrivals = sum(m.operators[name].arrivals for m, _ in load)
        executors = last.executors
        if executors is not None:
            sums = _summed([m.operators[name].executors for m, _ in load]) or {}
            executors = {executor: sums.get(executor, 0) for executor in executors}
        operators[name] = OperatorMeasure(
            processors=last.processors,
            wanted=last.wanted,
            queue=last.queue,
            arrival_rate=rates[place] or 0.0,
            arrival_scv=arrival_scvs[place],
            service_s=service_s[place],
            service_scv=service_scvs[place],
            busy=busy[place] or 0.0,
            gains=gains[place],
            served=round(counts[place]),
            shards=shards,
            arrivals=arrivals or 0,
            together={}
            if settings.percentile is None
            else _products(past, name, by_tuples[:, place]),
            executors=executors,
            hottest=last.hottest,
        )
    entering = {
        to: mean_of((m.entering.get(to, 0.0), weight) for m, weight in load) or 0.0
        for to in dict.fromkeys(to for m, _ in load for to in m.entering)
    }
    return Measure(
        time_s=newest.time_s,
        interval_s=sum(m.interval_s for m, _ in load),
        external_rate=mean_of((m.external_rate, weight) for m, weight in load) or 0.0,
        entering=entering,
        operators=operators,
        sojourn=_with_critical(past),
        backlog_s=newest.backlog_s,
        late=newest.late,
        arrival_scv=mean_of((m.arrival_scv, weight) for m, weight in load),
        rising=rising,
    )


def _stacked(tables: Sequence[Table]) -> Table:
    """Several tables as one, with a zero where one lacks a name."""
    names = tables[-1].names
    if all(table.names == names for table in tables):
        return Table(names, np.stack([table.rows for table in tables]))
    names = tuple(dict.fromkeys(name for table in tables for name in table.names))
    places = {name: place for place, name in enumerate(names)}
    width = max((table.rows.shape[1:] for table in tables), key=len)
    rows = np.zeros((len(tables), len(names), *width))
    for number, table in enumerate(tables):
        if table.names:
            rows[number, [places[name] for name in table.names]] = table.rows
    return Table(names, rows)


def _gains(past: Sequence[Measure], weights: Columns) -> list[dict[str, float]]:
    """Of each operator, to every receiver."""
    found: list[dict[str, float]] = [{} for _ in past[-1].operators]
    edges, rows = _stacked([m.edges for m in past])
    if edges:
        senders = [place for place, _ in edges]
        means = _means(rows, weights[:, senders])
        for (place, to), mean in zip(edges, means, strict=True):
            found[place][to] = mean or 0.0
    return found


def _with_critical(past: Sequence[Measure]) -> Sojourn | None:
    """The sojourns of several intervals as one, with what is known of critical paths."""
    told = [m for m in past if m.sojourn is not None and m.sojourn.count]
    found = _pooled([m.sojourn for m in told if m.sojourn is not None])
    if found is None:
        return None
    names, rows = _stacked([m.critical for m in told])
    counts = np.array([m.sojourn.count for m in told if m.sojourn is not None])
    means = np.tensordot(counts, rows, 1) / found.count
    critical = {name: Critical(*row) for name, row in zip(names, means.tolist(), strict=True)}
    return replace(found, critical=critical)


def _products(past: Sequence[Measure], name: str, weights: Columns) -> dict[str, dict[str, float]]:
    """The second moments of several intervals as one."""
    served = [
        (m.operators[name], weight)
        for m, weight in zip(past, weights.tolist(), strict=True)
        if weight > 0
    ]
    pairs = dict.fromkeys(
        (to, other) for o, _ in served for to, others in o.together.items() for other in others
    )
    found: dict[str, dict[str, float]] = {}
    for to, other in pairs:
        each = ((o.together.get(to, {}).get(other, 0.0), weight) for o, weight in served)
        found.setdefault(to, {})[other] = mean_of(each) or 0.0
    return found


def recent(past: Sequence[Measure], settings: ControlSettings) -> Sojourn | None:
    """The sojourns of as many of the newest intervals as it takes to say something, within the
    window."""
    p = settings.percentile
    enough = _TREES if p is None else _TREES / (1 - p / 100) / 3
    found: list[Sojourn] = []
    first_s = past[-1].time_s - settings.about(settings.reach_s)
    for m in reversed(past):
        if m.time_s <= first_s or sum(s.count for s in found) >= enough:
            break
        if m.sojourn is not None:
            found.append(m.sojourn)
    return _pooled(found)


def _load_since(past: Sequence[Measure], risen_s: float | None) -> tuple[int, bool]:
    """The first interval with the load of the newest, and whether it had risen then."""
    first = since([reading_of(m) for m in past], rates=True)
    rising = first > 0 and past[first].external_rate > past[first - 1].external_rate
    if risen_s is None:
        return first, rising
    # An urgent tick tells the rate since the rise, so the intervals within count no second time.
    middle_s = [m.time_s - m.interval_s / 2 for m in past]
    last = len(past) - 1
    if past[last].time_s - past[last].interval_s > risen_s:
        last = bisect.bisect(middle_s, risen_s)
    return (first, rising) if first >= last else (last, True)


def _service_since(columns: Columns) -> npt.NDArray[np.int64]:
    """The first interval with the service time of the newest, for each operator."""
    served = columns[:, :, SERVED]
    service_s = np.nan_to_num(columns[:, :, SERVICE])
    scvs = np.where(np.isnan(columns[:, :, SCV]), 1.0, columns[:, :, SCV])
    return since_each(service_s, served, scvs)


def _means(values: Columns, weights: Columns) -> list[float | None]:
    """Of what is known of each operator; None where nothing is."""
    weights = np.where(np.isnan(values), 0.0, weights)
    total = weights.sum(axis=0)
    found = (np.nan_to_num(values) * weights).sum(axis=0) / np.where(total > 0, total, 1.0)
    return [
        value if known else None
        for value, known in zip(found.tolist(), (total > 0).tolist(), strict=True)
    ]


def _summed(found: Sequence[Mapping[int, int] | None]) -> dict[int, int] | None:
    """The tuples of each shard or executor over several intervals; None if there is none."""
    if found[-1] is None:
        return None
    total: Counter[int] = Counter()
    for shards in found:
        total.update(shards or {})
    return dict(total)


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
