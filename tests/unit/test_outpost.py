"""An outpost, as a process of its own: it joins, sends workers to whom the driver says, and ends
with the driver's word or with the task that asked for it."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import cloudpickle
import pytest

import sojourn as sj
from sojourn.engine.driver.build import own_modules_by_value
from sojourn.engine.executor.entrance import Entrance
from sojourn.engine.executor.loop import Loop
from sojourn.engine.spark import nursery
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.channel import ChannelServer
from sojourn.engine.wire.sealed import SealedLink
from sojourn.engine.wire.spec import HostSpec, OutpostSpec
from sojourn.engine.worker import values

SECRET = b"s" * 32
WAIT_S = 20.0


class Count(sj.Operator):
    def process(self, word: str) -> int:
        count = int(self.state.get(word, 0)) + 1
        self.state[word] = count
        return count


with own_modules_by_value():
    CODE = cloudpickle.dumps(Count)
SPEC = HostSpec(
    vertex="count",
    executor=0,
    run="run",
    code=CODE,
    classes=(),
    routes=(),
    threads=False,
    emits="one",
    key=cloudpickle.dumps(str),
    ttl_s=None,
    broadcast=False,
    zero_s=0.0,
    keep_going=False,
    tracked_per_s=0.0,
    timed_every=1,
    queue_bytes=1 << 20,
    epoch=1,
)


@pytest.fixture(scope="module", autouse=True)
def nursery_of_ours() -> Iterator[None]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, pytest.MonkeyPatch.context() as patch:
        end = theirs.fileno()
        command = [sys.executable, "-m", "sojourn.engine.executor.main", str(end)]
        process = subprocess.Popen(command, pass_fds=[end])
        theirs.close()
        patch.setattr(nursery, "_nursery", ours)
        yield
    ours.close()
    assert process.wait(WAIT_S) == 0


class Rig:
    """The driver's end of the channel, an executor's entrance, and an outpost."""

    def __init__(self) -> None:
        self.channel = ChannelServer("127.0.0.1")
        self.loop = Loop()
        self.links: list[SealedLink] = []
        self.entrance = Entrance(
            self.loop, SECRET, "tcp://127.0.0.1:1", lambda link, _machine: self.links.append(link)
        )
        self.held = nursery.start_outpost(pickle.dumps(OutpostSpec(self.channel.keys, SECRET, "7")))
        self.held.settimeout(WAIT_S)
        self.name, told = self.heard()
        assert isinstance(told, m.Outpost)
        self.told = told

    def heard(self) -> tuple[bytes, m.ToDriver]:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if found := self.channel.receive(0.1):
                return found[0]
        raise AssertionError("the outpost says nothing")

    def employ(self, count: int) -> list[SealedLink]:
        self.channel.send(self.name, m.Employ(*self.entrance.address, count))
        wanted, deadline = len(self.links) + count, time.monotonic() + WAIT_S
        while len(self.links) < wanted and time.monotonic() < deadline:
            self.channel.flush()
            self.loop.turn(0.1)
        for link in self.links[-count:]:
            link.send(pickle.dumps(SimpleNamespace(host=SPEC)))
            link.send(m.encode(m.Open(b"", [])))
        return self.links[-count:]

    def answer(self, link: SealedLink) -> m.FromWorker | None:
        """The next message of a worker; None if it is gone."""
        link.sock.settimeout(WAIT_S)
        while (frames := link.receive()) == []:
            continue
        link.sock.setblocking(False)
        if frames is None:
            return None
        (frame,) = frames
        message: m.FromWorker = m.decode_from_worker(frame)
        return message

    def close(self) -> None:
        self.held.close()
        for link in self.links:
            link.close()
        self.entrance.close()
        self.channel.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    try:
        yield made
    finally:
        made.close()


def work(*words: str, shard: int) -> bytes:
    return m.encode(m.Work([values.dumps(word) for word in words], [shard] * len(words), []))


def test_workers_come_process_and_hand_over_their_state(rig: Rig) -> None:
    assert rig.told.spark_executor == "7"
    one, other = rig.employ(2)
    pids = {one: rig.answer(one), other: rig.answer(other)}
    assert all(isinstance(told, m.Ready) for told in pids.values())
    one.send(work("a", "b", "a", shard=3))
    done = rig.answer(one)
    assert isinstance(done, m.Done)
    assert done.served == 3
    one.send(m.encode(m.TakeShard(3)))
    given = rig.answer(one)
    assert isinstance(given, m.GiveShard)
    assert given.state
    other.send(m.encode(given))
    assert isinstance(rig.answer(other), m.Timers)
    other.send(m.encode(m.TakeShard(3)))
    back = rig.answer(other)
    assert isinstance(back, m.GiveShard)
    assert back.state


def test_a_worker_that_is_let_go_leaves_others_alone(rig: Rig) -> None:
    one, other = rig.employ(2)
    for link in (one, other):
        assert isinstance(rig.answer(link), m.Ready)
    one.send(m.encode(m.Close()))
    assert rig.answer(one) is None
    other.send(work("a", shard=1))
    assert isinstance(rig.answer(other), m.Done)


def test_it_ends_when_the_driver_says_so(rig: Rig) -> None:
    (link,) = rig.employ(1)
    assert isinstance(rig.answer(link), m.Ready)
    rig.channel.send(rig.name, m.Finish())
    name, told = rig.heard()
    assert (name, type(told)) == (rig.name, m.Bye)
    assert rig.held.recv(1) == b""
    assert rig.answer(link) is None


def test_it_ends_with_the_task_that_asked_for_it(rig: Rig) -> None:
    (link,) = rig.employ(1)
    assert isinstance(rig.answer(link), m.Ready)
    rig.held.close()
    assert rig.answer(link) is None
    assert not rig.channel.receive(0.1), "it was not told to go, and does not say that it does"


def test_workers_end_with_their_outpost(rig: Rig) -> None:
    (link,) = rig.employ(1)
    assert isinstance(rig.answer(link), m.Ready)
    os.kill(rig.told.pid, signal.SIGKILL)
    assert rig.answer(link) is None


def test_an_executor_that_is_gone_is_no_error(rig: Rig) -> None:
    host, port = rig.entrance.address
    rig.entrance.close()
    rig.channel.send(rig.name, m.Employ(host, port, 1))
    rig.entrance = Entrance(
        rig.loop, SECRET, "tcp://127.0.0.1:1", lambda link, _machine: rig.links.append(link)
    )
    (link,) = rig.employ(1)
    assert isinstance(rig.answer(link), m.Ready)
