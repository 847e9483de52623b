"""The outposts of a running topology: started on machines that come, emptied and ended on machines
that are to go. Nothing else stops for either. Used by pools of machines."""

import functools
import threading
import time
from collections.abc import Collection

from sojourn.engine.driver.hub import Hub
from sojourn.engine.driver.placing import Placing
from sojourn.engine.driver.supervisor import ANSWER_S, Supervisor
from sojourn.engine.spark.outposts import spark_executors, start_outpost

_COME_S = 60.0
_GO_S = 60.0
_LOOK_S = 0.1


class Outposts:
    """Which Spark executors have one."""

    def __init__(self, supervisor: Supervisor, placing: Placing) -> None:
        self.supervisor, self.placing = supervisor, placing
        self.hub: Hub = supervisor.hub
        self.threads: dict[str, threading.Thread] = {}  # by Spark executor
        self.processors = 0  # that a machine has room for

    def start(self, count: int) -> None:
        """Start outposts on so many Spark executors that have none and that no elastic executor is
        on, and use those that come."""
        taken = {hello.spark_executor for hello in self.hub.hellos().values()} | set(self.threads)
        free = [one for one in spark_executors(self.supervisor.spark) if one not in taken]
        plan = self.supervisor.plan
        began = set(free[:count])
        for one in began:
            self.threads[one] = start_outpost(
                self.supervisor.spark,
                self.hub.channel.keys,
                plan.secret,
                one,
                functools.partial(self._ended, one),
            )

        def come() -> set[str]:
            return {told.spark_executor for _, told in self.hub.outposts.values()} & began

        self.hub.wait(lambda: come() == began, _COME_S)
        self.make_room(self.processors)

    def make_room(self, processors: int) -> None:
        """Use the machines of executors and outposts, with room for so many processors each."""
        self.processors = processors
        homes = (hello.machine for hello in self.hub.hellos().values())
        machines = {*homes, *self.hub.outposts}
        self.placing.room = dict.fromkeys(sorted(machines), processors) if processors else None
        self.placing.place(self.supervisor.wanted)

    def end(self, machines: Collection[str]) -> None:
        """Have everything leave these machines, and end their outposts."""
        assert self.placing.room is not None
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
            told = self.hub.outposts.get(machine)
            self.hub.dismiss(machine)
            if told is not None and (thread := self.threads.get(told[1].spark_executor)):
                thread.join(_GO_S)

    def close(self) -> None:
        """End all."""
        for machine in list(self.hub.outposts):
            self.hub.dismiss(machine)
        for thread in list(self.threads.values()):
            thread.join(_GO_S)

    def _ended(self, spark_executor: str) -> None:
        """An outpost has ended, because it was told to or because its machine is gone."""
        self.threads.pop(spark_executor, None)
        with self.hub.changed:
            gone = [
                machine
                for machine, (_, told) in self.hub.outposts.items()
                if told.spark_executor == spark_executor
            ]
            for machine in gone:
                del self.hub.outposts[machine]
        if gone and not self.supervisor.stopping.is_set():
            self.make_room(self.processors)
