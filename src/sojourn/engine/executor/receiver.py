"""The entrance of an executor. It lets in the Spark task of each batch once the task has shown the
secret. It opens the rows that the task sends, counts them, and hands on their bundles. Feeds the
workers' queues, and tells the emitter how many rows Spark has taken."""

import contextlib
import hmac
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sojourn.engine.executor.loop import Loop
from sojourn.engine.executor.on_error import Fault
from sojourn.engine.wire.bundle import Bundle, Link, Row, Seal, Way
from sojourn.engine.wire.spec import END, NO_BATCH, Attach

_log = logging.getLogger("sojourn")


@dataclass(frozen=True)
class Callbacks:
    """What to call when something happens to a batch."""

    begun: Callable[[int], None]  # a task came for it
    ended: Callable[[], None]  # all of the batch's rows have come
    taken: Callable[[int], None]  # Spark has taken that many of our rows
    gone: Callable[[], None]  # the task has closed its end


class Receiver:
    """One task at a time, with two links: one for rows both ways, and one on which it tells how
    many rows were taken. The second is read even while no more rows are.

    Rows are counted by the way they come. A row whose sender is one cut ahead of us waits until we
    have made our cut."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        secret: bytes,
        seal: Seal,
        arrived: Callable[[Bundle], None],
    ) -> None:
        self.loop, self.listener, self.secret, self.seal = loop, listener, secret, seal
        self.arrived = arrived
        self.callbacks: Callbacks  # set before the loop turns
        self.task: Link | None = None
        self.counts: Link | None = None
        self.open = False  # whether bundles can be handed on
        self.interval = 0
        self.got: dict[Way, int] = {}
        self.untold_bytes = 0  # bytes of rows that their senders still keep
        self.early: list[Row] = []
        loop.add(listener, self._accept)

    @property
    def received(self) -> int:
        """How many rows have ever come."""
        return sum(self.got.values()) + len(self.early)

    def told(self) -> list[tuple[int, bool, int]]:
        """What has come over each way, for its sender to know."""
        self.untold_bytes = 0
        return [(way.sender, way.feedback, number) for way, number in self.got.items()]

    def hand_on_early(self) -> None:
        """Hand on what could not be handed on when it came."""
        early, self.early = self.early, []
        for row in early:
            self.hand_on(row)

    def hand_on(self, row: Row) -> None:
        """Count a row and hand on its bundle, or keep it if it came early."""
        if not self.open or row.interval > self.interval:
            self.early.append(row)
            return
        before = self.got.get(row.way, 0)
        if row.number != before + 1:
            what = "feedback" if row.way.feedback else "row"
            raise Fault(f"{what} {row.number} of sender {row.way.sender} came after {before}")
        self.got[row.way] = row.number
        self.arrived(row.bundle)

    def detach(self) -> None:
        """Forget the task; the next one may come."""
        for link in (self.task, self.counts):
            if link is not None:
                self.loop.remove(link)
                link.close()
        self.task = self.counts = None

    def close(self) -> None:
        """Let in nobody any more. A task that comes later starts another executor. Safe to call
        twice."""
        if self.listener.fileno() < 0:
            return
        self.loop.remove(self.listener)
        path = Path(self.listener.getsockname())
        path.unlink(missing_ok=True)
        self.listener.close()
        with contextlib.suppress(OSError):  # others are left in it
            path.parent.rmdir()

    def _accept(self) -> None:
        sock, _ = self.listener.accept()
        link = Link(sock)
        self.loop.add(link, lambda: self._read_first(link))

    def _read_first(self, link: Link) -> None:
        """The first frame must show the secret, before anything else is read."""
        frames = link.receive()
        if frames == []:
            return
        self.loop.remove(link)
        try:
            attach = msgspec.msgpack.decode(frames[0], type=Attach) if frames else None
        except msgspec.MsgspecError:
            attach = None
        if frames is None or attach is None or not hmac.compare_digest(attach.secret, self.secret):
            link.close()
            return
        if attach.batch == NO_BATCH:
            self.counts = link
            self.loop.add(link, self._read_counts)
            self._count(frames[1:])
            return
        self.detach()
        self.task = link
        self.loop.add(link, self._read_task)
        self.callbacks.begun(attach.batch)
        self.take(frames[1:])

    def _read_task(self) -> None:
        assert self.task is not None
        frames = self.task.receive()
        if frames is None:
            self.callbacks.gone()
        else:
            self.take(frames)

    def take(self, frames: list[bytes]) -> None:
        """Take what the task has sent: rows, and perhaps the end of the batch."""
        for frame in frames:
            if frame == END:
                self.callbacks.ended()
                continue
            opened = self.seal.opened(frame)
            if opened is None:
                _log.warning("ignoring a row of %d bytes that is not ours", len(frame))
            else:
                self.untold_bytes += len(frame)
                self.hand_on(opened)

    def _read_counts(self) -> None:
        assert self.counts is not None
        frames = self.counts.receive()
        if frames is not None:
            self._count(frames)
            return
        self.loop.remove(self.counts)
        self.counts.close()
        self.counts = None

    def _count(self, frames: list[bytes]) -> None:
        self.callbacks.taken(sum(int.from_bytes(frame, "little") for frame in frames))
