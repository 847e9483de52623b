"""The loop of a source's process: reads values at their pace and hands them to the executor.
Runs the user's source, in a thread of its own because it may block.

A commit's cut saves the position of the last value sent; of a source with splits, that of each of
the splits that this process reads. Which these are may change at a cut. Times are those of the
machine's steady clock, which does not step."""

import itertools
import os
import select
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FrameReader, send_frame
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import values
from sojourn.engine.worker.router import Router
from sojourn.errors import InputError
from sojourn.sources import Piece, Source, Unreadable

READ_AHEAD = 4_000
_READ_FIRST = 16  # values to read before their size is known
MAX_AT_ONCE = 2_000
_MAX_BYTES = 1 << 18
_LOOK_S = 1.0  # how often a source is asked for its backlog
_NOTHING = object()  # in place of a value: only the position has moved on


class _Reader(threading.Thread):
    """Reads the source ahead of its sending, up to a bound of values and of bytes. Without splits,
    the name of the split is empty. Asks for the source's backlog now and then."""

    def __init__(
        self,
        read: Callable[[], Iterable[Piece[Any]]],
        most_bytes: int,
        wake: int,
        backlog: Callable[[], Mapping[str, int] | None] = lambda: None,
    ) -> None:
        super().__init__(daemon=True)
        self.read, self.ask = read, backlog
        self.backlog: dict[str, int] | None = None
        self.looks_s = 0.0
        self.ahead: deque[tuple[Any, str, Any, float]] = deque()  # and when it was to arrive
        self.most_bytes = most_bytes
        self.allowed = min(_READ_FIRST, READ_AHEAD)
        self.room = threading.Event()
        self.wake = wake
        self.finished = self.closing = False
        self.error: Exception | None = None

    def run(self) -> None:
        ahead, monotonic = self.ahead, time.monotonic
        try:
            pieces = self.read()
            for piece in pieces:
                if self.closing:
                    break
                now = monotonic()
                if now >= self.looks_s:
                    now = self._look(piece, now)
                if piece is None:
                    continue
                while len(ahead) >= self.allowed and not self.closing:
                    self.room.clear()
                    if len(ahead) >= self.allowed:  # again: values are taken all the time
                        self.room.wait(_LOOK_S)
                    now = monotonic()
                    if now >= self.looks_s:
                        now = self._look(piece, now)
                if len(piece) == 2:
                    ahead.append((_NOTHING, *piece, now))
                else:
                    if len(piece) == 4:  # when it was made is when it was to arrive
                        now = min(now, now - time.time() + piece[3])
                    ahead.append((piece[0], piece[1], piece[2], now))
                if len(ahead) == 1:
                    os.eventfd_write(self.wake, 1)
            if self.closing and hasattr(pieces, "close"):
                pieces.close()
        except Exception as error:  # noqa: BLE001  # told to the driver by the sending loop
            self.error = error
        self.finished = True
        os.eventfd_write(self.wake, 1)

    def _look(self, piece: Piece[Any], now: float) -> float:
        """Ask how many wait in each split, and add those that are read and not sent. Once it is
        closing, the source may speak of another reader's splits. Returns the time after that."""
        if self.closing:
            return now
        self.looks_s = now + _LOOK_S
        found = self.ask()
        if found is not None:
            here = Counter(one[1] for one in self.ahead.copy() if one[0] is not _NOTHING)
            if piece is not None and len(piece) > 2:  # in hand
                here[piece[1]] += 1
            self.backlog = {split: count + here[split] for split, count in found.items()}
            os.eventfd_write(self.wake, 1)
        return time.monotonic()

    def close(self) -> None:
        """Read no more, as soon as the source lets us."""
        self.closing = True
        self.room.set()

    def taken(self) -> None:
        """Note that values were taken: read on if there is much room."""
        if not self.room.is_set() and len(self.ahead) <= self.allowed // 2:
            self.room.set()

    def learn(self, mean_bytes: float) -> None:
        """Learn how large values are, and read as far ahead as there is room for them."""
        allowed = max(1, min(READ_AHEAD, int(self.most_bytes / max(mean_bytes, 1.0))))
        before, self.allowed = self.allowed, allowed
        if allowed > before:
            self.room.set()


