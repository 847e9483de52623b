"""Machines that are full: a topology in virtual time, tuple by tuple, whose busy workers share the
cores of their machine. Those that sleep use none. Besides its own work, a tuple costs CPU time for
each hop and for handing it to a worker, which short ones share, and each worker costs some whether
it is busy or not. Sources take from a queue that a generator fills, as long as not too many of
their tuples are under way.

Slower than the simulated engine, which knows no such limits, but right where machines are full. It
gives the same samples. Fed and read by whoever looks for the parallelism of an application."""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sojourn.chains import contracted
from sojourn.errors import InputError
from sojourn.placement.tasks import Placement, round_robin
from sojourn.ports import Sample, Samples, Sojourn, scv_of
from sojourn.settings import SimulatorSettings
from sojourn.simulator.draws import Distribution
from sojourn.simulator.flow import Outputs
from sojourn.simulator.workload import OperatorLoad, Workload
from sojourn.topology import Edge, OperatorSpec, Topology

_BLOCK = 1024  # random numbers that are drawn at once
_LEAST_CORES = 0.05  # that workers leave to work, however many they are
_INFINITE = math.inf
_ROUNDING = 1e-6  # of a message
_GRAIN_S = 0.001  # of work that is handed to a worker together


@dataclass(slots=True)
class _Root:
    """A tuple from outside: how many of its tree are under way, where it came from and when."""

    source: "_Source"
    born_s: float
    open: int


@dataclass(slots=True, eq=False)
class _Task:
    """A worker, or a part of a source: where it is, and what it has in hand."""

    vertex: "_Vertex"
    machine: "_Machine"
    queue: deque[_Root | None]
    root: _Root | None = None
    busy: bool = False
    since_s: float = 0.0
    waits_s: float = 0.0  # for how long what it has in hand waits,
    work_s: float = 0.0  # what CPU time it needs then,
    own: float = 0.0  # and the share of that which is its own


class _Machine:
    """Cores that busy workers share evenly. Its clock runs as fast as each of them gets on."""

    __slots__ = ("clock_s", "cores", "due_s", "jobs", "since_s")

    def __init__(self, cores: float) -> None:
        self.cores = cores
        self.jobs: list[tuple[float, int, _Task]] = []  # when they are done, by its clock
        self.clock_s = self.since_s = 0.0
        self.due_s = _INFINITE

    def begin(self, now_s: float, number: int, task: _Task) -> None:
        """A worker needs CPU time."""
        jobs, cores = self.jobs, self.cores
        busy = len(jobs)
        passed_s = now_s - self.since_s
        self.since_s = now_s
        self.clock_s += passed_s if busy <= cores else passed_s * cores / busy
        heapq.heappush(jobs, (self.clock_s + task.work_s, number, task))
        left_s = max(0.0, jobs[0][0] - self.clock_s)
        busy += 1
        self.due_s = now_s + (left_s if busy <= cores else left_s * busy / cores)

    def end(self, now_s: float) -> _Task:
        """The next one is done. That is when it is due, so the clock stands at its end."""
        jobs, cores = self.jobs, self.cores
        self.clock_s, _, task = heapq.heappop(jobs)
        self.since_s = now_s
        busy = len(jobs)
        if busy:
            left_s = jobs[0][0] - self.clock_s
            self.due_s = now_s + (left_s if busy <= cores else left_s * busy / cores)
        else:
            self.due_s = _INFINITE
        return task


@dataclass
class _Seen:
    """Of a vertex, since the last sample."""

    arrivals: int = 0
    served: int = 0
    busy_s: float = 0.0
    service_s: float = 0.0
    service_s2: float = 0.0
    emitted: list[int] = field(default_factory=list)  # by output
    squares: list[int] = field(default_factory=list)


