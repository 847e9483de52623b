"""The same job tuple by tuple, for one operator: what `flow` is checked against. Slow: a million
tuples take some ten seconds."""

import heapq
import math
import random
from bisect import bisect
from collections import deque
from itertools import count

import numpy as np

from sojourn.placement.loads import MEMORY_S
from sojourn.simulator.elastic.flow import STEP_S, Outcome
from sojourn.simulator.elastic.job import Setup, Shares
from sojourn.simulator.elastic.placing import Move, Placing, repartition_s

_DRAWN = 4096  # shards that are drawn at once


class TupleRun:
    """One run. Every machine has a generator, which sends its next tuple once there is room for
    the last. They send `offered` tuples a second together, evenly; a tuple takes exactly its
    cost."""

    def __init__(self, setup: Setup, offered: float) -> None:
        self.setup = setup
        self.keyed, self.costs = setup.operators[0], setup.costs
        self.gap_s = setup.cluster.machines / offered
        self.placing = Placing(setup)
        self.draw = random.Random(setup.seed)
        cores = setup.cluster.all_cores
        self.queues: list[deque[tuple[int, float]]] = [deque() for _ in range(cores)]
        self.busy_until = [0.0] * cores
        self.working = [False] * cores
        self.owner = [0] * setup.shards
        self.waiting: list[int] = []
        self.blocked: list[deque[tuple[int, int]]] = []  # generators and their shards
        self.held: dict[int, list[tuple[int, float]]] = {}
        self.arrived = np.zeros(setup.shards)
        self.load = np.zeros(setup.shards)
        self.cards = [[0.0] * setup.cluster.machines for _ in range(2)]  # busy until, out and in
        self.pause: tuple[float, list[Move]] | None = None
        self.draining = False
        self.stopped: list[tuple[int, int]] = []  # generators that wait for a repartitioning
        self.in_system = 0
        self.held_back = False
        self.events: list[tuple[float, int, str, tuple[int, ...]]] = []
        self.order = count()
        self.turn, self.shards = -1, iter(())
        self.now_s = 0.0
        self.served: dict[int, int] = {}
        self.took: list[tuple[float, float]] = []
        self.outcome = Outcome(STEP_S)
        self._adopt()

    def run(self, seconds: float) -> Outcome:
        """Let time pass."""
        machines = self.setup.cluster.machines
        for generator in range(machines):
            self._at(generator * self.gap_s / machines, "send", generator)
        self._at(self.costs.period_s, "decide")
        while self.events and self.events[0][0] < seconds:
            self.now_s, _, what, details = heapq.heappop(self.events)
            getattr(self, f"_{what}")(*details)
        steps = round(seconds / STEP_S)
        self.outcome.served = [float(self.served.get(step, 0)) for step in range(steps)]
        self.outcome.looks = [(at, np.array([s]), np.ones(1)) for at, s in self.took]
        return self.outcome

    def _at(self, time_s: float, what: str, *details: int) -> None:
        heapq.heappush(self.events, (time_s, next(self.order), what, details))

    # tuples

    def _send(self, generator: int) -> None:
        """A generator has its next tuple."""
        self._offer(generator, self._shard())

    def _offer(self, generator: int, shard: int) -> None:
        if self.pause is not None:
            self.stopped.append((generator, shard))
            return
        executor = self.owner[shard]
        if self.waiting[executor] >= self.costs.max_queue:
            self.held_back = True
            self.blocked[executor].append((generator, shard))
            return
        self._arrive(shard, self.now_s)
        self._at(self.now_s + self.gap_s, "send", generator)

    def _shard(self) -> int:
        turn = math.floor(self.now_s / self.setup.popularity.turn_s + 1e-9)
        if turn != self.turn:
            self.turn = turn
            self.cumulative = np.cumsum(self.setup.shard_shares(turn, 0)).tolist()
        return bisect(self.cumulative, self.draw.random() * self.cumulative[-1])

    def _arrive(self, shard: int, at_s: float) -> None:
        self.arrived[shard] += 1
        self.outcome.came += 1
        self.waiting[self.owner[shard]] += 1
        self.in_system += 1
        if shard in self.held:
            self.held[shard].append((shard, at_s))
            return
        core = int(self.placing.core_of[0][shard])
        self.queues[core].append((shard, at_s))
        self._work(core)

    def _work(self, core: int) -> None:
        if self.working[core] or not self.queues[core]:
            return
        self.working[core] = True
        shard, at_s = self.queues[core].popleft()
        self.took.append((self.now_s, self.now_s - at_s + self.keyed.cost_s))
        self.busy_until[core] = self.now_s + self.keyed.cost_s
        self._at(self.busy_until[core], "done", core, shard)

    def _done(self, core: int, shard: int) -> None:
        self.working[core] = False
        step = int(self.now_s / STEP_S)
        self.served[step] = self.served.get(step, 0) + 1
        executor = self.owner[shard]
        self.waiting[executor] -= 1
        self.in_system -= 1
        self._work(core)
        if self.blocked[executor] and self.waiting[executor] < self.costs.max_queue:
            self._offer(*self.blocked[executor].popleft())
        if self.draining and not self.in_system:
            self._drained()

    def _drained(self) -> None:
        assert self.pause is not None
        self.draining = False
        machines = self.setup.cluster.machines
        takes_s = repartition_s(self.pause[1], self.keyed, self.costs, machines)
        self._at(self.now_s + takes_s, "migrate")

    # decisions

    def _decide(self) -> None:
        costs = self.costs
        fresh = 1 - math.exp(-costs.period_s / MEMORY_S)
        self.load += fresh * (self.arrived / costs.period_s - self.load)
        self.arrived[:] = 0.0
        self.placing.note([self.load])
        if self.pause is None:
            moving = np.zeros(self.setup.shards, bool)
            moving[list(self.held)] = True
            waiting = self._by_shard()
            moves = self.placing.decide([self.load], self.held_back, [waiting], [moving])
            self.outcome.moves += len(moves)
            if moves and not self.setup.is_elastic:
                self.pause, self.draining = (self.now_s, moves), True
                if not self.in_system:
                    self._drained()
            elif moves:
                self._move(moves)
        self.held_back = False
        self._at(self.now_s + costs.period_s, "decide")

    def _by_shard(self) -> Shares:
        """How many tuples wait for each."""
        queued = [shard for queue in self.queues for shard, _ in queue]
        held = [shard for shard, some in self.held.items() for _ in some]
        return np.bincount([*queued, *held], minlength=self.setup.shards).astype(np.float64)

    def _move(self, moves: list[Move]) -> None:
        """Shards go one by one. What waits for them goes with them; what is in hand is done
        first."""
        moved = {move.shard for move in moves}
        for shard in moved:
            self.held.setdefault(shard, [])
        for core in {move.source for move in moves}:
            for item in self.queues[core]:
                if item[0] in moved:
                    self.held[item[0]].append(item)
            self.queues[core] = deque(i for i in self.queues[core] if i[0] not in moved)
        for move in moves:
            in_hand_s = max(self.now_s, self.busy_until[move.source])
            self._at(self._cross(move, in_hand_s + self.costs.sync_s), "landed", move.shard)
        self._adopt()

    def _cross(self, move: Move, from_s: float) -> float:
        """When a shard's state has crossed; cards carry one after the other."""
        if not move.bytes:
            return from_s
        source = self.placing.machine(move.source)
        target = self.placing.machine(move.target)
        begin_s = max(from_s, self.cards[0][source], self.cards[1][target])
        end_s = begin_s + move.bytes / self.setup.cluster.bytes_per_s
        self.cards[0][source] = self.cards[1][target] = end_s
        self.outcome.migrated += move.bytes
        return end_s

    def _landed(self, shard: int) -> None:
        held = self.held.pop(shard, None)
        if held is None:  # a later move has come first
            return
        core = int(self.placing.core_of[0][shard])
        self.queues[core].extend(held)
        self._work(core)

    def _migrate(self) -> None:
        assert self.pause is not None
        moves = self.pause[1]
        self._at(max(self._cross(move, self.now_s) for move in moves), "resume")

    def _resume(self) -> None:
        assert self.pause is not None
        self.outcome.pauses_s.append(self.now_s - self.pause[0])
        self.pause = None
        self._adopt()
        stopped, self.stopped = self.stopped, []
        for generator, shard in stopped:
            self._offer(generator, shard)

    def _adopt(self) -> None:
        """Note which executor has which shards."""
        mine = self.placing.executors
        for number, executor in enumerate(mine):
            for shard in executor.shards:
                self.owner[shard] = number
        if len(self.waiting) != len(mine) or not self.setup.is_elastic:
            waiting, blocked = [0] * len(mine), [g for q in self.blocked for g in q]
            self.waiting = waiting
            self.blocked = [deque() for _ in mine]
            for generator, shard in blocked:
                self._offer(generator, shard)
