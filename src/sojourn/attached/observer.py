"""Who looks at a query: remembers its batches, asks which stages they ran and on which executors,
and says once a period what was seen. The same in the driver, from outside and from a log."""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sojourn.attached import status as st
from sojourn.attached.progress import Batch, chance, limit
from sojourn.attached.seen import Seen, as_ran, jobs_of, rated
from sojourn.provisioning.rates import Rates
from sojourn.queueing.batches import Batches, Ran, Stage, fitted

_BATCHES = 500  # remembered
_RAN = 50  # batches that the model is fitted to
_LOOKED_AT, _ENOUGH = 10, 3  # batches of a period whose stages are looked at; once ten are known
_BY_ROWS = 0.1  # of a stage's time: if its rows take less, how long it takes says nothing of them
_CHANCE = 11  # batches that tell how much rates differ by chance
_LATE_S = 1.0  # for which a slot may wait until its first task begins
_MUCH = 2  # times as long as others took: a task has more rows than they
_SOON = 0.5  # of the time of the batch before, in which one at work tells nothing yet
_LEAST_S = 0.1  # in which what a batch at work has may have come


class Observer:
    """Of one query."""

    def __init__(self, status: st.Status) -> None:
        self.status = status
        self.batches: deque[Batch] = deque(maxlen=_BATCHES)
        self.fresh = 0  # of these, the last ones, which belong to no period yet
        self.is_first = False  # the last one, after a time without rows
        self.ran: deque[Ran] = deque(maxlen=_RAN)
        self.looked = -1  # the last batch whose stages were looked at
        self.later = 0  # jobs of later batches have at least this number
        self.before: dict[str, st.Executor] = {}
        self.left: dict[str, st.Executor] = {}  # that were given back in this period
        self.is_beside = False  # some stages of the last batch ran beside each other
        self.tasks = self.slots = 0  # of the last batch: of its widest stage, and of all together
        self.is_quiet = False  # the last period had no batch
        self.is_odd = False  # or had some that tell nothing
        self.changed_s = 0.0  # when executors were last seen to have come or gone
        self.quiet_s: float | None = None  # since when no batch was done
        self.idle_s: float | None = None  # when a trigger last found no rows, since then

    def add(self, one: Batch) -> None:
        """A batch is done. Whatever a restart has changed, batches before it say nothing of. After
        a trigger without rows, what comes is counted from the first batch on."""
        if self.batches and self.batches[-1].run != one.run:
            self.batches.clear()
            self.ran.clear()
            self.looked, self.fresh, self.tasks, self.slots = -1, 0, 0, 0
        self.batches.append(one)
        self.is_first = self.idle_s is not None
        self.fresh = 0 if self.is_first else self.fresh + 1
        self.quiet_s, self.idle_s = one.end_s, None

    def idle(self, run: str, time_s: float) -> None:
        """A trigger found no rows."""
        if self.batches and self.batches[-1].run == run and time_s >= self.batches[-1].end_s:
            self.idle_s = time_s

    def gave_back(self, executors: Mapping[str, st.Executor]) -> None:
        """These go, and take no more tasks."""
        self.left.update(executors)

    def seen(
        self,
        now_s: float,
        since_s: float,
        executors: Mapping[str, st.Executor],
        asked: int | None,
        trigger_s: float = 0.0,
        until_s: float | None = None,
    ) -> Seen:
        """A period that ends now. Its batches are those that were heard of since the last one, and
        the batch before them, from which they are counted. Spark may tell of a batch late."""
        slots = round(statistics.median([e.slots for e in executors.values()])) if executors else 0
        here = Seen(
            now_s,
            len(executors),
            slots,
            len(executors) if asked is None else asked,
            None,
            run=self.batches[-1].run if self.batches else "",
            until_s=until_s,
            held=sum(e.running for e in executors.values()),
        )
        before, self.before = self.before, dict(executors)
        left, self.left = self.left, {}
        if executors.keys() != before.keys():
            self.changed_s = now_s
        if self.quiet_s is None:
            self.quiet_s = since_s
        recent = list(self.batches)[-1 - self.fresh :] if self.fresh else []
        self.is_quiet = not recent and not self.is_first
        self.fresh, self.is_odd = 0, False
        if self.is_first:
            self.is_first = False
            self._look([self.batches[-1]], executors)
            here = replace(here, why="only one batch is done since rows come again")
            if until_s is not None:
                return here
            rows = self.batches[-1].rows
            return replace(here, burst=rows, batches=self._fitted(trigger_s), tasks=self.tasks)
        if not recent:
            return replace(here, why=f"no batch was done for {now_s - self.quiet_s:.0f} s")
        if not executors:
            return replace(here, why="there is no executor")
        self._look(recent, executors)
        rates, why, reported = rated(recent, executors, before, (since_s, now_s), trigger_s, left)
        self.is_odd = rates is None
        if rates is not None:
            some = list(self.batches)[-_CHANCE:]
            rates = replace(rates, chance=chance(some, len(recent) - 1))
        here = replace(here, rates=rates, why=why, reported=reported, tasks=self.tasks)
        if until_s is not None:
            return replace(here, held=max(here.held, self.slots))
        return replace(here, batches=self._fitted(trigger_s))

    def at_work(self, seen: Seen, trigger_s: float) -> Seen:
        """What a batch shows that is at work, while tasks of the stage that runs wait for slots.
        Once more are done than there are slots, all others are taken to have as many rows each,
        or as many as the stage took for them until now, if that is much more. Before, all may be
        stuck: those that have a slot, or had one, have as many rows as the stage took until now
        for. All came while the batch before was processed, or since; after a trigger without rows
        they have no rate. If executors came or went since the batch before began, nothing can be
        told, as the first tasks of an executor are slow, nor if rows are little of what the stage
        takes: then time says nothing of rows. Nor where stages run beside each other. Nor is one
        looked at that has just begun."""
        if self.is_odd or self.is_beside or len(self.batches) < 2:
            return seen
        if not seen.executors or seen.until_s is not None:
            return seen
        last = self.batches[-1]
        if seen.time_s < max(last.end_s, last.time_s + trigger_s) + _SOON * last.took_s:
            return seen
        model = self._fitted(trigger_s)
        if model is None:
            return seen
        found = st.under_way(self.status, last.run, last.end_s, self.later)
        if found is None or self.changed_s > last.time_s or found.place >= len(model.stages):
            return seen
        slots = seen.executors * seen.slots
        wait, stage = found.waiting(slots), model.stages[found.place]
        rows_s = stage.row_s * max(one.rows for one in self.batches)
        if not wait or rows_s <= _BY_ROWS * (rows_s + stage.task_s * stage.tasks):
            return seen
        rows, waiting = _rows_of(found, stage, slots, (seen.time_s - found.stage_s) * slots)
        lasts_s = seen.time_s - found.begun_s
        why = f"a batch is at work for {lasts_s:.0f} s, and {wait} of its tasks wait"
        seen = replace(seen, batches=model.of_tasks(found.tasks), why=why, at_least=True)
        if self.idle_s is not None:
            return replace(seen, rates=None, burst=rows)
        rate = rows / max(_LEAST_S, found.begun_s - last.time_s)
        each = (rate / seen.executors,) * seen.executors
        return replace(seen, rates=Rates(seen.time_s, rate, each, waiting=waiting))

    def silent(self, seen: Seen, trigger_s: float) -> Seen:
        """A period in which no rows came and no batch was done, if the query is known well enough
        to say that none will wait."""
        if not self.is_quiet or len(self.batches) < 2 or not seen.executors:
            return seen
        if seen.until_s is not None:
            return seen
        rates = Rates(seen.time_s, 0.0, (0.0,) * seen.executors)
        return replace(seen, rates=rates, batches=self._fitted(trigger_s))

    def _fitted(self, trigger_s: float) -> Batches | None:
        """The model of its batches, with the limit on their rows, if there is one."""
        model = fitted(self.ran, trigger_s)
        return None if model is None else replace(model, max_rows=limit(self.batches))

    def _stages(self, one: Batch, jobs: Sequence[st.Job]) -> list[st.StageRan]:
        numbers = sorted({s for job in jobs_of(one, jobs) for s in job.stages})
        found = st.beside(st.ran(self.status, numbers))
        self.is_beside = any(stage.stages > 1 for stage in found)
        return found

    def _look(self, recent: Sequence[Batch], executors: Mapping[str, st.Executor]) -> None:
        """Look at the stages of the last batches. Those that ran while executors came or went say
        nothing about how long batches take."""
        slots = sum(e.slots for e in executors.values())
        fresh = [one for one in recent if one.number > self.looked and one.rows > 0]
        if not fresh:
            return
        jobs = st.jobs(self.status, fresh[-1].run, self.later)
        count = _LOOKED_AT if len(self.ran) < _LOOKED_AT else _ENOUGH
        for one in fresh[-count:]:
            stages = self._stages(one, jobs)
            if stages:
                self.tasks = max(stage.tasks for stage in stages)
                self.slots = sum(stage.tasks for stage in stages)
            if one.time_s >= self.changed_s and stages:
                self.ran.append(as_ran(one, stages, slots))
        self.looked = fresh[-1].number
        done = [job.number for one in fresh for job in jobs_of(one, jobs)]
        self.later = max(done, default=self.later - 1) + 1


def _rows_of(found: st.UnderWay, stage: Stage, slots: int, took_s: float) -> tuple[float, float]:
    """The rows of a stage at work, and those of its tasks that wait for a slot. All slots together
    had `took_s` since its first task began."""
    running = found.running(slots)
    if found.done <= slots:
        return max(0.0, took_s - (found.done + running) * stage.task_s) / stage.row_s, 0.0
    mean_s = found.ran_s / found.done
    task_rows = max(0.0, mean_s - stage.task_s) / stage.row_s
    waiting = found.waiting(slots) * task_rows
    running_s = took_s - found.ran_s - _LATE_S * slots
    if running_s > _MUCH * running * mean_s:
        had = max(0.0, running_s - running * stage.task_s) / stage.row_s
    else:
        had = running * task_rows
    return found.done * task_rows + had + waiting, waiting
