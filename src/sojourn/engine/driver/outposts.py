"""The outposts of a running topology: one on every machine that has a task slot for it, so that
workers of any executor can be there. They are started on machines that come, and emptied and ended
on machines that are to go. Nothing else stops for either. Used by the engine and by pools of
machines."""

import functools
import logging
import threading
import time
from collections import Counter
from collections.abc import Collection

from sojourn.engine.driver.hub import Hub
from sojourn.engine.driver.placing import Placing
from sojourn.engine.driver.supervisor import ANSWER_S, Supervisor
from sojourn.engine.spark.outposts import (
    await_heard_of,
    cancel_outpost,
    spark_executors,
    start_outpost,
)
from sojourn.engine.wire import messages as m

_log = logging.getLogger("sojourn")
_COME_S = 60.0
_GO_S = 60.0
_LOOK_S = 0.1
_FAILURES = 5  # times that an outpost ends by itself before it is not started again


class Outposts:
    """Which Spark executors should have one, and have. Those that elastic executors are on get one
    where a slot is free; others if they are asked for."""

    def __init__(self, supervisor: Supervisor, placing: Placing) -> None:
        self.supervisor, self.placing = supervisor, placing
        self.hub: Hub = supervisor.hub
        self.processors = 0  # that a machine has room for; without it there are no outposts
        self.wanted: dict[str, None] = {}  # Spark executors
        self.names: dict[str, str] = {}  # of their machines, once they are known
        self.threads: dict[str, threading.Thread] = {}
        self.leaving: set[str] = set()  # machines that are being emptied
        self.failures: Counter[str] = Counter()
        self.placed: tuple[int, frozenset[str]] = (0, frozenset())  # start and outposts, as placed

    @property
    def machines(self) -> set[str]:
        """The machines that have an outpost besides the executors' own, or get it back in a moment
        because the topology starts anew."""
        return {self.names[one] for one in self.wanted if one in self.names}

    def make_room(self, processors: int) -> None:
        """From now on, machines have room for so many processors each."""
        self.processors = processors
        self._begin(0)
        self.place()

    def start(self, count: int) -> None:
        """Have so many more Spark executors, on which nothing is yet, and use those that come."""
        if count:
            await_heard_of(self.supervisor.spark, _COME_S)
        began = self._begin(count)
        self.hub.wait(lambda: began & self.threads.keys() <= self._come(), _COME_S)
        self.place()

    def look(self) -> None:
        """Start anew what has ended, and use what has come. After a start, executors may be on
        other machines, and their workers are all at home."""
        if not self.processors or not self.hub.complete():
            return
        if self.placed[0] != self.hub.starts or not self.wanted.keys() <= self.threads.keys():
            self._begin(0)
        if self.placed != self._now():
            self.place()

    def place(self) -> None:
        """Use the machines there are."""
        self.placed = self._now()
        self.names |= {told.spark_executor: told.machine for _, told in self._told()}
        homes = (hello.machine for hello in self.hub.hellos().values())
        machines = sorted({*homes, *self.hub.outposts} - self.leaving)
        self.placing.room = dict.fromkeys(machines, self.processors) if self.processors else None
        self.placing.place(self.supervisor.wanted)

    def end(self, machines: Collection[str]) -> None:
        """Have everything leave these machines, and end their outposts."""
        assert self.placing.room is not None
        self.leaving |= set(machines)
        leaving = {one for one in self.wanted if self.names.get(one) in machines}
        for one in leaving:
            del self.wanted[one]
        for machine in machines:
            self.placing.room.pop(machine, None)
        self.placing.place(self.supervisor.wanted)
        deadline = time.monotonic() + _GO_S
        while time.monotonic() < deadline:
            reports = self.hub.poll(ANSWER_S).values()
            if not any(set(machines) & set(report.away) for report in reports):
                break
            time.sleep(_LOOK_S)
        for machine in machines:
            self.hub.dismiss(machine)
        self._await_end(leaving)
        self.leaving -= set(machines)

    def close(self) -> None:
        """End all."""
        self.processors = 0
        self.wanted = {}
        for machine in list(self.hub.outposts):
            self.hub.dismiss(machine)
        self._await_end(set(self.threads))

    def _begin(self, count: int) -> set[str]:
        """Start those that are wanted and are not there, and so many others."""
        up = spark_executors(self.supervisor.spark)
        homes = {hello.spark_executor for hello in self.hub.hellos().values()}
        new = [one for one in up if one not in homes and one not in self.wanted][:count]
        self.wanted |= dict.fromkeys(new)
        for gone in self.wanted.keys() - up.keys():
            del self.wanted[gone]
        fit = [one for one in up if up[one].free and self.failures[one] < _FAILURES]
        began = {one for one in fit if one in self.wanted or one in homes} - self.threads.keys()
        for one in began:
            self.threads[one] = start_outpost(
                self.supervisor.spark,
                self.hub.channel.keys,
                self.supervisor.plan.secret,
                one,
                functools.partial(self._ended, one),
            )
        return began

    def _now(self) -> tuple[int, frozenset[str]]:
        return self.hub.starts, frozenset(self.hub.outposts)

    def _told(self) -> list[tuple[bytes, m.Outpost]]:
        return list(self.hub.outposts.values())

    def _come(self) -> set[str]:
        return {told.spark_executor for _, told in self._told()}

    def _await_end(self, leaving: Collection[str]) -> None:
        """A task that has not begun, because its slot was taken, knows nothing of its end."""
        threads = {one: self.threads[one] for one in leaving if one in self.threads}
        deadline = time.monotonic() + ANSWER_S
        for thread in threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        for one, thread in threads.items():
            if thread.is_alive():
                cancel_outpost(self.supervisor.spark, one)
                thread.join(_GO_S)

    def _ended(self, spark_executor: str) -> None:
        """An outpost has ended, because it was told to, or failed, or its machine is gone."""
        with self.hub.changed:
            gone = [
                machine
                for machine, (_, told) in self.hub.outposts.items()
                if told.spark_executor == spark_executor
            ]
            for machine in gone:
                del self.hub.outposts[machine]
            dismissed = spark_executor in self.hub.dismissed
            self.hub.dismissed.discard(spark_executor)
        self.threads.pop(spark_executor, None)
        self.placed = (0, frozenset())  # so that it is looked at anew, wherever it was
        dismissed |= not self.processors or self.names.get(spark_executor) in self.leaving
        if not dismissed and not self.supervisor.stopping.is_set():
            self.failures[spark_executor] += 1
            _log.warning("the workers on Spark executor %s have ended", spark_executor)
            if self.failures[spark_executor] >= _FAILURES:
                self.wanted.pop(spark_executor, None)
