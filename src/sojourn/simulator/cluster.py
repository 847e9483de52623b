"""Machines in virtual time: which worker sits where, and what that costs. An executor's workers sit
on its own machine while it has free cores, then on other machines, to which tuples must travel.
When all cores are taken, workers share them."""

from collections import Counter
from collections.abc import Mapping

from sojourn.settings import SimulatorSettings
from sojourn.simulator.draws import quantum
from sojourn.simulator.lane import Seat

Executor = tuple[str, int]


class Cluster:
    """Some machines, of one kind or several. Those of a kind have the same number of cores each.
    With None there is one machine, of unlimited size."""

    def __init__(
        self, machines: int | None, cores: int, settings: SimulatorSettings, kind: str = ""
    ) -> None:
        self.cores, self.settings = cores, settings
        self.machines: list[int] | None = None if machines is None else []
        self.made: list[tuple[str, int]] = []  # the kind and cores of all that ever came
        self.add(machines or 0, kind, cores)
        self.where: dict[Executor, list[int]] = {}  # the first is an executor's own machine

    def add(self, machines: int, kind: str, cores: int) -> None:
        """Add so many machines with new names."""
        for _ in range(machines):
            assert self.machines is not None
            self.machines.append(len(self.made))
            self.made.append((kind, cores))

    def of(self, kind: str) -> list[int]:
        """The machines of a kind."""
        return [machine for machine in self.machines or () if self.made[machine][0] == kind]

    def lose(self, machine: int) -> None:
        """Lose a machine. Its workers must sit elsewhere."""
        assert self.machines is not None
        self.machines.remove(machine)

    def seats(self, workers: Mapping[Executor, int]) -> dict[Executor, list[Seat]]:
        """A seat for every worker of every executor. Present workers stay where they are. If a
        machine has fewer cores than workers, they share the cores evenly, busy or not."""
        if self.machines is None:
            seat = Seat(slow=1 / self.speed(0), extra_s=self.settings.hand_over_s)
            return {executor: [seat] * count for executor, count in workers.items()}
        there = set(self.machines)
        self.where = {
            executor: [m for m in self.where.get(executor, []) if m in there][:count]
            for executor, count in workers.items()
        }
        taken = Counter(m for machines in self.where.values() for m in machines)
        for executor in workers:  # one worker of each is at home
            if not self.where[executor]:
                home = min(self.machines, key=lambda m: (taken[m] / self.made[m][1], m))
                self.where[executor].append(home)
                taken[home] += 1
        for executor, count in workers.items():
            machines = self.where[executor]
            while len(machines) < count:
                machines.append(self._best(machines[0], taken))
                taken[machines[-1]] += 1
        network = self.settings.network_delay_s * 2 + self.settings.tuple_bytes / self.bandwidth
        return {
            executor: [
                Seat(
                    machine,
                    max(1.0, taken[machine] / self.made[machine][1]) / self.speed(machine),
                    self.settings.hand_over_s + (0.0 if machine == machines[0] else network),
                )
                for machine in machines
            ]
            for executor, machines in self.where.items()
        }

    def speed(self, machine: int) -> float:
        """How fast a machine's cores are. Which machine a worker sits on does not depend on it."""
        speeds = self.settings.machine_speeds or (1.0,)
        return speeds[machine % len(speeds)]

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.settings.network_mb_s * 1e6

    @property
    def move_s(self) -> float:
        """How long a shard's state takes to move to another machine."""
        return quantum(
            self.settings.network_delay_s + self.settings.shard_kb * 1e3 / self.bandwidth
        )

    def _best(self, home: int, taken: Counter[int]) -> int:
        """The home machine while it has a free core, else the machine with most free cores."""
        assert self.machines is not None
        if taken[home] < self.made[home][1]:
            return home
        return min(self.machines, key=lambda m: (taken[m] / self.made[m][1], m != home, m))
