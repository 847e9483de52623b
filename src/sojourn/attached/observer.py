"""Who looks at a query: remembers its batches, asks which stages they ran and on which executors,
and says once a period what was seen. The same in the driver, from outside and from a log."""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sojourn.attached import status as st
from sojourn.attached.progress import Batch, limit
from sojourn.attached.seen import Seen, as_ran, done_by, jobs_of, rated
from sojourn.provisioning.rates import Rates
from sojourn.queueing.batches import Batches, Ran, fitted

_BATCHES = 500  # remembered
_RAN = 50  # batches that the model is fitted to
_LOOKED_AT = 10  # batches of a period whose stages are looked at
_BY_ROWS = 0.1  # of a batch's time: if its rows take less, how long it takes says nothing of them
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
        self.changed_s = 0.0  # when executors were last seen to have come or gone
        self.quiet_s: float | None = None  # since when no batch was done
        self.idle_s: float | None = None  # when a trigger last found no rows, since then

    def add(self, one: Batch) -> None:
        """A batch is done. Whatever a restart has changed, batches before it say nothing of. After
        a trigger without rows, what comes is counted from the first batch on."""
        if self.batches and self.batches[-1].run != one.run:
            self.batches.clear()
            self.ran.clear()
            self.looked, self.fresh = -1, 0
        self.batches.append(one)
        self.is_first = self.idle_s is not None
        self.fresh = 0 if self.is_first else self.fresh + 1
        self.quiet_s, self.idle_s = one.end_s, None

    def idle(self, run: str, time_s: float) -> None:
        """A trigger found no rows."""
        if self.batches and self.batches[-1].run == run and time_s >= self.batches[-1].end_s:
            self.idle_s = time_s

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
        if executors.keys() != before.keys():
            self.changed_s = now_s
        if self.quiet_s is None:
            self.quiet_s = since_s
        recent = list(self.batches)[-1 - self.fresh :] if self.fresh else []
        self.fresh = 0
        if self.is_first:
            self.is_first = False
            return replace(here, why="only one batch is done since rows come again")
        if not recent:
            return replace(here, why=f"no batch was done for {now_s - self.quiet_s:.0f} s")
        if not executors:
            return replace(here, why="there is no executor")
        stages = self._look(recent, executors)
        rates, why, reported = rated(recent, done_by(stages), executors, before, (since_s, now_s))
        if until_s is not None:
            here = replace(here, held=max(here.held, self._takes(recent[-1])))
        model = None if until_s is not None else self._fitted(trigger_s)
        return replace(here, rates=rates, why=why, batches=model, reported=reported)

    def at_work(self, seen: Seen, trigger_s: float) -> Seen:
        """What a batch shows that is at work, while tasks of it wait for slots. The others have
        at least as many rows as take until now, and those that wait as many each, once a task is
        done: before, all may be stuck. All came while the batch before was processed, or since, but
        after a trigger without rows. If executors came or went meanwhile, nothing can be told, nor
        if rows are little of what batches take: then time says nothing of rows."""
        if len(self.batches) < 2 or not seen.executors or seen.until_s is not None:
            return seen
        last, model = self.batches[-1], self._fitted(trigger_s)
        found = st.under_way(self.status, last.run, last.end_s, self.later)
        if model is None or found is None or self.changed_s > found.begun_s:
            return seen
        slots = seen.executors * seen.slots
        wait = found.waiting(slots)
        if not wait:
            return seen
        model = model.of_tasks(found.tasks)
        lasts_s = seen.time_s - found.begun_s
        usual = max(one.rows for one in self.batches)
        whole_s = model.batch_s(usual, slots)
        if whole_s - model.batch_s(0.0, slots) < _BY_ROWS * whole_s:
            return seen
        done = model.rows_in(lasts_s, slots)
        waiting = done * wait / (found.tasks - wait) if found.done else 0.0
        since_s = max(last.time_s, self.idle_s or 0.0)
        rate = (done + waiting) / max(_LEAST_S, found.begun_s - since_s)
        each = (rate / seen.executors,) * seen.executors
        why = f"a batch is at work for {lasts_s:.0f} s, and {wait} of its tasks wait"
        rates = Rates(seen.time_s, rate, each, waiting=waiting)
        return replace(seen, rates=rates, batches=model, why=why, at_least=True)

    def silent(self, seen: Seen, trigger_s: float) -> Seen:
        """A period in which no rows came, if the query is known well enough to say that none will
        wait."""
        if len(self.batches) < 2 or not seen.executors or seen.until_s is not None:
            return seen
        rates = Rates(seen.time_s, 0.0, (0.0,) * seen.executors)
        return replace(seen, rates=rates, batches=self._fitted(trigger_s))

    def _fitted(self, trigger_s: float) -> Batches | None:
        """The model of its batches, with the limit on their rows, if there is one."""
        model = fitted(self.ran, trigger_s)
        return None if model is None else replace(model, max_rows=limit(self.batches))

    def _takes(self, one: Batch) -> int:
        """Slots that a batch in real-time mode takes: its stages run at the same time. Between two
        batches no task runs, and yet the next needs as many."""
        return sum(stage.tasks for stage in self._stages(one, st.jobs(self.status, one.run)))

    def _stages(self, one: Batch, jobs: Sequence[st.Job]) -> list[st.StageRan]:
        numbers = sorted({s for job in jobs_of(one, jobs) for s in job.stages})
        return st.ran(self.status, numbers)

    def _look(
        self, recent: Sequence[Batch], executors: Mapping[str, st.Executor]
    ) -> list[st.StageRan]:
        """Stages of the last batches. Those that ran while executors came or went say nothing about
        how long batches take."""
        slots = sum(e.slots for e in executors.values())
        fresh = [one for one in recent if one.number > self.looked and one.rows > 0]
        jobs = st.jobs(self.status, recent[-1].run, self.later) if fresh else []
        found: list[st.StageRan] = []
        for one in fresh[-_LOOKED_AT:]:
            stages = self._stages(one, jobs)
            found.extend(stages)
            if one.time_s >= self.changed_s and stages:
                self.ran.append(as_ran(one, stages, slots))
        if fresh:
            self.looked = fresh[-1].number
            done = [job.number for one in fresh for job in jobs_of(one, jobs)]
            self.later = max(done, default=self.later - 1) + 1
        return found
