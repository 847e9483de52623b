"""Pools of machines for the negotiator: this machine alone, a standalone cluster whose workers are
started and stopped, and any cluster manager that Spark can ask. New machines come up while the
topology runs, and get an outpost each: workers of its executors can then be there, and nothing
stops for that. Before such a machine is given back, its workers leave. A machine that executors
themselves are on is left by a commit and a new start."""

import contextlib
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sojourn.chains import contracted
from sojourn.engine.driver.engine import SparkEngine
from sojourn.engine.spark.standalone import StandaloneCluster
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import layout
from sojourn.ports import LocalPool, machines_within
from sojourn.settings import ControlSettings
from sojourn.topology import Topology

_REGISTER_S = 60.0


class _ClusterPool(ABC):
    """Machines of a cluster. In use are those that elastic executors are on, and those with an
    outpost."""

    def __init__(self, engine: SparkEngine, processors: int, most: int | None) -> None:
        self.engine, self.most = engine, most
        self.processors_per_machine = processors
        self.pause_s = 0.0  # nobody waits for a machine that comes
        self.homes: list[m.Hello] = []  # of the elastic executors, as last seen
        engine.outposts.make_room(processors)
        engine.outposts.start(len(self.spare()))

    @property
    @abstractmethod
    def least(self) -> int:
        """Machines that the task slots need."""

    @abstractmethod
    def up(self) -> list[str]:
        """The machines that are up."""

    @abstractmethod
    def bring_up(self, machines: int) -> str:
        """Wait until there are that many. Returns in words what happened."""

    @abstractmethod
    def is_on(self, hello: m.Hello, name: str) -> bool:
        """Whether an elastic executor is on a machine."""

    @abstractmethod
    def outpost(self, name: str) -> str | None:
        """The machine's name for the engine, if it has an outpost."""

    @abstractmethod
    def may_have(self, name: str, spark_executor: str) -> bool:
        """Whether a Spark executor is on a machine, or nobody knows where it is."""

    @abstractmethod
    def give_back(self, names: list[str]) -> None:
        """Give back machines that nothing runs on."""

    def machines(self) -> list[str]:
        """The machines in use."""
        up = self.up()
        own = [name for name in up if self.is_home(name)]
        return [*own, *(name for name in up if name not in own and self.outpost(name))]

    def is_home(self, name: str) -> bool:
        """Whether elastic executors are on a machine. While they start anew, those before count."""
        if self.engine.hub.complete():
            self.homes = list(self.engine.hub.hellos().values())
        return any(self.is_on(hello, name) for hello in self.homes)

    def has_tasks(self, names: list[str]) -> bool:
        """Whether the query would fail without these machines."""
        on = self.engine.running_on() if names else set()
        return any(self.is_home(name) or any(self.may_have(name, x) for x in on) for name in names)

    def spare(self) -> list[str]:
        """The machines that are up besides these."""
        used = self.machines()
        return [name for name in self.up() if name not in used]

    def start(self, machines: int) -> str:
        """Have machines come up."""
        wanted, up = machines_within(machines, self.least, self.most), len(self.up())
        if wanted <= up:
            return f"there are {up}, and no more are possible"
        return self.bring_up(wanted)

    def use(self, machines: int) -> str:
        """Commit, and go on with that many machines. While executors start anew, nobody knows on
        which machines they will be, so none is given back then."""
        self.engine.await_up(_REGISTER_S)
        wanted = machines_within(machines, self.least, self.most)
        used = self.machines()
        up = [*used, *self.spare()]
        more, leaving = up[len(used) : wanted], up[wanted:]
        gone = f"gave back {', '.join(leaving)}"
        if not more and not leaving:
            return f"there are {len(up)}, and neither more nor fewer are possible"
        if more:
            self.engine.outposts.start(len(more))
            added = [name for name in self.machines() if name in more]
            return f"added {', '.join(added)}" if added else "refused: no worker came up there"
        if self.has_tasks(leaving):
            waited_s = self.engine.relocate(lambda: self.give_back(leaving))
            return f"{gone}; tuples waited {waited_s:.1f} s"
        if left := [machine for name in leaving if (machine := self.outpost(name))]:
            self.engine.outposts.end(left)
        self.give_back(leaving)
        return gone


