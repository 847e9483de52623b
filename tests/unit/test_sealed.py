"""Links between machines: only those who know the secret get in, and frames come in order, once."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sojourn.engine.executor.entrance import Entrance
from sojourn.engine.executor.loop import Loop
from sojourn.engine.wire.bundle import FrameReader, Link, encode, send_frame
from sojourn.engine.wire.sealed import SealedLink, is_answer, knock

SECRET = b"s" * 32


class Rig:
    """An entrance, and those who came in."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.joined: list[tuple[SealedLink, str]] = []
        self.opened: list[socket.socket] = []
        self.entrance = Entrance(
            self.loop, SECRET, "tcp://127.0.0.1:1", lambda *one: self.joined.append(one)
        )

    def turn(self, times: int = 5) -> None:
        for _ in range(times):
            self.loop.turn(0.05)

    def connect(self) -> socket.socket:
        self.opened.append(socket.create_connection(self.entrance.address, 5.0))
        return self.opened[-1]

    def enter(self, secret: bytes = SECRET) -> SealedLink | None:
        """As an outpost does."""
        sock = self.connect()
        own = knock(secret, "there", 0)
        send_frame(sock, encode(own))
        self.turn()
        try:
            frame = FrameReader(sock).read()
        except ConnectionResetError:
            return None
        told = None if frame is None else is_answer(secret, own, frame)
        if told is None:
            return None
        link = SealedLink(sock, secret, own, told, connects=True)
        link.send(b"")
        self.turn()
        return link


@contextmanager
def rigged() -> Iterator[Rig]:
    rig = Rig()
    try:
        yield rig
    finally:
        rig.entrance.close()
        for link, _ in rig.joined:
            link.close()
        for sock in rig.opened:
            sock.close()


def received(link: Link) -> list[bytes] | None:
    link.sock.settimeout(5.0)
    found = link.receive()
    link.sock.setblocking(False)
    return found


def test_who_knows_the_secret_gets_in() -> None:
    with rigged() as rig:
        there = rig.enter()
        assert there is not None
        ((here, machine),) = rig.joined
        assert machine == "there"
        there.send(b"a", b"b")
        assert received(here) == [b"ab"]
        here.send(b"c")
        assert received(there) == [b"c"]
        there.close()
        assert received(here) is None


def test_who_does_not_know_it_stays_out() -> None:
    with rigged() as rig:
        assert rig.enter(b"x" * 32) is None
        assert rig.joined == []


@pytest.mark.parametrize("said", [b"", b"hello", b"\x94\xa1a\x00\xc4\x00\xc4\x00"])
def test_nonsense_is_not_answered(said: bytes) -> None:
    with rigged() as rig, rig.connect() as sock:
        send_frame(sock, said)
        rig.turn()
        assert sock.recv(1) == b""
        assert rig.joined == []


def test_a_knock_that_was_overheard_opens_nothing() -> None:
    with rigged() as rig, rig.connect() as sock:
        own = knock(SECRET, "there", 0)
        send_frame(sock, encode(own))
        rig.turn()
        assert FrameReader(sock).read() is not None
        send_frame(sock, b"0" * 16)  # who overheard it cannot seal a frame
        rig.turn()
        assert rig.joined == []


def test_somebody_else_in_place_of_the_executor_is_noticed() -> None:
    own = knock(SECRET, "there", 0)
    assert is_answer(SECRET, own, encode((b"1" * 16, b"2" * 16))) is None
    assert is_answer(SECRET, own, b"nonsense") is None


@pytest.mark.parametrize("change", ["content", "order", "again"])
def test_frames_that_were_tampered_with_end_the_link(change: str) -> None:
    with rigged() as rig:
        there = rig.enter()
        assert there is not None
        ((here, _),) = rig.joined
        frames: list[bytes] = []
        there.flush = lambda: None  # type: ignore[method-assign]  # what would go over the wire
        there.send(b"one")
        there.send(b"two")
        frames = [bytes(frame) for frame in there.unsent]
        if change == "content":
            sent = frames[0][:-1] + b"x"
        elif change == "order":
            sent = frames[1]
        else:
            sent = frames[0] + frames[0]
        there.sock.setblocking(True)
        there.sock.sendall(sent)
        assert received(here) is None
