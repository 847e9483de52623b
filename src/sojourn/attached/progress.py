"""What a query tells after each batch: its rows, how long the batch took, and how far it is behind.

Spark's `inputRowsPerSecond` counts what was taken, which a limit on a batch hides; its
`processedRowsPerSecond` is the rate while busy. So what comes is told by how the newest offset of
the source grows, where the source reports it. Offsets count something that need not be rows. How
many rows one is, shows in the batches themselves; where that differs from batch to batch, offsets
say nothing, and what was taken has to do."""

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_STEADY = 0.02  # by which rows per offset may differ
_BATCHES = 10  # that tell how many rows an offset is
_LIMITED = 3  # that tell how many rows a batch has at most
_FEW = 3  # pairs of neighbours, before they tell how much chance there is
_SURE = 2.0  # of the median by which neighbours differ, about as many standard deviations


@dataclass(frozen=True)
class Offsets:
    """Of a source, as numbers: where a batch began and ended, and the newest there is."""

    start: float
    end: float
    latest: float
    rows: float


@dataclass(frozen=True)
class Batch:
    """A finished batch: when it began, how long it took, and its rows. `offsets` are those of its
    sources, None where one does not report them."""

    query: str
    run: str
    number: int
    time_s: float
    took_s: float
    rows: float
    offsets: tuple[Offsets | None, ...] = ()

    @property
    def end_s(self) -> float:
        """When it was done."""
        return self.time_s + self.took_s


def batch(progress: str | Mapping[str, Any]) -> Batch:
    """From the JSON that Spark gives."""
    of = json.loads(progress) if isinstance(progress, str) else progress
    durations = of.get("durationMs") or {}
    took_ms = durations.get("triggerExecution", of.get("batchDuration", 0))
    sources = of.get("sources") or []
    return Batch(
        query=of["id"],
        run=of["runId"],
        number=int(of["batchId"]),
        time_s=moment_s(of["timestamp"]),
        took_s=took_ms / 1e3,
        rows=float(of.get("numInputRows") or 0),
        offsets=tuple(_offsets(source) for source in sources),
    )


def moment_s(written: str) -> float:
    """A time as progress has it."""
    return datetime.fromisoformat(written.replace("Z", "+00:00")).timestamp()


def _offsets(source: Mapping[str, Any]) -> Offsets | None:
    parts = [_number(source.get(key)) for key in ("startOffset", "endOffset", "latestOffset")]
    start, end, latest = parts
    if end is None or latest is None:
        return None
    return Offsets(
        end if start is None else start, end, latest, float(source.get("numInputRows") or 0)
    )


def _number(offset: Any) -> float | None:
    """All numbers of an offset, added up: those of partitions, mostly."""
    if isinstance(offset, str):
        try:
            return _number(json.loads(offset))
        except ValueError:
            return None
    if isinstance(offset, bool) or offset is None:
        return None
    if isinstance(offset, int | float):
        return float(offset)
    values = offset.values() if isinstance(offset, Mapping) else offset
    found = [_number(value) for value in values]
    return math.fsum(n for n in found if n is not None) if None not in found and found else None


@dataclass(frozen=True)
class Coming:
    """What comes into a query: rows a second over the batches seen, rows that wait besides those of
    a batch as large as the last, and by how many a second both together grow. `latest` is the rate
    since the batch before the last, alone, and `each` those from batch to batch. `reported` tells
    whether sources said so; else it is what was taken."""

    rate: float
    latest: float
    waiting: float
    growth: float
    reported: bool
    each: tuple[float, ...] = ()


