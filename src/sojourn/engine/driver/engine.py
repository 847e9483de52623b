"""The engine on Spark: runs a topology, changes its processors, measures, and stops without losing
anything. Driven by `Running`; the supervisor keeps its query running."""

import contextlib
import math
import operator
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sojourn.chains import chained_to, contracted
from sojourn.engine.driver.build import Plan, own_classes, pickled
from sojourn.engine.driver.checkpoint import claim
from sojourn.engine.driver.division import Division
from sojourn.engine.driver.hub import Hub
from sojourn.engine.driver.interrupts import deferred
from sojourn.engine.driver.outposts import Outposts
from sojourn.engine.driver.placing import Placing
from sojourn.engine.driver.regrouping import Regrouping
from sojourn.engine.driver.repartitioning import Repartitioning
from sojourn.engine.driver.supervisor import ANSWER_S, LEAVE_S, Quiet, Supervisor
from sojourn.engine.spark.session import is_here, is_local, keep_jobs_on_interrupt, session
from sojourn.engine.spark.stages import running_on
from sojourn.engine.spark.task import sockets
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import layout
from sojourn.errors import InputError, TopologyFailed
from sojourn.ports import Allocation, Pressure, Samples
from sojourn.settings import EngineSettings
from sojourn.topology import ONE_EACH, Topology