class Feeder:
    """Sends what is due, until it is told to stop. With `keep_going`, values that cannot be read do
    not end it."""

    def __init__(
        self,
        source: Source,
        routes: tuple[Route, ...],
        saved: bytes,
        tracked_per_s: float,
        queue_bytes: int,
        share: m.Share | None = None,
        keep_going: bool = False,
    ) -> None:
        self.source, self.queue_bytes, self.keep_going = source, queue_bytes, keep_going
        self.position: Any = None
        self.count, self.offset, self.expected = 0, 0.0, 0.0
        if saved:
            self.position, self.count, self.offset, self.expected = values.loads(saved)
        self.router = Router(routes, os.getpid() ^ time.time_ns())
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.splits: dict[str, Any] = {}  # and their positions
        self.moved: set[str] = set()  # those that have moved on since the last cut
        self.has_splits = share is not None
        self.readers = 1
        self.next = self.count  # time of the schedule
        self.times = source.pace.times(self.count, self.expected) if source.pace else None
        self.due: tuple[float, float] | None = None
        self.reader = self._reader()
        self.told = False  # that all is read
        self.told_backlog: dict[str, int] | None = None
        if share is not None:
            self._take(share)
        self.origin = 0.0
        self.tracked_per_s = tracked_per_s
        self.last: float | None = None
        self.gaps = 0
        self.mean_gap_s = 0.0
        self.chance = 1.0
        self.mean_bytes = 0.0
        self.busy_s = time.process_time()
        self.held = self.stopped = False
        self.asked = True

    @property
    def sending(self) -> bool:
        """Whether values may be sent."""
        return self.asked and not self.held and not self.stopped

    def _reader(self) -> _Reader:
        return _Reader(self._read, self.queue_bytes, self.wake, self.source.backlog)

    def _read(self) -> Iterable[Piece[Any]]:
        if self.has_splits:
            return self.source.read_splits(dict(self.splits))
        return ((value, "", position) for value, position in self.source.read(self.position))

    def _take(self, share: m.Share) -> None:
        """Read these splits from now on. Of the schedule, it takes every so-many-th time that is
        left, so that all readers together keep it. What was read ahead of splits that are another's
        now, and was not sent, is read there."""
        same = share.positions.keys() == self.splits.keys()
        self.splits = {
            split: values.loads(position) if position else None
            for split, position in share.positions.items()
        }
        self.moved.clear()
        self.readers = share.readers
        self.count, self.offset, self.expected = share.schedule
        self.next = self.count + (share.number - self.count) % share.readers
        if self.source.pace is not None:
            times = self.source.pace.times(self.count, self.expected)
            self.times = itertools.islice(times, self.next - self.count, None, share.readers)
        self.due = None
        self.told = False
        if not same and self.reader.ident is not None:
            self.reader.close()
            self.reader = self._reader()
            self.reader.start()

    def run(self, sock: socket.socket, frames: FrameReader) -> None:
        """Run until told to close, or until the executor is gone."""
        self.origin = time.monotonic() - self.offset
        self.reader.start()
        while True:
            wait = self._seconds_to_next(time.monotonic()) if self.sending else None
            wait = 0.0 if frames.has_frame else wait
            readable, _, _ = select.select([sock.fileno(), self.wake], [], [], wait)
            if self.wake in readable:
                os.eventfd_read(self.wake)
            if sock.fileno() in readable or frames.has_frame:
                frame = frames.read()
                while frame is not None and self._handle(frame, sock):
                    if not frames.has_frame:
                        break
                    frame = frames.read()
                else:
                    return
            if self.reader.backlog is not self.told_backlog and self.reader.backlog is not None:
                self.told_backlog = self.reader.backlog
                send_frame(sock, m.encode(m.Waits(self.told_backlog)))
            if self.sending:
                fed = self.send_due(time.monotonic())
                if fed is not None:
                    self.asked = False
                    send_frame(sock, m.encode(fed))
                if self.reader.error is not None and not self.reader.ahead:
                    raise self.reader.error
                if self.reader.finished and not self.reader.ahead and not self.told:
                    self.told = True
                    send_frame(sock, m.encode(m.Exhausted()))

    def _handle(self, frame: bytes, sock: socket.socket) -> bool:
        """Carry out a message. Returns whether to go on."""
        match m.decode_to_worker(frame):
            case m.Save(commit=commit, hold=hold):
                send_frame(sock, m.encode(m.Cut(commit)))
                send_frame(sock, m.encode(self.saved(commit)))
                self.held = hold
            case m.Read(share=share):
                self._take(share)
                self.held = False
            case m.GoOn():
                self.held = False
            case m.More():
                self.asked = True
            case m.Stop():
                self.stopped = True
            case m.Close():
                return False
        return True

    def saved(self, commit: int) -> m.Saved:
        """Position, number of values and schedule time of the last value sent."""
        schedule = self.count, self.offset, self.expected
        if not self.has_splits:
            return m.Saved(commit, position=values.dumps((self.position, *schedule)))
        moved, self.moved = self.moved, set()
        splits = {split: values.dumps(self.splits[split]) for split in moved}
        return m.Saved(commit, splits=splits, schedule=schedule)

    def _seconds_to_next(self, now: float) -> float | None:
        """How long until something is due; None means until a value is read."""
        if not self.reader.ahead:
            return None
        return max(0.0, self._intended(now) - now)

    def _intended(self, now: float) -> float:
        """When the next value is meant to arrive."""
        if self.times is None:
            return min(now, self.reader.ahead[0][3])
        if self.due is None:
            self.due = next(self.times)
        return self.origin + self.due[0]

    def send_due(self, now: float) -> m.Fed | None:
        """Send what is due by now, as much as a message takes. Returns None if nothing is due."""
        roots: list[m.Root] = []
        failed: list[m.DeadLetter] = []
        count = shed = 0
        gap_s = gap_s2 = 0.0
        gaps = -1 if self.last is None else 0  # there is no gap before the first value
        ahead, times, router = self.reader.ahead, self.times, self.router
        draw, chance, send = router.ids.random, self.chance, router.send
        last, shed_after = self.last, self.source.shed_after
        while (
            ahead
            and (ahead[0][0] is not _NOTHING or self._has_value())
            and count < MAX_AT_ONCE
            and router.bytes < _MAX_BYTES
        ):
            if times is None:
                value, split, position, intended = ahead.popleft()
            else:
                due = self.due or next(times)
                intended = self.origin + due[0]
                if intended > now:
                    self.due = due
                    break
                (self.offset, self.expected), self.due = due, None
                value, split, position, _ = ahead.popleft()
            count += 1
            if split:
                self.splits[split] = position
                self.moved.add(split)
            else:
                self.position = position
            gap = 0.0 if last is None else max(0.0, intended - last)
            last = intended
            gap_s += gap
            gap_s2 += gap * gap
            if shed_after is not None and now - intended > shed_after:
                shed += 1
                continue
            if type(value) is Unreadable:
                failed.append(self._unreadable(value))
                continue
            root = router.ids.getrandbits(63) if draw() < chance else None
            made = send((value,), root)
            if root is not None and made:  # a broadcast is no tree
                roots.append(m.Root(root, made, intended))
        if last is None or not count:
            return None
        self._taken(count, last)
        more = bool(ahead) and (times is None or self._intended(now) <= now)
        self._learn_pace(gaps + count, gap_s)
        if count > shed:
            self.mean_bytes += 0.5 * (router.bytes / (count - shed) - self.mean_bytes)
            self.reader.learn(self.mean_bytes)
        busy_s = self._used_s() if self.has_splits else 0.0
        groups = router.collect()
        return m.Fed(groups, roots, count, shed, last, gap_s, gap_s2, more, failed, busy_s)

    def _has_value(self) -> bool:
        """Pass positions without a value. Returns whether a value was read."""
        ahead = self.reader.ahead
        while ahead and ahead[0][0] is _NOTHING:
            _, split, position, _ = ahead.popleft()
            self.splits[split] = position
            self.moved.add(split)
        return bool(ahead)

    def _used_s(self) -> float:
        """For how long this process has used the processor since it last sent."""
        before, self.busy_s = self.busy_s, time.process_time()
        return self.busy_s - before

    def _taken(self, count: int, last: float) -> None:
        """Note that so many values were taken, and when the last was meant to arrive."""
        self.reader.taken()
        self.next += count * self.readers
        self.count = self.next - self.readers + 1
        self.last = last

    def _unreadable(self, value: Unreadable) -> m.DeadLetter:
        if not self.keep_going:
            raise InputError(f"{value.shown} cannot be read: {value.error}")
        return m.DeadLetter(value.shown, value.error)

    def _learn_pace(self, gaps: int, gap_s: float) -> None:
        """Adjust the chance of being tracked, which is the same for every tuple, so that about
        `tracked_per_s` of them are. If the first ones after a stall were preferred, the figures
        would be too high."""
        if gaps:
            self.gaps += gaps
            weight = max(1 - 0.99**gaps, gaps / self.gaps)
            self.mean_gap_s += weight * (gap_s / gaps - self.mean_gap_s)
            self.chance = max(0.001, self.tracked_per_s * self.mean_gap_s)
