"""A worker: one processor's loop over tuples. Runs the user's code, and nothing else of the
engine does. Fed by its executor over a socket; answers with what the code returned.

A tuple is unpickled, processed, and each of its results pickled once and addressed; service time
is all of that."""

import socket
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FrameReader, Trace, send_frame
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import values
from sojourn.engine.worker.router import Router
from sojourn.sinks import Sink
from sojourn.topology import Operator, Output


class Code(Protocol):
    """The user's code, whatever its form."""

    def process(self, value: Any, shard: int) -> Iterable[Any]: ...
    def begin(self, batch: int, epoch: int) -> None: ...
    def end(self) -> dict[int, bytes]: ...
    def take(self, shard: int) -> bytes | None: ...
    def give(self, shard: int, state: bytes | None) -> None: ...
    def close(self, committed: int | None) -> None: ...


@dataclass
class Shared:
    """State by shard, shared by the threads of a pool or owned by one process."""

    states: dict[int, dict[Any, Any]] = field(default_factory=dict)
    in_threads: bool = False


class OperatorCode:
    """A function or an operator object, with its shards' state."""

    def __init__(self, code: Any, name: str, shared: Shared) -> None:
        self.name = name
        self.shared = shared
        self.dirty: set[int] = set()
        self.operator: Operator | None = None
        if isinstance(code, type):
            self.operator = code()
            if hasattr(self.operator, "open"):
                self.operator.open()
            self.function = self.operator.process
        else:
            self.function = code

    def process(self, value: Any, shard: int) -> Iterable[Any]:
        if shard >= 0:
            state = self.shared.states.get(shard)
            if state is None:
                state = self.shared.states[shard] = {}
            self.dirty.add(shard)
            if self.operator is not None:
                self.operator.state = state
        results = self.function(value)
        if results is None:
            return ()
        if isinstance(results, Output):
            return (results,)
        if isinstance(results, str | bytes) or not isinstance(results, Iterable):
            raise TypeError(
                f"operator {self.name!r} returned {type(results).__name__} {results!r:.60}; "
                "return a list of values, yield them, or return None"
            )
        return results

    def begin(self, batch: int, epoch: int) -> None:
        pass

    def end(self) -> dict[int, bytes]:
        changed = {shard: values.dumps(self.shared.states[shard]) for shard in self.dirty}
        self.dirty.clear()
        return changed

    def take(self, shard: int) -> bytes | None:
        # Whoever gets the shard counts it as changed, so that the batch's end saves it there.
        self.dirty.discard(shard)
        if self.shared.in_threads:
            return None
        state = self.shared.states.pop(shard, None)
        return b"" if state is None else values.dumps(state)

    def give(self, shard: int, state: bytes | None) -> None:
        if state:
            self.shared.states[shard] = values.loads(state)
        if shard in self.shared.states:
            self.dirty.add(shard)

    def close(self, committed: int | None) -> None:  # noqa: ARG002
        if self.operator is not None and hasattr(self.operator, "close"):
            self.operator.close()


class SinkCode:
    """A sink, which emits nothing but perhaps text for the driver's console."""

    def __init__(self, sink: Sink, part: int, run: str) -> None:
        self.sink = sink
        sink.run = run
        sink.open(part)

    def process(self, value: Any, shard: int) -> Iterable[Any]:  # noqa: ARG002
        text = self.sink.write(value)
        return () if text is None else (text,)

    def begin(self, batch: int, epoch: int) -> None:
        self.sink.begin(batch, epoch)

    def end(self) -> dict[int, bytes]:
        self.sink.end()
        return {}

    def take(self, shard: int) -> bytes | None:
        raise AssertionError(f"a sink has no shard {shard}")

    def give(self, shard: int, state: bytes | None) -> None:
        raise AssertionError(f"a sink has no shard {shard} {state!r}")

    def close(self, committed: int | None) -> None:
        if committed is not None:
            self.sink.close(committed)


