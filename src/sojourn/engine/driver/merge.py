"""From executors' reports to operators' samples: sums since the last report, rates added up,
moments pooled."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sojourn.engine.wire import messages as m
from sojourn.ports import Sample, scv_of


@dataclass(frozen=True)
class Change:
    """What an executor did between two reports; the first counts from its start."""

    now: m.Report
    before: m.Report | None

    def of(self, name: str) -> float:
        """By how much a sum has grown."""
        grown: float = getattr(self.now, name)
        return grown if self.before is None else grown - getattr(self.before, name)

    @property
    def interval_s(self) -> float:
        start = self.now.started_s if self.before is None else self.before.at_s
        return self.now.at_s - start

    @property
    def intended_s(self) -> float:
        """How much of a source's schedule was gone through in that time."""
        before = 0.0 if self.before is None else self.before.lag_s or 0.0
        return self.interval_s - ((self.now.lag_s or 0.0) - before)

    @property
    def rate(self) -> float | None:
        """Arrivals per second. A source's count in the time of its schedule, so that its rate is
        the true one also while it falls behind or catches up; None if it hardly moved on."""
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


def merge(changes: Iterable[Change]) -> dict[str, Sample]:
    """One sample per vertex."""
    by_vertex: dict[str, list[Change]] = {}
    for change in changes:
        by_vertex.setdefault(change.now.vertex, []).append(change)
    return {name: _merged(name, group) for name, group in by_vertex.items()}


def _merged(name: str, changes: list[Change]) -> Sample:
    def total(what: str) -> float:
        return sum(change.of(what) for change in changes)

    reports = [change.now for change in changes]
    served, timed, service_s = round(total("served")), round(total("timed")), total("service_s")
    processor_s = total("processor_s")
    emitted: Counter[str] = Counter()
    for change in changes:
        emitted.update(change.emitted)
    lags = [r.lag_s for r in reports if r.lag_s is not None]
    rates = [rate for change in changes if (rate := change.rate) is not None]
    rate = sum(rates) if rates else None
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
    )
