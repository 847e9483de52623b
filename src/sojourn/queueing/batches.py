"""A query that works in batches, as a station that serves in bulk: a batch takes all rows that came
during the one before. Each of its stages has so many tasks, which slots take in waves. Pure.

A batch costs something whatever it holds, a task as well, and a row costs time in each stage. So
the time of a batch follows from its rows and the slots; and where rows come at some rate, batches
grow until they hold what comes while one is processed, or without end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

_SURE = 2.0  # standard errors
_LAST = 5  # batches that say how many tasks there are


@dataclass(frozen=True)
class Stage:
    """So many tasks, each of which takes `task_s` and for every row of the batch its share of
    `row_s`."""

    tasks: int
    task_s: float
    row_s: float

    def takes_s(self, rows: float, slots: int) -> float:
        """How long it takes: all waves but the last are full."""
        return self.waves(slots) * (self.task_s + self.row_s * rows / self.tasks)

    def waves(self, slots: int) -> int:
        """In how many turns slots take its tasks."""
        return math.ceil(self.tasks / max(1, slots))


@dataclass(frozen=True)
class Steady:
    """Batches that follow one another: how long each takes, how long it is until the next begins,
    and its rows."""

    batch_s: float
    cycle_s: float
    rows: float

    @property
    def worst_s(self) -> float:
        """The same, of a row that just missed a batch."""
        return self.cycle_s + self.batch_s


@dataclass(frozen=True)
class Batches:
    """A query: what a batch costs besides its stages, at which interval batches are triggered at
    most, 0 if one follows the other, and how many rows a batch has at most, if that is limited."""

    overhead_s: float
    stages: tuple[Stage, ...]
    trigger_s: float = 0.0
    max_rows: float | None = None

    @property
    def tasks(self) -> int:
        """Of its widest stage: more slots help nobody."""
        return max((stage.tasks for stage in self.stages), default=1)

    def batch_s(self, rows: float, slots: int) -> float:
        """How long a batch takes."""
        return self.overhead_s + math.fsum(stage.takes_s(rows, slots) for stage in self.stages)

    def work_s(self, rows: float, slots: int) -> float:
        """How long so many rows take, in as many batches as that needs."""
        if self.max_rows is None or rows <= self.max_rows:
            return self.batch_s(rows, slots)
        full = math.ceil(rows / self.max_rows) - 1
        each_s = max(self.trigger_s, self.batch_s(self.max_rows, slots))
        return full * each_s + self.batch_s(rows - full * self.max_rows, slots)

    def capacity(self, slots: int) -> float:
        """Rows a second that are carried at most, in batches as large as they may be."""
        if self.max_rows is None:
            return self._speed(slots)
        return self.max_rows / max(self.trigger_s, self.batch_s(self.max_rows, slots))

    def of_tasks(self, tasks: int) -> "Batches":
        """The same with so many tasks in the widest stage, if it has fewer."""
        wide = max(self.stages, key=lambda stage: stage.tasks)
        if tasks <= wide.tasks:
            return self
        wider = tuple(replace(s, tasks=tasks) if s is wide else s for s in self.stages)
        return replace(self, stages=wider)

    def _speed(self, slots: int) -> float:
        """Rows a second in a batch without end."""
        row_s = math.fsum(stage.waves(slots) * stage.row_s / stage.tasks for stage in self.stages)
        return 1 / row_s if row_s > 0 else math.inf

    def steady(self, rate: float, slots: int) -> Steady | None:
        """Batches where so many rows come a second; None if they grow without end."""
        if rate >= self.capacity(slots) and self.max_rows is not None:
            return None
        empty_s = self.batch_s(0.0, slots)
        load = rate / self._speed(slots)
        batch_s = empty_s + load * self.trigger_s
        if batch_s <= self.trigger_s:
            return Steady(batch_s, self.trigger_s, rate * self.trigger_s)
        if load >= 1:
            return None
        batch_s = empty_s / (1 - load)
        return Steady(batch_s, batch_s, rate * batch_s)


@dataclass(frozen=True)
class Ran:
    """A batch that ran: its rows, how long it took, with how many slots, and of each stage the
    tasks and how long all of them together took."""

    rows: float
    took_s: float
    slots: int
    stages: tuple[tuple[int, float], ...]


def fitted(ran: Sequence[Ran], trigger_s: float = 0.0) -> Batches | None:
    """The query that explains its batches best. Only those with as many stages as the last count:
    others did something else. Their tasks may differ, as those of files and of shuffles do. None if
    there are none with rows."""
    if not ran or not ran[-1].stages:
        return None
    same = [one for one in ran if len(one.stages) == len(ran[-1].stages) and one.rows > 0]
    if not same:
        return None
    stages = []
    for place in range(len(ran[-1].stages)):
        each = [one.stages[place] for one in same]
        tasks = max(1, round(float(np.median([tasks for tasks, _ in each[-_LAST:]]))))
        fixed_s, row_s = _line([one.rows for one in same], [seconds for _, seconds in each])
        stages.append(Stage(tasks, fixed_s / tasks, row_s))
    left = [one.took_s - _in_stages_s(one, stages) for one in same]
    return Batches(max(0.0, float(np.median(left))), tuple(stages), trigger_s)


def _in_stages_s(one: Ran, stages: Sequence[Stage]) -> float:
    """How long a batch was in its stages, with as many tasks as it had."""
    pairs = zip(stages, one.stages, strict=True)
    return math.fsum(
        replace(stage, tasks=max(1, tasks)).takes_s(one.rows, one.slots)
        for stage, (tasks, _) in pairs
    )


def _line(rows: Sequence[float], times_s: Sequence[float]) -> tuple[float, float]:
    """What a stage takes whatever it holds, and what for each row; neither is negative. Where rows
    alone may explain it, as far as chance lets that be told, they do: then more rows take more
    slots for sure."""
    x, y = np.asarray(rows, float), np.asarray(times_s, float)
    square = float(((x - x.mean()) ** 2).sum())
    if square < 1e-4 * float((x**2).sum()):
        return 0.0, float(y.sum() / x.sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / square
    off = float(((y - y.mean() - slope * (x - x.mean())) ** 2).sum())
    alone = float(y.sum() / x.sum())
    if len(x) < 3 or abs(alone - slope) <= _SURE * math.sqrt(off / (len(x) - 2) / square):
        return 0.0, alone
    slope = min(max(slope, 0.0), float(y.mean() / x.mean()))
    return float(y.mean() - slope * x.mean()), slope
