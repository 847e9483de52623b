"""Keeps the query of a topology running: starts it, and again from the last committed batch
whenever it fails, with back-off and a limit. Fed by the driver's news of failures; used by
`Running`."""

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sojourn.engine.driver.build import Plan, build_tasks
from sojourn.engine.driver.checkpoint import next_epoch
from sojourn.engine.driver.hub import Hub
from sojourn.engine.spark.clock import BatchClock
from sojourn.engine.spark.session import wait_for_slots
from sojourn.engine.spark.task import SCHEMA
from sojourn.engine.wire import messages as m

_log = logging.getLogger("sojourn")
_JOIN_S = 120.0
_ASK_AGAIN_S = 2.0
_COMMIT_S = 120.0
LEAVE_S = 15.0


class _Relocation:
    """Something to be done while no query runs."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.done = threading.Event()
        self.error: Exception | None = None

    def perform(self) -> None:
        try:
            self.action()
        except Exception as error:  # noqa: BLE001  # raised where it was asked for
            self.error = error
        self.done.set()


class Supervisor(threading.Thread):
    """The query, its clock, and what is known of its failures."""

    def __init__(self, plan: Plan, spark: SparkSession, hub: Hub) -> None:
        super().__init__(name="sojourn-supervisor", daemon=True)
        self.plan, self.spark, self.hub = plan, spark, hub
        self.wanted = {name: spec.processors for name, spec in plan.topology.operators.items()}
        self.clock = BatchClock(spark, plan.checkpoint / "spark")
        self.query: StreamingQuery | None = None
        self.at_rest = True  # all that was done is committed, and no query runs
        self.error: str | None = None
        self.relocating: _Relocation | None = None
        self.restarts = 0
        self.in_a_row = 0
        self.careful: set[str] = set()
        self.deaths: Counter[tuple[str, int]] = Counter()
        self.epochs: list[int] = []
        self.stopping = threading.Event()
        self.started = threading.Event()
        self.relocations: queue.SimpleQueue[_Relocation] = queue.SimpleQueue()

    def run(self) -> None:
        """Until told to stop, or nothing helps."""
        try:
            while not self.stopping.is_set():
                self._start_query()
                self._await_join()
                failure = self._await_end()
                if self.stopping.is_set():
                    return
                if self.relocating is not None:
                    self._clear_away()
                    self.relocating.perform()
                    self.relocating = None
                    continue
                self._clear_away()
                self.error = self.verdict(failure)
                if self.error is not None:
                    return
                self.restarts += 1
                self.in_a_row += 1
                _log.warning(
                    "topology %s failed (%s); restart %d goes back to the last committed batch",
                    self.plan.topology.name,
                    self._causes(failure)[:500],
                    self.restarts,
                )
                self.stopping.wait(min(0.1 * 2**self.in_a_row, 5.0))
        except Exception as error:  # noqa: BLE001  # a thread has nobody above it: told by stop()
            if not self.stopping.is_set():
                self.error = f"{type(error).__name__}: {error}"
        finally:
            self.started.set()

    def relocate(self, action: Callable[[], None], timeout_s: float) -> None:
        """End the running batch, and before the next one starts, on whatever machines there are
        then, do something. Returns when all executors are up again; raises what that raised."""
        relocation = _Relocation(action)
        self.relocations.put(relocation)
        deadline = time.monotonic() + timeout_s
        while not relocation.done.wait(0.1):
            if time.monotonic() > deadline or not self.is_alive():
                raise TimeoutError("the batch did not end in time, or the topology has stopped")
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
            if failed.worker_died:
                self.careful.add(failed.vertex)
                if failed.suspect is not None:
                    self.deaths[failed.vertex, failed.suspect] += 1
        if self.in_a_row >= self.plan.settings.max_restarts:
            causes = self._causes(failure)[:2000]
            return f"given up after {self.in_a_row} restarts without a committed batch: {causes}"
        return None

    def _causes(self, failure: str) -> str:
        causes = dict.fromkeys(failed.error for failed in self.hub.failures)
        return "; ".join(causes) or failure

    def _start_query(self) -> None:
        plan = self.plan
        epoch = next_epoch(plan.checkpoint)
        self.epochs.append(epoch)
        self.hub.start_epoch(epoch)
        self.clock = BatchClock(self.spark, plan.checkpoint / "spark")
        wait_for_slots(
            self.spark, plan.layout.slots, plan.settings.cluster_timeout_s, self.stopping.is_set
        )
        guilty = {who for who, deaths in self.deaths.items() if deaths > 1}
        tasks = build_tasks(plan, epoch, self.hub.channel.keys, self.wanted, self.careful, guilty)
        rows = self.clock.rows(len(tasks[0].specs)).mapInArrow(tasks[0], SCHEMA)
        for task in tasks[1:]:
            rows = rows.repartitionById(len(task.specs), "pid").mapInArrow(task, SCHEMA)
        self.query = (
            rows.writeStream.format("noop")
            .outputMode("update")
            .queryName(f"{plan.topology.name}-{plan.run}-{epoch}")
            .trigger(realTime=f"{plan.settings.batch_s * 1000:.0f} milliseconds")  # type: ignore[call-overload]
            .option("checkpointLocation", str(self.clock.checkpoint))
            .start()
        )
        self.at_rest = False

    def _await_join(self) -> None:
        """Until all executors have come up, or the query has failed."""
        hub = self.hub
        hub.wait(
            lambda: hub.complete() or self.is_down or self.stopping.is_set() or hub.is_broken,
            _JOIN_S,
        )
        if hub.complete():
            self.started.set()
        elif not (self.is_down or self.stopping.is_set() or hub.is_broken):
            raise TimeoutError(f"not all of its executors came up within {_JOIN_S:.0f} s")

    def _await_end(self) -> str:
        """Until the query ends; says why."""
        assert self.query is not None
        before = self.clock.committed()
        try:
            while not self.stopping.is_set():
                if self.query.awaitTermination(0.2):  # type: ignore[arg-type]
                    return "the query ended by itself"
                if self.hub.is_broken:
                    self.query.stop()
                    return ""
                if not self.relocations.empty():
                    self._end_batch()
                    self.relocating = self.relocations.get()
                    return ""
                if self.clock.committed() > before:  # what failed before is behind us
                    self.in_a_row = 0
                    self.careful.clear()
                    self.deaths.clear()
        except StreamingQueryException as error:
            return str(error)
        return ""

    def _end_batch(self) -> None:
        """Have the running batch committed, and the query stopped before another gets far."""
        assert self.query is not None
        batch = max((report.batch for report in self.hub.reports.values()), default=0)
        batch = max(batch, self.clock.committed() + 1)
        self.at_rest = self._commit(batch, time.monotonic() + _COMMIT_S)
        self.query.stop()
        self.clock.reset()

    def _clear_away(self) -> None:
        """No executor of the failed start should be left; one that does not answer is fenced off
        by its epoch."""
        self.hub.send_all(m.Finish(self.clock.committed()))
        self.hub.all_left(LEAVE_S)

    def drain(self, timeout_s: float) -> None:
        """Finish what is in flight and end the batch, committed."""
        deadline = time.monotonic() + timeout_s
        for place in self.plan.layout.places:
            if place.level == 0:
                self.hub.send(place, m.StopSource())
        quiet = Quiet(self)
        while not self._cannot_go_on() and time.monotonic() < deadline:
            if quiet.seen_twice():
                break
        if self.is_down:
            if not self.at_rest:  # it failed a moment ago, or was about to start again
                self._uncommitted("it had failed")
            return
        batch = max((report.batch for report in self.hub.reports.values()), default=-1)
        # Ending a batch finishes what it holds, which may take its time again.
        if not self._commit(batch, time.monotonic() + timeout_s):
            self._uncommitted(f"not finished within {timeout_s:.0f} s")

    def _commit(self, batch: int, deadline: float) -> bool:
        """End the batch and wait until it is committed; whether it was. Asked for again every now
        and then, as the clock is one for all topologies on this Spark, and another one that stops
        may have set it right before it was looked at."""
        again = 0.0
        while self.clock.committed() < batch:
            now = time.monotonic()
            if self._cannot_go_on() or now > deadline:
                return False
            if now >= again:
                self.clock.end_batch()
                again = now + _ASK_AGAIN_S
            time.sleep(0.005)
        return True

    def _uncommitted(self, otherwise: str) -> None:
        self.error = f"stopped without committing the last batch: {self._causes(otherwise)}"

    def _cannot_go_on(self) -> bool:
        return self.hub.is_broken or self.is_down


class Quiet:
    """Tells when sources are done, nothing waits anywhere and all that was sent was received."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.before: tuple[int, int] | None = None

    def seen_twice(self) -> bool:
        """Look once more: seen the same twice in a row, nothing is under way."""
        now = self._look()
        if now is not None and now == self.before:
            return True
        self.before = now
        time.sleep(0.02)
        return False

    def _look(self) -> tuple[int, int] | None:
        """The batch and how many tuples were sent in it, if all is calm."""
        reports = list(self.supervisor.hub.poll(ANSWER_S).values())
        places = self.supervisor.plan.layout.places
        if len(reports) != len(places) or len({r.batch for r in reports}) != 1:
            return None
        sent, received = sum(r.batch_out for r in reports), sum(r.batch_in for r in reports)
        calm = all(r.idle and r.exhausted for r in reports)
        return (reports[0].batch, sent) if calm and sent == received else None


ANSWER_S = 5.0