def serve(
    sock: socket.socket,
    code: Code,
    routes: tuple[Route, ...],
    seed: int,
    keep_going: bool,
    timed_every: int,
) -> None:
    """Answer messages until told to close or the executor is gone. With `keep_going`, a tuple
    whose processing raises is reported and left; else the worker reports and stops. Of every
    `timed_every`-th tuple at the most the service time is taken, of none if that is 0."""
    router = Router(routes, seed)
    timer = _Timer(timed_every)
    reader = FrameReader(sock)
    while (frame := reader.read()) is not None:
        message = m.decode_to_worker(frame)
        match message:
            case m.Work():
                answer: m.FromWorker = _process(message, code, router, keep_going, timer)
            case m.Begin():
                code.begin(message.batch, message.epoch)
                continue
            case m.End():
                answer = m.Ended(code.end())
            case m.TakeShard():
                answer = m.GiveShard(message.shard, code.take(message.shard))
            case m.GiveShard():
                code.give(message.shard, message.state)
                continue
            case m.Close():
                code.close(message.committed)
                return
        send_frame(sock, m.encode(answer))
        if isinstance(answer, m.Fatal):
            return


class _Timer:
    """Which tuples are timed: every so-many-th, but of those handed over together one at the most:
    the more there are, the less each takes, and the more timing would add to it. Which one goes
    round, as the first after a wait takes longer than the others."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.skip = every - 1
        self.turn = 0

    def due(self, count: int) -> int:
        """Which of the next so many; -1 for none."""
        if not self.every:
            return -1
        if self.skip >= count:
            self.skip -= count
            return -1
        found = self.skip + self.turn % (count - self.skip)
        self.skip = self.every - 1
        self.turn += 1
        return found


def _process(
    work: m.Work, code: Code, router: Router, keep_going: bool, timer: _Timer
) -> m.Done | m.Fatal:
    traces = {trace.index: trace for trace in work.traces}
    acks: list[m.Ack] = []
    failed: list[m.DeadLetter] = []
    text: list[str] = []
    total = 0.0
    shards = work.shards or [-1] * len(work.payloads)
    prints = isinstance(code, SinkCode)
    clock = time.perf_counter
    due = timer.due(len(work.payloads))
    measured = iter(sorted({due, *traces} - {-1}) if traces else (due,))
    next_measured = next(measured, -1)
    trace: Trace | None = None
    began = clock()
    for index, payload in enumerate(work.payloads):
        made, root, started = 0, None, 0.0
        if index == next_measured:
            trace = traces.get(index)
            root = trace.root if trace else None
            started = clock()
        try:
            # A tuple that fails half-way leaves no results, so they are gathered first.
            results = list(code.process(values.loads(payload), shards[index]))
            if prints:
                text += results
            else:
                made = router.send(results, root)
        except Exception:  # noqa: BLE001  # whatever user code raises has the outcome on_error names
            if not keep_going:
                return m.Fatal(f"processing {_short(payload)} raised\n{traceback.format_exc()}")
            failed.append(m.DeadLetter(_short(payload), traceback.format_exc()))
        if index == next_measured:
            if index == due:
                total = clock() - started
            if trace is not None:
                acks.append(m.Ack(trace.root, trace.id ^ made, time.time()))
            next_measured = next(measured, -1)
    return m.Done(
        groups=router.collect(),
        acks=acks,
        served=len(work.payloads),
        elapsed_s=clock() - began,
        timed=int(due >= 0),
        service_s=total,
        service_s2=total * total,
        failed=failed,
        text=text,
    )


def _short(payload: bytes) -> str:
    """What the tuple was, as far as it can be told."""
    try:
        return repr(values.loads(payload))[:200]
    except Exception as error:  # noqa: BLE001  # the payload itself may be what is broken
        return f"a tuple that cannot be unpickled ({error})"
