"""Pools of machines for the negotiator: this machine alone, a standalone cluster whose workers are
started and stopped, and any cluster manager that Spark can ask. Before a machine is given back, the
topology commits and moves off it."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sojourn.chains import contracted
from sojourn.engine.driver.engine import SparkEngine
from sojourn.engine.spark.standalone import StandaloneCluster
from sojourn.engine.wire.layout import layout
from sojourn.ports import LocalPool, machines_within
from sojourn.settings import ControlSettings
from sojourn.topology import Topology

_REGISTER_S = 60.0


class StandalonePool:
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
        self.cluster, self.engine = cluster, engine
        self.processors_per_machine = processors
        self.cores, self.most = cores, most
        self.pauses_s: list[float] = []

    @property
    def least(self) -> int:
        """Machines that the task slots need."""
        return -(-self.engine.layout.slots // self.cores)

    def machines(self) -> list[str]:
        """The Workers whose process has not ended."""
        return [name for name, worker in self.cluster.workers.items() if not worker.silent]

    def change(self, machines: int) -> str:
        """Start or stop workers, and move the topology."""
        wanted = machines_within(machines, self.least, self.most)
        have = self.machines()
        if wanted == len(have):
            return f"there are {len(have)}, and neither more nor fewer are possible"
        if wanted > len(have):
            added = [self.cluster.add(self.cores) for _ in range(wanted - len(have))]
            await_slots(self.engine, wanted * self.cores)
            self.pauses_s.append(self.engine.relocate())
            return f"added {', '.join(added)}; tuples waited {self.pauses_s[-1]:.1f} s"
        leaving = have[wanted:]

        def give_back() -> None:
            for name in leaving:
                self.cluster.remove(name)

        self.pauses_s.append(self.engine.relocate(give_back))
        return f"gave back {', '.join(leaving)}; tuples waited {self.pauses_s[-1]:.1f} s"


class SparkPool:
    """Spark executors as machines, asked of whatever manages the cluster: YARN, Kubernetes or a
    standalone master."""

    def __init__(self, engine: SparkEngine, processors: int, most: int | None) -> None:
        self.engine, self.most = engine, most
        self.processors_per_machine = processors
        self.pauses_s: list[float] = []

    @property
    def least(self) -> int:
        """Machines that the task slots need, if they are all alike."""
        slots, have = int(self.context.defaultParallelism()), max(1, len(self.machines()))
        return -(-self.engine.layout.slots * have // max(1, slots))

    @property
    def context(self) -> Any:
        """Spark's own context, in Java."""
        return self.engine.spark.sparkContext._jsc.sc()

    def machines(self) -> list[str]:
        """The ids of the Spark executors that have registered."""
        found = self.context.getExecutorIds()
        return [found.apply(i) for i in range(found.size())]

    def change(self, machines: int) -> str:
        """Ask the cluster manager, and move the topology."""
        have = self.machines()
        machines = machines_within(machines, self.least, self.most)
        if machines == len(have):
            return f"there are {len(have)}, and neither more nor fewer are possible"
        jvm: Any = self.engine.spark._jvm
        if machines > len(have):
            empty = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
            if not self.context.requestTotalExecutors(machines, 0, empty):
                return f"refused: the cluster manager takes no requests; there are {len(have)}"
            _await(lambda: len(self.machines()) >= machines, _REGISTER_S)
            got = len(self.machines())
            if got == len(have):
                return f"refused: of {machines} there are {got} after {_REGISTER_S:.0f} s"
            self.pauses_s.append(self.engine.relocate())
            return f"have {got} of {machines}; tuples waited {self.pauses_s[-1]:.1f} s"
        leaving = have[machines:]

        def give_back() -> None:
            self.context.killExecutors(jvm.PythonUtils.toSeq(leaving))
            _await(lambda: not set(leaving) & set(self.machines()), _REGISTER_S)

        self.pauses_s.append(self.engine.relocate(give_back))
        return f"gave back {', '.join(leaving)}; tuples waited {self.pauses_s[-1]:.1f} s"


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
        cluster.add(settings.machine_cores)

    def made(engine: SparkEngine) -> Pool:
        return StandalonePool(
            cluster,
            engine,
            settings.machine_processors,
            settings.machine_cores,
            settings.max_machines,
        )

    return made, cluster.url


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
