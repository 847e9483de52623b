"""A shard's state on its way from one worker to another, in pieces. It is pickled and unpickled in
threads beside the workers' loops, which process tuples of other shards meanwhile.

Workers of one host share memory: a piece is written into one of its slots and read from there, and
only the number of the slot goes through the executor. To and from another machine, pieces travel as
messages. Who takes a shard asks for the next piece once it has used up the last one, so no more
than one is ever under way."""

import contextlib
import mmap
import pickle
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.shards import SLOTS
from sojourn.engine.worker import values
from sojourn.engine.worker.code import Code

INLINE_BYTES = 1 << 18  # of a piece in a message, also of the first, which is not asked for
SLOT_BYTES = 1 << 20  # of a piece in shared memory
_SWITCH_S = 0.0005  # how long a thread may keep the others waiting

Send = Callable[[m.FromWorker], None]


def shared_memory() -> mmap.mmap:
    """Memory for the workers that are forked from here on. It costs nothing before it is used, and
    is gone with the last of them."""
    return mmap.mmap(-1, SLOTS * SLOT_BYTES)


class _Threads:
    """A few threads that do what they are given, in order."""

    def __init__(self, most: int) -> None:
        self.most, self.count = most, 0
        self.jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def do(self, job: Callable[[], None]) -> None:
        """Do it as soon as one of them has time."""
        self.jobs.put(job)
        if self.count < self.most:
            self.count += 1
            start_thread(self._run)

    def _run(self) -> None:
        while True:
            self.jobs.get()()


_pickling = _Threads(4)  # shards that leave a worker at the same time


class Leaving:
    """A state that is pickled piece by piece."""

    def __init__(self, shard: int, state: Any, memory: mmap.mmap | None, send: Send) -> None:
        self.shard, self.memory, self.send = shard, memory, send
        self.asked: SimpleQueue[int] = SimpleQueue()
        self.slot, self.room = -1, INLINE_BYTES
        self.parts: list[memoryview] = []
        _pickling.do(lambda: self._pickle(state))

    def go_on(self, slot: int) -> None:
        """The next piece is wanted, in this slot, or in a message."""
        self.asked.put(slot)

    def write(self, data: Any) -> int:
        """Take what the pickler has made; for `pickle`."""
        view = memoryview(data).cast("B")
        while len(view) > self.room:
            self.parts.append(view[: self.room])
            view = view[self.room :]
            self._give(more=True)
            self.slot = self.asked.get()
            self.room = INLINE_BYTES if self.slot < 0 else SLOT_BYTES
        if len(view):
            # The pickler's own buffers do not change, and neither does what an immutable value has.
            self.parts.append(view)
            self.room -= len(view)
        return len(data)

    def _pickle(self, state: Any) -> None:
        try:
            values.pickler(self).dump(state)
            self._give(more=False)
        except (BrokenPipeError, ConnectionResetError):
            raise  # nobody is left to be told
        except Exception as error:  # noqa: BLE001  # a thread has nobody else to tell
            self.send(m.Fatal(f"the state of a shard cannot be moved: {error}"))

    def _give(self, more: bool) -> None:
        if self.slot < 0:
            self.send(m.GiveShard(self.shard, b"".join(self.parts), more))
        else:
            assert self.memory is not None
            begin = at = self.slot * SLOT_BYTES
            for part in self.parts:
                self.memory[at : at + len(part)] = part
                at += len(part)
            self.send(m.GiveShard(self.shard, b"", more, self.slot, at - begin))
        self.parts = []


