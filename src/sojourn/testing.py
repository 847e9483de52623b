"""Tests of topologies: runs one in the test's own process, without Spark, one tuple at a time. The
test sets the clock. Operators run with the same state, timers and rules as in a worker.

    bench = Bench(topology)
    bench.send("lines", "to be")
    bench.run()
    assert bench.outputs["out"] == [("to", 1), ("be", 1)]
    bench.advance("1min")  # fires timers that are due by then
    assert bench.state("count") == {"to": 1, "be": 1}
"""

import contextlib
import copy
import sys
import tempfile
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sojourn.chains import chained_to
from sojourn.engine.spark.broker import Broker
from sojourn.engine.wire import messages as m
from sojourn.engine.worker import values
from sojourn.engine.worker.code import OperatorCode, Shared
from sojourn.engine.worker.keys import key_hash, key_of
from sojourn.engine.worker.router import broadcast_of
from sojourn.engine.worker.state import State
from sojourn.errors import InputError
from sojourn.operators import Output
from sojourn.sinks import Sink
from sojourn.topology import OperatorSpec, SinkSpec, Topology, checked_topology
from sojourn.units import parse_duration, parse_number

__all__ = ["Bench", "Broker", "Step", "Timer"]


class Timer(NamedTuple):
    """A pending timer."""

    key: Any
    payload: Any
    due_s: float


@dataclass(frozen=True)
class Step:
    """What became of a tuple, a timer or a broadcast. The value of a timer is (key, payload); the
    value of a broadcast is the (key, value) pair."""

    vertex: str
    value: Any
    emitted: tuple[Any, ...]
    error: Exception | None = None


