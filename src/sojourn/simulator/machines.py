"""The pool of machines of a simulation. Machines take time to come up, and tuples wait while the
topology moves."""

from collections.abc import Callable

from sojourn.ports import machines_within
from sojourn.simulator.engine import SimulatedEngine


class _Job:
    """Something that will be over at a certain time."""

    def __init__(self) -> None:
        self.over = False

    def is_alive(self) -> bool:
        return not self.over

    def join(self) -> None:
        """Virtual time waits for nobody."""


class SimulatedPool:
    """The machines of a simulated cluster, or the one machine if there is none."""

    def __init__(self, engine: SimulatedEngine, most: int | None) -> None:
        self.engine, self.most = engine, most
        self.cluster = engine.cluster
        self.processors_per_machine = None if self.cluster.machines is None else self.cluster.cores

    def machines(self) -> list[str]:
        """The present machines."""
        if self.cluster.machines is None:
            return ["local"]
        return [f"machine-{number}" for number in self.cluster.machines]

    def change(self, machines: int) -> str:
        """Get or give back machines, and move the topology."""
        assert self.cluster.machines is not None
        have = len(self.cluster.machines)
        wanted = machines_within(machines, 1, self.most)
        if wanted == have:
            return f"there are {have}, and neither more nor fewer are possible"
        if wanted > have:
            self.cluster.grow(wanted)
        else:
            self.cluster.shrink(wanted)
        pause_s = self.engine.settings.machine_pause_s
        self.engine.pause(pause_s)
        what = f"added {wanted - have}" if wanted > have else f"gave back {have - wanted}"
        return f"{what}; tuples waited {pause_s:.1f} s"

    def begin(self, action: Callable[[], None]) -> _Job:
        """Answer a request after the time that a machine takes to start."""
        job = _Job()

        def answer() -> None:
            action()
            job.over = True

        self.engine.later(self.engine.settings.machine_start_s, answer)
        return job
