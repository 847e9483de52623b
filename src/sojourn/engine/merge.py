"""From executors' reports to operators' samples: rates add up, moments are pooled."""

from collections import Counter
from collections.abc import Iterable

from sojourn.engine import messages as m
from sojourn.ports import Sample


def merge(reports: Iterable[m.Report]) -> dict[str, Sample]:
    """One sample per vertex."""
    by_vertex: dict[str, list[m.Report]] = {}
    for report in reports:
        by_vertex.setdefault(report.vertex, []).append(report)
    return {name: _merged(name, group) for name, group in by_vertex.items()}


def _merged(name: str, reports: list[m.Report]) -> Sample:
    arrivals = sum(r.arrivals for r in reports)
    served = sum(r.served for r in reports)
    processors = sum(r.processors for r in reports)
    service_s = sum(r.service_s for r in reports)
    interval_s = max(r.interval_s for r in reports)
    emitted: Counter[str] = Counter()
    for report in reports:
        emitted.update(report.emitted)
    available_s = sum(r.interval_s * r.processors for r in reports)
    return Sample(
        name=name,
        interval_s=interval_s,
        processors=processors,
        wanted=sum(r.wanted for r in reports),
        queue=sum(r.queue for r in reports),
        arrivals=arrivals,
        served=served,
        arrival_rate=sum(r.arrivals / r.interval_s for r in reports if r.interval_s > 0),
        arrival_scv=_scv(
            sum(r.gaps for r in reports),
            sum(r.gap_s for r in reports),
            sum(r.gap_s2 for r in reports),
        ),
        service_s=service_s / served if served and service_s else None,
        service_scv=_scv(served, service_s, sum(r.service_s2 for r in reports)),
        busy=service_s / available_s if available_s > 0 else 0.0,
        emitted=dict(emitted),
        dropped=sum(r.dropped for r in reports),
        shed=sum(r.shed for r in reports),
    )


def _scv(count: int, total: float, squares: float) -> float | None:
    """Variance over squared mean, of at least two values."""
    if count < 2 or total <= 0:
        return None
    mean = total / count
    return max(0.0, squares / count - mean * mean) / (mean * mean)