class _Vertex:
    """An operator, a sink or a source: its tasks, what waits, and where its tuples go."""

    def __init__(self, name: str, load: OperatorLoad, rng: np.random.Generator) -> None:
        self.name, self.load, self.rng = name, load, rng
        self.outputs = self.ticks = Outputs([])
        self.receivers: list[list[_Vertex]] = []  # by output
        self.edges: list[list[str]] = []
        self.tasks: list[_Task] = []
        self.waiting: deque[_Root | None] = deque()
        self.idle: list[_Task] = []
        self.keyed = False
        self.hop_s = 0.0
        self.seen = _Seen()
        # Of each tuple, how long it waits, its CPU time, and the share of that which is its own.
        self.work: Iterator[tuple[float, float, float]] = iter(())
        self.made = self._made()
        self.places: Iterator[int] = iter(())

    def _made(self) -> Iterator[tuple[int, ...]]:
        """How many tuples each one makes on each output."""
        while True:
            counts = self.outputs.counts(_BLOCK, self.rng)
            yield from zip(*(of.tolist() for of in counts), strict=True)

    @property
    def queue(self) -> int:
        """Tuples that wait or are in hand."""
        return len(self.waiting) + sum(len(task.queue) + task.busy for task in self.tasks)

    def owners(self, shards: int, zipf: float) -> Iterator[int]:
        """The task of each tuple: shards belong to tasks in turn, the most popular first."""
        weights = (1.0 + np.arange(shards)) ** -zipf
        below = np.cumsum(weights / weights.sum())
        while True:
            drawn = np.searchsorted(below, self.rng.random(_BLOCK), side="right")
            yield from (np.minimum(drawn, shards - 1) % len(self.tasks)).tolist()


class _Source(_Vertex):
    """Takes from a queue as fast as it may. Without a rate, the queue is never empty."""

    rate: float | None = None
    under_way = 0
    most = _INFINITE  # under way
    taken = 0
    asked = False  # whether it is told when the next message comes

    def there(self, now_s: float) -> float:
        """Messages in the queue."""
        if self.rate is None:
            return _INFINITE
        return math.floor(self.rate * now_s + _ROUNDING) - self.taken


