"""What probes and the echo server say to each other, and when packets came.

A TCP connection begins with a greeting: the token, what is wanted, and three numbers. The server
answers with one byte, or hangs up on strangers. UDP packets bear the token, the number of their
stream, and their own."""

import secrets
import socket
import struct
import time
from dataclasses import dataclass
from typing import ClassVar

from sojourn.errors import InputError
from sojourn.probing.figures import PACKET_BYTES

TOKEN_BYTES = 16
TRIP_BYTES = 64
READY = b"+"
DONE = b"."
_PACKET = struct.Struct(f"!{TOKEN_BYTES}sII")
_STAMP_NS = 35  # SO_TIMESTAMPNS, which Python has no name for
_TIMESPEC = struct.Struct("@qq")


def new_token() -> bytes:
    """One that nobody guesses."""
    return secrets.token_bytes(TOKEN_BYTES)


@dataclass(frozen=True)
class Greeting:
    """What a connection is for. A stream has a number and a count of packets, and ends once nothing
    has come for some milliseconds."""

    token: bytes
    wants: bytes
    stream: int = 0
    packets: int = 0
    patience_ms: int = 0

    TRIPS: ClassVar[bytes] = b"R"
    STREAM: ClassVar[bytes] = b"S"
    THROUGHPUT: ClassVar[bytes] = b"T"
    FORM: ClassVar[struct.Struct] = struct.Struct(f"!{TOKEN_BYTES}scIII")

    def packed(self) -> bytes:
        """As bytes."""
        return self.FORM.pack(self.token, self.wants, self.stream, self.packets, self.patience_ms)


def packet(token: bytes, stream: int, number: int) -> bytes:
    """One of a stream."""
    return _PACKET.pack(token, stream, number).ljust(PACKET_BYTES, b"\0")


def unpacked(data: bytes) -> tuple[bytes, int, int] | None:
    """Token, stream and number of a packet; None for what is none."""
    return _PACKET.unpack_from(data) if len(data) == PACKET_BYTES else None


def stamp(of: socket.socket) -> None:
    """Have the kernel note when packets come."""
    of.setsockopt(socket.SOL_SOCKET, _STAMP_NS, 1)


def received(of: socket.socket, most: int = 2048) -> tuple[bytes, int]:
    """A packet, and when the kernel got it, in ns of the wall clock. That this process had to wait
    for a CPU does not count."""
    data, told, _, _ = of.recvmsg(most, socket.CMSG_SPACE(_TIMESPEC.size))
    for level, kind, value in told:
        if (level, kind) == (socket.SOL_SOCKET, _STAMP_NS):
            seconds, ns = _TIMESPEC.unpack(value)
            return data, seconds * 10**9 + ns
    return data, time.time_ns()


def exactly(of: socket.socket, size: int) -> bytes:
    """So many bytes of a connection, or none if it ends before."""
    data = bytearray()
    while len(data) < size:
        more = of.recv(size - len(data))
        if not more:
            return b""
        data += more
    return bytes(data)


def parse_address(text: str, what: str) -> tuple[str, int]:
    """Host and port from `HOST:PORT`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{what}: must be ADDRESS:PORT, such as 10.0.0.5:7000; got {text!r}")
    return host, int(port)
