"""What crosses between processes of the data path: bundles of tuples, frames on sockets.
Used by tasks, executors and workers; nothing here looks into a tuple.

A bundle is an address and as many tuples as were ready for it. It stands in one Spark row behind
a prefix that says where it goes, so that a stage can wave it through without opening it, and in
which interval between two commits it was sent, by whom and as which of his rows. Spark's streaming
shuffle asks nobody who he is, so a row also carries a digest that only who knows the topology's
secret can make."""

import hashlib
import hmac
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

# Level and partition of the receiver, interval of the sender, its number, and the row's own: the
# how-manieth it is on its way.
PREFIX = struct.Struct("<BHIHQ")
_DIGEST_BYTES = 16
_LENGTH = struct.Struct("<Q")
LENGTH_BYTES = _LENGTH.size
_READ_BYTES = 1 << 18

encode = msgspec.msgpack.Encoder().encode


class Trace(msgspec.Struct, array_like=True):
    """Says that a tuple of a bundle belongs to a tracked tree: the root and the tuple's own id."""

    index: int
    root: int
    id: int


FIRST_TOLD = -2


class Bundle(msgspec.Struct, array_like=True):
    """Tuples for one executor. `shards` has one entry per tuple, or none if there is no key. Those
    of a broadcast have shards below -1: FIRST_TOLD for the first executor, one less for the next.
    """

    payloads: list[bytes]
    shards: list[int]
    traces: list[Trace]


decode_bundle = msgspec.msgpack.Decoder(Bundle).decode


class Row(NamedTuple):
    """A bundle as it came: sent in which interval, over which way, and the how-manieth there. A way
    is its sender's number and whether it is the one for feedback."""

    interval: int
    way: "Way"
    number: int
    bundle: Bundle


class Way(NamedTuple):
    """From one executor to another, by Spark alone or, as feedback, through the driver first."""

    sender: int
    feedback: bool


_FEEDBACK = 1 << 15
MAX_SENDER = _FEEDBACK - 1


class Seal:
    """Makes rows, and believes only those that were made with the same secret."""

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


# What is read goes through one place: as an object of its own each time, it would leave the memory
# of a process in pieces that nothing fits in again.
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
        except (BrokenPipeError, ConnectionResetError):
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
    """The whole frames of a buffer, which are no longer in it then."""
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
        """Whether a whole frame has been read already, which no selector will tell."""
        return bool(self.frames)
