"""What a controlled run was like, added up from its records as they come."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sojourn.control.controller import Record


@dataclass(frozen=True)
class Happened:
    """A change of the allocation, and why it was made."""

    at_s: float
    action: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    reason: str


@dataclass(frozen=True)
class Summary:
    """What a controlled run was like. The target was kept in `within_target` of its
    `intervals`."""

    topology: str
    seconds: float
    intervals: int
    within_target: int | None
    mean_sojourn_s: float | None
    mean_processors: float
    most_processors: int
    restarts: int
    changes: tuple[Happened, ...]
    ui: str | None = None  # Spark's, as long as its session lasts

    def as_json(self) -> str:
        """For other programs."""
        return json.dumps(asdict(self), indent=2)


class Tally:
    """Adds up records as they come."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.last_s = 0.0
        self.intervals = self.measured = self.within = 0
        self.targeted = False
        self.trees, self.sojourn_s = 0, 0.0
        self.processors = self.most_processors = 0
        self.changes: list[Happened] = []

    def __call__(self, record: Record) -> None:
        if self.first_s is None:
            self.first_s = record.time_s - record.settings.interval_s
        self.last_s = record.time_s
        if not record.pressures:
            self.intervals += 1
        if record.within_target is not None:
            self.targeted = True
            self.within += record.within_target
        if record.measure is not None and not record.pressures:
            self.measured += 1
            have = {n: record.measure.operators[n].processors for n in record.wanted}
            self.processors += sum(have.values())
            self.most_processors = max(self.most_processors, sum(have.values()))
            sojourn = record.measure.sojourn
            if sojourn is not None:
                self.trees += sojourn.count
                self.sojourn_s += sojourn.mean_s * sojourn.count
        if record.applied and record.decision.allocation is not None:
            self.changes.append(
                Happened(
                    record.time_s - self.first_s,
                    str(record.decision.action),
                    dict(record.wanted),
                    dict(record.decision.allocation),
                    record.decision.reason,
                )
            )

    def summary(self, topology: str, restarts: int) -> Summary:
        return Summary(
            topology=topology,
            seconds=self.last_s - (self.first_s or 0.0),
            intervals=self.intervals,
            within_target=self.within if self.targeted else None,
            mean_sojourn_s=self.sojourn_s / self.trees if self.trees else None,
            mean_processors=self.processors / max(1, self.measured),
            most_processors=self.most_processors,
            restarts=restarts,
            changes=tuple(self.changes),
        )
