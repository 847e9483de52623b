"""`sojourn.attach`: a listener that hears of every batch, and a thread that decides once a period
and has Spark executors come and go. Nothing that fails here reaches the query."""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from sojourn.attached import status as st
from sojourn.attached.decide import Memory, Wish, decided, wished
from sojourn.attached.journal import Journal, Period
from sojourn.attached.listener import Ended, Heard, Idle, Listener
from sojourn.attached.observer import Observer
from sojourn.attached.progress import batch
from sojourn.attached.scaling import DriverScaling, DriverStatus, Scaling, check
from sojourn.attached.seen import Seen
from sojourn.errors import InputError
from sojourn.linefile import check_new
from sojourn.units import parse_duration, parse_whole

_log = logging.getLogger("sojourn")
_PERIODS = 500  # remembered
_COMES = 2  # periods after which an executor that was asked for is said not to come
_LEAST_S = 1.0  # between two decisions, however pressing
_ODD, _USUAL = 1.25, 3  # times as long as the longest of so many before: more comes
_WORDS = 300  # letters of an exception that are told
_NO_DATA = "Waiting for data to arrive"  # so Spark says where a trigger found none
_FAILURES = 5  # in a row, after which it lets go
_REFUSED = "the cluster manager takes no requests"


_ATTACHED: "WeakValueDictionary[str, Attached]" = WeakValueDictionary()  # by application


