"""Keeps the query of a topology running: starts it, has it commit, and restarts it from the last
commit whenever it fails, with back-off and a limit. The hub tells it of failures; used by
`Running`."""

import copy
import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sojourn.engine.driver.build import Plan, build_tasks
from sojourn.engine.driver.checkpoint import next_epoch
from sojourn.engine.driver.commit import Committer
from sojourn.engine.driver.division import Divider, Division
from sojourn.engine.driver.hub import Hub
from sojourn.engine.driver.justice import Justice
from sojourn.engine.driver.readers import Readers
from sojourn.engine.driver.record import rooms, state_root
from sojourn.engine.spark.clock import Clock
from sojourn.engine.spark.session import wait_for_slots
from sojourn.engine.spark.stages import describe
from sojourn.engine.spark.task import SCHEMA, pushed, starter
from sojourn.engine.wire import messages as m
from sojourn.errors import InputError
from sojourn.sinks import Sink

_log = logging.getLogger("sojourn")
_JOIN_S = 120.0
_COMMIT_S = 600.0
_QUIET_S = 0.02
_PAUSE_S = 0.15  # between two looks at executors that are at work, at most
_SLOTS_S = 0.2
_LOOK_S = 0.2
_NO_SLOTS = "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT"
ANSWER_S = 5.0
LEAVE_S = 15.0