class CrowdedEngine:
    """A started topology. `parts` says how many tasks a source has, one unless told. `rates` are
    messages a second that come into the queues before sources; without one there are always some.
    Tasks are on machines in turn, unless `place` says on which each is."""

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        settings: SimulatorSettings,
        *,
        machines: int,
        cores: int,
        processors: Mapping[str, int] | None = None,
        parts: Mapping[str, int] | None = None,
        rates: Mapping[str, float] | None = None,
        in_flight: int | None = None,
        place: Placement = round_robin,
        seed: int = 0,
    ) -> None:
        topology.check()
        if rates is None and in_flight is None:
            raise InputError(
                "where sources always have messages, tuples under way must be bounded; give "
                "in_flight or rates"
            )
        topology = contracted(topology)
        workload.check_operators(topology)
        topology = topology.without_broadcasts()
        self.settings = settings
        self.now_s = self.sampled_s = 0.0
        self.numbers = itertools.count()
        self.timers: list[tuple[float, int, _Task | _Vertex]] = []
        self.flight: deque[tuple[float, _Vertex, _Root | None, int]] = deque()
        self.sojourns: list[float] = []
        self.open = 0
        self.rng = np.random.default_rng(seed)
        self.vertices = self._built(topology, workload)
        self.sources = [v for v in self.vertices.values() if isinstance(v, _Source)]
        counts = self._counts(topology, processors or {}, parts or {})
        tasks = sum(counts.values())
        where = place(counts, machines)
        if len(where) != tasks or not all(0 <= at < machines for at in where):
            raise InputError(f"each of {tasks} tasks needs one of {machines} machines; got {where}")
        self.machines = [
            _Machine(max(_LEAST_CORES, cores - settings.task_share * where.count(at)))
            for at in range(machines)
        ]
        self._seat(counts, iter(where), topology)
        for source in self.sources:
            source.rate = None if rates is None else rates[source.name]
            source.most = _INFINITE if in_flight is None else max(1, in_flight // len(self.sources))
            self._pull(source)

    # what it is made of

    def _built(self, topology: Topology, workload: Workload) -> dict[str, _Vertex]:
        none = OperatorLoad(Distribution("constant", 0.0))
        found: dict[str, _Vertex] = {}
        for name in topology.vertices:
            rng = np.random.Generator(np.random.PCG64(self.rng.integers(2**63)))
            if name in topology.sources:
                found[name] = _Source(name, none, rng)
            else:
                found[name] = _Vertex(name, workload.operators.get(name, none), rng)
        for name, vertex in found.items():
            edges: dict[str | None, list[Edge]] = {}
            for edge in topology.edges:
                if edge.sender == name:
                    edges.setdefault(edge.output, []).append(edge)
            vertex.outputs = Outputs([vertex.load.gain(of[0]) for of in edges.values()])
            vertex.ticks = Outputs([vertex.load.ticks(of[0]) for of in edges.values()])
            vertex.receivers = [[found[edge.receiver] for edge in of] for of in edges.values()]
            vertex.edges = [[edge.name for edge in of] for of in edges.values()]
            if vertex.load.every_s is not None and edges:
                heapq.heappush(self.timers, (vertex.load.every_s, next(self.numbers), vertex))
            vertex.hop_s = self.settings.hop_cpu_s * (1 + len(edges) * (name in topology.sources))
            vertex.seen = self._unseen(vertex)
            vertex.work = _work(vertex, self.settings.hand_over_cpu_s)
        return found

    def _counts(
        self, topology: Topology, processors: Mapping[str, int], parts: Mapping[str, int]
    ) -> dict[str, int]:
        found = {}
        for name, vertex in self.vertices.items():
            spec = topology.vertices[name]
            if isinstance(vertex, _Source):
                found[name] = parts.get(name, 1)
            elif isinstance(spec, OperatorSpec):
                found[name] = processors.get(name, spec.processors)
            else:
                found[name] = 1
        return found

    def _seat(self, counts: Mapping[str, int], where: Iterator[int], topology: Topology) -> None:
        for name, count in counts.items():
            vertex = self.vertices[name]
            for _ in range(count):
                vertex.tasks.append(_Task(vertex, self.machines[next(where)], deque()))
            vertex.idle = vertex.tasks[::-1]
            spec = topology.operators.get(name)
            if spec is not None and spec.key is not None:
                vertex.keyed = True
                vertex.places = vertex.owners(spec.shards, vertex.load.zipf)

    def _unseen(self, vertex: _Vertex) -> _Seen:
        none = [0] * len(vertex.edges)
        return _Seen(emitted=none, squares=list(none))

    # time

    def advance(self, to_s: float) -> None:
        """Let time pass."""
        timers, flight, machines = self.timers, self.flight, self.machines
        while True:
            next_s, machine = _INFINITE, None
            for one in machines:
                if one.due_s < next_s:
                    next_s, machine = one.due_s, one
            timed = bool(timers) and timers[0][0] < next_s
            if timed:
                next_s = timers[0][0]
            lands = bool(flight) and flight[0][0] <= next_s
            if lands:
                next_s = flight[0][0]
            if next_s >= to_s:
                self.now_s = to_s
                return
            self.now_s = next_s
            if lands:
                self._arrive(*flight.popleft()[1:])
            elif timed:
                woken = heapq.heappop(timers)[2]
                if isinstance(woken, _Source):
                    woken.asked = False
                    self._pull(woken)
                elif isinstance(woken, _Vertex):
                    self._tick(woken)
                else:
                    woken.machine.begin(self.now_s, next(self.numbers), woken)
            else:
                assert machine is not None
                self._done(machine.end(self.now_s))

    def _pull(self, source: _Source) -> None:
        """Have parts of a source that are idle take what there is, as far as they may."""
        while source.idle and source.under_way < source.most:
            if source.there(self.now_s) < 1:
                assert source.rate is not None
                if not source.asked and source.rate > 0:
                    source.asked = True
                    at_s = (source.taken + 1) / source.rate
                    entry = (max(self.now_s, at_s), next(self.numbers), source)
                    heapq.heappush(self.timers, entry)
                return
            source.taken += 1
            source.under_way += 1
            source.seen.arrivals += 1
            self.open += 1
            self._take(source.idle.pop(), _Root(source, self.now_s, 1))

    def _arrive(self, vertex: _Vertex, root: _Root | None, count: int) -> None:
        vertex.seen.arrivals += count
        if vertex.keyed:
            for place in itertools.islice(vertex.places, count):
                task = vertex.tasks[place]
                if task.busy:
                    task.queue.append(root)
                else:
                    self._take(task, root)
            return
        for _ in range(count):
            if vertex.idle:
                self._take(vertex.idle.pop(), root)
            else:
                vertex.waiting.append(root)

    def _take(self, task: _Task, root: _Root | None) -> None:
        """A task has its next tuple: first it waits, as far as it does, and then it computes."""
        task.waits_s, task.work_s, task.own = next(task.vertex.work)
        task.root, task.since_s, task.busy = root, self.now_s, True
        if task.waits_s > 0:
            heapq.heappush(self.timers, (self.now_s + task.waits_s, next(self.numbers), task))
        else:
            task.machine.begin(self.now_s, next(self.numbers), task)

    def _done(self, task: _Task) -> None:
        vertex, root, seen = task.vertex, task.root, task.vertex.seen
        took_s = self.now_s - task.since_s
        service_s = task.waits_s + (took_s - task.waits_s) * task.own  # as the engine measures it
        seen.served += 1
        seen.busy_s += took_s
        seen.service_s += service_s
        seen.service_s2 += service_s * service_s
        children = self._emit(vertex, root, next(vertex.made)) if vertex.receivers else 0
        task.root, task.busy = None, False
        if root is not None:
            root.open += children - 1
            if not root.open:
                self.sojourns.append(self.now_s - root.born_s)
                self.open -= 1
                root.source.under_way -= 1
                self._pull(root.source)
        if isinstance(vertex, _Source):
            vertex.idle.append(task)
            self._pull(vertex)
        elif vertex.keyed:
            if task.queue:
                self._take(task, task.queue.popleft())
        elif vertex.waiting:
            self._take(task, vertex.waiting.popleft())
        else:
            vertex.idle.append(task)

    def _tick(self, vertex: _Vertex) -> None:
        """A timer of an operator is due. What it emits belongs to no tree."""
        made = tuple(int(of[0]) for of in vertex.ticks.counts(1, vertex.rng))
        self._emit(vertex, None, made)
        assert vertex.load.every_s is not None
        due_s = self.now_s + vertex.load.every_s
        heapq.heappush(self.timers, (due_s, next(self.numbers), vertex))

    def _emit(self, vertex: _Vertex, root: _Root | None, made: Sequence[int]) -> int:
        """Send what was made of a tuple. Returns how many there are."""
        seen, lands_s = vertex.seen, self.now_s + self.settings.hop_s
        children = 0
        for number, count in enumerate(made):
            if not count:
                continue
            seen.emitted[number] += count
            seen.squares[number] += count * count
            for receiver in vertex.receivers[number]:
                children += count
                self.flight.append((lands_s, receiver, root, count))
        return children

    # what was seen

    def waiting(self) -> float:
        """Messages in the queues before sources. Where there are always some, none is counted."""
        paced = (source for source in self.sources if source.rate is not None)
        return sum(source.there(self.now_s) for source in paced)

    def samples(self) -> Samples:
        """What happened since the last call."""
        interval_s = self.now_s - self.sampled_s
        found = {name: self._sample(vertex, interval_s) for name, vertex in self.vertices.items()}
        self.sampled_s = self.now_s
        for vertex in self.vertices.values():
            vertex.seen = self._unseen(vertex)
        done, self.sojourns = sorted(self.sojourns), []
        return Samples(self.now_s, found, Sojourn.of(done) if done else None, self.open)

    def _sample(self, vertex: _Vertex, interval_s: float) -> Sample:
        seen, tasks = vertex.seen, len(vertex.tasks)
        edges = [(name, number) for number, names in enumerate(vertex.edges) for name in names]
        return Sample(
            name=vertex.name,
            interval_s=interval_s,
            processors=tasks,
            wanted=tasks,
            queue=vertex.queue,
            arrivals=seen.arrivals,
            served=seen.served,
            arrival_rate=seen.arrivals / interval_s if interval_s > 0 else 0.0,
            arrival_scv=None,
            service_s=seen.service_s / seen.served if seen.served else None,
            service_scv=scv_of(seen.served, seen.service_s, seen.service_s2),
            busy=min(1.0, seen.busy_s / (tasks * interval_s)) if interval_s > 0 else 0.0,
            emitted={name: seen.emitted[number] for name, number in edges},
            together={name: {name: seen.squares[number]} for name, number in edges},
        )


def _work(vertex: _Vertex, hand_over_s: float) -> Iterator[tuple[float, float, float]]:
    """Of one tuple after the other, for how long it waits, what CPU time it needs, and the share of
    that which is its own: the rest is for hops and hand-overs."""
    service = vertex.load.service
    while True:
        services = service.draw(vertex.rng, _BLOCK)
        waits = services * (1.0 - vertex.load.cpu)
        handed = np.minimum(1.0, services / _GRAIN_S) * hand_over_s
        own = services - waits
        work = own + vertex.hop_s + handed
        share = np.divide(own, work, out=np.zeros_like(own), where=work > 0)
        yield from zip(waits.tolist(), work.tolist(), share.tolist(), strict=True)