class Coming:
    """A state that is unpickled piece by piece. Asks for each one after the first, and tells once
    more when the state is whole."""

    def __init__(self, shard: int, memory: mmap.mmap | None, send: Send) -> None:
        self.shard, self.memory, self.send = shard, memory, send
        self.pieces: SimpleQueue[m.GiveShard] = SimpleQueue()
        self.view, self.more, self.begun = memoryview(b""), True, False
        self.state: Any = None
        self.anew = False  # whether it comes from another executor
        start_thread(self._unpickle)

    def put(self, piece: m.GiveShard) -> None:
        """The next piece has come."""
        self.pieces.put(piece)

    def read(self, size: int) -> bytes:
        """So many bytes; for `pickle`."""
        found = bytearray(size)
        self.readinto(found)
        return bytes(found)

    def readinto(self, room: Any) -> int:
        """Fill a buffer; for `pickle`."""
        left = memoryview(room).cast("B")
        size = len(left)
        while len(left):
            if not len(self.view):
                self._next()
            taken = min(len(left), len(self.view))
            left[:taken] = self.view[:taken]
            left, self.view = left[taken:], self.view[taken:]
        return size

    def readline(self) -> bytes:
        """For `pickle`, which asks for none of what protocol 5 writes."""
        raise AssertionError("a pickle of an old protocol")

    def _next(self) -> None:
        if not self.more:
            raise EOFError
        if self.begun:
            self.send(m.Took(self.shard))
        piece = self.pieces.get()
        self.begun, self.more = True, piece.more
        if piece.slot < 0:
            self.view = memoryview(piece.state or b"")
        else:
            assert self.memory is not None
            begin = piece.slot * SLOT_BYTES
            self.view = memoryview(self.memory)[begin : begin + piece.size]

    def _unpickle(self) -> None:
        try:
            self.state = pickle.Unpickler(self).load()
        except Exception as error:  # noqa: BLE001  # a thread has nobody else to tell
            self.send(m.Fatal(f"the state of a shard cannot be read: {error}"))
            return
        self.send(m.Took(self.shard))


def start_thread(run: Callable[[], None]) -> None:
    """Run something beside the loop. It gets the interpreter in turns that are short, so that
    tuples hardly wait for it. It ends if the executor is gone, as there is nobody to tell."""

    def until_gone() -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            run()

    sys.setswitchinterval(_SWITCH_S)
    threading.Thread(target=until_gone, daemon=True).start()


class Moving:
    """The shards that come to a worker and leave it."""

    def __init__(self, code: Code, memory: mmap.mmap | None, send: Send) -> None:
        self.code, self.memory, self.send = code, memory, send
        self.waiting: list[int] = []  # shards that leave once a commit has what it needs of them
        self.leaving: dict[int, Leaving] = {}
        self.coming: dict[int, Coming] = {}

    def heard(self, message: m.TakeShard | m.TakeMore | m.GiveShard | m.Settle) -> None:
        """Do what the executor says."""
        match message:
            case m.TakeShard(shard):  # its label has surfaced
                self.code.save_first(shard)
                self.waiting.append(shard)
                self.look()
            case m.TakeMore(shard, slot):
                self.leaving[shard].go_on(slot)
            case m.GiveShard():
                self._put(message)
            case m.Settle(shard):
                coming = self.coming.pop(shard)
                self._give(shard, coming.state, coming.anew)

    def look(self) -> None:
        """Begin to give shards up that wait for nothing any more."""
        for shard in [s for s in self.waiting if self.code.is_saved(s)]:
            self.waiting.remove(shard)
            state = self.code.take(shard)
            if state is None or state == (None, None):
                self.send(m.GiveShard(shard, None if state is None else b""))
            else:
                self.leaving[shard] = Leaving(shard, state, self.memory, self.send)
            if self.code.timers is not None:
                self.send(timers_of(self.code, loaded=False))

    def _put(self, piece: m.GiveShard) -> None:
        """A shard comes, or a piece of it."""
        coming = self.coming.get(piece.shard)
        if coming is None and not piece.more:
            state = values.loads(piece.state) if piece.state else None
            self._give(piece.shard, state, piece.anew)
            return
        if coming is None:
            coming = self.coming[piece.shard] = Coming(piece.shard, self.memory, self.send)
            coming.anew = piece.anew
        coming.put(piece)

    def _give(self, shard: int, state: Any, anew: bool) -> None:
        self.code.give(shard, state, anew)
        self.send(timers_of(self.code, loaded=True))


def timers_of(code: Code, loaded: bool) -> m.Timers:
    """What timers a worker has."""
    if code.timers is None:
        return m.Timers(None, 0, loaded)
    return m.Timers(code.timers.due_s, code.timers.pending, loaded)
