"""Runs under control, minute by minute, as the papers' figures show them: what was asked for in
which minute, and how long tuples took. `drs-2017` is the papers' own scheduler, `drs` is ours; the
papers' claims are judged by runs of the former, and the latter has claims of its own."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from lab import Claim, Lab
from paired import Estimate, estimate_of

from sojourn.control.controller import Record

POLICIES = ("drs-2017", "drs")
AROUND = 3  # minutes before and after one in which machines change
LONGEST = 4  # minutes that a machine takes to come
MUCH = 0.1  # of a restart
MOST_BUSY = 0.6  # of the CPU: with more, tuples wait for it and not for processors
Counts = tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """From the beginning of a minute on, counted from 1, there are other processors. If these need
    machines that have to come, they were decided on in an earlier one."""

    minute: int
    before: Counts
    after: Counts
    decided: int | None = None

    @property
    def asked(self) -> int:
        """The minute with whose beginning the scheduler decided."""
        return self.minute if self.decided is None else self.decided

    @property
    def adds(self) -> bool:
        return sum(self.after) > sum(self.before)

    @property
    def removes(self) -> bool:
        return sum(self.after) < sum(self.before)

    def __str__(self) -> str:
        waits = "" if self.decided is None else f", decided on in minute {self.decided}"
        return f"{told(self.before)} → {told(self.after)} in minute {self.minute}{waits}"


@dataclass(frozen=True)
class Run:
    """One run: the mean sojourn of each minute, None where no tuple was done, and what was changed
    when. Sources began so many minutes before the first of these, as on Spark several runs wait for
    one another. On machines, on Spark, also the longest time without a tuple that was done."""

    start: Counts
    means_s: tuple[float | None, ...]
    changes: tuple[Change, ...]
    machines: tuple[int, ...] = ()
    early: float = 0.0
    gaps_s: tuple[float, ...] = ()

    def since(self, change: Change) -> float:
        """Minutes from the start of the sources to the decision on a change."""
        return round(change.asked - 1 + self.early, 2)

    def moves(self) -> list[tuple[int, bool]]:
        """The minutes in which machines come or go, and whether they come."""
        return [
            (number, later > sooner)
            for number, (sooner, later) in enumerate(itertools.pairwise(self.machines), 2)
            if later != sooner
        ]

    @property
    def end(self) -> Counts:
        """What it has at last."""
        return self.changes[-1].after if self.changes else self.start

    def known(self, first: int, last: int) -> list[float]:
        """Means from one minute to another, both included."""
        return [mean for mean in self.means_s[max(0, first - 1) : last] if mean is not None]

    def mean(self, first: int, last: int) -> Estimate:
        """Of those minutes. Neighbouring ones hang together, so of six or more, each two or three
        count as one."""
        some = self.known(first, last)
        groups = np.array_split(np.array(some), max(3, len(some) // 3)) if len(some) > 5 else some
        return estimate_of([float(np.mean(group)) for group in groups])


def rises(one: Run) -> list[tuple[bool, float]]:
    """Where machines come or go: whether they come, and how far the highest mean of that minute and
    the next is above the higher one of the three minutes before and of the three after."""
    found = []
    for minute, comes in one.moves():
        before = one.known(minute - AROUND, minute - 1)
        now, after = one.known(minute, minute + 1), one.known(minute + 2, minute + 1 + AROUND)
        if before and now and after:
            usual_s = max(statistics.fmean(before), statistics.fmean(after))
            found.append((comes, max(now) - usual_s))
    return found


def stalls(one: Run) -> list[tuple[bool, float, float]]:
    """Where machines come or go: whether they come, by how much the longest time without a tuple
    that is done is above that of the three minutes before, and how long the latter is. It is looked
    for from the decision on, as a machine that comes starts on the same cores, to the minute after
    it came; and from the minute before one has gone, as tuples wait before that already, to the
    second one after. It is zero where chance alone makes it shorter."""
    found = []
    for minute, comes in one.moves():
        if comes:
            asked = [c.asked for c in one.changes if c.adds and c.asked <= minute]
            first, last = max([minute - LONGEST, *asked]), minute + 1
        else:
            first, last = minute - 1, minute + 2
        before = one.gaps_s[max(0, first - 1 - AROUND) : max(0, first - 1)]
        now = one.gaps_s[max(0, first - 1) : last]
        if before and now:
            usual_s = max(before)
            found.append((comes, max(0.0, max(now) - usual_s), usual_s))
    return found


def in_ms(some: Sequence[float]) -> str:
    """For people."""
    return ", ".join(f"{one * 1e3:.0f} ms" for one in some) or "none"


def lower(paper: str, says: str, runs: Sequence[Run], restart: Estimate | None) -> Claim:
    """Whether what machines that come and go cost is much lower than Storm's own way."""
    some = [stall_s for one in runs for _, stall_s, _ in stalls(one)]
    less = None
    if restart is not None and some:
        lowest, highest = restart.value - restart.half, restart.value + restart.half
        sure = all(stalls(one) for one in runs) and max(some) < MUCH * lowest
        less = True if sure else False if max(some) > MUCH * highest else None
    return decided(
        paper,
        says,
        "where machines come or go, from the decision on or from the minute before, the longest "
        "time without a tuple that is done is above that of the three minutes before by less than "
        f"{MUCH:.0%} of the time that a restart takes on Spark until the first one is, by the mean "
        "of five with 95 % confidence; it does not hold if one is more with as much; Storm's one "
        "to two minutes themselves cannot be measured here",
        f"{in_ms(some)}; a restart takes "
        + ("a time that was not measured" if restart is None else f"{restart:.1f} s"),
        less,
        "it is more" if less is False else "not all were measured, or not told apart",
    )


