"""The simulated engine: a topology in virtual time. It advances from one moment to the next.
Between two of its events (a batch's end, a failure, machines that come) all stations are swept in
the order in which tuples pass them. Control cannot tell it from the engine on Spark."""

import functools
import heapq
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sojourn.chains import contracted
from sojourn.errors import InputError
from sojourn.graph import groups, is_loop, reached
from sojourn.ports import Allocation, Pressure, Sample, Samples, Sojourn, scv_of
from sojourn.pressure import QueueWatch, RateWatch
from sojourn.settings import EngineSettings, SimulatorSettings, knobs_of
from sojourn.simulator.arrivals import Arrivals
from sojourn.simulator.cluster import Cluster, Executor
from sojourn.simulator.draws import Distribution, Times, quantum
from sojourn.simulator.flow import Edge, Inbox, Outputs
from sojourn.simulator.lane import Seat
from sojourn.simulator.station import Counts, Numbers, Station
from sojourn.simulator.trees import REPEATED, Roots, Trees
from sojourn.simulator.workload import OperatorLoad, Workload
from sojourn.topology import Topology

_BUSIEST = 32  # shards that are told of
_LEAST_STEP_S = 0.001
_GRAIN_S = 0.05  # between two looks at arrivals
_LOOK_S = 0.25  # between two looks at queues in which tuples wait
_SHEDDING_STEPS = 4  # how often the backlog is checked within the time after which a source sheds


