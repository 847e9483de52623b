"""Round trips of ICMP, as `ping` measures them: answered by the other machine's kernel. Linux lets
everybody send them whose group is in `net.ipv4.ping_group_range`, and others with CAP_NET_RAW."""

import os
import secrets
import select
import socket
import struct
import time

from sojourn.probing.packets import TOKEN_BYTES, received, stamp

_REQUEST, _ANSWER = 8, 0
_HEAD = struct.Struct("!BBHHH")  # type, code, checksum, identifier, number
_TIMEOUT_S = 1.0


class Refused(Exception):
    """ICMP cannot be sent from here."""


class Ping:
    """Asks one machine, one request at a time."""

    def __init__(self, host: str) -> None:
        self.address = (host, 0)
        self.socket, self.raw = _socket()
        stamp(self.socket)
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.number = 0

    def trip(self) -> float | None:
        """Seconds until the answer came; None if it did not within a second."""
        self.number = (self.number + 1) % 0x10000
        asked = request(os.getpid() & 0xFFFF, self.number, self.token)
        sent_ns = time.time_ns()
        try:
            self.socket.sendto(asked, self.address)
        except OSError as error:
            raise Refused(f"ICMP cannot be sent: {error.strerror}") from None
        deadline_s = time.monotonic() + _TIMEOUT_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            ready, _, _ = select.select([self.socket], [], [], left_s)
            if ready:
                data, came_ns = received(self.socket)
                if is_answer(data, self.number, self.token, self.raw):
                    return (came_ns - sent_ns) / 1e9
        return None

    def __enter__(self) -> "Ping":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def _socket() -> tuple[socket.socket, bool]:
    """A socket, and whether it is a raw one, which gets the packets of others and IP's header."""
    causes = []
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            return socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP), (
                kind == socket.SOCK_RAW
            )
        except OSError as error:
            causes.append(error.strerror)
    raise Refused(
        f"ICMP is not allowed here ({causes[0]}); widen net.ipv4.ping_group_range, or give "
        "Python CAP_NET_RAW"
    )


def request(identifier: int, number: int, token: bytes) -> bytes:
    """An echo request."""
    empty = _HEAD.pack(_REQUEST, 0, 0, identifier, number) + token
    return _HEAD.pack(_REQUEST, 0, checksum(empty), identifier, number) + token


def is_answer(data: bytes, number: int, token: bytes, raw: bool) -> bool:
    """Whether a packet answers that request. The identifier may be the kernel's own."""
    start = (data[0] & 0xF) * 4 if raw and data else 0
    if len(data) < start + _HEAD.size:
        return False
    kind, _, _, _, found = _HEAD.unpack_from(data, start)
    return (kind, found, data[start + _HEAD.size :]) == (_ANSWER, number, token)


def checksum(data: bytes) -> int:
    """Of an even number of bytes (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
