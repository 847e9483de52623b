"""Runs under control, minute by minute, as the papers' figures show them: what was asked for in
which minute, and how long tuples took. `drs-2017` is the papers' own scheduler, `drs` is ours; the
papers' claims are judged by runs of the former, and the latter has claims of its own."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lab import Claim
from paired import Estimate

from sojourn.control.controller import Record

POLICIES = {"drs-2017": "", "drs": "ours"}
Counts = tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """From the beginning of a minute on, counted from 1, there are other processors."""

    minute: int
    before: Counts
    after: Counts

    @property
    def adds(self) -> bool:
        return sum(self.after) > sum(self.before)

    @property
    def removes(self) -> bool:
        return sum(self.after) < sum(self.before)

    def __str__(self) -> str:
        return f"{told(self.before)} → {told(self.after)} in minute {self.minute}"


@dataclass(frozen=True)
class Run:
    """One run: the mean sojourn of each minute, None where no tuple was done, and what was changed
    when. Sources began so many minutes before the first of these, as on Spark a start takes time.
    """

    start: Counts
    means_s: tuple[float | None, ...]
    changes: tuple[Change, ...]
    machines: tuple[int, ...] = ()
    early: float = 0.0

    def since(self, change: Change) -> float:
        """Minutes from the start of the sources to a change."""
        return round(change.minute - 1 + self.early, 2)

    @property
    def end(self) -> Counts:
        """What it has at last."""
        return self.changes[-1].after if self.changes else self.start

    def known(self, first: int, last: int) -> list[float]:
        """Means from one minute to another, both included."""
        return [mean for mean in self.means_s[max(0, first - 1) : last] if mean is not None]

    def mean(self, first: int, last: int) -> Estimate:
        """Of those minutes."""
        some = self.known(first, last)
        if not some:
            return Estimate(math.nan, math.nan, 0)
        error = statistics.stdev(some) / math.sqrt(len(some)) if len(some) > 1 else math.nan
        return Estimate(statistics.fmean(some), error, len(some) - 1)


def told(counts: Counts) -> str:
    """As the papers write it."""
    return f"({':'.join(map(str, counts))})"


def run_of(records: Sequence[Record], names: Sequence[str], per_machine: int | None = None) -> Run:
    """From the records of the ends of all minutes."""
    some = [record for record in records if not record.pressures]
    changes: list[Change] = []
    minute = 0
    for record in records:
        minute += not record.pressures
        asked = record.decision.allocation
        if record.applied and asked is not None:
            counts = {**record.wanted, **{n: _whole(k) for n, k in asked.items()}}
            change = Change(minute + 1, _counts(record.wanted, names), _counts(counts, names))
            if change.before != change.after:
                changes.append(change)
    return Run(
        _counts(some[0].wanted, names),
        tuple(r.samples.sojourn.mean_s if r.samples.sojourn else None for r in some),
        tuple(changes),
        tuple((r.capacity or 0) // per_machine for r in some) if per_machine else (),
        _early(some[0]),
    )


def _early(first: Record) -> float:
    """The first sample of a source counts from its start."""
    longest_s = max((v.interval_s for v in first.samples.vertices.values()), default=0.0)
    return max(0.0, longest_s / first.settings.interval_s - 1)


def _whole(count: int | Sequence[int]) -> int:
    return count if isinstance(count, int) else sum(count)


def _counts(allocation: Mapping[str, int], names: Sequence[str]) -> Counts:
    return tuple(allocation[name] for name in names)


def difference(one: Estimate, other: Estimate) -> Estimate:
    """Of two that have nothing in common."""
    return Estimate(
        one.value - other.value, math.hypot(one.error, other.error), min(one.freedom, other.freedom)
    )


def quotient(one: Estimate, other: Estimate) -> Estimate:
    """Of two that have nothing in common, by their relative errors."""
    value = one.value / other.value
    error = value * math.hypot(one.error / one.value, other.error / other.value)
    return Estimate(value, error, min(one.freedom, other.freedom))


def tentative(claims: Sequence[Claim], quick: bool) -> list[Claim]:
    """In quick runs there are few tuples, and chance may have made what does not hold."""
    return [
        replace(claim, holds=None, why=f"too short to tell: {claim.why}")
        if quick and claim.holds is False
        else claim
        for claim in claims
    ]


def decided(
    paper: str, says: str, rule: str, found: str, holds: bool | None, why: str = ""
) -> Claim:
    """A claim that needs a reason only where it does not hold."""
    return Claim(paper, says, rule, found, holds, "" if holds else why)
