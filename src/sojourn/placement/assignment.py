"""Which cores of which machines each elastic executor gets (Elasticutor §4.2): as many as it needs,
with the least state moved, and those that exchange much data only where they are at home. Pure.

It is the paper's algorithm 1, with four differences. Free cores come first, because they are taken
from nobody. What is given up costs by the old number of cores, what is gained by the new one. An
executor that has just come to exchange much data gives up its cores elsewhere before anything is
handed out. And where its home has neither free nor surplus cores, it takes those of executors that
may be elsewhere, which then get others; without that, the paper's fails where there is a way."""

import heapq
import math
import random
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

PHI = 512e3  # bytes a second and core

Executor = TypeVar("Executor", bound=Hashable)
Machine = TypeVar("Machine", bound=Hashable)


@dataclass(frozen=True)
class Need(Generic[Machine]):
    """What an executor needs: its machine, how many cores, and what makes cores elsewhere dear: the
    bytes of its state, and how many come in and go out per second and core."""

    home: Machine
    cores: int
    state: float = 0.0
    intensity: float = 0.0


@dataclass(frozen=True)
class Assignment(Generic[Executor, Machine]):
    """Cores of machines by executor, and the φ above which executors are all at home. Without
    `cores` there are too few, and `reason` says so."""

    cores: Mapping[Executor, Mapping[Machine, int]] = field(default_factory=dict)
    phi: float = math.inf
    reason: str = ""


def assign(
    needs: Mapping[Executor, Need[Machine]],
    room: Mapping[Machine, int],
    now: Mapping[Executor, Mapping[Machine, int]],
    phi: float = PHI,
) -> Assignment[Executor, Machine]:
    """An assignment in which every executor has at least what it needs, from the present one, with
    the lowest φ of the series that doubles. An executor keeps what it has and does not need unless
    another one needs it."""
    wanted = sum(need.cores for need in needs.values())
    if wanted > sum(room.values()):
        reason = f"{wanted} cores are needed, and there are {sum(room.values())}"
        return Assignment(reason=reason)
    highest = max((need.intensity for need in needs.values()), default=0.0)
    while True:
        found = _Round(needs, room, now, phi).run()
        if found is not None:
            return Assignment(found, phi)
        if phi >= highest:
            return Assignment(reason=f"{wanted} cores cannot be placed on {len(room)} machines")
        phi *= 2


def by_chance(
    needs: Mapping[Executor, Need[Machine]],
    room: Mapping[Machine, int],
    now: Mapping[Executor, Mapping[Machine, int]],
    draw: random.Random,
) -> Assignment[Executor, Machine]:
    """The naive way, for comparison: who has too few gets any core that is free or surplus,
    wherever it is."""
    wanted = sum(need.cores for need in needs.values())
    if wanted > sum(room.values()):
        reason = f"{wanted} cores are needed, and there are {sum(room.values())}"
        return Assignment(reason=reason)
    free = dict(room)
    found: dict[Executor, dict[Machine, int]] = {}
    for name, need in needs.items():
        has = [m for m, count in now.get(name, {}).items() for _ in range(count) if m in free]
        draw.shuffle(has)
        kept: list[Machine] = []
        for machine in has[: need.cores]:
            if free[machine]:
                free[machine] -= 1
                kept.append(machine)
        found[name] = {machine: kept.count(machine) for machine in kept}
    for name, need in needs.items():
        while sum(found[name].values()) < need.cores:
            machine = draw.choice([m for m, count in free.items() for _ in range(count)])
            free[machine] -= 1
            found[name][machine] = found[name].get(machine, 0) + 1
    return Assignment(found)


def cost(
    needs: Mapping[Executor, Need[Machine]],
    before: Mapping[Executor, Mapping[Machine, int]],
    after: Mapping[Executor, Mapping[Machine, int]],
) -> float:
    """C(X|X̃): the bytes of state that leave their machines. State is spread evenly over the cores
    of an executor, before and after."""
    total = 0.0
    for name, need in needs.items():
        old, new = before.get(name, {}), after.get(name, {})
        had, has = sum(old.values()), sum(new.values())
        for machine, count in old.items():
            left = count / had - new.get(machine, 0) / has if has else count / had
            total += need.state * max(0.0, left)
    return total