def coming(batches: Sequence[Batch]) -> Coming | str:
    """From the batches of a run, two at least. If there are fewer, or if counters went back, that
    in words."""
    last = [one for one in batches if one.run == batches[-1].run] if batches else []
    if len(last) < 2:
        return "only one batch of this run is done"
    first, before, end = last[0], last[-2], last[-1]
    passed_s, lately_s = end.time_s - first.time_s, end.time_s - before.time_s
    if min(passed_s, lately_s) <= 0:
        return "the times of batches went back"
    if _went_back(last):
        return "the source's offsets went back"
    taken = math.fsum(one.rows for one in last[1:]) / passed_s  # each since the one before began
    units = [_unit(last, place) for place in range(len(end.offsets))]
    if not any(units) or None in units:
        grown = (end.rows - first.rows) / passed_s
        latest = end.rows / lately_s
        each = _each(last, [one.rows for one in last[1:]])
        return Coming(taken, latest, _came_since(end, taken), grown, reported=False, each=each)
    newest = [_newest(one, units) for one in last]
    behind = [_behind(one, units) for one in (first, end)]
    rate, latest = (newest[-1] - newest[0]) / passed_s, (newest[-1] - newest[-2]) / lately_s
    if min(behind) < 0:
        return "the source's newest offset is less than what was read"
    grown = behind[1] + end.rows - behind[0] - first.rows
    waiting = behind[1] + _came_since(end, rate)
    each = _each(last, [b - a for a, b in itertools.pairwise(newest)])
    return Coming(rate, latest, waiting, grown / passed_s, reported=True, each=each)


def _each(batches: Sequence[Batch], rows: Sequence[float]) -> tuple[float, ...]:
    """Rows a second that came between two batches; those that began at once are left out."""
    passed_s = (b.time_s - a.time_s for a, b in itertools.pairwise(batches))
    return tuple(n / s for n, s in zip(rows, passed_s, strict=True) if s > 0)


def chance(batches: Sequence[Batch], intervals: int) -> float:
    """By how much a rate over so many intervals between batches is off by chance, at most: by how
    much neighbours differ, so that a rise or a fall is none. 0 if there are too few to tell."""
    found = coming(batches)
    if isinstance(found, str) or intervals < 1:
        return 0.0
    apart = [abs(b - a) for a, b in itertools.pairwise(found.each)]
    if len(apart) < _FEW:
        return 0.0
    return _SURE * statistics.median(apart) / math.sqrt(intervals)


def limit(batches: Sequence[Batch]) -> float | None:
    """Rows that a batch has at most, as the source is told (`maxOffsetsPerTrigger` and the like):
    as many as the last batches have that left some behind, if they agree and none has more. None
    if that cannot be told."""
    left = [one.rows for one in batches if any(o and o.latest > o.end for o in one.offsets)]
    found = left[-_LIMITED:]
    most = max((one.rows for one in batches), default=0.0)
    if len(found) < _LIMITED or not most or most - min(found) > _STEADY * most:
        return None
    return most


def _came_since(last: Batch, rate: float) -> float:
    """Rows that came while the last batch was processed, beyond as many as that had: if the next
    batch is to be no larger, they wait."""
    return max(0.0, rate * last.took_s - last.rows)


def _went_back(batches: Sequence[Batch]) -> bool:
    """Whether a source counts anew, so that its offsets do not tell what has come."""
    newest: dict[int, float] = {}
    for one in batches:
        for place, offsets in enumerate(one.offsets):
            if offsets is None:
                continue
            if offsets.end < offsets.start or offsets.latest < newest.get(place, -math.inf):
                return True
            newest[place] = offsets.latest
    return False


def _unit(batches: Sequence[Batch], place: int) -> float | None:
    """How many rows an offset of a source is; None if it does not say, or differs. Where nothing
    came from it, that is 0."""
    found, still = [], True
    for one in batches[-_BATCHES:]:
        offsets = one.offsets[place] if place < len(one.offsets) else None
        if offsets is None:
            return None
        still = still and offsets.start == offsets.end == offsets.latest
        if offsets.end > offsets.start and offsets.rows > 0:
            found.append(offsets.rows / (offsets.end - offsets.start))
    if still:
        return 0.0
    if not found or max(found) - min(found) > _STEADY * max(found):
        return None
    return found[-1]


def _newest(one: Batch, units: Sequence[float | None]) -> float:
    pairs = zip(one.offsets, units, strict=True)
    return math.fsum(o.latest * u for o, u in pairs if o is not None and u is not None)


def _behind(one: Batch, units: Sequence[float | None]) -> float:
    pairs = zip(one.offsets, units, strict=True)
    return math.fsum((o.latest - o.end) * u for o, u in pairs if o is not None and u is not None)
