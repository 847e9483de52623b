"""The pool of machines of a simulation. Machines take time to come up, and tuples may have to wait
when they come into use."""

from collections.abc import Callable, Iterable

from sojourn.ports import machines_within
from sojourn.provisioning.kinds import Kind
from sojourn.simulator.engine import SimulatedEngine


class _Job:
    """Something that will be over at a certain time."""

    def __init__(self) -> None:
        self.over = False

    def is_alive(self) -> bool:
        return not self.over

    def join(self) -> None:
        """Virtual time waits for nobody."""


def pools_of(engine: SimulatedEngine, kinds: Iterable[Kind]) -> dict[str, "SimulatedPool"]:
    """A pool for each kind of machine."""
    return {kind.name: SimulatedPool(engine, None, kind) for kind in kinds}


class SimulatedPool:
    """The machines of a simulated cluster, or those of one kind, of which there may be none; or the
    one machine if there is no cluster."""

    def __init__(self, engine: SimulatedEngine, most: int | None, kind: Kind | None = None) -> None:
        self.engine, self.most = engine, most
        self.cluster = engine.cluster
        self.name, self.least = ("", 1) if kind is None else (kind.name, 0)
        self.cores = self.cluster.cores if kind is None else kind.slots
        self.start_s = engine.settings.machine_start_s if kind is None else kind.start_s
        self.ready = 0  # machines that are up and not in use
        self.pause_s = engine.settings.machine_pause_s
        self.processors_per_machine = None if self.cluster.machines is None else self.cores

    def machines(self) -> list[str]:
        """The machines in use."""
        if self.cluster.machines is None:
            return ["local"]
        return [f"{self.name or 'machine'}-{number}" for number in self.cluster.of(self.name)]

    def spare(self) -> list[str]:
        """The machines that are up besides these."""
        return [f"spare-{number}" for number in range(self.ready)]

    def start(self, machines: int) -> str:
        """Have machines come up."""
        up = len(self.cluster.of(self.name)) + self.ready
        wanted = machines_within(machines, self.least, self.most)
        if wanted <= up:
            return f"there are {up}, and no more are possible"
        self.ready += wanted - up
        return f"{wanted - up} came up"

    def use(self, machines: int) -> str:
        """Use machines that are up, and give back the others."""
        own = self.cluster.of(self.name)
        have, up = len(own), len(own) + self.ready
        wanted = min(machines_within(machines, self.least, self.most), up)
        self.ready = 0
        if wanted == have:
            return f"gave back {up - have}" if up > have else f"there are {have}"
        self.cluster.add(max(0, wanted - have), self.name, self.cores)
        for machine in own[wanted:]:
            self.cluster.lose(machine)
        what = f"added {wanted - have}" if wanted > have else f"gave back {up - wanted}"
        if not self.pause_s:
            self.engine.leave_machines()
            return what
        self.engine.pause(self.pause_s)
        return f"{what}; tuples waited {self.pause_s:.1f} s"

    def begin(self, action: Callable[[], None], *, starts: bool) -> _Job:
        """Begin something. If machines have to come up for it, that takes time."""
        job = _Job()

        def answer() -> None:
            action()
            job.over = True

        if starts:
            self.engine.later(self.start_s, answer)
        else:
            answer()
        return job