class Bench:
    """A topology under test. `outputs` holds what reached each sink, by the sink's name; nothing is
    written unless `publish` is called. `failed` holds the tuples that failed where `on_error` says
    to go on. `now` is the time, in seconds as `time.time` counts them."""

    def __init__(self, topology: Topology, now: float = 0.0) -> None:
        self.topology = topology = checked_topology("Bench", topology)
        self.now = parse_number(now, "Bench: now")
        self._zero_s = self.now
        self.outputs: dict[str, list[Any]] = {name: [] for name in topology.sinks}
        self.failed: list[Step] = []
        self.waiting: deque[tuple[str, bool, bytes]] = deque()
        self._sources: dict[str, Any] = {}
        self._published = dict.fromkeys(topology.sinks, 0)
        self._publications = 0
        heads = chained_to(topology)
        self._on_error = {
            name: topology.operators[heads.get(name, name)].on_error for name in topology.operators
        }
        self._codes = {name: self._made(spec, {}) for name, spec in topology.operators.items()}

    def send(self, source: str, *given: Any) -> None:
        """Add values as if they came from a source. They wait until `step` or `run`."""
        if source not in self.topology.sources:
            known = ", ".join(self.topology.sources)
            raise InputError(f"send: there is no source {source!r}; known: {known}")
        for value in given:
            self._emit(source, (value,))

    def read(self, source: str, count: int | None = None) -> int:
        """Add that many values of the topology's own source, or all that are left. Returns how many
        were added. Their pace is ignored."""
        self.send(source)  # refuses an unknown source
        spec = self.topology.sources[source]
        left = self._sources.setdefault(source, iter(spec.source.read(None)))
        found = [value for value, _ in islice(left, count)]
        self.send(source, *found)
        return len(found)

    def step(self) -> Step | None:
        """Process the tuple that has waited longest; None if there is none."""
        if not self.waiting:
            return None
        name, broadcast, payload = self.waiting.popleft()
        if broadcast:
            change = identity, pickled, told = m.decode_change(payload)
            self._codes[name].tell([change])
            pair = key_of(identity, pickled), None if told is None else values.loads(told)
            return Step(name, pair, ())
        value = values.loads(payload)  # its own copy, as in a worker
        spec = self.topology.vertices[name]
        if isinstance(spec, SinkSpec):
            self.outputs[name].append(value)
            return Step(name, value, ())
        assert isinstance(spec, OperatorSpec)
        code = self._codes[name]
        try:
            shard = -1 if spec.key is None else key_hash(spec.key(value)) % spec.shards
            if code.bundled:
                (found,) = code.process_bundle([value], shard)
            else:
                found = code.process(value, shard)
            return self._done(name, value, found)
        except Exception as error:  # noqa: BLE001  # whatever users' code raises meets on_error
            return self._went_wrong(spec, value, error)

    def run(self) -> list[Step]:
        """Process all waiting tuples and what follows from them, and fire timers that are due."""
        steps = []
        while (step := self.step() or self._fire()) is not None:
            steps.append(step)
        return steps

    def advance(self, by: float | str) -> list[Step]:
        """Let time pass, given as "5min" or in seconds, and run. Every timer fires at its time."""
        end = self.now + _passing(by, "advance")
        steps = self.run()
        while (due := self._next_due()) is not None and due <= end:
            self.now = max(self.now, due)
            steps += self.run()
        self.now = end
        return steps + self.run()

    def restart(self, down: float | str = 0) -> None:
        """Stop the topology, and after the time `down` start it again from what it keeps. Operators
        are closed and made anew with the state and timers that they had. Waiting tuples still
        wait."""
        down_s = _passing(down, "restart: down")
        self.now += down_s
        self._zero_s += down_s
        self.close()
        for name, old in self._codes.items():
            packed = {part: values.dumps(s.packed()) for part, s in old.shared.states.items()}
            states = {part: State.unpacked(values.loads(s)) for part, s in packed.items()}
            new = self._codes[name] = self._made(self.topology.operators[name], states)
            for shard in old.own:
                new.give(shard, None)
            new.tell(m.decode_change(broadcast_of(name, pair)) for pair in old.table.items())

    def publish(self) -> None:
        """Have every sink write what has reached it since the last call, as when the topology
        stops. The results are then in its files, on the console, or wherever it puts them."""
        self._publications += 1
        for name, spec in self.topology.sinks.items():
            sink = copy.deepcopy(spec.sink)  # the topology may still be started with its own
            with tempfile.TemporaryDirectory() as room, contextlib.closing(sink):
                sink.room = Path(room)
                sink.open(0, self._publications)
                for value in self.outputs[name][self._published[name] :]:
                    self._write(spec, sink, value)
                self._published[name] = len(self.outputs[name])
                sink.publish(sink.cut(last=True)().publish, self._publications)

    def state(self, operator: str) -> dict[Any, Any]:
        """What an operator keeps, by key."""
        states = self._code(operator).shared.states
        return {k: v for part, state in states.items() if part >= 0 for k, v in state.items()}

    def broadcast(self, operator: str) -> dict[Any, Any]:
        """What was broadcast to an operator, by key."""
        return dict(self._code(operator).table)

    def timers(self, operator: str) -> list[Timer]:
        """An operator's pending timers, in the order in which they are due."""
        states = self._code(operator).shared.states
        found = [
            Timer(entry[0], entry[1], due)
            for part, state in states.items()
            if part < 0
            for entry, due in state.items()
            if len(entry) > 1
        ]
        return sorted(found, key=lambda timer: timer.due_s)

    def close(self) -> None:
        """Close the operators."""
        for code in self._codes.values():
            code.close()

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _made(self, spec: OperatorSpec, states: dict[int, State]) -> OperatorCode:
        keep_going = self._on_error[spec.name] != "fail"
        shared = Shared(states, in_threads=True)  # so that instances are copied
        return OperatorCode(
            spec.code,
            spec.name,
            shared,
            keep_going,
            spec.emits,
            spec.key,
            spec.ttl_s,
            self._clock,
            spec.broadcast,
            self._zero_s,
        )

    def _write(self, spec: SinkSpec, sink: Sink, value: Any) -> None:
        try:
            text = sink.write(value)
        except Exception as error:  # whatever a user's sink raises meets on_error
            if spec.on_error == "fail":
                raise
            self.failed.append(Step(spec.name, value, (), error))
            return
        if text is not None:
            sys.stdout.write(f"{text}\n")

    def _clock(self) -> float:
        return self.now

    def _code(self, operator: str) -> OperatorCode:
        if operator not in self._codes:
            known = ", ".join(self._codes)
            raise InputError(f"there is no operator {operator!r}; known: {known}")
        return self._codes[operator]

    def _next_due(self) -> float | None:
        due = [code.timers.due_s for code in self._codes.values() if code.timers is not None]
        return min((one for one in due if one is not None), default=None)

    def _fire(self) -> Step | None:
        for name, code in self._codes.items():
            fired = () if code.timers is None else code.timers.fire(1)
            for shard, key, payload in fired:
                spec = self.topology.operators[name]
                try:
                    found = code.on_timer(shard, key, payload)
                    return self._done(name, (key, payload), found)
                except Exception as error:  # noqa: BLE001  # as above
                    return self._went_wrong(spec, (key, payload), error)
        return None

    def _done(self, name: str, value: Any, found: Iterable[Any]) -> Step:
        emitted = tuple(found)
        self._emit(name, emitted)
        return Step(name, value, emitted)

    def _went_wrong(self, spec: OperatorSpec, value: Any, error: Exception) -> Step:
        if self._on_error[spec.name] == "fail":
            raise error
        self._codes[spec.name].undo()
        self.failed.append(Step(spec.name, value, (), error))
        return self.failed[-1]

    def _emit(self, name: str, emitted: Iterable[Any]) -> None:
        sent = []
        for found in emitted:
            output, value = (
                (found.name, found.value) if isinstance(found, Output) else (None, found)
            )
            for edge in self.topology.edges:
                if edge.sender == name and edge.output == output:
                    to = edge.receiver
                    payload = broadcast_of(to, value) if edge.broadcast else values.dumps(value)
                    sent.append((to, edge.broadcast, payload))
        self.waiting += sent


def _passing(by: float | str, what: str) -> float:
    seconds = parse_duration(by, what)
    if seconds < 0:
        raise InputError(f"{what}: must not be below zero, as time only goes on; got {by!r}")
    return seconds
