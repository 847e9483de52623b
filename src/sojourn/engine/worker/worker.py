"""A worker: one processor's loop over tuples. Only workers run the user's operators and sinks. Fed
by its executor over a socket; answers with what the code returned.

A tuple is unpickled and processed, and each of its results is pickled once and addressed. Service
time is all of that. At a commit's cut, a worker answers at once and goes on: what changed is
pickled in slices between tuples, and a thread writes it."""

import errno
import mmap
import select
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from sojourn import durable
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FrameReader, Trace, send_frame
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import values
from sojourn.engine.worker.code import SLICE_S, Code, OperatorCode, SinkCode
from sojourn.engine.worker.moving import Moving, timers_of
from sojourn.engine.worker.router import Router
from sojourn.errors import TopologyFailed

if TYPE_CHECKING:
    from sojourn.engine.worker.waiting import Waiting

_MOST_FIRED = 256  # timers to fire before the next tuples
_SHARE = 0.1  # share of the last helping's time for saving, if that is more
_BESIDE = (m.Work, m.Broadcast, m.TakeMore)  # which do not wait until what was given is done
_OF_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


class _Answers:
    """The way back to the executor, which the loop and the thread that saves share."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def send(self, message: m.FromWorker) -> None:
        with self.lock:
            try:
                send_frame(self.sock, m.encode(message))
            except OSError:
                if self.sock.fileno() < 0:  # the loop has ended, a thread has not
                    raise ConnectionResetError from None
                raise

    def when_done(self, save: Callable[[], m.Saved]) -> None:
        """Do something in a thread, and answer with its result."""
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
        except TopologyFailed as error:
            answer = m.Fatal(str(error))
        except Exception:  # noqa: BLE001  # a thread has nobody else to tell
            answer = m.Fatal(f"its state cannot be saved\n{traceback.format_exc()}")
        try:
            self.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return  # the executor is gone, so there is nobody to answer


def _of_disk(error: OSError) -> str:
    full = durable.full_disk(error)
    return full or f"its state cannot be saved\n{traceback.format_exc()}"


def serve(
    sock: socket.socket,
    reader: FrameReader,
    code: OperatorCode | SinkCode,
    routes: tuple[Route, ...],
    seed: int,
    keep_going: bool,
    timed_every: int,
    memory: mmap.mmap | None = None,
) -> None:
    """Answer messages until told to close, or until the executor is gone. With `keep_going`, a
    tuple whose processing raises is reported and skipped; otherwise the worker reports it and
    stops. At most every `timed_every`-th tuple is timed, and none if that is 0. State is handed
    over in `memory` to workers that share it."""
    router = Router(routes, seed)
    timer = _Timer(timed_every)
    answers = _Answers(sock)
    waiting = _waiting(code, router, keep_going, answers)
    moving = Moving(code, memory, answers.send)
    while True:
        while code.saving is not None:
            done = code.save_some()
            if done is not None:
                answers.when_done(done)
            if reader.has_frame or select.select([sock], [], [], 0)[0]:
                break
        moving.look()
        frame = reader.read()
        if frame is None:
            return
        message = m.decode_to_worker(frame)
        if waiting is not None and not isinstance(message, _BESIDE):
            waiting.finish()  # all that was given before a cut belongs to it
        match message:
            case m.Work() if waiting is not None:
                waiting.give(message)
            case m.Work():
                answer = _answer(message, code, router, keep_going, timer)
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
                answers.send(timers_of(code, loaded=True))
            case m.TakeShard() | m.TakeMore() | m.GiveShard() | m.Settle():
                moving.heard(message)
            case m.Broadcast():
                assert isinstance(code, OperatorCode)
                code.tell(message.changes)
                answers.send(m.Told())
            case m.Close():
                answers.finish()
                code.close()
                return
            case m.Open() | m.GoOn() | m.More() | m.Stop():
                raise AssertionError(f"a worker that runs is told {message}")


def _waiting(
    code: OperatorCode | SinkCode, router: Router, keep_going: bool, answers: _Answers
) -> "Waiting | None":
    """What runs an async operator's tuples."""
    if not isinstance(code, OperatorCode) or code.events is None:
        return None
    from sojourn.engine.worker.waiting import Waiting

    return Waiting(code, code.events, router, keep_going, answers.send)


def _answer(
    work: m.Work,
    code: OperatorCode | SinkCode,
    router: Router,
    keep_going: bool,
    timer: "_Timer",
) -> m.Done | m.Fatal:
    if not work.payloads:
        answer = _fire(code, router, keep_going)
    elif code.bundled:
        answer = _process_bundles(work, code, router, keep_going, timer)
    else:
        answer = _process(work, code, router, keep_going, timer)
    if isinstance(answer, m.Done):
        if code.timers is not None:
            answer.due_s, answer.timers = code.timers.due_s, code.timers.pending
        # Saving must get its share of a slow worker's time.
        code.slice_s = max(SLICE_S, _SHARE * answer.elapsed_s)
    return answer


