"""What was, in bounded memory: the last ticks one by one, older ones in ever wider steps. Fed by
the board; feeds charts."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sojourn.dashboard.tick import Tick

RECENT = 1800  # ticks that are kept one by one
OLDER = 3600  # steps before them; when there are more, each two become one


@dataclass(frozen=True)
class Row:
    """One tick, or several: the mean of means and of rates, the worst of percentiles, and the last
    of what steps. `ticks` says how many it stands for."""

    time_s: float
    mean_s: float | None
    p95_s: float | None
    p99_s: float | None
    estimate_s: float | None
    target_s: float | None
    load: float | None
    forecast: float | None
    due_s: float | None  # when the forecast load should be there
    busy: float | None
    most: int | None
    processors: tuple[int | None, ...]
    ticks: int = 1
    trees: int = 0


def row_of(tick: Tick, names: Sequence[str]) -> Row:
    """What charts show of a tick."""
    sojourn, vertices = tick.sojourn, tick.vertices
    have = [(vertices[name].busy, vertices[name].processors) for name in names if name in vertices]
    total = sum(count for _, count in have)
    known = tick.forecast if tick.forecast is not None and tick.forecast.by != "now" else None
    limits = [limit for limit in (tick.most, tick.capacity) if limit is not None]
    return Row(
        time_s=tick.time_s,
        mean_s=None if sojourn is None else sojourn.mean_s,
        p95_s=None if sojourn is None else sojourn.p95_s,
        p99_s=None if sojourn is None else sojourn.p99_s,
        estimate_s=tick.estimate_s,
        target_s=tick.target_s,
        load=tick.load,
        forecast=None if known is None else known.rate,
        due_s=None if known is None else tick.time_s + known.horizon_s,
        busy=sum(busy * count for busy, count in have) / total if total else None,
        most=min(limits, default=None),
        processors=tuple(vertices[name].processors if name in vertices else None for name in names),
        trees=0 if sojourn is None else sojourn.count,
    )


def merged(first: Row, last: Row) -> Row:
    """Two neighbouring rows as one."""
    return Row(
        time_s=last.time_s,
        mean_s=_mean((first.mean_s, first.trees), (last.mean_s, last.trees)),
        p95_s=_worst(first.p95_s, last.p95_s),
        p99_s=_worst(first.p99_s, last.p99_s),
        estimate_s=_mean((first.estimate_s, first.ticks), (last.estimate_s, last.ticks)),
        target_s=last.target_s,
        load=_mean((first.load, first.ticks), (last.load, last.ticks)),
        forecast=last.forecast,
        due_s=last.due_s,
        busy=_mean((first.busy, first.ticks), (last.busy, last.ticks)),
        most=last.most,
        processors=last.processors,
        ticks=first.ticks + last.ticks,
        trees=first.trees + last.trees,
    )


def _mean(*values: tuple[float | None, int]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None]
    total = sum(weight for _, weight in known)
    if not known:
        return None
    return sum(v * w for v, w in known) / total if total else known[-1][0]


def _worst(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


class History:
    """At most `recent` + `older` rows and one that is being filled."""

    def __init__(self, recent: int = RECENT, older: int = OLDER) -> None:
        self.recent: deque[Row] = deque()
        self.older: list[Row] = []
        self.filling: Row | None = None
        self.most_recent, self.most_older = recent, older
        self.step = 1  # ticks that a new older row stands for

    def add(self, row: Row) -> None:
        """One more tick."""
        self.recent.append(row)
        if len(self.recent) > self.most_recent:
            self._retire(self.recent.popleft())

    def rows(self) -> list[Row]:
        """All, the oldest first."""
        filling = [] if self.filling is None else [self.filling]
        return [*self.older, *filling, *self.recent]

    def _retire(self, row: Row) -> None:
        self.filling = row if self.filling is None else merged(self.filling, row)
        if self.filling.ticks < self.step:
            return
        self.older.append(self.filling)
        self.filling = None
        if len(self.older) > self.most_older:
            pairs = zip(self.older[::2], self.older[1::2], strict=False)
            odd = self.older[-1:] if len(self.older) % 2 else []
            self.older = [*(merged(*pair) for pair in pairs), *odd]
            self.step *= 2