class SparkEngine:
    """A topology on Spark, from its start until `stop`."""

    def __init__(
        self,
        topology: Topology,
        checkpoint: str | Path | None,
        master: str | None,
        spark: SparkSession | None,
        settings: EngineSettings,
        max_sojourn_s: float | None = None,
    ) -> None:
        topology.check()
        _check_paradigm(topology, settings.paradigm)
        self.heads = chained_to(topology)
        self.topology = topology = contracted(topology)
        self.layout = layout(topology)
        self.settings = settings
        code, classes = pickled(topology), own_classes()
        # What to undo at the end, last first; each runs even if another fails.
        self.undo = contextlib.ExitStack()
        with contextlib.ExitStack() as failing:
            failing.callback(self.undo.close)
            if SparkContext._active_spark_context is None:
                self.undo.callback(_stop_spark)
            lasts = checkpoint is not None
            if checkpoint is None:
                _check_here(spark, master)
                checkpoint = tempfile.mkdtemp(prefix="sojourn-")
                self.undo.callback(shutil.rmtree, checkpoint, ignore_errors=True)
            self.checkpoint = Path(checkpoint).resolve()
            claimed = claim(self.checkpoint, topology)
            self.undo.callback(claimed.close)
            ui = settings.ui != "none"
            self.spark = session(
                spark, master, self.layout.slots, topology.name, settings.batch_s, ui
            )
            keep_jobs_on_interrupt()
            self.plan = Plan(
                topology=topology,
                layout=self.layout,
                settings=settings,
                code=code,
                classes=classes,
                checkpoint=self.checkpoint,
                name=claimed.name,
                run=secrets.token_hex(6),
                secret=secrets.token_bytes(32),
                lasts=lasts,
            )
            context = self.spark.sparkContext
            self.ui: str | None = context.uiWebUrl
            host = "127.0.0.1" if is_local(str(context.master)) else context.getConf().get(_HOST)
            self.hub = Hub(str(host), self.layout)
            self.hub.start()
            self.undo.callback(self.hub.end)
            rest_s = self._rest_s(max_sojourn_s)
            self.supervisor = Supervisor(self.plan, self.spark, self.hub, rest_s, max_sojourn_s)
            self.undo.callback(self.supervisor.committer.close)
            self.placing = self._placing()
            elastic = settings.paradigm not in ONE_EACH
            self.regrouping = Regrouping(
                self.placing,
                {n: k for n, k in self._divisible.items() if topology.operators[n].executors > 1},
                self.supervisor.divider.table,
                self.divide,
                settings.regroup_s if elastic else 0.0,
            )
            self.undo.callback(self._remove_directories)
            self.outposts = Outposts(self.supervisor, self.placing)
            self.undo.callback(self.outposts.close)
            self.undo.callback(self._end_query)
            self.supervisor.start()
            with deferred() as interrupted:
                while not self.supervisor.started.wait(0.1) and not interrupted():
                    continue
            self._check_failed()
            failing.pop_all()

    def resize(self, allocation: Allocation) -> None:
        """Change the processors of some operators, or the processes that read a source, while the
        topology runs. Those change at the next commit, which comes at once."""
        sources = self.topology.sources
        readers = {n: self._checked_readers(n, k) for n, k in allocation.items() if n in sources}
        others = {name: asked for name, asked in allocation.items() if name not in sources}
        wanted = {name: self._checked(name, asked) for name, asked in others.items()}
        for name, count in readers.items():
            self.supervisor.readers.resize(name, count)
        if readers:
            self.supervisor.notify()
        if not others and readers:
            return
        for name, asked in others.items():
            self.placing.split(name, list(asked) if isinstance(asked, Sequence) else None)
        self.supervisor.wanted.update(wanted)
        self.placing.place(self.supervisor.wanted)

    @property
    def readers(self) -> dict[str, tuple[int, int]]:
        """The fewest and the most processes that can read a source, where that can be changed."""
        found = {name: self.supervisor.readers.bounds(name) for name in self.topology.sources}
        return {name: bounds for name, bounds in found.items() if bounds is not None}

    def _placing(self) -> Placing:
        """How operators use processors."""
        operators, paradigm = self.topology.operators, self.settings.paradigm
        movable = {name: spec.concurrency == "process" for name, spec in operators.items()}
        most = {name: spec.most_processors for name, spec in operators.items()}
        if paradigm in ("elastic", "naive"):
            chance = random.Random(0) if paradigm == "naive" else None
            return Placing(self.layout, self.hub, movable, most, used=self._used, chance=chance)
        return Repartitioning(
            self.layout,
            self.hub,
            movable,
            most,
            shards=self._divisible,
            table=self.supervisor.divider.table,
            divide=self.divide,
            frozen=paradigm == "static",
        )

    @property
    def _divisible(self) -> dict[str, int]:
        """The shards of operators that can be divided anew."""
        operators = self.topology.operators
        return {name: spec.shards for name, spec in operators.items() if spec.is_divisible}

    def _used(self, name: str) -> set[int]:
        """The executors of an operator that have something to do: all, unless its shards were
        divided anew."""
        table = self.supervisor.divider.tables.get(name)
        return set(range(self.topology.operators[name].executors) if table is None else table)

    def divide(self, name: str, table: Sequence[int]) -> Division:
        """Have each shard of an operator belong to the executor in the table. Meanwhile all that
        send to it pause. Returns at once; `done` is set when it is over."""
        self.check()
        spec = self.topology.operators[name]
        if not spec.is_divisible:
            raise InputError(
                f"divide: operator {name!r} must have a key, and workers that are processes; "
                "others keep their shards where they are"
            )
        if len(table) != spec.shards or not set(table) <= set(range(spec.executors)):
            raise InputError(
                f"divide: operator {name!r} has {spec.shards} shards and {spec.executors} "
                f"executors; give the number of an executor for each shard"
            )
        division = Division(name, list(table))
        self.supervisor.divisions.append(division)
        if not self.supervisor.is_alive():
            self.supervisor.refuse_divisions()
        self.supervisor.notify()
        return division

    def aim(self, max_sojourn_s: float | None) -> None:
        """Use another target: it limits how long tuples may gather, and how long they may wait
        before control is told."""
        self.supervisor.rest_s = self._rest_s(max_sojourn_s)
        self.supervisor.max_sojourn_s = max_sojourn_s
        self.hub.send_all(m.Aim(self.supervisor.rest_s, max_sojourn_s))

    def _rest_s(self, max_sojourn_s: float | None) -> float:
        return self.settings.rest_s(max_sojourn_s, len(self.layout.partitions) - 1)

    def samples(self, peek: bool = False) -> Samples:
        """What happened since the last call, per vertex and for whole trees. While the topology
        restarts after a failure, vertices may be missing."""
        self.check()
        self.outposts.look()
        found = self.hub.samples(ANSWER_S, peek)
        if not peek:
            self.placing.look(self.supervisor.wanted, found)
            self.regrouping.look(found)
        by = self.supervisor
        return replace(found, commits=self.committed, restarts=by.restarts, relocations=by.moves)

    @property
    def on_pressure(self) -> Callable[[Pressure], None] | None:
        """Who is told what cannot wait for the next samples."""
        return self.hub.on_pressure

    @on_pressure.setter
    def on_pressure(self, told: Callable[[Pressure], None] | None) -> None:
        self.hub.on_pressure = told

    def allocation(self) -> dict[str, int]:
        """The processors each operator has now, and the processes that read a source, where that
        can be changed. They are fewer than asked for, or none, while the topology starts or
        restarts."""
        self.check()
        counts = dict.fromkeys([*self.topology.operators, *self.readers], 0)
        for report in self.hub.poll(ANSWER_S).values():
            if report.vertex in counts:
                counts[report.vertex] += report.processors
        return counts

    def await_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until finite sources are exhausted and everything derived from them is processed.
        Returns False if the time was up before that."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        quiet = Quiet(self.supervisor, timers=True)
        while time.monotonic() < deadline and not self.supervisor.stopping.is_set():
            self._check_failed()
            if quiet.seen_twice():
                return True
        return False

    def relocate(self, action: Callable[[], None] = lambda: None, timeout_s: float = 60.0) -> float:
        """Commit, do something while no query runs, such as giving back a machine, and go on with
        the machines there are. Returns how long tuples had to wait."""
        self.check()
        began = time.monotonic()
        self.supervisor.relocate(action, timeout_s)
        return time.monotonic() - began

    def await_up(self, timeout_s: float) -> None:
        """Return when all executors are up, or the topology stops."""
        stopping = self.supervisor.stopping
        self.hub.wait(lambda: self.hub.complete() or stopping.is_set(), timeout_s)

    def running_on(self) -> set[str]:
        """The Spark executors that have tasks of the query. Not all such tasks are elastic
        executors: there is the clock, and there are those that only pass tuples on."""
        query = self.supervisor.query
        run = None if query is None else str(query.runId)
        return running_on(self.spark, run, self.layout.slots, ANSWER_S) if run else set()

    def stop(self, timeout_s: float = 60.0) -> None:
        """End gracefully. Sources stop, and what is in flight is finished as far as the setting
        `drain` leaves time for it. Then everything is committed, and sinks publish. Safe to call
        twice. Raises TopologyFailed if the last commit could not be made."""
        if not self.supervisor.stopping.is_set():
            self.supervisor.stopping.set()
            try:
                self.supervisor.join()  # it may be in the middle of a commit
                if self.error is None:
                    self.supervisor.drain(timeout_s)
            except Exception as error:  # noqa: BLE001  # of Spark, in whatever state it is
                self.supervisor.error = f"stopping failed: {error}"
            self._undo()
        self._check_failed()

    @property
    def error(self) -> str | None:
        """Why the topology failed, or None if it has not."""
        return self.supervisor.error

    @property
    def committed(self) -> int:
        """The number of the last commit, or 0 before the first. Its results are published and its
        state is saved."""
        return self.supervisor.committer.record.number

    def await_commit(self, timeout_s: float = 60.0) -> bool:
        """Wait until everything processed so far is committed: its results are visible, and no
        failure repeats it. Returns False if the time was up before that."""
        self.check()
        begun = self.committed + 2  # the next one may be under way already
        deadline = time.monotonic() + timeout_s
        with self.supervisor.committed:
            while self.committed < begun and time.monotonic() < deadline:
                self.check()
                self.supervisor.committed.wait(0.1)
        return self.committed >= begun

    @property
    def restarts(self) -> int:
        """How often the topology was restarted after a failure."""
        return self.supervisor.restarts

    @property
    def starts(self) -> int:
        """How often the topology has started: at first, after failures, and on other machines."""
        return self.hub.starts

    def abandon(self) -> None:
        """End at once. The next start repeats what was not committed."""
        self.supervisor.stopping.set()
        self._undo()

    def _checked_readers(self, name: str, asked: int | Sequence[int]) -> int:
        bounds = self.readers.get(name)
        if bounds is None:
            raise InputError(
                f"resize: source {name!r} keeps the processes that it was started with: it must "
                "have splits, and say elastic = True"
            )
        least, most = bounds
        if isinstance(asked, bool) or not isinstance(asked, int) or not least <= asked <= most:
            raise InputError(
                f"resize: source {name!r} needs from {least} to {most} processes, one for each "
                f"executor and at most one for each split; got {asked!r}"
            )
        return asked

    def _checked(self, name: str, asked: int | Sequence[int]) -> int:
        spec = self.topology.operators.get(name)
        if name in self.heads:
            raise InputError(
                f"resize: operator {name!r} shares the workers of {self.heads[name]!r}; resize "
                "that one"
            )
        if spec is None:
            known = ", ".join(self.topology.operators)
            raise InputError(f"resize: unknown operator {name!r}; known: {known}")
        try:
            split = [operator.index(n) for n in asked] if isinstance(asked, Sequence) else None
            processors = operator.index(asked) if split is None else sum(split)  # type: ignore[arg-type]
        except TypeError:
            raise InputError(
                f"resize: operator {name!r} needs a whole number of processors; got {asked!r}"
            ) from None
        if split is not None and (len(split) != spec.executors or min(split) < 1):
            raise InputError(
                f"resize: operator {name!r} has {spec.executors} executors, and each needs at "
                f"least 1 processor; got {asked!r}"
            )
        least, most = spec.bounds(self.settings.paradigm)
        least = min(least, len(self._used(name)))
        if processors < least:
            raise InputError(
                f"resize: operator {name!r} needs at least {least} processors, "
                f"one for each executor; got {processors}"
            )
        if self.settings.paradigm in ONE_EACH and most is not None and processors > most:
            raise InputError(
                f"resize: operator {name!r} has {most} executors with one processor each; got "
                f"{processors}"
            )
        if most is not None and processors > most:
            raise InputError(
                f"resize: operator {name!r} has {spec.shards} shards, and each processor needs "
                f"one; got {processors} processors"
            )
        return processors

    def _end_query(self) -> None:
        """End the query and all its executors."""
        supervisor = self.supervisor
        supervisor.stopping.set()
        supervisor.join()  # it may be about to start the query again
        with contextlib.ExitStack() as steps:
            steps.callback(self.hub.all_left, LEAVE_S)
            if supervisor.query is not None:
                steps.callback(self.hub.send_all, m.Finish())
                supervisor.query.stop()

    def _remove_directories(self) -> None:
        for epoch in self.supervisor.epochs:
            shutil.rmtree(sockets(f"{self.plan.run}-{epoch}"), ignore_errors=True)

    def _undo(self) -> None:
        try:
            self.undo.close()
        except Exception as error:  # noqa: BLE001  # of Spark, in whatever state it is
            if self.error is None:
                self.supervisor.error = f"stopping failed: {error}"

    def check(self) -> None:
        """Raise if the topology has failed or was stopped."""
        self._check_failed()
        if self.supervisor.stopping.is_set():
            raise InputError("the topology is stopped")

    def _check_failed(self) -> None:
        if self.error is not None:
            raise TopologyFailed(self.error)


_HOST = "spark.driver.host"


def _stop_spark() -> None:
    context = SparkContext._active_spark_context
    if context is not None:
        context.stop()


def _check_paradigm(topology: Topology, paradigm: str) -> None:
    """Where every executor has one processor, an operator needs as many of these as of those."""
    for name, spec in topology.operators.items() if paradigm in ONE_EACH else ():
        if spec.is_divisible and spec.processors != spec.executors:
            raise InputError(
                f"operator {name!r}: with paradigm={paradigm} every executor has one processor; "
                f"got executors={spec.executors} and processors={spec.processors}; make both alike"
            )


def _check_here(spark: SparkSession | None, master: str | None) -> None:
    """Refuse a cluster without a checkpoint: one made on the fly exists only on this machine."""
    used = spark.sparkContext.master if spark is not None else master
    if used is not None and not is_here(used):
        raise InputError(
            f"on the cluster {used} a topology needs a checkpoint: a directory that all its "
            "machines see; give checkpoint=…"
        )