class Relocation:
    """Something to do while no query runs, unless the caller has given up by then."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.decided = threading.Lock()
        self.done = threading.Event()
        self.error: Exception | None = None

    def decide(self) -> bool:
        """Whether the caller is the first to ask, and so decides whether it is done."""
        return self.decided.acquire(blocking=False)

    def perform(self) -> None:
        if not self.decide():
            return
        try:
            self.action()
        except Exception as error:  # noqa: BLE001  # raised where it was asked for
            self.error = error
        self.done.set()


class Supervisor(threading.Thread):
    """The query, its commits, and what is known about its failures."""

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession,
        hub: Hub,
        rest_s: float,
        max_sojourn_s: float | None = None,
    ) -> None:
        super().__init__(name="sojourn-supervisor", daemon=True)
        self.plan, self.spark, self.hub = plan, spark, hub
        self.wanted = {name: spec.processors for name, spec in plan.topology.operators.items()}
        self.committer = Committer(plan.checkpoint, hub, _sinks(plan))
        self.readers = Readers(plan.topology.sources, self.committer.record, self.notify)
        self.committed = threading.Condition()
        self.commit_s = plan.settings.commit_s
        self.rest_s = rest_s  # how long tuples gather at each executor at most
        self.max_sojourn_s = max_sojourn_s  # the target
        self.safe_s = time.monotonic()  # everything done before this time is committed
        self.query: StreamingQuery | None = None
        self.clock: Clock  # of the query
        self.at_rest = True  # everything done is committed, and no query runs
        self.error: str | None = None
        self.restarts = self.moves = 0  # the restarts and relocations of `Samples`
        self.in_a_row = 0
        self.justice = Justice()
        self.epochs: list[int] = []
        self.short_since_s: float | None = None
        self.was_down = False
        self.stopping = threading.Event()
        self.started = threading.Event()
        self.relocations: deque[Relocation] = deque()
        self.divider = Divider(plan.layout, hub)
        self.divisions: deque[Division] = deque()
        self.one_at_a_time = threading.Lock()  # a commit, or shards that change hands

    def run(self) -> None:
        """Keep the query running until told to stop, or until restarts do not help."""
        try:
            while not self.stopping.is_set():
                self._start_query()
                self._await_join()
                failure = self._await_end()
                if self.stopping.is_set():
                    return
                self._clear_away()
                if self.at_rest:
                    self.moves += 1
                    while self.relocations:
                        self.relocations.popleft().perform()
                    continue
                if _NO_SLOTS in failure and self._slots_may_come():
                    continue
                self.error = self.verdict(failure)
                if self.error is not None:
                    return
                self.restarts += 1
                self.in_a_row += 1
                _log.warning(
                    "topology %s failed (%s); restart %d goes back to commit %d",
                    self.plan.topology.name,
                    self._causes(failure, 500),
                    self.restarts,
                    self.committer.record.number,
                )
                self.stopping.wait(min(0.1 * 2**self.in_a_row, 5.0) if self.in_a_row > 1 else 0)
        except Exception as error:  # noqa: BLE001  # a thread has nobody above it: told by stop()
            # A topology that is stopped while it waits for a cluster's slots has lost nothing.
            if not self.stopping.is_set() or not isinstance(error, InputError):
                self.error = f"{type(error).__name__}: {error}"
        finally:
            self.started.set()
            self.refuse_divisions()

    def _slots_may_come(self) -> bool:
        """Whether to keep waiting for task slots. When a machine is lost, Spark still counts its
        slots for a moment, and a query that starts then fails at once."""
        now = time.monotonic()
        self.short_since_s = self.short_since_s or now
        if now > self.short_since_s + self.plan.settings.cluster_timeout_s:
            return False
        self.stopping.wait(_SLOTS_S)
        return True

    def relocate(self, action: Callable[[], None], timeout_s: float) -> None:
        """Commit and hold, do something while no query runs, and go on with the machines there are
        then. Returns when all executors are up again; raises what the action raised."""
        relocation = Relocation(action)
        self.relocations.append(relocation)
        deadline = time.monotonic() + timeout_s
        while not relocation.done.wait(0.1):
            late = time.monotonic() > deadline or not self.is_alive()
            if late and relocation.decide():
                raise TimeoutError("no commit was made in time, or the topology has stopped")
        if relocation.error is not None:
            raise relocation.error
        self.hub.wait(lambda: self.hub.complete() or self.stopping.is_set(), timeout_s)

    @property
    def is_down(self) -> bool:
        """Whether there is no query to wait for."""
        return self.query is None or not self.query.isActive

    def verdict(self, failure: str) -> str | None:
        """Whether to give up after a failure, and why."""
        if self.hub.broken is not None:
            return self.hub.broken
        for failed in self.hub.failures:
            if failed.user:
                return failed.error
        for failed in self.hub.failures:
            if failed.suspects:
                self.justice.died(failed, self.committer.record.number)
        if self.in_a_row >= self.plan.settings.max_restarts:
            causes = self._causes(failure, 2000)
            return f"gave up after {self.in_a_row} restarts without a commit: {causes}"
        return None

    def _causes(self, failure: str, most: int | None = None) -> str:
        """What failed; if that is long, the beginning and the end of it, where a traceback says
        what happened."""
        causes = dict.fromkeys(failed.error for failed in self.hub.failures)
        found = "; ".join(causes) or failure
        if most is None or len(found) <= most:
            return found
        return f"{found[: most // 2]} … {found[-most // 2 :]}"

    def _start_query(self) -> None:
        plan = self.plan
        epoch = next_epoch(plan.checkpoint)
        self.epochs.append(epoch)
        self.hub.start_epoch(epoch)
        self.hub.welcome = self._welcome
        self.committer.begin()
        wait_for_slots(
            self.spark, plan.layout.slots, plan.settings.cluster_timeout_s, self.stopping.is_set
        )
        record = self.committer.record
        executors = {name: spec.executors for name, spec in plan.topology.operators.items()}
        self.divider.tables = record.tables(executors)
        self.readers.settle(record)
        tasks = build_tasks(
            plan,
            epoch,
            self.hub.channel.keys,
            self.wanted,
            self.justice.suspects,
            self.justice.guilty(record.number),
            self.rest_s,
            self.max_sojourn_s,
            self.committer.zero_s,
            self.divider.tables,
        )
        self.clock = Clock(self.spark, tasks[0].partitions)
        rows = self.clock.rows.mapInArrow(tasks[0], SCHEMA)
        for task in tasks[1:]:
            rows = pushed(rows.repartitionById(task.partitions, "pid"), starter(plan.secret))
            rows = rows.mapInArrow(task, SCHEMA)
        # Only Spark needs its own checkpoint, so each start has a new one.
        shutil.rmtree(plan.checkpoint / "spark", ignore_errors=True)
        self.query = (
            rows.writeStream.format("noop")
            .outputMode("update")
            .queryName(plan.topology.name)
            .trigger(realTime=f"{plan.settings.batch_s * 1000:.0f} milliseconds")  # type: ignore[call-overload]
            .option("checkpointLocation", str(plan.checkpoint / "spark" / str(epoch)))
            .start()
        )
        self.at_rest = self.was_down = False

    def _await_join(self) -> None:
        """Wait until all executors have come up, or the query has failed."""
        hub = self.hub
        self._wait(lambda: hub.complete() or self.stopping.is_set(), _JOIN_S)
        if hub.complete():
            self.short_since_s = None
            self.clock.sleep(self.plan.settings.batch_s)
            self.started.set()
            self._describe_stages()
        elif not (self._cannot_go_on or self.stopping.is_set()):
            raise TimeoutError(f"not all executors came up within {_JOIN_S:.0f} s")

    def _await_end(self) -> str:
        """Commit at intervals until the query ends. Returns why it ended."""
        query = self.query
        assert query is not None
        began = time.monotonic()
        while not self.stopping.is_set():
            due = began + self.commit_s
            self.hub.wait(self._needs_attention, max(0.0, min(due - time.monotonic(), 0.2)))
            if self.hub.is_broken:
                query.stop()
                return ""
            if not query.isActive:
                return str(query.exception() or "the query ended by itself")
            if not self.hub.complete():
                continue
            if self.hub.batch_ended or self.is_to_relocate():
                began = time.monotonic()
                if self.commit(hold=True) and not self._goes_on():
                    self.at_rest = True
                    query.stop()
                    return ""
            elif self.divisions:
                self._divide(self.divisions.popleft())
            elif time.monotonic() >= due or self.readers.due:
                began = time.monotonic()
                self.commit()
        return ""

    def refuse_divisions(self) -> None:
        """Fail those that nobody will make any more."""
        while self.divisions:
            division = self.divisions.popleft()
            division.failed = "the topology has ended"
            division.done.set()

    def _divide(self, division: Division) -> None:
        """Divide an operator's shards anew. If that fails, the start cannot go on as it is."""
        try:
            with self.one_at_a_time:
                done = self.divider.divide(division, self._wait, self.stopping.is_set)
            if not done:
                division.failed = "the topology failed meanwhile"
                if not self._cannot_go_on:
                    division.failed = f"shards of {division.vertex!r} did not change hands in time"
                    with self.hub.changed:
                        self.hub.failures.append(m.Failed(division.vertex, division.failed, False))
        except BaseException:
            division.failed = "the topology failed meanwhile"
            raise
        finally:
            division.done.set()

    def _goes_on(self) -> bool:
        """After a commit that holds everything: whether Spark's next batch has begun with every
        executor where it was. If not, the query must start anew from that commit."""
        hub = self.hub
        if self.is_to_relocate():
            return False
        self._wait(lambda: hub.complete() or hub.moved, _JOIN_S)
        if hub.complete():
            self.clock.sleep(self.plan.settings.batch_s)
            self._describe_stages()
        return hub.go_on()

    def _describe_stages(self) -> None:
        """In Spark's UI."""
        if self.query is not None:
            describe(self.spark, str(self.query.runId), self.plan.topology.name, self.plan.layout)

    def is_to_relocate(self) -> bool:
        """Whether somebody waits for a relocation and has not given up."""
        return any(not relocation.decided.locked() for relocation in self.relocations)

    def _needs_attention(self) -> bool:
        asked = self.stopping.is_set() or self.is_to_relocate()
        waits = bool(self.divisions) or (bool(self.readers.due) and self.hub.complete())
        return asked or waits or self.hub.is_broken or self.hub.batch_ended

    def notify(self) -> None:
        """Have the supervisor look at what needs attention."""
        with self.hub.changed:
            self.hub.changed.notify_all()

    def _welcome(self, hello: m.Hello) -> m.Welcome:
        plan, record = self.plan, self.committer.record
        executors = len(plan.layout.of(hello.vertex))
        root = state_root(plan.checkpoint)
        welcome = record.welcome(root, hello.vertex, hello.executor, executors)
        shares = self.readers.shares(hello.vertex, record)
        if shares is not None:
            welcome.shares = shares[hello.executor]
        return welcome

    def commit(self, hold: bool = False, last: bool = False, timeout_s: float = _COMMIT_S) -> bool:
        """Make a commit. Returns whether it was made; it is not if the topology fails meanwhile."""
        began = time.monotonic()
        with self.one_at_a_time:
            anew = [] if hold else self.readers.due
            made = self.committer.commit(self.epochs[-1], self._wait, hold, last, timeout_s, anew)
            if made and not hold:
                self._share_out(anew)
        if not made and not self._cannot_go_on:
            with self.hub.changed:
                late = f"commit {self.committer.record.number + 1} was not made in {timeout_s:g} s"
                self.hub.failures.append(m.Failed("", late, False))
        if made:
            self.safe_s = began
            self.in_a_row = 0
            self.justice.committed(self.committer.record)
            with self.committed:
                self.committed.notify_all()
        return made

    def _share_out(self, anew: list[str]) -> None:
        """Have readers go on with the splits that are theirs from now on, and look for new ones."""
        self.readers.settle(self.committer.record, anew)
        for place in self.plan.layout.places:
            shares = self.readers.shares(place.vertex, self.committer.record)
            if place.vertex in anew and shares is not None:
                self.hub.send(place, m.Reading(shares[place.executor]))
        self.readers.look()

    def _clear_away(self) -> None:
        """End the executors of the start before, and outposts, whose slots Spark may need for the
        next. One that does not answer can do no harm, because everything it writes carries the
        number of its start."""
        self.hub.send_all(m.Finish())
        for machine in list(self.hub.outposts):
            self.hub.dismiss(machine)
        self.hub.all_left(LEAVE_S)

    def drain(self, timeout_s: float) -> None:
        """Stop the sources, finish what is in flight unless that takes too long, and commit."""
        if self.is_down:
            if not self.at_rest:  # it failed a moment ago, or was about to start again
                self._uncommitted("it had failed")
            return
        began = time.monotonic()
        self._wait(self.hub.complete, timeout_s)
        for place in self.plan.layout.places:
            if place.level == 0:
                self.hub.send(place, m.StopSource())
        quiet = Quiet(self, timers=False)  # timers are kept in the checkpoint
        deadline = time.monotonic() + min(self.plan.settings.drain_s, timeout_s)
        timeout_s = max(1.0, timeout_s - (time.monotonic() - began))
        calm = False
        while not calm and not self._is_lost() and time.monotonic() < deadline:
            calm = quiet.seen_twice()
        if not calm and self.plan.settings.drain_s:
            _log.warning(
                "topology %s: tuples in flight were not finished within %g s; %s",
                self.plan.topology.name,
                self.plan.settings.drain_s,
                "they are kept in the checkpoint, and a start with it goes on there"
                if self.plan.lasts
                else "they are lost, because no checkpoint was given",
            )
        if not self.commit(hold=True, last=True, timeout_s=timeout_s):
            self._uncommitted(f"not finished within {timeout_s:.0f} s")

    def _uncommitted(self, otherwise: str) -> None:
        self.error = (
            f"stopped without a last commit, so a new start repeats everything after commit "
            f"{self.committer.record.number}: {self._causes(otherwise)}"
        )

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until a condition comes true, or this start cannot go on. Spark is asked only now
        and then, and not while the hub is held up."""
        deadline = time.monotonic() + timeout_s
        while not self._is_lost() and (left := deadline - time.monotonic()) > 0:
            if self.hub.wait(lambda: condition() or self._cannot_go_on, min(left, _LOOK_S)):
                return

    def _is_lost(self) -> bool:
        self.was_down = self.is_down
        return self._cannot_go_on

    @property
    def _cannot_go_on(self) -> bool:
        """Whether this start cannot go on, as last seen."""
        return self.hub.is_broken or self.was_down


def _sinks(plan: Plan) -> dict[str, Sink]:
    """The driver's own copy of each sink, which shows what has been committed."""
    found = {name: copy.copy(spec.sink) for name, spec in plan.topology.sinks.items()}
    for name, sink in found.items():
        sink.run, sink.room = plan.name, rooms(plan.checkpoint) / name
    return found


