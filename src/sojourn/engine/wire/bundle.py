"""What crosses between processes of the data path: bundles of tuples, frames on sockets.
Used by tasks, executors and workers; nothing here looks into a tuple.

A bundle is an address and as many tuples as were ready for it. It is one Spark row. A prefix says
where the row goes, so that a stage can pass it on without opening it. The prefix also says who sent
the row, in which interval between two commits, and its number among the sender's rows. Spark's
streaming shuffle does not authenticate senders. So a row also carries a digest, which only those
who know the topology's secret can make."""

import hashlib
import hmac
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

# Level and partition of the receiver, interval and number of the sender, and the row's number on
# its way.
PREFIX = struct.Struct("<BHIHQ")
_DIGEST_BYTES = 16
_LENGTH = struct.Struct("<Q")
LENGTH_BYTES = _LENGTH.size
_READ_BYTES = 1 << 18

encode = msgspec.msgpack.Encoder().encode


class Trace(msgspec.Struct, array_like=True):
    """Marks a tuple of a bundle as part of a tracked tree: the root, and the tuple's own id."""

    index: int
    root: int
    id: int


FIRST_TOLD = -2


class Bundle(msgspec.Struct, array_like=True):
    """Tuples for one executor. `shards` has one entry per tuple, or none if there is no key. Tuples
    of a broadcast have shards below -1: FIRST_TOLD for the first executor, one less for the next.
    """

    payloads: list[bytes]
    shards: list[int]
    traces: list[Trace]


decode_bundle = msgspec.msgpack.Decoder(Bundle).decode


class Row(NamedTuple):
    """A bundle as it came: the interval it was sent in, its way, and its number on that way. A way
    is the number of the sender, and whether it is for feedback."""

    interval: int
    way: "Way"
    number: int
    bundle: Bundle


class Way(NamedTuple):
    """A way from one executor to another: through Spark alone or, for feedback, first through the
    driver."""

    sender: int
    feedback: bool


_FEEDBACK = 1 << 15
MAX_SENDER = _FEEDBACK - 1


class Seal:
    """Makes rows, and accepts only those that were made with the same secret."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def row(self, level: int, partition: int, row: Row) -> bytes:
        """A bundle, addressed and sealed."""
        sender = row.way.sender | (_FEEDBACK if row.way.feedback else 0)
        prefix = PREFIX.pack(level, partition, row.interval, sender, row.number)
        data = encode(row.bundle)
        return b"".join((prefix, self._digest(prefix, data), data))

    def opened(self, row: bytes) -> Row | None:
        """What a row says; None if it is not one of ours."""
        start = PREFIX.size + _DIGEST_BYTES
        prefix, data = row[: PREFIX.size], memoryview(row)[start:]
        if not hmac.compare_digest(row[PREFIX.size : start], self._digest(prefix, data)):
            return None
        _, _, interval, sender, number = PREFIX.unpack(prefix)
        way = Way(sender & MAX_SENDER, bool(sender & _FEEDBACK))
        return Row(interval, way, number, decode_bundle(data))

    def _digest(self, prefix: bytes, data: bytes | memoryview) -> bytes:
        made = hashlib.blake2b(prefix, key=self.secret, digest_size=_DIGEST_BYTES)
        made.update(data)
        return made.digest()


# All reads share one buffer. A new object for each read would fragment the memory of a process.
_ROOM = memoryview(bytearray(_READ_BYTES))


class Link:
    """Frames over a stream socket that never blocks: what cannot be sent yet waits in order. The
    links of a process are read by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.unsent: deque[memoryview] = deque()
        self.unsent_bytes = 0
        self._partial = bytearray()

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    def send(self, *parts: bytes) -> None:
        """Queue one frame of these parts and send what the socket takes."""
        size = sum(map(len, parts))
        frame = b"".join((_LENGTH.pack(size), *parts))
        self.unsent.append(memoryview(frame))
        self.unsent_bytes += len(frame)
        if len(self.unsent) == 1:
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes. A peer that is gone shows when reading."""
        try:
            while self.unsent:
                sent = self.sock.send(self.unsent[0])
                self.unsent_bytes -= sent
                if sent < len(self.unsent[0]):
                    self.unsent[0] = self.unsent[0][sent:]
                else:
                    self.unsent.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            gone = isinstance(error, (BrokenPipeError, ConnectionResetError))
            if not gone and self.sock.fileno() >= 0:  # else it was closed, as that was seen before
                raise
            self.unsent.clear()
            self.unsent_bytes = 0

    def receive(self) -> list[bytes] | None:
        """The frames that have arrived, or None when the peer is gone."""
        try:
            size = self.sock.recv_into(_ROOM)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            return None
        if not size:
            return None
        self._partial += _ROOM[:size]
        return taken(self._partial)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def send_frame(sock: socket.socket, *parts: bytes) -> None:
    """Send one frame over a blocking socket."""
    sock.sendall(b"".join((_LENGTH.pack(sum(map(len, parts))), *parts)))


def spans(buffer: bytearray) -> Iterator[tuple[int, int]]:
    """Where the whole frames in a buffer begin and end, without their lengths."""
    end = 0
    while len(buffer) - end >= LENGTH_BYTES:
        (size,) = _LENGTH.unpack_from(buffer, end)
        begin = end + LENGTH_BYTES
        if len(buffer) - begin < size:
            return
        end = begin + size
        yield begin, end


def taken(buffer: bytearray) -> list[bytes]:
    """Take the whole frames out of a buffer."""
    frames, end = [], 0
    for begin, end in spans(buffer):
        frames.append(bytes(buffer[begin:end]))
    del buffer[:end]
    return frames


class FrameReader:
    """Frames from a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.frames: deque[bytes] = deque()
        self._buffer = bytearray()
        self._room = memoryview(bytearray(_READ_BYTES))

    def read(self) -> bytes | None:
        """The next frame, or None at the end of the stream."""
        while not self.frames:
            size = self.sock.recv_into(self._room)
            if not size:
                return None
            self._buffer += self._room[:size]
            self.frames.extend(taken(self._buffer))
        return self.frames.popleft()

    @property
    def has_frame(self) -> bool:
        """Whether a whole frame has been read already; a selector would not signal it."""
        return bool(self.frames)