class StandalonePool(_ClusterPool):
    """Spark Workers of a standalone cluster, started and stopped as needed, all with the same
    number of processors and cores. There are always enough for the query's task slots."""

    def __init__(
        self,
        cluster: StandaloneCluster,
        engine: SparkEngine,
        processors: int,
        cores: int,
        most: int | None,
    ) -> None:
        self.cluster, self.cores = cluster, cores
        super().__init__(engine, processors, most)

    @property
    def least(self) -> int:
        """Machines that the task slots need."""
        return -(-self.engine.layout.slots // self.cores)

    def up(self) -> list[str]:
        """The Workers whose process has not ended."""
        workers = self.cluster.workers.copy()  # some may be removed meanwhile
        return [name for name, worker in workers.items() if not worker.silent]

    def is_on(self, hello: m.Hello, name: str) -> bool:
        """The Worker's temporary directory is what makes it a machine."""
        return self._is_of(hello.machine, name)

    def outpost(self, name: str) -> str | None:
        """The same."""
        found = self.engine.outposts.machines
        return next((machine for machine in found if self._is_of(machine, name)), None)

    def may_have(self, name: str, spark_executor: str) -> bool:
        """By what executors and outposts said of themselves."""
        known = {hello.spark_executor: hello.machine for hello in self.homes}
        machine = (known | self.engine.outposts.names).get(spark_executor)
        return machine is None or self._is_of(machine, name)

    def _is_of(self, machine: str, name: str) -> bool:
        """A Worker that is just being removed has no machine any more."""
        worker = self.cluster.workers.get(name)
        return worker is not None and f":{worker.temporary}/" in machine

    def bring_up(self, machines: int) -> str:
        """Start Workers, and wait for their Spark executors."""
        added = [self.cluster.add(slots_of(self.cores)) for _ in range(machines - len(self.up()))]
        await_slots(self.engine, machines * slots_of(self.cores))
        return f"{', '.join(added)} came up"

    def give_back(self, names: list[str]) -> None:
        """Stop Workers."""
        for name in names:
            self.cluster.remove(name)


class SparkPool(_ClusterPool):
    """Spark executors as machines, asked of whatever manages the cluster: YARN, Kubernetes or a
    standalone master."""

    @property
    def least(self) -> int:
        """Machines that the task slots need, if they are all alike."""
        slots, have = int(self.context.defaultParallelism()), max(1, len(self.up()))
        return -(-self.engine.layout.slots * have // max(1, slots))

    @property
    def context(self) -> Any:
        """Spark's own context, in Java."""
        return self.engine.spark.sparkContext._jsc.sc()

    def up(self) -> list[str]:
        """The ids of the Spark executors that have registered."""
        found = self.context.getExecutorIds()
        return [found.apply(i) for i in range(found.size())]

    def is_on(self, hello: m.Hello, name: str) -> bool:
        """By the id of the Spark executor."""
        return hello.spark_executor == name

    def outpost(self, name: str) -> str | None:
        """By the id of the Spark executor."""
        outposts = self.engine.outposts
        return outposts.names.get(name) if name in outposts.wanted else None

    def may_have(self, name: str, spark_executor: str) -> bool:
        """By its id."""
        return spark_executor == name

    def bring_up(self, machines: int) -> str:
        """Ask the cluster manager, and wait for what it gives."""
        had = len(self.up())
        jvm: Any = self.engine.spark._jvm
        empty = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        if not self.context.requestTotalExecutors(machines, 0, empty):
            return f"refused: the cluster manager takes no requests; there are {had}"
        _await(lambda: len(self.up()) >= machines, _REGISTER_S)
        got = len(self.up())
        if got == had:
            return f"refused: of {machines} there are {got} after {_REGISTER_S:.0f} s"
        return f"{got} of {machines} came up"

    def give_back(self, names: list[str]) -> None:
        """Have the cluster manager end executors."""
        if names:
            jvm: Any = self.engine.spark._jvm
            self.context.killExecutors(jvm.PythonUtils.toSeq(names))
            _await(lambda: not set(names) & set(self.up()), _REGISTER_S)


Pool = LocalPool | StandalonePool | SparkPool


def pool_for(
    topology: Topology, settings: ControlSettings, closing: contextlib.ExitStack
) -> tuple[Callable[[SparkEngine], Pool], str | None]:
    """A function that makes the pool that the settings ask for once the topology runs, and the
    master that the topology must run on if the pool has its own. A cluster that is started ends
    with `closing`."""
    if settings.pool == "local":
        return lambda _running: LocalPool(), None
    if settings.pool == "spark":
        return (
            lambda engine: SparkPool(engine, settings.machine_processors, settings.max_machines)
        ), None
    directory = Path(tempfile.mkdtemp(prefix="sojourn-cluster-"))
    closing.callback(shutil.rmtree, directory, ignore_errors=True)
    cluster = StandaloneCluster(directory)
    closing.callback(cluster.close)
    for _ in range(first_machines(topology, settings)):
        cluster.add(slots_of(settings.machine_cores))

    def made(engine: SparkEngine) -> Pool:
        return StandalonePool(
            cluster,
            engine,
            settings.machine_processors,
            settings.machine_cores,
            settings.max_machines,
        )

    return made, cluster.url


def slots_of(cores: int) -> int:
    """Task slots of a machine with so many for the topology: its outpost takes one, too."""
    return cores + 1


def first_machines(topology: Topology, settings: ControlSettings) -> int:
    """Machines to begin with: enough for the topology's first processors, as far as the settings
    allow that many, and in any case enough for its task slots. A chain has those of its head."""
    topology = contracted(topology)
    processors = sum(spec.processors for spec in topology.operators.values())
    machines = -(-processors // settings.machine_processors)
    least = -(-layout(topology).slots // settings.machine_cores)
    return machines_within(machines, least, settings.max_machines)


def await_slots(engine: SparkEngine, slots: int) -> None:
    """Wait until that many task slots have registered, at most a minute."""
    context = engine.spark.sparkContext._jsc.sc()
    _await(lambda: context.defaultParallelism() >= slots, _REGISTER_S)


def _await(condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait for a condition by asking again and again: Spark tells nobody when executors come and
    go."""
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