class Quiet:
    """Tells when sources are done, nothing waits anywhere, and everything sent was received. With
    `timers`, no timer may be left either."""

    def __init__(self, supervisor: Supervisor, timers: bool) -> None:
        self.supervisor, self.timers = supervisor, timers
        self.before: tuple[int, int] | None = None
        self.pause_s = _QUIET_S

    def seen_twice(self) -> bool:
        """Look once more. If two looks in a row see the same, nothing is under way. Each look asks
        all executors, so it comes less and less often while something is."""
        now = self._look()
        if now is not None and now == self.before:
            return True
        self.before = now
        self.pause_s = _QUIET_S if now is not None else min(_PAUSE_S, 1.5 * self.pause_s)
        time.sleep(self.pause_s)
        return False

    def _look(self) -> tuple[int, int] | None:
        """The number of the start and of the rows sent in it, if all is calm."""
        hub = self.supervisor.hub
        epoch = hub.epoch
        reports = list(hub.poll(ANSWER_S).values())
        if len(reports) != len(self.supervisor.plan.layout.places):
            return None
        sent, received = sum(r.sent for r in reports), sum(r.received for r in reports)
        calm = all(r.idle and r.exhausted for r in reports)
        if self.timers:
            calm = calm and not any(r.timers for r in reports)
        return (epoch, sent) if calm and sent == received else None
