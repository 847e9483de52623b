"""A worker: one processor's loop over tuples. Runs the user's code, and nothing else of the
engine does. Fed by its executor over a socket; answers with what the code returned.

A tuple is unpickled, processed, and each of its results pickled once and addressed; service time
is all of that. At a commit's cut a worker answers at once and goes on: what changed is pickled in
slices between tuples, and written by a thread."""

import errno
import select
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sojourn import durable
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FrameReader, Trace, send_frame
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import store, values
from sojourn.engine.worker.router import Router
from sojourn.engine.worker.state import State
from sojourn.sinks import Sink, Staged
from sojourn.topology import Operator, Output

_SLICE_S = 0.001  # for saving between two helpings of tuples
_PIECE_BYTES = 1 << 30
_SHARE = 0.1  # of what the last one took, if that is more
_OF_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


class Code(Protocol):
    """The user's code, whatever its form."""

    def process(self, value: Any, shard: int) -> Iterable[Any]: ...
    def undo(self) -> None: ...
    def load(self, load: m.Load) -> None: ...
    def cut(self, save: m.Save) -> None: ...
    def save_some(self) -> Callable[[], m.Saved] | None: ...
    def take(self, shard: int) -> list[bytes] | None: ...
    def give(self, shard: int, state: list[bytes] | None) -> None: ...
    def close(self) -> None: ...


@dataclass
class Shared:
    """State by shard, shared by the threads of a host or owned by one process."""

    states: dict[int, State] = field(default_factory=dict)
    in_threads: bool = False


class OperatorCode:
    """A function or an operator object, with its shards' state. With `keep_going` a tuple that
    fails changes nothing."""

    def __init__(self, code: Any, name: str, shared: Shared, keep_going: bool = False) -> None:
        self.name = name
        self.shared = shared
        self.keep_going = keep_going
        self.own: set[int] = set()
        self.in_hand: State | None = None
        self.unsaved: list[int] = []
        self.changes: dict[int, list[Any]] = {}
        self.saving: m.Save | None = None
        self.slice_s = _SLICE_S
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
                state = self.shared.states[shard] = State()
                self.own.add(shard)
            if self.keep_going:
                self._settle()
                state.remember()
                self.in_hand = state
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

    def undo(self) -> None:
        if self.in_hand is not None:
            self.in_hand.roll_back()
            self.in_hand = None

    def _settle(self) -> None:
        """What the last tuple did holds."""
        if self.in_hand is not None:
            self.in_hand.forget()
            self.in_hand = None

    def load(self, load: m.Load) -> None:
        wanted = set(load.shards)
        for saved in load.saved:

            def theirs(shard: int, saved: m.SavedFiles = saved) -> bool:
                return shard in wanted and shard % saved.executors == saved.executor

            found = store.read([Path(path) for path in saved.files], theirs)
            for shard, state in found.items():
                if load.anew:
                    state.mark_all()
                self.shared.states[shard] = state
                self.own.add(shard)

    def cut(self, save: m.Save) -> None:
        self._settle()
        self.saving = save
        self.changes = {}
        self.unsaved = [shard for shard in self.own if self.shared.states[shard].cut()]

    def save_some(self) -> Callable[[], m.Saved] | None:
        """Pickle for a moment what changed; once all is, what is to be done in a thread."""
        deadline = time.perf_counter() + self.slice_s
        while self.unsaved:
            if not self._save_shard(self.unsaved[-1], lambda: time.perf_counter() >= deadline):
                return None
            self.unsaved.pop()
        save, changes = self.saving, self.changes
        assert save is not None
        self.saving = None
        path = Path(save.path)
        return lambda: m.Saved(save.commit, store.write(path, changes) if changes else 0)

    def _save_shard(self, shard: int, until: Callable[[], bool]) -> bool:
        state = self.shared.states[shard]
        if not state.drain(until):
            return False
        self.changes[shard] = state.take_changes()
        return True

    def take(self, shard: int) -> list[bytes] | None:
        self._settle()
        self.own.discard(shard)
        if shard in self.unsaved:
            self._save_shard(shard, lambda: False)
            self.unsaved.remove(shard)
        if self.shared.in_threads:
            return None
        state = self.shared.states.pop(shard, None)
        return [] if state is None else _pieces(state.packed())

    def give(self, shard: int, state: list[bytes] | None) -> None:
        if state:
            packed = state[0] if len(state) == 1 else b"".join(state)
            self.shared.states[shard] = State.unpacked(packed)
        if shard in self.shared.states:
            self.own.add(shard)

    def close(self) -> None:
        if self.operator is not None and hasattr(self.operator, "close"):
            self.operator.close()