class _Timer:
    """Which tuples are timed: every N-th, but at most one of those handed over together. The more
    come together, the less time each takes, and the more timing would add to it. The place of the
    timed one goes round, because the first after a wait takes longer than the others."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.skip = every - 1
        self.turn = 0

    def due(self, count: int) -> int:
        """Which of the next `count` tuples to time; -1 for none."""
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
    total = started = 0.0
    shards = work.shards or repeat(-1)
    prints = isinstance(code, SinkCode)
    loads, process, send = values.loads, code.process, router.send
    clock = time.perf_counter
    due = timer.due(len(work.payloads))
    measured = iter(sorted({due, *traces} - {-1}) if traces else (due,))
    next_measured = next(measured, -1)
    trace: Trace | None = None
    began = clock()
    for index, (payload, shard) in enumerate(zip(work.payloads, shards, strict=False)):
        root = None
        if index == next_measured:
            trace = traces.get(index)
            root = trace.root if trace else None
            started = clock()
        begun = False
        try:
            value = loads(payload)
            begun = True
            results = process(value, shard)
            if prints:
                text += results
                made = 0
            else:
                made = send(results, root)
        except Exception as error:  # noqa: BLE001  # whatever users' code raises meets on_error
            if isinstance(error, OSError) and error.errno in _OF_DISK:
                return m.Fatal(_of_disk(error), user=False)  # the tuple is not at fault
            if isinstance(error, TopologyFailed):
                return m.Fatal(str(error))  # nor is it here
            if not keep_going:
                return m.Fatal(
                    f"processing {values.shown(payload)} raised\n{traceback.format_exc()}"
                )
            failed.append(m.DeadLetter(values.shown(payload), traceback.format_exc()))
            made = 0
            if begun:
                code.undo()
        if index == next_measured:
            if index == due:
                total = clock() - started
            if trace is not None:
                acks.append(m.Ack(trace.root, trace.id ^ made, time.monotonic()))
            next_measured = next(measured, -1)
    return m.Done(
        together=router.together(),
        groups=router.collect(),
        acks=acks,
        served=len(work.payloads),
        elapsed_s=clock() - began,
        timed=int(due >= 0),
        service_s=total,
        service_s2=total * total,
        failed=failed,
        text=text,
        stages=code.stages(),
    )


def _fire(code: OperatorCode | SinkCode, router: Router, keep_going: bool) -> m.Done | m.Fatal:
    """Fire some of the timers that are due. One that fails meets `on_error`, and is not fired
    again."""
    assert isinstance(code, OperatorCode)
    assert code.timers is not None
    failed: list[m.DeadLetter] = []
    began = time.perf_counter()
    for shard, key, payload in code.timers.fire(_MOST_FIRED):
        try:
            router.send(code.on_timer(shard, key, payload), None)
        except Exception as error:  # noqa: BLE001  # whatever users' code raises meets on_error
            if isinstance(error, OSError) and error.errno in _OF_DISK:
                return m.Fatal(_of_disk(error), user=False)  # the timer is not at fault
            shown = f"timer {payload!r:.100} of key {key!r:.100}"
            if not keep_going:
                return m.Fatal(f"{shown} raised\n{traceback.format_exc()}")
            failed.append(m.DeadLetter(shown, traceback.format_exc()))
            code.undo()
    return m.Done(
        together=router.together(),
        groups=router.collect(),
        acks=[],
        served=0,
        elapsed_s=time.perf_counter() - began,
        timed=0,
        service_s=0.0,
        service_s2=0.0,
        failed=failed,
        text=[],
    )


class _Failed(Exception):
    """The worker cannot go on."""

    def __init__(self, told: m.Fatal) -> None:
        super().__init__(told.error)
        self.told = told


class _Bundles:
    """A helping of tuples for code that takes many at once: those of a shard go together. If that
    raises, state is put back and each tuple is given by itself, so that only one that fails alone
    meets `on_error`."""

    def __init__(self, work: m.Work, code: Code, router: Router, keep_going: bool) -> None:
        self.payloads, self.code, self.router, self.keep_going = (
            work.payloads,
            code,
            router,
            keep_going,
        )
        self.traces = {trace.index: trace for trace in work.traces}
        self.acks: list[m.Ack] = []
        self.failed: list[m.DeadLetter] = []

    def process(self, indices: Sequence[int], shard: int) -> None:
        begun = False
        try:
            given = [values.loads(self.payloads[index]) for index in indices]
            begun = True
            results = self.code.process_bundle(given, shard)
            addressed = [self.router.addressed(list(found)) for found in results]
        except Exception as error:  # noqa: BLE001  # whatever users' code raises meets on_error
            if begun:
                self.code.undo()
            if len(indices) > 1:
                for index in indices:
                    self.process([index], shard)
                return
            if isinstance(error, OSError) and error.errno in _OF_DISK:
                raise _Failed(m.Fatal(_of_disk(error), user=False)) from None
            shown, told = values.shown(self.payloads[indices[0]]), traceback.format_exc()
            if not self.keep_going:
                raise _Failed(m.Fatal(f"processing {shown} raised\n{told}")) from None
            self.failed.append(m.DeadLetter(shown, told))
            addressed = [[]]
        now = time.monotonic()
        for index, found in zip(indices, addressed, strict=True):
            trace = self.traces.get(index)
            made = self.router.gather(found, trace.root if trace else None)
            if trace is not None:
                self.acks.append(m.Ack(trace.root, trace.id ^ made, now))


def _process_bundles(
    work: m.Work, code: Code, router: Router, keep_going: bool, timer: _Timer
) -> m.Done | m.Fatal:
    bundles = _Bundles(work, code, router, keep_going)
    count = len(work.payloads)
    by_shard: dict[int, list[int]] = {}
    for index, shard in enumerate(work.shards or [-1] * count):
        by_shard.setdefault(shard, []).append(index)
    began = time.perf_counter()
    try:
        for shard, indices in by_shard.items():
            bundles.process(indices, shard)
    except _Failed as failed:
        return failed.told
    elapsed_s = time.perf_counter() - began
    timed = count if timer.due(count) >= 0 else 0
    each_s = elapsed_s / count if timed else 0.0
    return m.Done(
        together=router.together(),
        groups=router.collect(),
        acks=bundles.acks,
        served=count,
        elapsed_s=elapsed_s,
        timed=timed,
        service_s=timed * each_s,
        service_s2=timed * each_s * each_s,
        failed=bundles.failed,
        text=[],
    )