def attach(
    spark: Any,
    query: Any = None,
    max_latency: str | float | None = None,
    policy: str | None = None,
    min_executors: int = 1,
    max_executors: int | None = None,
    *,
    period: str | float = "30s",
    advise: bool = False,
    journal: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> "Attached":
    """Keep as many Spark executors as a streaming query needs, also after it was restarted, until
    `stop` is called on what is returned, or Spark ends.

    `query` is one that runs; without it, the only one that does, or the next that starts. With
    `max_latency`, rows should take no longer than that from when they come to when their batch is
    done. `policy` is "model" (batches), "mended" (rates alone) or "printed" (Cervino's algorithm).
    With `advise`, nothing is changed, only told. `options` are those of `mended`, such as
    {"predict": True}."""
    check(spark)
    application = str(spark.sparkContext.applicationId)
    if (other := _ATTACHED.get(application)) is not None and not other.ended.is_set():
        raise InputError(
            f"sojourn.attach: one query of an application can be looked after, as all share its "
            f"executors; got a second one beside {other.query}; stop that first"
        )
    latency_s = None if max_latency is None else parse_duration(max_latency, "max_latency")
    wish = wished(
        "model" if policy is None else policy,
        latency_s,
        parse_whole(min_executors, "min_executors", least=1),
        None if max_executors is None else parse_whole(max_executors, "max_executors", least=1),
        parse_duration(period, "period"),
        options,
    )
    path = None if journal is None else Path(journal)
    if path is not None:
        check_new(path)
    found = Attached(spark, _id(spark, query), wish, advise=advise, journal=path)
    found.start()
    _ATTACHED[application] = found
    return found


def _id(spark: Any, query: Any) -> str | None:
    """The query to follow; none yet if none runs."""
    if query is not None:
        if not hasattr(query, "id") or not hasattr(query, "isActive"):
            raise InputError(f"query: must be what start() returned; got {query!r}")
        if query.isActive and spark.streams.get(query.id) is None:
            raise InputError(
                f"query: must be one of the session that is given, which knows nothing of others; "
                f"got {query.name or query.id}; give the session that started it"
            )
        return str(query.id)
    active = spark.streams.active
    if len(active) > 1:
        names = ", ".join(str(one.name or one.id) for one in active)
        raise InputError(
            f"query: must be given where several run, as they share executors; there are {names}"
        )
    return str(active[0].id) if active else None


def _done(progress: Any) -> int:
    """The last batch that is done, as Java says. A trigger that found no rows has the number of the
    next one."""
    if progress is None:
        return -1
    return int(progress.batchId()) - (not progress.durationMs().containsKey("addBatch"))


def _first_line(error: str) -> str:
    """What an exception says, without its stack."""
    return (error.strip().splitlines() or [""])[0][:_WORDS]


class Attached:
    """A query that is looked after. `periods` are the last decisions. `stop` lets go of it: its
    executors stay as they are."""

    def __init__(
        self,
        spark: Any,
        query: str | None,
        wish: Wish,
        *,
        advise: bool = False,
        journal: Path | None = None,
        status: st.Status | None = None,
        scaling: Scaling | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spark, self.query, self.wish, self.advise = spark, query, wish, advise
        self.status = status or DriverStatus(spark)
        self.scaling = scaling or DriverScaling(spark)
        self.clock = clock
        self.path = journal
        self.journal: Journal | None = None
        self.heard: queue.SimpleQueue[Heard | None] = queue.SimpleQueue()
        self.observer = Observer(self.status)
        self.periods: deque[Period] = deque(maxlen=_PERIODS)
        self.memory = Memory()
        self.number = 0
        self.news: list[str] = []  # that a run has ended or begun, for the next period
        self.run = ""  # whose trigger is known
        self.real_time = False
        self.trigger_s = 0.0
        self.presses = False  # a batch calls for a decision before the period is over
        self.fewer: int | None = None  # executors that are to stay, once no batch is at work
        self.leaving: set[str] = set()  # executors that were given back, until they are gone
        self.failures = 0
        self.asked: int | None = None
        self.short_s = 0.0  # since when there are fewer than that
        self.more_s: float | None = None  # when more were asked for, until some have come
        self.start_s = 0.0  # how long the last ones took to come
        self.ticked_s = clock()
        self.busy_s = 0.0
        self.ended = threading.Event()
        self.decided = threading.Condition()
        self.listener = Listener(self.heard.put)
        self.thread = threading.Thread(target=self._run, name="sojourn-attached", daemon=True)

    def start(self) -> None:
        """Listen, and decide."""
        self.observer.before = st.executors(self.status)
        self.listener.begin(self.spark)
        self.thread.start()

    def stop(self) -> None:
        """Let go of the query."""
        if not self.ended.is_set():
            self.ended.set()
            self.heard.put(None)
            self.thread.join()

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        began_s = time.thread_time()
        try:
            while not self.ended.is_set():
                self._by_clock()
                left_s = self._due_s() - self.clock()
                if left_s > 0:
                    try:
                        told = self.heard.get(timeout=left_s)
                    except queue.Empty:
                        continue
                    if told is None:
                        return
                    if not self._hear(told) or self.fewer is None:
                        continue
                    what: Callable[[], object] = self._reduce
                else:
                    what = self.tick
                if not self._try(what):
                    return
        except Exception as error:  # noqa: BLE001  # the query goes on, whatever happens to us
            _log.exception("sojourn.attach has failed; the query goes on with its executors")
            self._note_failed(error)
        finally:
            self.busy_s += time.thread_time() - began_s
            self._let_go()

    def _by_clock(self) -> None:
        """A clock that was set back puts off nothing."""
        if (now_s := self.clock()) < self.ticked_s:
            seconds = now_s - self.ticked_s
            self.news.append(f"the clock was set back by {-seconds:.0f} s")
            known = self.memory.known.moved(seconds)
            bursts = tuple((at_s + seconds, n) for at_s, n in self.memory.bursts)
            self.memory = Memory(known, bursts=bursts, run=self.memory.run)
            self.ticked_s = now_s

    def _try(self, what: Callable[[], object]) -> bool:
        """Decide, or do it. What fails once may work the next time; it is told then. Returns False
        if Spark was stopped."""
        try:
            what()
            self.failures = 0
        except Exception as error:
            if self._is_stopped():
                _log.info("sojourn.attach: Spark was stopped, so it ends as well")
                return False
            self.failures += 1
            if self.failures >= _FAILURES:
                raise
            self.news.append(f"a period failed, {type(error).__name__}: {_first_line(str(error))}")
            _log.warning("sojourn.attach: %s", self.news[-1])
        return True

    def _note_failed(self, error: Exception) -> None:
        """The last line of the journal."""
        have = len(self.observer.before)
        words = f"{type(error).__name__}: {_first_line(str(error))}"
        why = f"sojourn.attach has failed, {words}; the query goes on with its executors"
        memory, asked = self.memory, max(have, self.wish.least)
        seen = Seen(self.clock(), have, 0, asked, None, why, run=memory.run)
        self.number += 1
        self._tell(Period(self.number, seen, memory, decided(seen, memory, self.wish), False))

    def _is_stopped(self) -> bool:
        java = self.spark.sparkContext._jsc
        return java is None or bool(java.sc().isStopped())

    def _let_go(self) -> None:
        self.ended.set()
        try:
            self.listener.end(self.spark)
        except Exception:  # noqa: BLE001  # Spark may be gone already
            _log.debug("the listener was not removed", exc_info=True)
        if self.journal is not None:
            self.journal.close()
        with self.decided:
            self.decided.notify_all()

    def _hear(self, told: Heard) -> bool:
        """A batch of our query is done, it found no rows, or a run of it is over. Returns whether
        executors that were to go may go now."""
        if isinstance(told, Ended):
            if told.query == self.query:
                how = f"failed, {_first_line(told.error)}" if told.error else "ended"
                self.news.append(f"the query has {how}; its executors stay until it goes on")
            return False
        if isinstance(told, Idle):
            if told.query != self.query:
                return False
            self.observer.idle(told.run, told.time_s)
            return self.fewer is not None and not self._is_at_work()
        try:
            one = batch(told)
        except (KeyError, TypeError, ValueError) as error:
            self.news.append(f"a progress cannot be read, {type(error).__name__}: {error}")
            return False
        if self.query is None:
            self.query = one.query
        if one.query != self.query:
            return False
        if self.observer.batches and self.observer.batches[-1].run != one.run:
            self.news.append("the query goes on")
        self.observer.add(one)
        self.presses = self.presses or self._is_pressing()
        return True

    def _due_s(self) -> float:
        """When to decide next: after a period, or once for each batch as soon as rows that it left
        for the next one have waited too long, or it took oddly long, or the next one does. Only the
        model can tell something from that; the others are asked once a period."""
        due_s, batches = self.ticked_s + self.wish.options.period_s, self.observer.batches
        if self.presses:
            return min(due_s, self.ticked_s + _LEAST_S)
        if self.wish.policy != "model" or self.real_time or len(batches) < 2:
            return due_s
        last, limit_s = batches[-1], self.wish.max_latency_s
        if self.observer.idle_s is not None:
            return due_s
        usual_s = max(one.took_s for one in list(batches)[-_USUAL:])
        late_s = max(last.end_s, last.time_s + self.trigger_s) + _ODD * usual_s
        if limit_s is not None:
            late_s = min(late_s, last.time_s + limit_s)
        if self.ticked_s >= late_s:
            return due_s
        return min(due_s, max(late_s, self.ticked_s + _LEAST_S))

    def _is_pressing(self) -> bool:
        """Whether a decision should not wait: rows take too long already, or a batch took oddly
        long. In real-time mode batches do not tell how long rows take."""
        batches = self.observer.batches
        if self.wish.policy != "model" or self.real_time or len(batches) < 2:
            return False
        *before, last = list(batches)[-1 - _USUAL :]
        limit_s = self.wish.max_latency_s
        is_late = limit_s is not None and last.end_s - before[-1].time_s > limit_s
        return is_late or last.took_s > _ODD * max(one.took_s for one in before)

    def tick(self) -> Period:
        """Look, decide, and have executors come or go."""
        now_s, before_s = self.clock(), self.ticked_s
        self.ticked_s = now_s
        while not self.heard.empty():
            told = self.heard.get()
            if told is not None:
                self._hear(told)
        self.presses = False  # what pressed until now is looked at now
        everyone = st.executors(self.status)
        self._note_gone(everyone)
        self.leaving &= everyone.keys()  # these take no more tasks
        executors = {n: e for n, e in everyone.items() if n not in self.leaving}
        batches = self.observer.batches
        if not batches or batches[-1].run != self.run:  # a run's trigger never changes
            kind, self.trigger_s = self._trigger()
            self.real_time = kind == "RealTimeTrigger"
            self.run = batches[-1].run if batches and kind else ""
        trigger_s, until_s = self.trigger_s, None
        if self.real_time:  # slots are held until then
            until_s = trigger_s + (batches[-1].end_s if batches else now_s)
        self._note_come(executors)
        seen = self.observer.seen(now_s, before_s, executors, self.asked, trigger_s, until_s)
        seen = replace(seen, start_s=self.start_s)
        if seen.rates is None:
            says, waits = self._says()
            seen = replace(seen, why=f"{seen.why}; {says}")
            if waits:
                seen = self.observer.silent(seen, trigger_s)
            elif waits is not None:
                seen = self.observer.at_work(seen, trigger_s)
        elif self.wish.policy == "model":
            seen = self._newer(seen, self.observer.at_work(seen, trigger_s))
        if seen.rates is not None and not seen.rates.is_sound:
            seen = replace(seen, rates=None, why="the rates make no sense")
        memory = self.memory
        decision = decided(seen, memory, self.wish)
        self.memory = decision.memory
        if self.fewer is not None and seen.at_least:
            self.fewer = self._to_stay(self.fewer)
        applied, note = False, ""
        if decision.executors is not None and not self.advise:
            applied, note = self._apply(decision.executors, executors)
        words = [*self.news, note or self._late(now_s, len(executors))]
        if self.leaving & everyone.keys():
            words.append(f"{', '.join(sorted(self.leaving & everyone.keys()))} still leaving")
        self.news.clear()
        self.number += 1
        note = "; ".join(filter(None, words))
        period = Period(self.number, seen, memory, decision, applied, note)
        self._tell(period)
        return period

    @staticmethod
    def _newer(seen: Seen, at_work: Seen) -> Seen:
        """The batch at work, if it shows that more comes than those before have shown, beyond their
        noise."""
        assert seen.rates is not None
        if at_work.rates is None or not at_work.rates.is_sound:
            return seen
        known = max(seen.rates.input, seen.rates.latest or 0.0) + seen.rates.noise
        if at_work.rates.input <= known:
            return seen
        return at_work

    def _tell(self, period: Period) -> None:
        wanted = period.decision.executors
        number = period.seen.executors if wanted is None else wanted
        _log.info(
            "%d executors, %s %d: %s%s",
            period.seen.executors,
            "advised" if self.advise else "wanted",
            number,
            period.decision.why,
            f"; {period.note}" if period.note else "",
        )
        with self.decided:
            self.periods.append(period)
            self.decided.notify_all()
        try:
            if self.journal is None and self.path is not None and self.query is not None:
                self.journal = Journal(self.path, self.query, self.wish)
            if self.journal is not None:
                self.journal(period)
        except (OSError, InputError) as error:
            self.news.append(f"the journal lacks period {period.number}: {error}")
            _log.warning("sojourn.attach: %s", self.news[-1])

    def _java(self) -> Any:
        """The query that runs, in Java; None if it does not."""
        query = self.spark.streams.get(self.query) if self.query else None
        return None if query is None else query._jsq

    def _says(self) -> tuple[str, bool | None]:
        """What the query does, in Spark's words, and whether it waits for rows. Between triggers it
        does, if the last one found none. None: nobody can tell, as batches are done of which
        nothing was heard."""
        java = self._java()
        if java is None:
            return "the query does not run", False
        status = java.status()
        words = f"Spark says: {status.message()}"
        batches = self.observer.batches
        if not batches or java.runId().toString() != batches[-1].run:
            return words, False
        done = _done(java.lastProgress())
        if done > batches[-1].number:
            return f"{words}; batch {done} is done, of which nothing was heard", None
        no_rows = self.observer.idle_s is not None and not status.isTriggerActive()
        return words, no_rows or status.message() == _NO_DATA

    def _trigger(self) -> tuple[str, float]:
        """The kind of trigger, and its time."""
        java = self._java()
        if java is None:
            return "", 0.0
        trigger = java.streamingQuery().trigger()
        kind = trigger.getClass().getSimpleName()
        if kind == "RealTimeTrigger":
            return kind, trigger.batchDurationMs() / 1e3
        return kind, trigger.intervalMs() / 1e3 if kind == "ProcessingTimeTrigger" else 0.0

    def _apply(self, wanted: int, executors: Mapping[str, st.Executor]) -> tuple[bool, str]:
        """Ask for executors, or let some go: the last that came first. Between two stages of a
        batch an executor without a task may have what the next one needs, so none goes then."""
        have, self.fewer = len(executors), None
        if wanted > have:
            if wanted == self.asked:
                return False, ""
            if not self.scaling.ask(wanted):
                return False, _REFUSED
            self._note_asked(wanted)
            self.more_s = self.clock()
            return True, ""
        if wanted == have and self.asked in (None, wanted):
            self._note_asked(wanted)
            return False, ""
        if wanted < have and not self.real_time and self._is_at_work():
            self.fewer = wanted
            return False, f"{have - wanted} will go once the batch at work is done"
        return self._give_back(wanted, executors)

    def _to_stay(self, fewer: int) -> int | None:
        """How many executors are to stay after the batch at work, by what that has shown: None if
        it needs all of them."""
        needed = self.memory.low_most
        return max(fewer, needed) if needed else None

    def _reduce(self) -> None:
        """Right after a batch, those go that were to go."""
        wanted, self.fewer = self.fewer, None
        everyone = st.executors(self.status)
        executors = {n: e for n, e in everyone.items() if n not in self.leaving}
        if wanted is not None and wanted < len(executors):
            self.news.append(self._give_back(wanted, executors)[1])

    def _is_at_work(self) -> bool:
        java = self._java()
        return java is not None and bool(java.status().isTriggerActive())

    def _give_back(self, wanted: int, executors: Mapping[str, st.Executor]) -> tuple[bool, str]:
        """Have so many stay, of which none is still to come."""
        have = len(executors)
        if not self.scaling.ask(wanted):  # else others would replace those that go
            return False, _REFUSED
        self._note_asked(wanted)
        if wanted == have:
            return False, ""
        stay = sorted(executors.values(), key=lambda e: (e.running, -e.since_s))
        names = [e.name for e in stay[: have - wanted]]
        gone = self.scaling.give_back(names)
        self.leaving.update(gone)
        self.observer.gave_back({name: executors[name] for name in gone})
        return bool(gone), f"gave back {', '.join(gone)}" if gone else "all are busy; later"

    def _note_asked(self, executors: int) -> None:
        if executors != self.asked:
            self.asked, self.short_s = executors, self.clock()
            self.more_s = None

    def _note_gone(self, everyone: Mapping[str, st.Executor]) -> None:
        """Those that have died, or that somebody else has taken away."""
        gone = self.observer.before.keys() - everyone.keys() - self.observer.left.keys()
        if gone:
            self.news.append(f"executor {', '.join(sorted(gone))} is gone, and was not given back")

    def _note_come(self, executors: Mapping[str, st.Executor]) -> None:
        """How long executors took to come, once all are there."""
        if self.more_s is not None and self.asked is not None and len(executors) >= self.asked:
            came_s = max((e.since_s for e in executors.values()), default=self.more_s)
            self.start_s, self.more_s = max(0.0, came_s - self.more_s), None

    def _late(self, now_s: float, have: int) -> str:
        """That executors do not come, or do not come again, in words."""
        if self.asked is None or have >= self.asked:
            self.short_s = now_s
            return ""
        if now_s - self.short_s < _COMES * self.wish.options.period_s:
            return ""
        return f"{have} of {self.asked} executors are there after {now_s - self.short_s:.0f} s"