class _Round(Generic[Executor, Machine]):
    """One run of the algorithm, for one φ."""

    def __init__(
        self,
        needs: Mapping[Executor, Need[Machine]],
        room: Mapping[Machine, int],
        now: Mapping[Executor, Mapping[Machine, int]],
        phi: float,
    ) -> None:
        self.needs = needs
        self.bound = {name for name, need in needs.items() if need.intensity > phi}
        self.free = dict(room)
        self.has: dict[Executor, dict[Machine, int]] = {name: {} for name in needs}
        self.total = dict.fromkeys(needs, 0)
        self.on: dict[Machine, dict[Executor, None]] = {machine: {} for machine in room}
        for name, need in needs.items():
            for machine, count in now.get(name, {}).items():
                stays = machine == need.home or name not in self.bound
                taken = min(count, self.free.get(machine, 0)) if stays else 0
                if taken:
                    self._give(name, machine, taken)
        # The cheapest core of each machine, by what giving it up costs; old entries are skipped.
        self.cheapest: dict[Machine, tuple[float, Executor | None] | None] = {}
        self.heap: list[tuple[float, int, Machine]] = []
        self.order = {machine: number for number, machine in enumerate(room)}
        for machine in room:
            self._price(machine)

    def run(self) -> dict[Executor, dict[Machine, int]] | None:
        """Hand out cores, to those that exchange most data first. None if that fails."""
        short = [name for name, need in self.needs.items() if self.total[name] < need.cores]
        short.sort(key=lambda name: -self.needs[name].intensity)
        waiting = deque(short)
        while waiting:
            name = waiting.popleft()
            while self.total[name] < self.needs[name].cores:
                at = self._at_home(name) if name in self.bound else self._anywhere(name)
                if at is None:
                    return None
                machine, giver = at
                if giver is not None:
                    self._take(giver, machine)
                    if self.total[giver] < self.needs[giver].cores and giver not in waiting:
                        waiting.append(giver)
                self._give(name, machine, 1)
                self._reprice(name, giver, machine)
        return self.has

    def _at_home(self, name: Executor) -> tuple[Machine, Executor | None] | None:
        """A core of the executor's own machine: a free one, a surplus one, or that of an executor
        that may be elsewhere."""
        home = self.needs[name].home
        cheapest = self.cheapest.get(home)
        if cheapest is not None:
            return home, cheapest[1]
        others = [
            other for other in self.on.get(home, ()) if other not in self.bound and other != name
        ]
        if not others:
            return None
        return home, min(others, key=lambda other: self._loss(other, home))

    def _anywhere(self, name: Executor) -> tuple[Machine, Executor | None] | None:
        """The core that costs least to give up and to gain. To gain one costs the same wherever the
        executor has none, so of those machines only the cheapest counts."""
        need, has = self.needs[name], self.has[name]
        best: tuple[float, int, Machine] | None = None
        for machine in {need.home: None} | has:
            cheapest = self.cheapest.get(machine)
            if cheapest is not None:
                price = cheapest[0] + self._gain(name, machine)
                found = (price, 0 if machine == need.home else 1, machine)
                best = found if best is None or found[:2] < best[:2] else best
        while self.heap:
            price, _, machine = self.heap[0]
            cheapest = self.cheapest[machine]
            if cheapest is not None and cheapest[0] == price:
                found = (price + self._gain(name, machine), 2, machine)
                best = found if best is None or found[:2] < best[:2] else best
                break
            heapq.heappop(self.heap)
        if best is None:
            return None
        cheapest = self.cheapest[best[2]]
        assert cheapest is not None
        return best[2], cheapest[1]

    def _gain(self, name: Executor, machine: Machine) -> float:
        """C⁺: what moves if the executor gets one more core there."""
        need, total = self.needs[name], self.total[name]
        if not total:
            return 0.0 if machine == need.home else need.state
        return need.state * (total - self.has[name].get(machine, 0)) / (total * (total + 1))

    def _loss(self, name: Executor, machine: Machine) -> float:
        """C⁻: what moves if the executor gives up a core there; all of it with the last one."""
        total = self.total[name]
        if total <= 1:
            return self.needs[name].state
        there = self.has[name][machine]
        return self.needs[name].state * (total - there) / (total * (total - 1))

    def _price(self, machine: Machine) -> None:
        """Note the cheapest core of a machine that can be had without leaving anybody short."""
        found: tuple[float, Executor | None] | None = None
        if self.free[machine] > 0:
            found = (0.0, None)
        else:
            for name in self.on[machine]:
                need = self.needs[name]
                if self.total[name] > max(1, need.cores):
                    loss = self._loss(name, machine)
                    if found is None or loss < found[0]:
                        found = (loss, name)
        self.cheapest[machine] = found
        if found is not None:
            heapq.heappush(self.heap, (found[0], self.order[machine], machine))

    def _reprice(self, name: Executor, giver: Executor | None, machine: Machine) -> None:
        touched = {machine: None} | self.has[name]
        if giver is not None:
            touched |= self.has[giver]
        for one in touched:
            self._price(one)

    def _give(self, name: Executor, machine: Machine, count: int) -> None:
        self.has[name][machine] = self.has[name].get(machine, 0) + count
        self.total[name] += count
        self.free[machine] -= count
        self.on[machine][name] = None

    def _take(self, name: Executor, machine: Machine) -> None:
        self.has[name][machine] -= 1
        self.total[name] -= 1
        self.free[machine] += 1
        if not self.has[name][machine]:
            del self.has[name][machine]
            del self.on[machine][name]