def told(counts: Counts) -> str:
    """As the papers write it."""
    return f"({':'.join(map(str, counts))})"


def run_of(
    records: Sequence[Record],
    names: Sequence[str],
    per_machine: int | None = None,
    quiet: int = 0,
    gaps_s: Sequence[float] = (),
) -> Run:
    """From the records of the ends of all minutes, and of what could not wait for one, with the
    longest time without a tuple that was done before each. In so many minutes nothing may be
    changed."""
    some = [record for record in records if not record.pressures]
    changes: list[Change] = []
    minute, decided = 0, None
    for record in records:
        minute += not record.pressures
        asked, needed = record.decision.allocation, record.decision.needed
        waits = record.capacity is not None and (needed or 0) > record.capacity
        if waits and decided is None and minute >= quiet:
            decided = minute + 1
        if record.applied and asked is not None:
            counts = {**record.wanted, **{n: _whole(k) for n, k in asked.items()}}
            before, after = _counts(record.wanted, names), _counts(counts, names)
            if before != after:
                sooner = decided if decided is not None and decided <= minute else None
                changes.append(Change(minute + 1, before, after, sooner))
        if needed is not None and not waits:
            decided = None
    return Run(
        _counts(some[0].wanted, names),
        tuple(r.samples.sojourn.mean_s if r.samples.sojourn else None for r in some),
        tuple(changes),
        tuple((r.capacity or 0) // per_machine for r in some) if per_machine else (),
        _early(some[0]),
        _by_minute(records, gaps_s),
    )


def _early(first: Record) -> float:
    """The first sample of each counts from when it was let begin, and sources are so last."""
    shortest_s = min((v.interval_s for v in first.samples.vertices.values()), default=0.0)
    return max(0.0, shortest_s / first.settings.interval_s - 1)


def _by_minute(records: Sequence[Record], gaps_s: Sequence[float]) -> tuple[float, ...]:
    """The longest of each minute, with those of what could not wait for its end."""
    found, longest_s = [], 0.0
    for record, gap_s in zip(records, gaps_s, strict=False):
        longest_s = max(longest_s, gap_s)
        if not record.pressures:
            found.append(longest_s)
            longest_s = 0.0
    return tuple(found)


def _whole(count: int | Sequence[int]) -> int:
    return count if isinstance(count, int) else sum(count)


def _counts(allocation: Mapping[str, int], names: Sequence[str]) -> Counts:
    return tuple(allocation[name] for name in names)


def difference(one: Estimate, other: Estimate) -> Estimate:
    """Of two that have nothing in common."""
    error = math.hypot(one.error, other.error)
    return Estimate(one.value - other.value, error, min(one.freedom, other.freedom))


def quotient(one: Estimate, other: Estimate) -> Estimate:
    """Of two that have nothing in common, by their relative errors."""
    value = one.value / other.value
    error = value * math.hypot(one.error / one.value, other.error / other.value)
    return Estimate(value, error, min(one.freedom, other.freedom))


def minute_of(lab: Lab, minute_s: float, whole_s: float = 60.0) -> float:
    """Seconds of a minute; virtual time has whole ones in full runs."""
    return minute_s if lab.engine == "spark" or lab.quick else whole_s


def unless_busy(claims: Sequence[Claim], busy: float) -> list[Claim]:
    """Nothing is decided by a run in which too much of the CPU was used."""
    if busy <= MOST_BUSY:
        return list(claims)
    why = f"{busy:.0%} of the CPU was used, and only up to {MOST_BUSY:.0%} tells something"
    return [replace(claim, holds=None, why=why) for claim in claims]


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
