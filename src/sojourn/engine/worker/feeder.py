"""The loop of a source's process: reads values at their pace and hands them to the executor.
Runs the user's source, in a thread of its own because it may block.

A commit's cut saves the position of the last value sent. Times are those of the machine's steady
clock, which does not step."""

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FrameReader, send_frame
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import values
from sojourn.engine.worker.router import Router
from sojourn.sources import Source

READ_AHEAD = 4_000
_READ_FIRST = 16  # values to read before their size is known
MAX_AT_ONCE = 2_000
_MAX_BYTES = 1 << 18


class _Reader(threading.Thread):
    """Reads the source ahead of its sending, up to a bound of values and of bytes."""

    def __init__(self, source: Source, position: Any, most_bytes: int) -> None:
        super().__init__(daemon=True)
        self.values: Iterator[tuple[Any, Any]] = iter(source.read(position))
        self.ahead: deque[tuple[Any, Any, float]] = deque()
        self.most_bytes = most_bytes
        self.allowed = min(_READ_FIRST, READ_AHEAD)
        self.room = threading.Event()
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.finished = False
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for value, position in self.values:
                while len(self.ahead) >= self.allowed:
                    self.room.clear()
                    if len(self.ahead) >= self.allowed:  # again: values are taken all the time
                        self.room.wait()
                self.ahead.append((value, position, time.monotonic()))
                if len(self.ahead) == 1:
                    os.eventfd_write(self.wake, 1)
        except Exception as error:  # noqa: BLE001  # told to the driver by the sending loop
            self.error = error
        self.finished = True
        os.eventfd_write(self.wake, 1)

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
    """Sends what is due, until it is told to stop."""

    def __init__(
        self,
        source: Source,
        routes: tuple[Route, ...],
        saved: bytes,
        tracked_per_s: float,
        queue_bytes: int,
    ) -> None:
        self.source = source
        self.position: Any = None
        self.count, self.offset, self.expected = 0, 0.0, 0.0
        if saved:
            self.position, self.count, self.offset, self.expected = values.loads(saved)
        self.router = Router(routes, os.getpid() ^ time.time_ns())
        self.reader = _Reader(source, self.position, queue_bytes)
        self.times = source.pace.times(self.count, self.expected) if source.pace else None
        self.due: tuple[float, float] | None = None
        self.origin = 0.0
        self.tracked_per_s = tracked_per_s
        self.last: float | None = None
        self.gaps = 0
        self.mean_gap_s = 0.0
        self.chance = 1.0
        self.mean_bytes = 0.0
        self.held = self.stopped = False
        self.asked = True

    @property
    def sending(self) -> bool:
        """Whether values may be sent."""
        return self.asked and not self.held and not self.stopped

    def run(self, sock: socket.socket, frames: FrameReader) -> None:
        """Run until told to close, or until the executor is gone."""
        self.origin = time.monotonic() - self.offset
        self.reader.start()
        told = False
        while True:
            wait = self._seconds_to_next(time.monotonic()) if self.sending else None
            wait = 0.0 if frames.has_frame else wait
            watched = [sock.fileno(), self.reader.wake] if self.sending else [sock.fileno()]
            readable, _, _ = select.select(watched, [], [], wait)
            if self.reader.wake in readable:
                os.eventfd_read(self.reader.wake)
            if sock.fileno() in readable or frames.has_frame:
                frame = frames.read()
                while frame is not None and self._handle(frame, sock):
                    if not frames.has_frame:
                        break
                    frame = frames.read()
                else:
                    return
            if self.sending:
                fed = self.send_due(time.monotonic())
                if fed is not None:
                    self.asked = False
                    send_frame(sock, m.encode(fed))
                if self.reader.error is not None and not self.reader.ahead:
                    raise self.reader.error
                if self.reader.finished and not self.reader.ahead and not told:
                    told = True
                    send_frame(sock, m.encode(m.Exhausted()))

    def _handle(self, frame: bytes, sock: socket.socket) -> bool:
        """Carry out a message. Returns whether to go on."""
        match m.decode_to_worker(frame):
            case m.Save(commit=commit, hold=hold):
                send_frame(sock, m.encode(m.Cut(commit)))
                send_frame(sock, m.encode(m.Saved(commit, position=self.saved())))
                self.held = hold
            case m.GoOn():
                self.held = False
            case m.More():
                self.asked = True
            case m.Stop():
                self.stopped = True
            case m.Close():
                return False
        return True

    def saved(self) -> bytes:
        """Position, number of values and schedule time of the last value sent."""
        return values.dumps((self.position, self.count, self.offset, self.expected))

    def _seconds_to_next(self, now: float) -> float | None:
        """How long until something is due; None means until a value is read."""
        if not self.reader.ahead:
            return None
        return max(0.0, self._intended(now) - now)

    def _intended(self, now: float) -> float:
        """When the next value is meant to arrive."""
        if self.times is None:
            return min(now, self.reader.ahead[0][2])
        if self.due is None:
            self.due = next(self.times)
        return self.origin + self.due[0]

    def send_due(self, now: float) -> m.Fed | None:
        """Send what is due by now, as much as a message takes. Returns None if nothing is due."""
        roots: list[m.Root] = []
        count = shed = 0
        gap_s = gap_s2 = 0.0
        gaps = -1 if self.last is None else 0  # there is no gap before the first value
        ahead, times, router = self.reader.ahead, self.times, self.router
        draw, chance, send = router.ids.random, self.chance, router.send
        last, shed_after = self.last, self.source.shed_after
        while ahead and count < MAX_AT_ONCE and router.bytes < _MAX_BYTES:
            if times is None:
                value, self.position, intended = ahead.popleft()
            else:
                due = self.due or next(times)
                intended = self.origin + due[0]
                if intended > now:
                    self.due = due
                    break
                (self.offset, self.expected), self.due = due, None
                value, self.position, _ = ahead.popleft()
            count += 1
            gap = 0.0 if last is None else max(0.0, intended - last)
            last = intended
            gap_s += gap
            gap_s2 += gap * gap
            if shed_after is not None and now - intended > shed_after:
                shed += 1
                continue
            root = router.ids.getrandbits(63) if draw() < chance else None
            made = send((value,), root)
            if root is not None and made:  # a broadcast is no tree
                roots.append(m.Root(root, made, intended))
        if last is None or not count:
            return None
        self.reader.taken()
        self.count += count
        self.last = last
        more = bool(ahead) and (times is None or self._intended(now) <= now)
        self._learn_pace(gaps + count, gap_s)
        if count > shed:
            self.mean_bytes += 0.5 * (router.bytes / (count - shed) - self.mean_bytes)
            self.reader.learn(self.mean_bytes)
        return m.Fed(router.collect(), roots, count, shed, last, gap_s, gap_s2, more)

    def _learn_pace(self, gaps: int, gap_s: float) -> None:
        """Adjust the chance of being tracked, which is the same for every tuple, so that about
        `tracked_per_s` of them are. If the first ones after a stall were preferred, the figures
        would be too high."""
        if gaps:
            self.gaps += gaps
            weight = max(1 - 0.99**gaps, gaps / self.gaps)
            self.mean_gap_s += weight * (gap_s / gaps - self.mean_gap_s)
            self.chance = max(0.001, self.tracked_per_s * self.mean_gap_s)
