"""Links between machines: frames over TCP that only those who know the topology's secret can make,
each in its place and once. Used by executors and by the hosts of their workers elsewhere.

Who connects shows that it knows the secret, and so does who listens. Both send a number that was
never used before, so what was overheard earlier is of no use. From these numbers and the secret
follow the keys of the two directions."""

import hashlib
import hmac
import secrets
import socket

import msgspec

from sojourn.engine.wire.bundle import Link, encode

_BYTES = 16
_DEAD_AFTER_S = 4  # without an answer, the other machine is taken to be gone


class Knock(msgspec.Struct, array_like=True):
    """The first frame, of who connects: from which machine, and for which request."""

    machine: str
    request: int
    number: bytes
    proof: bytes


class Answer(msgspec.Struct, array_like=True):
    """The second frame, of who listens."""

    number: bytes
    proof: bytes


def _digest(key: bytes, *parts: bytes) -> bytes:
    made = hashlib.blake2b(key=key, digest_size=_BYTES)
    for part in parts:
        made.update(part)
    return made.digest()


def knock(secret: bytes, machine: str, request: int) -> Knock:
    """What to send first."""
    number = secrets.token_bytes(_BYTES)
    return Knock(machine, request, number, _proof(secret, machine, request, number))


def _proof(secret: bytes, machine: str, request: int, number: bytes) -> bytes:
    return _digest(secret, b"knock", encode((machine, request)), number)


def answer(secret: bytes, frame: bytes) -> tuple[Knock, Answer] | None:
    """Who knocks, and what to answer; None to somebody who does not know the secret."""
    try:
        found = msgspec.msgpack.decode(frame, type=Knock)
    except msgspec.MsgspecError:
        return None
    expected = _proof(secret, found.machine, found.request, found.number)
    if len(found.number) != _BYTES or not hmac.compare_digest(found.proof, expected):
        return None
    number = secrets.token_bytes(_BYTES)
    return found, Answer(number, _digest(secret, b"answer", found.number, number))


def is_answer(secret: bytes, own: Knock, frame: bytes) -> Answer | None:
    """The answer to a knock; None if somebody gives it who does not know the secret."""
    try:
        found = msgspec.msgpack.decode(frame, type=Answer)
    except msgspec.MsgspecError:
        return None
    expected = _digest(secret, b"answer", own.number, found.number)
    return found if hmac.compare_digest(found.proof, expected) else None


class SealedLink(Link):
    """A link whose frames carry a digest over their number and content. To one that is wrong it
    reacts as if the other end were gone."""

    def __init__(
        self, sock: socket.socket, secret: bytes, knocked: Knock, told: Answer, connects: bool
    ) -> None:
        super().__init__(sock)
        keys = [_digest(secret, way, knocked.number, told.number) for way in (b"there", b"back")]
        self.out_key, self.in_key = keys if connects else reversed(keys)
        self.sent = self.got = 0
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _DEAD_AFTER_S - 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_S * 1000)

    def send(self, *parts: bytes) -> None:
        """Queue one frame, sealed."""
        self.sent += 1
        super().send(_digest(self.out_key, self.sent.to_bytes(8, "little"), *parts), *parts)

    def receive(self) -> list[bytes] | None:
        """The frames that have arrived, or None when the peer is gone or is somebody else."""
        try:
            frames = super().receive()
        except OSError:  # TimeoutError, EHOSTUNREACH and the like
            return None
        if frames is None:
            return None
        found = []
        for frame in frames:
            self.got += 1
            data = frame[_BYTES:]
            expected = _digest(self.in_key, self.got.to_bytes(8, "little"), data)
            if not hmac.compare_digest(frame[:_BYTES], expected):
                return None
            found.append(data)
        return found
