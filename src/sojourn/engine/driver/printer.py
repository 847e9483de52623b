"""The printer writes what console sinks show to standard output. It is fed by the hub, which must
not wait for a terminal. So the printer writes in a thread of its own. Lines that standard output
does not take are dropped, the oldest first, and counted."""

import logging
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

_log = logging.getLogger("sojourn")
MAX_BYTES = 1 << 24
_PIPE_BYTES = 4096  # what a pipe with any room takes at once
_LOOK_S = 0.1


class Printer:
    """Lines on their way to standard output, at most `max_bytes` of them in memory, and as much
    again being written. The thread starts with the first line. It writes only when there is room,
    so it can end even if the terminal is blocked: the interpreter cannot end while a thread is
    stuck in standard output."""

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        stream: Callable[[], TextIO | None] = lambda: sys.stdout,
    ) -> None:
        self.max_bytes, self.stream = max_bytes, stream
        self.changed = threading.Condition()
        self.waiting: deque[str] = deque()
        self.bytes = 0
        self.not_shown = 0  # lines dropped since the last warning
        self.thread: threading.Thread | None = None
        self.end_by: float | None = None

    def show(self, lines: list[str]) -> None:
        """Have lines written. Returns at once. After `close`, lines are not written."""
        with self.changed:
            if self.end_by is not None:
                return
            self.waiting += lines
            self.bytes += sum(map(sys.getsizeof, lines))
            while self.bytes > self.max_bytes:
                self.bytes -= sys.getsizeof(self.waiting.popleft())
                self.not_shown += 1
            if self.thread is None:
                self.thread = threading.Thread(
                    target=self._run, name="sojourn-printer", daemon=True
                )
                self.thread.start()
            self.changed.notify()

    def close(self, timeout_s: float) -> None:
        """Write what is left, as far as standard output takes it in time."""
        with self.changed:
            if self.end_by is None:
                self.end_by = time.monotonic() + timeout_s
            self.changed.notify()
        if self.thread is not None:
            self.thread.join(timeout_s + _LOOK_S)  # a stream of the user's own may block

    def _run(self) -> None:
        while lines := self._next():
            self._tell()
            unwritten = self._write(lines)
            with self.changed:
                self.not_shown += unwritten
        self._tell()

    def _next(self) -> list[str]:
        """The waiting lines, once there are some; none at the end."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.end_by is not None)
            lines = list(self.waiting)
            self.waiting.clear()
            self.bytes = 0
            return lines

    def _tell(self) -> None:
        """Log how many lines are missing at this point. Not on standard output, which a program may
        read."""
        with self.changed:
            count, self.not_shown = self.not_shown, 0
        if count:
            _log.warning("%d lines are not shown: standard output did not take them", count)

    def _write(self, lines: list[str]) -> int:
        """Write lines. Returns how many were dropped. Without a reader, all are."""
        stream = self.stream()
        if stream is None:
            return 0
        left = sum(1 + line.count("\n") for line in lines)
        try:
            for piece in _pieces(lines, stream):
                if not self._has_room(stream):
                    break
                stream.write(piece)
                stream.flush()
                left -= piece.count("\n")
        except (BrokenPipeError, ValueError):
            _log.debug("standard output is closed; %d lines are not shown", left)
            return 0
        except OSError as error:
            _log.debug("standard output cannot be written: %s", error)
        return left

    def _has_room(self, stream: TextIO) -> bool:
        """Wait until a write would not block. Returns False if it is time to end before that. A
        stream that is not a file takes everything."""
        try:
            descriptor = stream.fileno()
        except (AttributeError, OSError):
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        while True:
            left_s = _LOOK_S
            if self.end_by is not None:
                left_s = min(left_s, self.end_by - time.monotonic())
            if left_s <= 0:
                return False
            if poll.poll(left_s * 1000):  # also on an error, which the write then raises
                return True


def _pieces(lines: Iterable[str], stream: TextIO) -> Iterator[str]:
    """As many whole lines at a time as a pipe with any room takes. A longer line comes in parts."""
    piece, size = "", 0
    for line in lines:
        text, length = _encodable(f"{line}\n", stream)
        if size + length > _PIPE_BYTES and piece:
            yield piece
            piece, size = "", 0
        if length > _PIPE_BYTES:
            step = _PIPE_BYTES // 4  # no character takes more than four bytes
            yield from (text[start : start + step] for start in range(0, len(text), step))
        else:
            piece += text
            size += length
    if piece:
        yield piece


def _encodable(text: str, stream: TextIO) -> tuple[str, int]:
    """The text, or an ASCII version if the stream cannot show it, and how many bytes it takes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    errors = getattr(stream, "errors", None) or "strict"
    try:
        return text, len(text.encode(encoding, errors))
    except UnicodeEncodeError:
        data = text.encode("ascii", "backslashreplace")
        return data.decode(), len(data)