def _pieces(packed: bytes) -> list[bytes]:
    if len(packed) <= _PIECE_BYTES:
        return [packed]
    return [packed[at : at + _PIECE_BYTES] for at in range(0, len(packed), _PIECE_BYTES)]


class SinkCode:
    """A sink, which emits nothing but perhaps text for the driver's console."""

    def __init__(self, sink: Sink, part: int, run: str, epoch: int, held: Iterable[str]) -> None:
        self.sink = sink
        self.saving: m.Save | None = None
        self.staged: Callable[[], Staged] = Staged
        self.slice_s = _SLICE_S
        sink.run = run
        sink.open(part, epoch, tuple(held))

    def process(self, value: Any, shard: int) -> Iterable[Any]:  # noqa: ARG002
        text = self.sink.write(value)
        return () if text is None else (text,)

    def undo(self) -> None:
        pass  # a sink takes a value or raises

    def load(self, load: m.Load) -> None:
        raise AssertionError(f"a sink has no shards {load.shards}")

    def cut(self, save: m.Save) -> None:
        self.saving = save
        self.staged = self.sink.cut(save.last)

    def save_some(self) -> Callable[[], m.Saved] | None:
        save, cut = self.saving, self.staged
        assert save is not None
        self.saving = None

        def stage() -> m.Saved:
            staged = cut()
            return m.Saved(save.commit, publish=list(staged.publish), held=list(staged.held))

        return stage

    def take(self, shard: int) -> list[bytes] | None:
        raise AssertionError(f"a sink has no shard {shard}")

    def give(self, shard: int, state: list[bytes] | None) -> None:
        raise AssertionError(f"a sink has no shard {shard} {state!r}")

    def close(self) -> None:
        self.sink.close()


class _Answers:
    """The way back to the executor, which the loop and the thread that saves share."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def send(self, message: m.FromWorker) -> None:
        with self.lock:
            send_frame(self.sock, m.encode(message))

    def when_done(self, save: Callable[[], m.Saved]) -> None:
        """Do something in a thread, and tell what came of it."""
        self.thread = threading.Thread(target=self._do, args=(save,), daemon=True)
        self.thread.start()

    def finish(self) -> None:
        """Wait until nothing is being saved."""
        if self.thread is not None:
            self.thread.join()

    def _do(self, save: Callable[[], m.Saved]) -> None:
        try:
            answer: m.FromWorker = save()
        except OSError as error:
            answer = m.Fatal(_of_disk(error), user=False)
        except Exception:  # noqa: BLE001  # a thread has nobody else to tell
            answer = m.Fatal(f"what it has cannot be saved\n{traceback.format_exc()}")
        try:
            self.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return  # the executor is gone, and so is the reason to tell


def _of_disk(error: OSError) -> str:
    full = durable.full_disk(error)
    return full or f"what it has cannot be saved\n{traceback.format_exc()}"


def serve(
    sock: socket.socket,
    reader: FrameReader,
    code: OperatorCode | SinkCode,
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
    answers = _Answers(sock)
    while True:
        while code.saving is not None:
            done = code.save_some()
            if done is not None:
                answers.when_done(done)
            if reader.has_frame or select.select([sock], [], [], 0)[0]:
                break
        frame = reader.read()
        if frame is None:
            return
        message = m.decode_to_worker(frame)
        match message:
            case m.Work():
                answer = _process(message, code, router, keep_going, timer)
                if isinstance(answer, m.Done):  # so that saving gets its share of a slow worker
                    code.slice_s = max(_SLICE_S, _SHARE * answer.elapsed_s)
                answers.send(answer)
                if isinstance(answer, m.Fatal):
                    return
            case m.Save():
                try:
                    code.cut(message)
                except OSError as error:
                    answers.send(m.Fatal(_of_disk(error), user=False))
                    return
                answers.send(m.Cut(message.commit))
            case m.Load():
                code.load(message)
            case m.TakeShard():
                answers.send(m.GiveShard(message.shard, code.take(message.shard)))
            case m.GiveShard():
                code.give(message.shard, message.state)
            case m.Close():
                answers.finish()
                code.close()
                return
            case m.Open() | m.GoOn() | m.Stop():
                raise AssertionError(f"a worker that runs is told {message}")


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
        except Exception as error:  # noqa: BLE001  # whatever users' code raises meets on_error
            if isinstance(error, OSError) and error.errno in _OF_DISK:
                return m.Fatal(_of_disk(error), user=False)  # no fault of the tuple's
            if not keep_going:
                return m.Fatal(f"processing {_short(payload)} raised\n{traceback.format_exc()}")
            failed.append(m.DeadLetter(_short(payload), traceback.format_exc()))
            code.undo()
        if index == next_measured:
            if index == due:
                total = clock() - started
            if trace is not None:
                acks.append(m.Ack(trace.root, trace.id ^ made, time.monotonic()))
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
