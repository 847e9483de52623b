"""From executors' reports to operators' samples: sums since the last report, rates added up,
moments pooled."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sojourn.chains import stage_of
from sojourn.engine.wire import messages as m
from sojourn.ports import SEEN, Part, Sample, scv_of


@dataclass(frozen=True)
class Change:
    """What an executor did between two reports. The first report counts from when it
    was let begin."""

    now: m.Report
    before: m.Report | None

    def of(self, name: str) -> float:
        """By how much a sum has grown."""
        grown: float = getattr(self.now, name)
        return grown if self.before is None else grown - getattr(self.before, name)

    @property
    def shards(self) -> Counter[int]:
        """Tuples that came for the busiest shards. If not all were told of before, it is not known
        how many came for those that were not."""
        now, before = self.now.shards or {}, {} if self.before is None else self.before.shards or {}
        known = now.keys() if len(before) < m.BUSIEST else now.keys() & before.keys()
        return +Counter({shard: now[shard] - before.get(shard, 0) for shard in known})

    def stage(self, name: str) -> m.Moments:
        """The same of an operator that is chained to it."""
        nothing = (0, 0.0, 0.0)
        now = self.now.stages.get(name, nothing)
        before = nothing if self.before is None else self.before.stages.get(name, nothing)
        return now[0] - before[0], now[1] - before[1], now[2] - before[2]

    @property
    def interval_s(self) -> float:
        start = self.now.started_s if self.before is None else self.before.at_s
        return self.now.at_s - start

    @property
    def intended_s(self) -> float:
        """How much of its schedule a source went through in that time."""
        before = 0.0 if self.before is None else self.before.lag_s or 0.0
        return self.interval_s - ((self.now.lag_s or 0.0) - before)

    @property
    def rate(self) -> float | None:
        """Arrivals per second. Those of a source are counted in the time of its schedule, so its
        rate is right even while it falls behind or catches up. None if it hardly moved on."""
        if self.interval_s <= 0:
            return 0.0
        if self.intended_s < 0.05 * self.interval_s:
            return None
        return self.of("arrivals") / self.intended_s

    @property
    def emitted(self) -> Counter[str]:
        """Tuples sent by edge."""
        grown = Counter(self.now.emitted)
        if self.before is not None:
            grown.subtract(self.before.emitted)
        return grown

    def together(self, edge: str) -> Counter[str]:
        """The second moments of what it sent over an edge and others."""
        grown = Counter(self.now.together.get(edge, {}))
        if self.before is not None:
            grown.subtract(self.before.together.get(edge, {}))
        return grown


def part(change: Change) -> Part:
    """One executor's part of its operator."""
    timed, interval_s = change.of("timed"), change.interval_s
    each_s = change.of("service_s") / timed if timed else 0.0
    per_s = 1 / interval_s if interval_s > 0 else 0.0
    arrivals = round(change.of("arrivals"))
    return Part(
        change.now.executor,
        change.now.processors,
        arrivals,
        arrivals * per_s * each_s,
        change.of("bytes_in") * per_s,
        change.of("bytes_out") * per_s,
        _hottest(change, arrivals),
        change.now.state,
        moves := round(change.of("moves")),
        round(change.of("moved")),
        change.of("sync_s") / max(1, moves),
        change.of("moving_s") / max(1, moves),
        change.now.owns != 0,
        _machines(change.now),
    )


def _machines(report: m.Report) -> dict[str, int]:
    """How many of an executor's processors are on which machine."""
    home = report.processors - sum(report.away.values())
    here = {report.machine: home} if report.machine and home > 0 else {}
    return {**here, **report.away}


def _parts(changes: list[Change]) -> tuple[Part, ...]:
    """The parts of an operator's executors, where that is more than the operator's sample."""
    found = tuple(sorted(map(part, changes), key=lambda one: one.executor))
    more = any(one.moves or one.state or len(one.machines) > 1 for one in found)
    return found if len(found) > 1 or more else ()


def _hottest(change: Change, arrivals: int) -> float | None:
    """The share of the busiest shard, as far as it is more than chance."""
    if change.now.shards is None:
        return None
    most = max(change.shards.values(), default=0)
    return most / max(arrivals, most) if most >= SEEN else 0.0


