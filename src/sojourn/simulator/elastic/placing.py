"""Which core serves which shard, and how each paradigm changes that. Fed with the measured load of
every shard; what it decides is carried out by `flow` or `tuples`. Pure, but for what it remembers.

All paradigms have the same model and the same balancing. Static changes nothing. Resource-centric
gives every core an executor of its own, and repartitions a whole operator. The executor-centric
ones have executors that share out cores: elastic by `placement/assignment.py`, naive by chance."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sojourn.placement.assignment import Need, assign, by_chance
from sojourn.placement.balance import THETA, balanced, imbalance, skew, tolerated
from sojourn.placement.loads import MEMORY_S, SETTLES_S
from sojourn.ports import SEEN
from sojourn.queueing.allocation import Plan, min_processors
from sojourn.queueing.keyed import KeyedStation
from sojourn.queueing.network import Network
from sojourn.queueing.station import Station
from sojourn.shards import shares_by_load
from sojourn.simulator.elastic.job import Costs, Keyed, Setup, Shares

_LEAST = 1e-9  # tuples per second
_AMPLE = 5.0  # times the service time: the target of a visit
_TUPLE = 1 / MEMORY_S  # what one adds to a shard's load, in tuples per second
_LONG = 30  # decisions, over which the work of operators is averaged
_LASTING = 10  # decisions after which an operator gets executors of another
_DRAIN_S = 2.0  # within which what waits should be worked off, as in the control loop


@dataclass(frozen=True)
class Move:
    """A shard goes from one core to another, with its state if that is on another machine."""

    operator: int
    shard: int
    source: int
    target: int
    bytes: float


def repartition_s(moves: Sequence[Move], keyed: Keyed, costs: Costs, senders: int) -> float:
    """From when an operator is drained until its shards are elsewhere, without what crosses. All
    cores that give some up do so at once."""
    state_s = keyed.shard_bytes / costs.local_bytes_per_s
    given: dict[int, float] = {}  # seconds, by core
    for move in moves:
        takes_s = costs.each_s + (0.0 if move.bytes else state_s)
        given[move.source] = given.get(move.source, 0.0) + takes_s
    return costs.pause_s + senders * costs.upstream_s + max(given.values(), default=0.0)


@dataclass
class Executor:
    """Of an operator: where it is at home, which cores it has, and which shards are its own."""

    operator: int
    home: int
    shards: list[int]
    cores: list[int] = field(default_factory=list)


class Placing:
    """The cores of a cluster and the shards of a job."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.draw = random.Random(setup.seed)
        self.executors: list[Executor] = []
        self.core_of = [np.zeros(setup.shards, np.int64) for _ in setup.operators]
        self.phi = setup.phi
        self.work = [0.0] * len(setup.operators)  # of operators, in cores, over a long time
        self.few = 0  # decisions in a row for which an operator has had too few executors
        # Seconds until the executors of an operator are compared again.
        self.unsettled_s = [0.0] * len(setup.operators)
        if setup.is_elastic:
            self._start_elastic()
        else:
            self._start_fixed()

    # at the start

    def _start_fixed(self) -> None:
        """A core for every executor, of machines in turn; operators get as many as their work
        takes."""
        setup = self.setup
        work = [o.cost_s * o.per_order for o in setup.operators]
        counts = shares_by_load(setup.usable, work)
        free = iter(self._in_turn())
        for operator, count in enumerate(counts):
            cores = [next(free) for _ in range(count)]
            owned: list[list[int]] = [[] for _ in cores]
            for shard in range(setup.shards):
                owned[shard % count].append(shard)
                self.core_of[operator][shard] = cores[shard % count]
            for core, shards in zip(cores, owned, strict=True):
                self.executors.append(Executor(operator, self.machine(core), shards, [core]))

    def _start_elastic(self) -> None:
        """Executors on machines in turn. They share out all cores by their operators' work, at home
        as far as there are some, and their shards over them by number; the naive way, wherever a
        core is."""
        setup, work = self.setup, list[float]()
        free = self._in_turn()
        for operator, keyed in enumerate(setup.operators):
            executors = setup.executors_of(keyed)
            for number in range(executors):
                shards = list(range(number, setup.shards, executors))
                core = free.pop(0)
                self.executors.append(Executor(operator, self.machine(core), shards, [core]))
                work.append(keyed.cost_s * keyed.per_order / executors)
        counts = shares_by_load(setup.usable, work)
        if setup.paradigm == "naive":
            self.draw.shuffle(free)
        else:
            for executor, count in zip(self.executors, counts, strict=True):
                own = [core for core in free if self.machine(core) == executor.home]
                executor.cores += own[: count - 1]
                free = [core for core in free if core not in executor.cores]
        for executor, count in zip(self.executors, counts, strict=True):
            for _ in range(count - len(executor.cores)):
                executor.cores.append(free.pop(0))
            for place, shard in enumerate(executor.shards):
                core = executor.cores[place % len(executor.cores)]
                self.core_of[executor.operator][shard] = core

    def _in_turn(self) -> list[int]:
        """The cores that may be used: one of each machine in turn."""
        cluster = self.setup.cluster
        found = [
            machine * cluster.cores + core
            for core in range(cluster.cores)
            for machine in range(cluster.machines)
        ]
        return [core for core in found if core < self.setup.usable]

    def machine(self, core: int) -> int:
        """Where a core is."""
        return core // self.setup.cluster.cores

    @property
    def room(self) -> dict[int, int]:
        """The cores of each machine that may be used."""
        found: dict[int, int] = {}
        for core in self._in_turn():
            found[self.machine(core)] = found.get(self.machine(core), 0) + 1
        return found

    # while it runs

    def note(self, loads: Sequence[Shares]) -> None:
        """Take in what came, at every decision, also while none can be made: around a pause, what
        came lately says little about how much work operators have."""
        for number, (load, operator) in enumerate(zip(loads, self.setup.operators, strict=True)):
            new = float(load.sum()) * operator.cost_s
            self.work[number] += (new - self.work[number]) / _LONG

    def decide(
        self,
        loads: Sequence[Shares],
        held_back: bool,
        waiting: Sequence[Shares],
        moving: Sequence[npt.NDArray[np.bool_]],
    ) -> list[Move]:
        """What to move, from the tuples per second of every shard, whether sources were held back,
        so that more would have come, how many tuples wait for each shard, and whether it is on its
        way. It counts as done from now on."""
        if self.setup.paradigm == "static":
            return []
        if self.setup.paradigm == "resource-centric":
            return self._repartition(loads)
        before = [list(e.cores) for e in self.executors]
        self.share_out(loads, held_back, waiting)
        moves = []
        for executor, had in zip(self.executors, before, strict=True):
            operator, changed = executor.operator, executor.cores != had
            if changed or not moving[operator][executor.shards].any():
                lately = loads[operator] + _TUPLE * waiting[operator]
                moves += self._balance(executor, lately, changed)
        return moves

    def share_out(
        self, loads: Sequence[Shares], held_back: bool, waiting: Sequence[Shares]
    ) -> None:
        """Give executors the cores that they need: how many, and which."""
        wanted = self.needed(loads, held_back, waiting)
        if not held_back or self._is_off(wanted, loads):
            self._assign(wanted, loads)

    def needed(
        self, loads: Sequence[Shares], held_back: bool, waiting: Sequence[Shares]
    ) -> list[int]:
        """The cores that each executor needs for what comes and waits, by the queueing model. Where
        all together are too few, each gets its share."""
        setup = self.setup
        rates = [float(loads[e.operator][e.shards].sum()) for e in self.executors]
        if not held_back:
            rates = [
                rate + float(waiting[e.operator][e.shards].sum()) / _DRAIN_S
                for rate, e in zip(rates, self.executors, strict=True)
            ]
        costs = [setup.operators[e.operator].cost_s for e in self.executors]
        plan = None if held_back else self._fewest(rates, costs, loads)
        if plan is not None and plan.feasible and plan.processors <= setup.usable:
            return [plan.allocation[str(number)] for number in range(len(rates))]
        work = [rate * cost_s for rate, cost_s in zip(rates, costs, strict=True)]
        return shares_by_load(setup.usable, work)

    def _is_off(self, wanted: Sequence[int], loads: Sequence[Shares]) -> bool:
        """Whether the busiest executor has more than θ times as much to do as it would have, for
        sure."""
        work = [
            float(loads[e.operator][e.shards].sum()) * self.setup.operators[e.operator].cost_s
            for e in self.executors
        ]
        has = [len(e.cores) for e in self.executors]
        now, then = (max(w / n for w, n in zip(work, c, strict=True)) for c in (has, wanted))
        tuples = sum(float(load.sum()) for load in loads) / _TUPLE
        by_chance = skew(float(len(has)), max(1.0, tuples))
        return now > (tolerated(sum(work) / sum(has)) + by_chance) * then

    def _fewest(self, rates: list[float], costs: list[float], loads: Sequence[Shares]) -> Plan:
        """Program 8 over executors, each a station that knows its busiest shard."""
        operators = self.setup.operators
        stations: dict[str, Station] = {}
        for number, (rate, cost_s) in enumerate(zip(rates, costs, strict=True)):
            executor = self.executors[number]
            busiest = float(loads[executor.operator][executor.shards].max(initial=0.0))
            hot = (busiest / rate,) if busiest * MEMORY_S >= SEEN else ()
            stations[str(number)] = KeyedStation(max(rate, _LEAST), 1 / cost_s, hot=hot)
        outside = sum(
            float(load.sum()) for load, o in zip(loads, operators, strict=True) if o.behind is None
        )
        visit_s = sum(o.cost_s * o.per_order for o in operators)
        return min_processors(Network(stations, max(outside, _LEAST)), _AMPLE * visit_s)

    def _assign(self, wanted: Sequence[int], loads: Sequence[Shares]) -> None:
        """By algorithm 1, with its mends; or the naive way."""
        needs, now = {}, {}
        for number, (executor, count) in enumerate(zip(self.executors, wanted, strict=True)):
            operator = self.setup.operators[executor.operator]
            rate = float(loads[executor.operator][executor.shards].sum())
            intensity = rate * (operator.in_bytes + operator.makes * operator.out_bytes) / count
            state = operator.shard_bytes * len(executor.shards)
            needs[number] = Need(executor.home, count, state, intensity)
            now[number] = self._by_machine(executor)
        if self.setup.paradigm == "elastic":
            found = assign(needs, self.room, now, self.setup.phi)
        else:
            found = by_chance(needs, self.room, now, self.draw)
        if not found.cores:
            return
        self.phi = found.phi
        self._carry_out({number: dict(cores) for number, cores in found.cores.items()})

    def _carry_out(self, wanted: Mapping[int, Mapping[int, int]]) -> None:
        """Have every executor use so many cores of each machine; it keeps what it can."""
        free: dict[int, list[int]] = {}
        taken = {core for executor in self.executors for core in executor.cores}
        for core in self._in_turn():
            if core not in taken:
                free.setdefault(self.machine(core), []).append(core)
        for number, executor in enumerate(self.executors):
            has = self._by_machine(executor)
            for machine, count in has.items():
                surplus = count - wanted[number].get(machine, 0)
                for core in [c for c in executor.cores if self.machine(c) == machine][::-1]:
                    if surplus > 0:
                        surplus -= 1
                        executor.cores.remove(core)
                        free.setdefault(machine, []).append(core)
        for number, executor in enumerate(self.executors):
            has = self._by_machine(executor)
            for machine, count in wanted[number].items():
                for _ in range(count - has.get(machine, 0)):
                    executor.cores.append(free[machine].pop(0))

    def _by_machine(self, executor: Executor) -> dict[int, int]:
        found: dict[int, int] = {}
        for core in executor.cores:
            found[self.machine(core)] = found.get(self.machine(core), 0) + 1
        return found

    def _balance(self, executor: Executor, loads: Shares, changed: bool) -> list[Move]:
        """Spread the executor's shards over its cores, by what came lately and what waits."""
        core_of = self.core_of[executor.operator]
        owned: dict[int, list[int]] = {core: [] for core in executor.cores}
        homeless = []
        for shard in executor.shards:
            core = int(core_of[shard])
            if core in owned:
                owned[core].append(shard)
            else:
                homeless.append(shard)
        by_shard = {shard: float(loads[shard]) for shard in executor.shards}
        mine = loads[executor.shards]
        most, by_chance = self._tolerated(executor.operator, mine, len(executor.cores))
        if not changed and not homeless and imbalance(owned, by_shard) <= most + by_chance:
            return []
        found = balanced(owned, by_shard, homeless, most, _TUPLE)
        return self._moved(executor.operator, found)

    def _tolerated(self, operator: int, loads: Shares, cores: int) -> tuple[float, float]:
        """θ for so many cores with these loads, and by how much δ may exceed it by chance."""
        rate = float(loads.sum())
        busy = rate * self.setup.operators[operator].cost_s / cores
        return tolerated(busy), skew(float(cores), max(1.0, rate / _TUPLE))

    def _repartition(self, loads: Sequence[Shares]) -> list[Move]:
        """Of every operator that is out of balance, and has settled: spread its shards over all its
        cores. Which operator has how many cores follows the load."""
        setup = self.setup
        if not sum(self.work):
            return []
        wanted = shares_by_load(setup.usable, self.work)
        cores = [
            [e.cores[0] for e in self.executors if e.operator == number]
            for number in range(len(setup.operators))
        ]
        few = any(len(mine) < count / THETA for mine, count in zip(cores, wanted, strict=True))
        self.few = self.few + 1 if few else 0
        off = self.few >= _LASTING
        free: list[int] = []
        if off:
            for mine, count in zip(cores, wanted, strict=True):
                while len(mine) > count:
                    free.append(mine.pop())
            for mine, count in zip(cores, wanted, strict=True):
                while len(mine) < count:
                    mine.append(free.pop())
        moves = []
        for number, mine in enumerate(cores):
            owned: dict[int, list[int]] = {core: [] for core in mine}
            homeless = []
            for shard, core in enumerate(self.core_of[number].tolist()):
                if core in owned:
                    owned[core].append(shard)
                else:
                    homeless.append(shard)
            by_shard = dict(enumerate(loads[number].tolist()))
            most, by_chance = self._tolerated(number, loads[number], len(mine))
            self.unsettled_s[number] -= setup.costs.period_s
            settled = self.unsettled_s[number] < 0
            # It costs a pause, so θ is not lower for busy ones.
            if off or (settled and imbalance(owned, by_shard) > THETA + by_chance):
                found = self._moved(number, balanced(owned, by_shard, homeless, most, _TUPLE))
                if found:
                    self.unsettled_s[number] = SETTLES_S
                moves += found
        self.executors = [
            Executor(number, self.machine(core), [], [core])
            for number, mine in enumerate(cores)
            for core in mine
        ]
        for executor in self.executors:
            core_of = self.core_of[executor.operator]
            executor.shards = np.nonzero(core_of == executor.cores[0])[0].tolist()
        return moves

    def _moved(self, operator: int, found: Iterable[tuple[int, int]]) -> list[Move]:
        """Moves, of which each shard has at most one: its last."""
        core_of, setup = self.core_of[operator], self.setup
        moves = []
        for shard, target in dict(found).items():
            source = int(core_of[shard])
            if source == target:
                continue
            away = self.machine(source) != self.machine(target)
            size = setup.operators[operator].shard_bytes if away else 0.0
            moves.append(Move(operator, shard, source, target, size))
            core_of[shard] = target
        return moves
