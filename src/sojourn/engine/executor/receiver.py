"""The entrance of an executor: lets in the Spark task of each batch, once it has shown the secret,
and hands on what it sends. Feeds the batch's life in `executor`, and the emitter with how many
rows Spark has taken."""

import contextlib
import hmac
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sojourn.engine.executor.loop import Loop
from sojourn.engine.wire.bundle import Link
from sojourn.engine.wire.spec import NO_BATCH, Attach


@dataclass(frozen=True)
class Callbacks:
    """Whom the receiver tells."""

    attached: Callable[[int], None]  # a task came for this batch
    arrived: Callable[[list[bytes]], None]  # rows of its partition, and END
    taken: Callable[[int], None]  # so many rows of ours are with Spark
    gone: Callable[[], None]  # the task has closed its end


class Receiver:
    """One task at a time: a link for rows both ways, and one on which it tells what was taken,
    heard also while no more rows are read."""

    def __init__(
        self, loop: Loop, listener: socket.socket, secret: bytes, callbacks: Callbacks
    ) -> None:
        self.loop, self.listener, self.secret = loop, listener, secret
        self.callbacks = callbacks
        self.task: Link | None = None
        self.counts: Link | None = None
        loop.add(listener, self._accept)

    def detach(self) -> None:
        """Forget the task; the next one may come."""
        for link in (self.task, self.counts):
            if link is not None:
                self.loop.remove(link)
                link.close()
        self.task = self.counts = None

    def close(self) -> None:
        """Let in nobody any more: a task that comes starts another executor. Safe to call twice."""
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
        self.callbacks.attached(attach.batch)
        self.callbacks.arrived(frames[1:])

    def _read_task(self) -> None:
        assert self.task is not None
        frames = self.task.receive()
        if frames is None:
            self.callbacks.gone()
        else:
            self.callbacks.arrived(frames)

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
