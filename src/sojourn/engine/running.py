"""A topology that runs: starts the query, keeps it running through failures, changes processors,
measures, and stops without losing anything. What `sojourn.start` returns."""

import logging
import math
import secrets
import shutil
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sojourn.engine import messages as m
from sojourn.engine.build import build_tasks, pickled
from sojourn.engine.checkpoint import claim, next_epoch
from sojourn.engine.clock import BatchClock
from sojourn.engine.driver import Driver
from sojourn.engine.layout import layout
from sojourn.engine.session import keep_jobs_on_interrupt, session, wait_for_slots
from sojourn.engine.task import SCHEMA, private_directory
from sojourn.errors import InputError
from sojourn.ports import Allocation, Samples
from sojourn.settings import EngineSettings
from sojourn.topology import Topology, allocation_of

_log = logging.getLogger("sojourn")
_JOIN_S = 120.0
_ANSWER_S = 5.0
_LEAVE_S = 15.0


class TopologyFailed(RuntimeError):
    """The topology cannot go on: user code failed, or restarts did not help."""


class Running:
    """A started topology. Use it in a `with` block, or call `stop`."""

    def __init__(
        self,
        topology: Topology,
        checkpoint: str | Path | None,
        master: str | None,
        spark: SparkSession | None,
        settings: EngineSettings,
    ) -> None:
        topology.check()
        self.topology = topology
        self.settings = settings
        self.layout = layout(topology)
        self.code = pickled(topology)
        self.checkpoint = Path(checkpoint or tempfile.mkdtemp(prefix="sojourn-")).resolve()
        self.claim = claim(self.checkpoint, topology)
        self.owns_spark = spark is None and SparkSession.getActiveSession() is None
        self.owns_checkpoint = checkpoint is None
        try:
            self.spark = session(spark, master, self.layout.slots, topology.name, settings.batch_s)
        except BaseException:
            self._give_back()
            raise
        keep_jobs_on_interrupt()
        self.run_name = secrets.token_hex(6)
        self.secret = secrets.token_bytes(32)
        host = self.spark.sparkContext.getConf().get("spark.driver.host")
        self.driver = Driver(str(host), self.layout)
        self.driver.start()
        self.wanted = dict(allocation_of(topology))
        self.clock: BatchClock | None = None
        self.query: StreamingQuery | None = None
        self.error: str | None = None
        self.restarts = 0
        self.first_epoch = 0
        self.careful: set[str] = set()
        self.deaths: Counter[tuple[str, int]] = Counter()
        self.stopping = threading.Event()
        self.started = threading.Event()
        self.supervisor = threading.Thread(
            target=self._supervise, name="sojourn-supervisor", daemon=True
        )
        self.supervisor.start()
        try:
            self._await_start()
        except BaseException:
            self._shut_down()
            raise

    # what users call

    def resize(self, allocation: Allocation) -> None:
        """Change the processors of some operators while the topology runs."""
        for name, processors in allocation.items():
            spec = self.topology.operators.get(name)
            if spec is None:
                known = ", ".join(self.topology.operators)
                raise InputError(f"resize: unknown operator {name!r}; known are {known}")
            if processors < spec.executors:
                raise InputError(
                    f"resize: operator {name!r} needs at least {spec.executors} processors, "
                    f"one for each executor; got {processors}"
                )
            if spec.key is not None and processors > spec.shards:
                raise InputError(
                    f"resize: operator {name!r} has {spec.shards} shards, which "
                    f"{processors} processors cannot share"
                )
        self.wanted.update(allocation)
        for name in allocation:
            for place, share in zip(self.layout.of(name), self._shares(name), strict=True):
                self.driver.resize(place, share)

    def samples(self) -> Samples:
        """What happened since the last call, per vertex and for whole trees."""
        self._check()
        return self.driver.samples(_ANSWER_S)

    def allocation(self) -> dict[str, int]:
        """The processors each operator has now."""
        self._check()
        counts = dict.fromkeys(self.topology.operators, 0)
        for report in self.driver.poll(_ANSWER_S):
            if report.vertex in counts:
                counts[report.vertex] += report.processors
        return counts

    def await_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until finite sources are exhausted and everything derived from them is processed.
        Returns whether that came in time."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        before: tuple[int, int] | None = None
        while time.monotonic() < deadline:
            self._check()
            quiet, before = self._quiet_again(before)
            if quiet:
                return True
        return False

    def stop(self, timeout_s: float = 60.0) -> None:
        """End gracefully: sources stop, what is in flight is finished, sinks publish, state is
        saved. Does not wait for the batch to end by itself. Safe to call twice."""
        if not self.stopping.is_set():
            self.stopping.set()
            if self.error is None and self.query is not None and self.query.isActive:
                self._drain(timeout_s)
            self._shut_down()
        if self.error is not None:
            raise TopologyFailed(self.error)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind in (None, KeyboardInterrupt):
            self.stop()
        else:
            self.stopping.set()
            self._shut_down()

    # how it goes

    def _await_start(self) -> None:
        self.started.wait()
        if self.error is not None:
            raise TopologyFailed(self.error)

    def _supervise(self) -> None:
        """Start the query, and again from the last committed batch whenever it fails."""
        try:
            while not self.stopping.is_set():
                self._start_query()
                assert self.query is not None
                if not self.driver.wait(lambda: self.driver.complete() or self._is_down(), _JOIN_S):
                    self.error = f"not all of its executors came up within {_JOIN_S:.0f} s"
                    return
                self.started.set()
                failure = self._await_end()
                if self.stopping.is_set():
                    return
                self._clear_away()
                self.error = self._verdict(failure)
                if self.error is not None:
                    return
                self.restarts += 1
                causes = "; ".join(f.error for f in self.driver.failures) or failure
                _log.warning(
                    "topology %s failed (%s); restart %d goes back to the last committed batch",
                    self.topology.name,
                    causes[:500],
                    self.restarts,
                )
                self.stopping.wait(min(0.1 * 2**self.restarts, 5.0))
        except Exception as error:  # noqa: BLE001  # a thread has nobody above it: told by stop()
            if not self.stopping.is_set():
                self.error = f"{type(error).__name__}: {error}"
        finally:
            self.started.set()

    def _start_query(self) -> None:
        epoch = next_epoch(self.checkpoint)
        if self.restarts == 0:
            self.first_epoch = epoch
        self.driver.start_epoch(epoch)
        spark_checkpoint = self.checkpoint / "spark"
        self.clock = BatchClock(self.spark, spark_checkpoint)
        wait_for_slots(
            self.spark, self.layout.slots, self.settings.cluster_timeout_s, self.stopping.is_set
        )
        tasks = build_tasks(self, epoch)
        rows = self.clock.rows(len(tasks[0].specs)).mapInArrow(tasks[0], SCHEMA)
        for task in tasks[1:]:
            rows = rows.repartitionById(len(task.specs), "pid").mapInArrow(task, SCHEMA)
        self.query = (
            rows.writeStream.format("noop")
            .outputMode("update")
            .queryName(f"{self.topology.name}-{self.run_name}-{epoch}")
            .trigger(realTime=f"{self.settings.batch_s * 1000:.0f} milliseconds")  # type: ignore[call-overload]
            .option("checkpointLocation", str(spark_checkpoint))
            .start()
        )

    def _is_down(self) -> bool:
        return self.query is None or not self.query.isActive or self.stopping.is_set()

    def _await_end(self) -> str:
        """Until the query ends; says why."""
        assert self.query is not None
        try:
            while not self.stopping.is_set():
                if self.query.awaitTermination(0.2):  # type: ignore[arg-type]
                    return "the query ended by itself"
                if self.driver.failures:
                    self.query.stop()
                    return ""
        except StreamingQueryException as error:
            return str(error)
        return ""

    def _clear_away(self) -> None:
        """No executor of the failed start should be left; one that does not answer is fenced off
        by its epoch."""
        assert self.clock is not None
        self.driver.send_all(m.Finish(self.clock.committed()))
        self.driver.all_left(_LEAVE_S)

    def _verdict(self, failure: str) -> str | None:
        """Whether to give up after a failure, and why."""
        for failed in self.driver.failures:
            if failed.user:
                return failed.error
        for failed in self.driver.failures:
            if failed.worker_died:
                self.careful.add(failed.vertex)
                if failed.suspect is not None:
                    self.deaths[failed.vertex, failed.suspect] += 1
        if self.restarts >= self.settings.max_restarts:
            causes = "; ".join(failed.error for failed in self.driver.failures) or failure
            return f"given up after {self.restarts} restarts: {causes[:2000]}"
        return None

    def _quiet(self) -> tuple[int, int] | None:
        """The batch and how many tuples were sent in it, if sources are done, nothing waits
        anywhere and all that was sent has been received. Seen twice, nothing is under way."""
        reports = self.driver.poll(_ANSWER_S)
        if len(reports) != len(self.layout.places) or len({r.batch for r in reports}) != 1:
            return None
        sent, received = sum(r.batch_out for r in reports), sum(r.batch_in for r in reports)
        calm = all(r.idle and r.exhausted for r in reports)
        return (reports[0].batch, sent) if calm and sent == received else None

    def _quiet_again(self, before: tuple[int, int] | None) -> tuple[bool, tuple[int, int] | None]:
        """Whether it is quiet and was just so before, and what to compare with next time."""
        now = self._quiet()
        if now is not None and now == before:
            return True, now
        time.sleep(0.02)
        return False, now

    def _drain(self, timeout_s: float) -> None:
        """Finish what is in flight and end the batch, committed."""
        assert self.clock is not None
        assert self.query is not None
        deadline = time.monotonic() + timeout_s
        for place in self.layout.places:
            if place.level == 0:
                self.driver.send(place, m.StopSource())
        quiet, before = False, None
        while not quiet and time.monotonic() < deadline and not self.driver.failures:
            quiet, before = self._quiet_again(before)
        committed = self.clock.committed()
        self.clock.end_batch()
        while self.clock.committed() == committed and self.query.isActive:
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)

    def _shut_down(self) -> None:
        """Nothing of the topology is left after this."""
        self.stopping.set()
        self.supervisor.join()  # it may be about to start the query again
        if self.query is not None:
            self.query.stop()
        committed = self.clock.committed() if self.clock is not None else -1
        self.driver.send_all(m.Finish(committed))
        self.driver.all_left(_LEAVE_S)
        self.driver.end()
        if self.clock is not None:
            self.clock.reset()
        for epoch in range(self.first_epoch, self.driver.epoch + 1):
            shutil.rmtree(private_directory(f"{self.run_name}-{epoch}"))
        self._give_back()
        if self.owns_spark:
            self.spark.stop()

    def _give_back(self) -> None:
        self.claim.close()
        if self.owns_checkpoint:
            shutil.rmtree(self.checkpoint, ignore_errors=True)

    def _check(self) -> None:
        if self.error is not None:
            raise TopologyFailed(self.error)
        if self.stopping.is_set():
            raise InputError("the topology is stopped")

    def _shares(self, name: str) -> list[int]:
        """An operator's processors, spread evenly over its executors."""
        executors = self.topology.operators[name].executors
        whole, rest = divmod(self.wanted[name], executors)
        return [whole + (i < rest) for i in range(executors)]