def merge(changes: Iterable[Change]) -> dict[str, Sample]:
    """One sample per vertex."""
    by_vertex: dict[str, list[Change]] = {}
    for change in changes:
        by_vertex.setdefault(change.now.vertex, []).append(change)
    found = {}
    for name, group in by_vertex.items():
        found[name] = _merged(name, group)
        stages = tuple(group[0].now.stages)
        found |= {stage: _staged(stage, stages, found[name], group) for stage in stages}
    return found


def _staged(name: str, stages: tuple[str, ...], head: Sample, changes: list[Change]) -> Sample:
    """An operator of a chain behind its head."""
    moments = [change.stage(name) for change in changes]
    served = sum(count for count, _, _ in moments)
    service_s, service_s2 = (sum(m[i] for m in moments) for i in (1, 2))
    processor_s = sum(change.of("processor_s") for change in changes)
    own = {edge: stage_of(edge, stages) for edge in head.emitted}
    return Sample(
        name=name,
        interval_s=head.interval_s,
        processors=0,
        wanted=0,
        queue=0,
        arrivals=served,
        served=served,
        arrival_rate=served / head.interval_s if head.interval_s > 0 else 0.0,
        arrival_scv=None,
        service_s=service_s / served if served and service_s else None,
        service_scv=scv_of(served, service_s, service_s2),
        busy=service_s / processor_s if processor_s > 0 else 0.0,
        emitted={
            told[1]: head.emitted[edge]
            for edge, told in own.items()
            if told is not None and told[0] == name
        },
        head=head.name,
    )


def _merged(name: str, changes: list[Change]) -> Sample:
    def total(what: str) -> float:
        return sum(change.of(what) for change in changes)

    reports = [change.now for change in changes]
    served, timed, service_s = round(total("served")), round(total("timed")), total("service_s")
    processor_s = total("processor_s")
    emitted: Counter[str] = Counter()
    for change in changes:
        emitted.update(change.emitted)
    together: dict[str, Counter[str]] = {}
    for change in changes:
        for edge in change.now.together:
            together.setdefault(edge, Counter()).update(change.together(edge))
    lags = [r.lag_s for r in reports if r.lag_s is not None]
    rates = [rate for change in changes if (rate := change.rate) is not None]
    rate = sum(rates) if rates else None
    backlog = _backlog([change.now for change in changes])
    if backlog is not None:
        rate = _coming(changes, backlog)
    return Sample(
        name=name,
        interval_s=max(change.interval_s for change in changes),
        processors=sum(r.processors for r in reports),
        wanted=sum(r.wanted for r in reports),
        queue=sum(r.queue for r in reports),
        arrivals=round(total("arrivals")),
        served=served,
        arrival_rate=rate,
        arrival_scv=scv_of(round(total("gaps")), total("gap_s"), total("gap_s2")),
        service_s=service_s / timed if timed and service_s else None,
        service_scv=scv_of(timed, service_s, total("service_s2")),
        busy=service_s / timed * served / processor_s if timed and processor_s > 0 else 0.0,
        emitted=dict(emitted),
        dropped=round(total("dropped")),
        shed=round(total("shed")),
        lag_s=max(lags, default=None),
        shards=None if reports[0].shards is None else _busiest(changes),
        together={edge: dict(others) for edge, others in together.items()},
        parts=_parts(changes),
        shed_by=_shed_by(changes),
        backlog=backlog,
    )


def _backlog(reports: Iterable[m.Report]) -> dict[str, int] | None:
    """What waits in each split of a source, whoever reads it; None if it does not say."""
    told = [report.backlog for report in reports if report.backlog is not None]
    return {split: count for one in told for split, count in one.items()} if told else None


def _coming(changes: list[Change], backlog: Mapping[str, int]) -> float:
    """The rate at which tuples come to a source that says what waits: those that it has read, and
    those that have come to wait."""
    before = _backlog([change.before for change in changes if change.before is not None]) or {}
    grown = sum(count - before[split] for split, count in backlog.items() if split in before)
    interval_s = max(change.interval_s for change in changes)
    read = sum(change.of("arrivals") for change in changes)
    return max(0.0, read + grown) / interval_s if interval_s > 0 else 0.0


def _shed_by(changes: list[Change]) -> dict[str, int]:
    """Tuples shed, by machine."""
    found: Counter[str] = Counter()
    for change in changes:
        found[change.now.machine] += round(change.of("shed"))
    return dict(+found)


def _busiest(changes: list[Change]) -> dict[int, int]:
    """Of all executors. A shard that has changed hands may have come to two of them."""
    return dict(sum((change.shards for change in changes), Counter[int]()))
