"""The channel loses nothing but samples, blocks nobody, and notices when the driver is gone."""

import pickle
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
import zmq

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.channel import (
    HEARTBEAT_S,
    LOST_AFTER_S,
    ChannelClient,
    ChannelKeys,
    ChannelServer,
)

PAD = "x" * 65_536
MANY = 2000  # of these are more than sockets hold
FULL_MS = 200  # without room in it
SOON_S = 0.6
LONG_MS = 30_000


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(undo: ExitStack, max_backlog: int = 64 << 20) -> ChannelServer:
    server = ChannelServer("127.0.0.1", high_water=10, max_backlog=max_backlog)
    undo.callback(server.close)
    return server


def join(
    undo: ExitStack,
    keys: ChannelKeys,
    identity: bytes = b"one",
    lost_after_s: float = LOST_AFTER_S,
    max_backlog: int = 64 << 20,
) -> ChannelClient:
    """A client that has joined."""
    client = ChannelClient(keys, identity, lost_after_s, (10, 10), max_backlog)
    undo.callback(client.close)
    client.send(m.Text(["hello"]))
    while not client.joined:
        assert client.monitor.poll(LONG_MS)
        client.read_monitor()
    assert client.lost_at is None
    return client


def until(condition: Callable[[], bool], turn: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_MS / 1000
    while not condition():
        assert time.monotonic() < deadline
        turn()


def texts(received: list[tuple[bytes, m.ToDriver]]) -> list[str]:
    assert all(isinstance(message, m.Text) for _, message in received)
    return [m_.lines[0].split(" ")[0] for _, m_ in received if isinstance(m_, m.Text)]


def fill(client: ChannelClient) -> int:
    """Send until the way is full, and some more; returns how many messages."""
    sent = 0
    while client.socket.poll(FULL_MS, zmq.POLLOUT) or not client.backlog_bytes:
        client.flush()
        for _ in range(20):
            client.send(m.Text([f"{sent} {PAD}"]))
            sent += 1
        assert sent < MANY, "nothing bounds what is sent"
    return sent


def overfill(server: ChannelServer, executor: bytes) -> int:
    """Send more than there is room for, 25 MiB; returns how many messages."""
    for _ in range(400):
        server.send(executor, m.Inject(PAD.encode()))
    return 400


class Proxy(threading.Thread):
    """Forwards connections until it is cut; then they stay open, and nothing comes through."""

    def __init__(self, address: str, refused: int = 0) -> None:
        super().__init__(daemon=True)
        host, port = address.removeprefix("tcp://").split(":")
        self.target = (host, int(port))
        self.refused = refused
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.stop, self.stopped = socket.socketpair()
        self.other: dict[socket.socket, socket.socket] = {}
        self.start()

    def through(self, keys: ChannelKeys) -> ChannelKeys:
        return replace(keys, address=f"tcp://127.0.0.1:{self.listener.getsockname()[1]}")

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            selector.register(self.stopped, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self.stopped:
                        return
                    if key.fileobj is self.listener:
                        near, _ = self.listener.accept()
                        if self.refused:
                            self.refused -= 1
                            near.close()
                            continue
                        far = socket.create_connection(self.target)
                        self.other |= {near: far, far: near}
                        selector.register(near, selectors.EVENT_READ)
                        selector.register(far, selectors.EVENT_READ)
                        continue
                    assert isinstance(key.fileobj, socket.socket)
                    data = key.fileobj.recv(65_536)
                    if data:
                        self.other[key.fileobj].sendall(data)
                    else:
                        selector.unregister(key.fileobj)

    def cut(self) -> None:
        self.stop.send(b".")
        self.join()

    def close(self) -> None:
        """Also closes the connections."""
        self.cut()
        for sock in (self.listener, self.stop, self.stopped, *self.other):
            sock.close()


def test_an_executor_that_is_cut_off_notices(undo: ExitStack) -> None:
    server = serve(undo)
    proxy = Proxy(server.keys.address)
    undo.callback(proxy.close)
    client = join(undo, proxy.through(server.keys), lost_after_s=SOON_S)
    assert texts(server.receive(10)) == ["hello"]
    proxy.cut()
    while client.lost_at is None:
        assert client.monitor.poll(LONG_MS)  # nobody has closed the connection
        client.read_monitor()
    assert client.lost_at <= time.monotonic()


def test_an_executor_takes_a_silent_driver_for_gone_within_five_seconds() -> None:
    assert HEARTBEAT_S + LOST_AFTER_S <= 5


DRIVER = """if True:
    import pickle, sys
    from sojourn.engine.wire import messages as m
    from sojourn.engine.wire.channel import ChannelServer
    server = ChannelServer("127.0.0.1")
    print(pickle.dumps(server.keys).hex(), flush=True)
    while True:
        for sender, message in server.receive(60):
            server.send(sender, m.Poll(7))
    """


def test_a_driver_that_pauses_for_a_moment_is_waited_for(undo: ExitStack) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    undo.enter_context(driver)
    undo.callback(driver.kill)
    assert driver.stdout is not None
    keys = pickle.loads(bytes.fromhex(driver.stdout.readline()))
    client = join(undo, keys)
    answers: list[m.ToExecutor] = []
    until(lambda: len(answers) == 1, lambda: _receive(client, answers))
    driver.send_signal(signal.SIGSTOP)
    client.send(m.Text(["are you there?"]))
    assert not client.monitor.poll(round(3000 * HEARTBEAT_S))  # nothing is heard, and nothing done
    driver.send_signal(signal.SIGCONT)
    until(lambda: len(answers) == 2, lambda: _receive(client, answers))
    client.read_monitor()
    assert client.lost_at is None


def _receive(client: ChannelClient, into: list[m.ToExecutor]) -> None:
    assert client.socket.poll(LONG_MS)
    client.receive(into.append)


def test_a_connection_that_broke_is_not_taken_up_again(undo: ExitStack) -> None:
    server = serve(undo)
    proxy = Proxy(server.keys.address)
    client = join(undo, proxy.through(server.keys))
    assert texts(server.receive(10)) == ["hello"]
    proxy.close()
    while client.lost_at is None:
        assert client.monitor.poll(LONG_MS)
        client.read_monitor()
    client.send(m.Text(["some before it are missing"]))
    assert client.backlog_bytes == 0
    join(undo, server.keys, b"two")
    assert [sender for sender, _ in server.receive(10)] == [b"two"]


def test_an_executor_that_starts_tries_again(undo: ExitStack) -> None:
    server = serve(undo)
    proxy = Proxy(server.keys.address, refused=1)
    undo.callback(proxy.close)
    join(undo, proxy.through(server.keys))
    assert texts(server.receive(10)) == ["hello"]


def test_what_the_driver_does_not_take_yet_waits_and_only_samples_are_dropped(
    undo: ExitStack,
) -> None:
    server = serve(undo)
    client = join(undo, server.keys)
    sent = fill(client)
    client.send(m.Traces([], [m.Ack(1, 2, 3.0)]))
    client.send(m.Traces([], []))
    client.send(m.Text(["last"]))
    assert client.dropped == 2
    found: list[str] = []

    def turn() -> None:
        found.extend(texts(server.receive(0.01)))
        client.flush()

    until(lambda: found[-1:] == ["last"], turn)
    assert found == ["hello", *map(str, range(sent)), "last"]
    assert client.backlog_bytes == 0
    client.send(m.Traces([], []))
    until(lambda: bool(server.receive(10)), lambda: None)
    assert client.dropped == 2


def test_the_descriptor_signals_that_there_is_room(undo: ExitStack) -> None:
    server = serve(undo)
    client = join(undo, server.keys)
    sent = fill(client)
    found: list[str] = []

    def drain() -> None:
        while len(found) < 1 + sent:
            found.extend(texts(server.receive(0.01)))

    draining = threading.Thread(target=drain)
    client.receive(lambda _: None)
    draining.start()
    while client.backlog_bytes:
        assert select.select([client], [], [], LONG_MS / 1000)[0]
        client.receive(lambda _: None)
    draining.join()


def test_closing_sends_what_waits(undo: ExitStack) -> None:
    server = serve(undo)
    client = ChannelClient(server.keys, b"one", high_water=(10, 10))
    for number in range(30):
        client.send(m.Text([f"{number} {PAD}"]))
    assert client.backlog_bytes
    closing = threading.Thread(target=client.close)
    closing.start()
    found: list[str] = []
    until(lambda: len(found) == 30, lambda: found.extend(texts(server.receive(0.01))))
    closing.join()
    assert found == [str(number) for number in range(30)]


def test_a_driver_that_lets_too_much_wait_is_given_up(undo: ExitStack) -> None:
    server = serve(undo)
    client = join(undo, server.keys, max_backlog=1 << 20)
    for _ in range(MANY):
        client.send(m.Text([PAD]))
    assert client.lost_at is not None
    assert client.lost_at <= time.monotonic()
    assert client.backlog_bytes == 0
    client.receive(lambda _: None)
    client.read_monitor()
    assert client.lost_at is not None


def test_a_driver_that_is_slow_to_read_is_not_given_up(undo: ExitStack) -> None:
    server = serve(undo)
    client = join(undo, server.keys, lost_after_s=2 * SOON_S)
    sent = fill(client)
    assert not client.monitor.poll(round(1500 * (2 * SOON_S + HEARTBEAT_S)))
    found: list[str] = []

    def turn() -> None:
        found.extend(texts(server.receive(0.01)))
        client.flush()

    until(lambda: len(found) == 1 + sent, turn)
    client.read_monitor()
    assert client.lost_at is None


def test_what_an_executor_does_not_take_yet_waits_and_others_do_not(undo: ExitStack) -> None:
    server = serve(undo)
    slow, other = join(undo, server.keys), join(undo, server.keys, b"two")
    joined: set[bytes] = set()
    until(lambda: len(joined) == 2, lambda: joined.update(dict(server.receive(10))))
    sent = overfill(server, b"one")
    server.send(b"one", m.Poll(8))
    assert list(server.backlogs) == [b"one"]
    server.send(b"two", m.Poll(9))
    assert other.socket.poll(LONG_MS)
    answers: list[m.ToExecutor] = []
    other.receive(answers.append)
    assert answers == [m.Poll(9)]
    assert other.received == 1
    answers.clear()

    def turn() -> None:
        server.receive(0.01)
        slow.receive(answers.append)

    until(lambda: answers[-1:] == [m.Poll(8)], turn)
    assert answers[:-1] == [m.Inject(PAD.encode())] * sent
    assert not server.backlogs
    assert not server.overrun


def test_an_executor_that_takes_nothing_overruns(undo: ExitStack) -> None:
    server = serve(undo, max_backlog=1 << 20)
    client = join(undo, server.keys)
    assert server.receive(10)
    overfill(server, b"one")
    server.send(b"one", m.Poll(1))
    assert server.overrun == [b"one"]
    assert not server.backlogs
    taken: list[m.ToExecutor] = []
    client.receive(taken.append)
    assert m.Poll(1) not in taken


def test_one_that_is_gone_is_no_error(undo: ExitStack) -> None:
    server = serve(undo)
    server.send(b"nobody", m.Poll(1))
    assert not server.backlogs
    client = ChannelClient(server.keys, b"one", high_water=(10, 10))
    client.send(m.Text(["hello"]))
    assert server.receive(10)
    overfill(server, b"one")
    assert server.backlogs
    client.close()
    until(lambda: not server.backlogs, lambda: server.receive(0.01))
    assert not server.overrun