class SimulatedEngine:
    """A started topology in virtual time, which begins at zero and passes with `advance`."""

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        settings: SimulatorSettings,
        engine_settings: EngineSettings,
        *,
        seed: int = 0,
        machines: int | None = None,
        machine_processors: int = 4,
        machine_kind: str = "",
        max_sojourn_s: float | None = None,
    ) -> None:
        topology.check()
        for spec in topology.operators.values():
            if spec.shed_after_s is not None:
                raise InputError(
                    f"operator {spec.name!r}: a simulation sheds at sources only; give shed_after "
                    "to them"
                )
        topology = contracted(topology)
        workload = workload.checked(topology)
        topology = topology.without_broadcasts()
        self.topology, self.workload = topology, workload
        self.settings = settings = _in_quanta(settings)
        self.batch_s = quantum(engine_settings.batch_s)
        self.commit_s = engine_settings.commit_s
        self.cluster = Cluster(machines, machine_processors, settings, machine_kind)
        self.now_s = 0.0
        self.sampled_s = 0.0
        self.stalled_until_s = 0.0
        self.restarts = self.batches = 0
        self.starts = 1
        self.trees = Trees(_senders(topology))
        self.sojourns: list[Times] = []
        self.wanted = {name: spec.processors for name, spec in topology.operators.items()}
        streams = dict(
            zip(
                ("", *topology.vertices),
                np.random.SeedSequence(seed).spawn(len(topology.vertices) + 1),
                strict=True,
            )
        )
        self.rngs = {
            name: np.random.Generator(np.random.PCG64(stream)) for name, stream in streams.items()
        }
        self.chance = self.rngs[""]
        self._build(topology, workload)
        self._reseat(0.0)
        self.on_pressure: Callable[[Pressure], None] | None = None
        self.max_sojourn_s = max_sojourn_s
        self.rate_watches = {name: RateWatch() for name in topology.sources}
        self.queue_watches = {name: QueueWatch(max_sojourn_s) for name in topology.operators}
        # Events: when, in which order, and what to do.
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self._plan_events()

    def _build(self, topology: Topology, workload: Workload) -> None:
        hop = self.settings.hop_s
        self.stations: dict[str, Station] = {}
        for name, spec in topology.operators.items():
            self.stations[name] = Station(
                name,
                workload.operators[name],
                spec.key is not None,
                spec.shards,
                spec.executors,
                self.rngs[name],
            )
            self.stations[name].hand_over_s = self.settings.hand_over_s
        sink = OperatorLoad(Distribution("constant", self.settings.sink_s))
        for name in topology.sinks:
            load = workload.operators.get(name, sink)
            self.stations[name] = Station(name, load, False, 1, 1, self.rngs[name])
        self.edges: dict[str, list[Edge]] = {name: [] for name in topology.vertices}
        onward: dict[str, list[str]] = {name: [] for name in topology.vertices}
        gains: dict[str, dict[str | None, list[float]]] = {name: {} for name in topology.vertices}
        self.ticks: dict[str, list[float]] = {}  # by edge, of those that a timer emits
        for edge in topology.edges:
            sender = workload.operators.get(edge.sender)
            outputs = gains[edge.sender]
            outputs.setdefault(edge.output, []).append(1.0 if sender is None else sender.gain(edge))
            if sender is not None and sender.every_s is not None:
                self.ticks.setdefault(edge.sender, []).append(sender.ticks(edge))
            # Feedback goes back to the sources first, and from there like all other tuples.
            delay = 2 * hop if edge.feedback else hop
            number = list(outputs).index(edge.output)
            self.edges[edge.sender].append(Edge(edge.name, edge.receiver, delay, number))
            onward[edge.sender].append(edge.receiver)
        self.outputs = {
            name: Outputs([statistics.fmean(of) for of in outputs.values()])
            for name, outputs in gains.items()
        }
        self.order = [g for g in groups(onward) if g[0] in self.stations]
        self.looping = [is_loop(group, onward) for group in self.order]
        self.reached = {name: reached(name, onward) for name in topology.sources}
        self.inboxes = {name: Inbox() for name in self.stations}
        self.arrivals = {
            name: Arrivals(load, self.rngs[name]) for name, load in workload.sources.items()
        }
        self.counts = {name: Counts() for name in topology.sources}
        self.last_s: dict[str, float | None] = dict.fromkeys(topology.sources)
        self.logs: dict[str, list[tuple[Times, Roots]]] = {n: [] for n in topology.sources}

    def _plan_events(self) -> None:
        self._at(self.batch_s, self._end_batch)
        for name, load in self.workload.operators.items():
            if load.shift_s is not None and self.stations[name].keyed:
                self._every(load.shift_s, self.stations[name].shift)
            if load.every_s is not None and name in self.ticks:
                self._every(load.every_s, functools.partial(self._tick, name))
        if self.settings.worker_lives_s is not None:
            self._at(self._until_worker_dies(), self._kill_worker)
        if self.settings.machine_lives_s is not None and self.cluster.machines is not None:
            self._at(self._until_machine_dies(), self._lose_machine)

    # what control uses

    def samples(self, peek: bool = False) -> Samples:
        """What happened since the last call."""
        interval_s = self.now_s - self.sampled_s
        vertices = {name: self._source_sample(name, interval_s) for name in self.counts}
        for name, station in self.stations.items():
            vertices[name] = self._sample(station, interval_s)
        sums = {
            "starts": self.starts,
            "commits": self.batches,
            "restarts": self.restarts,
            "relocations": self.starts - 1 - self.restarts,
        }
        if peek:
            return Samples(self.now_s, vertices, None, self.trees.count, **sums)
        self.sampled_s = self.now_s
        if any(station.is_uneven for station in self.stations.values()):
            self._reseat(self.now_s + self.settings.resize_s)
        for station in self.stations.values():
            station.counts = Counts()
        self.counts = {name: Counts() for name in self.counts}
        done = np.sort(np.concatenate(self.sojourns)) if self.sojourns else np.empty(0)
        self.sojourns = []
        self._forget_committed(self.now_s - self.now_s % self.commit_s)
        critical = self.trees.paths.collect()
        sojourn = replace(Sojourn.of(done.tolist()), critical=critical) if len(done) else None
        count = self.trees.count
        return Samples(self.now_s, vertices, sojourn, count, **sums)

    def allocation(self) -> dict[str, int]:
        """Processors each operator has now."""
        return {name: self.stations[name].processors for name in self.wanted}

    def resize(self, allocation: Allocation) -> None:
        """Change the processors of some operators."""
        for name, asked in allocation.items():
            given = list(asked) if isinstance(asked, Sequence) else None
            self.stations[name].given = given
            self.wanted[name] = asked if isinstance(asked, int) else sum(asked)
        self._reseat(self.now_s + self.settings.resize_s)

    # time

    def advance(self, to_s: float) -> bool:
        """Let time pass. Returns whether something cannot wait that long: `on_pressure` was told of
        it, and the time is earlier."""
        to_s = quantum(to_s)
        while self.now_s < to_s:
            due = min(to_s, self.events[0][0]) if self.events else to_s
            pressed = False
            if due > self.now_s:
                due, risen = self._risen(due)
                self._sweep(due)
                pressed = self._press(risen)
            while self.events and self.events[0][0] <= self.now_s:
                heapq.heappop(self.events)[2]()
            if pressed and self.now_s < to_s:
                return True
        return False

    def _risen(self, end_s: float) -> tuple[float, list[Pressure]]:
        """What sources would tell before a time, and when. While tuples wait, the time is short
        enough to see a queue grow."""
        if self.on_pressure is None or self.max_sojourn_s is None:
            return end_s, []
        if any(self.stations[n].queue > 2 * self.stations[n].processors for n in self.wanted):
            end_s = min(end_s, self.now_s + _LOOK_S)
        begin_s = self.now_s
        steps = max(1, math.ceil((end_s - begin_s) / _GRAIN_S))
        times = [quantum(begin_s + (end_s - begin_s) * i / steps) for i in range(1, steps + 1)]
        counts = {
            name: np.searchsorted(arrivals.peek(end_s), times, side="left").tolist()
            for name, arrivals in self.arrivals.items()
        }
        before = dict.fromkeys(counts, 0)
        for number, time_s in enumerate(times):
            found = []
            for name, so_far in counts.items():
                came, before[name] = so_far[number] - before[name], so_far[number]
                risen = self.rate_watches[name].add(came, time_s)
                if risen is not None:
                    found.append(Pressure(name, *risen))
            if found:
                return time_s, found
        return end_s, []

    def _press(self, found: list[Pressure]) -> bool:
        """Tell what sources and queues say, if anything. Returns whether there was anything."""
        if self.on_pressure is None:
            return False
        for name, watch in self.queue_watches.items():
            station = self.stations[name]
            wait_s = watch.look(
                len(station.waiting), station.processors, station.load.service.mean_s
            )
            if wait_s is not None:
                found.append(Pressure(name, wait_s=wait_s))
        for pressure in found:
            self.on_pressure(pressure)
        return bool(found)

    @property
    def is_idle(self) -> bool:
        """Whether all sources are exhausted and everything is processed."""
        over = all(arrivals.is_over(self.now_s) for arrivals in self.arrivals.values())
        return over and not self.trees.count

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something after a while."""
        self._at(self.now_s + seconds, action)

    def pause(self, seconds: float) -> None:
        """Let nothing travel for a while: the topology commits and moves to other machines."""
        self.starts += 1
        self._stall(seconds)
        self._forget_committed(self.now_s)
        self._reseat(self.now_s)

    def _forget_committed(self, commit_s: float) -> None:
        """Forget what came before a commit and is done: a failure does not repeat it."""
        for name, log in self.logs.items():
            self.logs[name] = [
                (time_s[still], root[still])
                for time_s, root in log
                if (still := self.trees.is_open(root) | (time_s >= commit_s)).any()
            ]

    def _stall(self, seconds: float) -> None:
        self.stalled_until_s = max(self.stalled_until_s, self.now_s + seconds)
        for station in self.stations.values():
            station.rush.hold_up()

    def _at(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (quantum(time_s), next(self.numbers), action))

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.later(seconds, again)

        self.later(seconds, again)

    def _sweep(self, end_s: float) -> None:
        """Sweep from now to a time before which no other event happens."""
        sheds = [s.source.shed_after for s in self.topology.sources.values() if s.source.shed_after]
        step_s = quantum(max(_LEAST_STEP_S, min(sheds) / _SHEDDING_STEPS)) if sheds else math.inf
        while self.now_s < end_s:
            until_s = min(end_s, self.now_s + step_s)
            for name in self.arrivals:
                self._arrive(name, until_s)
            for group, loops in zip(self.order, self.looping, strict=True):
                if loops:
                    self._sweep_loop(group, until_s)
                else:
                    self._sweep_station(self.stations[group[0]], until_s)
            self.now_s = until_s
            self.sojourns.append(self.trees.collect())

    def _arrive(self, name: str, end_s: float) -> None:
        counts, edges = self.counts[name], self.edges[name]
        time_s = self.arrivals[name].until(end_s)
        if not len(time_s):
            return
        last = self.last_s[name]
        gaps = np.diff(time_s) if last is None else np.diff(time_s, prepend=last)
        self.last_s[name] = float(time_s[-1])
        counts.arrived(len(time_s), gaps)
        counts.served += len(time_s)
        limit = self.topology.sources[name].source.shed_after
        if limit is not None and self._behind_s(name) > limit:
            counts.shed += len(time_s)
            return
        root = self.trees.add(time_s, len(edges))
        self.logs[name].append((time_s, root))
        self._send(name, time_s, root)

    def _behind_s(self, source: str) -> float:
        stalled = max(0.0, self.stalled_until_s - self.now_s)
        # Back-pressure reaches the source from wherever tuples wait longest.
        return stalled + max(self.stations[n].backlog_s(self.now_s) for n in self.reached[source])

    def _send(self, source: str, time_s: Times, root: Roots) -> None:
        for edge in self.edges[source]:
            self.inboxes[edge.receiver].put(time_s + edge.hop_s, root)
        self._count(self.counts[source], source, [], len(root))

    def _sweep_station(self, station: Station, end_s: float) -> None:
        time_s, root = self.inboxes[station.name].take(end_s, self.stalled_until_s)
        gone = station.advance(end_s, time_s, root)
        outputs = self.outputs[station.name]
        made = [] if outputs.plain else outputs.counts(len(gone), station.outputs_rng)
        children = np.zeros(len(gone), np.int64)
        for edge in self.edges[station.name]:
            times, roots = gone.time_s + edge.hop_s, gone.root
            if outputs.plain:
                children += 1
            else:
                counts = made[edge.output]
                children += counts
                times, roots = np.repeat(times, counts), np.repeat(roots, counts)
            self.inboxes[edge.receiver].put(times, roots)
        self._count(station.counts, station.name, made, len(gone))
        self.trees.note(gone.root, gone.time_s, station.name)
        self.trees.processed(gone.root, gone.time_s, children)

    def _tick(self, name: str) -> None:
        """A timer of an operator is due. What it emits belongs to no tree."""
        counts = {}
        for edge, mean in zip(self.edges[name], self.ticks[name], strict=True):
            count = int(Outputs([mean]).counts(1, self.stations[name].outputs_rng)[0][0])
            times = np.full(count, quantum(self.now_s + edge.hop_s))
            self.inboxes[edge.receiver].put(times, np.full(count, REPEATED))
            counts[edge.name] = count
        self.stations[name].counts.sent(counts, {})

    def _count(self, counts: Counts, name: str, made: list[Roots], size: int) -> None:
        """Count what `size` tuples made on each output; without `made`, one on each."""
        edges = self.edges[name]
        if made:
            sums = [int(numbers.sum()) for numbers in made]
            products = [[int(one @ other) for other in made] for one in made]
        else:
            sums, products = [size] * len(edges), [[size] * len(edges)] * len(edges)
        counts.sent(
            {edge.name: sums[edge.output] for edge in edges},
            {(e.name, o.name): products[e.output][o.output] for e in edges for o in edges},
        )

    def _sweep_loop(self, group: list[str], end_s: float) -> None:
        """Sweep stations that feed one another, tuple by tuple in the order of arrival."""
        members = {name: self.stations[name] for name in group}
        coming: list[tuple[float, int, str, int]] = []
        outside: dict[str, list[tuple[float, int]]] = {}
        stalled, number = self.stalled_until_s, itertools.count()
        rows: list[tuple[int, float, int]] = []
        sent: dict[str, list[list[int]]] = {name: [] for name in group}

        def departed(station: Station, time_s: float, root: int) -> None:
            children = 0
            made = self.outputs[station.name].counts(1, station.outputs_rng)
            for edge in self.edges[station.name]:
                count = int(made[edge.output][0])
                children += count
                arrives = time_s + edge.hop_s
                for _ in range(count):
                    if edge.receiver in members and max(arrives, stalled) < end_s:
                        entry = (max(arrives, stalled), next(number), edge.receiver, root)
                        heapq.heappush(coming, entry)
                    else:
                        outside.setdefault(edge.receiver, []).append((arrives, root))
            sent[station.name].append([int(counts[0]) for counts in made])
            rows.append((root, time_s, children))
            self.trees.note(np.array([root]), np.array([time_s]), station.name)

        for name, station in members.items():
            time_s, root = self.inboxes[name].take(end_s, stalled)
            for arrives, of in zip(time_s.tolist(), root.tolist(), strict=True):
                heapq.heappush(coming, (arrives, next(number), name, of))
            for departs, of in station.begin(end_s):
                departed(station, departs, of)
        while coming:
            arrives, _, name, of = heapq.heappop(coming)
            leaves = members[name].take(arrives, of, end_s)
            if leaves is not None and leaves < end_s:
                departed(members[name], leaves, of)
        for name, station in members.items():
            station.end(end_s)
            if sent[name]:
                self._count(station.counts, name, list(np.array(sent[name]).T), len(sent[name]))
        for name, pairs in outside.items():
            self.inboxes[name].put(
                np.array([time_s for time_s, _ in pairs]), np.array([of for _, of in pairs])
            )
        if rows:
            roots, times, children = zip(*rows, strict=True)
            self.trees.processed(np.array(roots), np.array(times), np.array(children))

    # events

    def _end_batch(self) -> None:
        """End a batch of Spark's: all is committed, and tuples are stalled. Commits within a batch
        stall nothing, so that only these are counted."""
        self.batches += 1
        self._stall(self.settings.stall_s)
        self._forget_committed(self.now_s)
        self._at(self.now_s + self.batch_s, self._end_batch)

    def leave_machines(self) -> None:
        """Seat workers elsewhere that sat on machines that are gone."""
        self._reseat(self.now_s + self.settings.resize_s)

    def _reseat(self, ready_s: float) -> None:
        """Seat workers where they are wanted."""
        workers: dict[Executor, int] = {}
        for name, processors in self.wanted.items():
            for executor, share in enumerate(self.stations[name].split(processors)):
                workers[name, executor] = share
        seats = self.cluster.seats(workers)
        for name, station in self.stations.items():
            own = [seats.get((name, e), [Seat()]) for e in range(station.executors)]
            station.seat(own, self.now_s, ready_s, self.cluster.move_s)

    def _until_worker_dies(self) -> float:
        lives_s = self.settings.worker_lives_s
        assert lives_s is not None
        workers = max(1, sum(self.wanted.values()))
        return self.now_s + float(self.chance.standard_exponential()) * lives_s / workers

    def _until_machine_dies(self) -> float:
        lives_s = self.settings.machine_lives_s
        assert lives_s is not None
        machines = max(1, len(self.cluster.machines or ()))
        return self.now_s + float(self.chance.standard_exponential()) * lives_s / machines

    def _kill_worker(self) -> None:
        names = [name for name, count in self.wanted.items() for _ in range(count)]
        station = self.stations[names[int(self.chance.integers(len(names)))]]
        if station.keyed:
            self.fail()
        else:
            station.kill_worker(self.now_s, self.now_s + self.settings.resize_s)
        self._at(self._until_worker_dies(), self._kill_worker)

    def _lose_machine(self) -> None:
        machines = self.cluster.machines
        assert machines is not None
        if len(machines) > 1:
            self.cluster.lose(machines[int(self.chance.integers(len(machines)))])
            self.fail()
        self._at(self._until_machine_dies(), self._lose_machine)

    def fail(self) -> None:
        """Take the topology back to the last commit. It repeats everything since then."""
        self.restarts += 1
        self.starts += 1
        self._forget_committed(self.now_s - self.now_s % self.commit_s)
        self._stall(self.settings.recover_s)
        for station in self.stations.values():
            station.forget(self.now_s)
            self.inboxes[station.name] = Inbox()
        for name, log in self.logs.items():
            if not log:
                continue
            time_s = np.concatenate([part[0] for part in log])
            root = np.concatenate([part[1] for part in log])
            root = np.where(self.trees.is_open(root), root, REPEATED)
            self.trees.restart(root, len(self.edges[name]))
            self.logs[name] = [(time_s, root)]
            self.counts[name].served += len(root)  # it reads them again, but no more arrive
            self._send(name, time_s, root)
        self._reseat(self.now_s)

    # samples

    def _sample(self, station: Station, interval_s: float) -> Sample:
        counts = station.counts
        processors = station.processors
        return Sample(
            name=station.name,
            interval_s=interval_s,
            processors=processors,
            wanted=self.wanted.get(station.name, processors),
            queue=station.queue,
            arrivals=counts.arrivals,
            served=counts.served,
            arrival_rate=counts.arrivals / interval_s if interval_s > 0 else 0.0,
            arrival_scv=scv_of(counts.gaps, counts.gap_s, counts.gap_s2),
            service_s=counts.service_s / counts.served if counts.service_s else None,
            service_scv=scv_of(counts.served, counts.service_s, counts.service_s2),
            # Workers that retire finish what they have in hand.
            busy=min(1.0, counts.busy_s / counts.processor_s) if counts.processor_s else 0.0,
            emitted=dict(counts.emitted),
            together={edge: dict(others) for edge, others in counts.together.items()},
            shards=_busiest(counts.shards) if station.keyed else None,
            parts=station.parts(interval_s),
        )

    def _source_sample(self, name: str, interval_s: float) -> Sample:
        counts = self.counts[name]
        return Sample(
            name=name,
            interval_s=interval_s,
            processors=1,
            wanted=1,
            queue=0,
            arrivals=counts.arrivals,
            served=counts.served,
            arrival_rate=counts.arrivals / interval_s if interval_s > 0 else 0.0,
            arrival_scv=scv_of(counts.gaps, counts.gap_s, counts.gap_s2),
            service_s=None,
            service_scv=None,
            busy=0.0,
            emitted=dict(counts.emitted),
            together={edge: dict(others) for edge, others in counts.together.items()},
            shed=counts.shed,
            lag_s=0.0,
        )


def _in_quanta(settings: SimulatorSettings) -> SimulatorSettings:
    """The settings with all durations in whole quanta, like all other times."""
    found: dict[str, Any] = {
        name: quantum(value)
        for name, knob in knobs_of(SimulatorSettings).items()
        if knob.kind == "duration" and (value := getattr(settings, name)) is not None
    }
    return replace(settings, **found)


def _senders(topology: Topology) -> dict[str, set[str]]:
    senders: dict[str, set[str]] = {}
    for edge in topology.edges:
        senders.setdefault(edge.receiver, set()).add(edge.sender)
    return senders


def _busiest(shards: Numbers | None) -> dict[int, int]:
    if shards is None:
        return {}
    order = np.argsort(shards)[::-1][:_BUSIEST]
    return {int(shard): int(shards[shard]) for shard in order if shards[shard]}
