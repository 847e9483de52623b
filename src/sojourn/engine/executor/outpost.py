"""An outpost: a process on a machine that hosts workers of elastic executors elsewhere. A Spark
task has the nursery fork it, and both end together. The driver tells it whom to send workers to.
Each worker has a connection of its own to its executor, and this process passes on what goes over
it, so that a worker knows nothing of where it is. Workers of an executor are forked from one
process that has loaded its code."""

import hashlib
import os
import pickle
import socket
import time
import traceback
from dataclasses import dataclass, field

from sojourn.engine.executor.background import Background
from sojourn.engine.executor.loop import Loop
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FrameReader, Link, encode, send_frame
from sojourn.engine.wire.channel import ChannelClient
from sojourn.engine.wire.sealed import SealedLink, is_answer, knock
from sojourn.engine.wire.spec import OutpostSpec, machine_name, outpost_identity, own_code
from sojourn.engine.worker.host import ask_for_worker, run_host
from sojourn.engine.worker.parent import die_with

_CONNECT_S = 5.0


@dataclass(eq=False)
class _Host:
    """The process that workers of one executor are forked from, and how many there are."""

    control: socket.socket
    workers: int = 0


@dataclass(eq=False)
class _Worker:
    """A worker: the link to its executor, and the one to itself once it is there."""

    far: SealedLink
    near: Link | None = None
    host: bytes = b""
    early: list[bytes] = field(default_factory=list)


class Outpost:
    """The loop."""

    def __init__(self, spec: OutpostSpec, hosting: socket.socket, task: socket.socket) -> None:
        self.spec, self.hosting = spec, hosting
        self.machine = machine_name()
        self.loop = Loop()
        self.hosts: dict[bytes, _Host] = {}
        self.ended = self.dismissed = False
        self.channel = ChannelClient(spec.keys, outpost_identity(self.machine))
        self.background = Background()
        self.loop.add(self.background, self.background.hand_back)
        self.loop.add(self.channel, lambda: self.channel.receive(self._command))
        self.loop.add(self.channel.monitor, self.channel.read_monitor)
        self.loop.add(task, self._end_all)  # it says nothing, so it has ended

    def run(self) -> None:
        """Until the driver says so, or is gone."""
        self.channel.send(
            m.Outpost(self.machine, self.spec.spark_executor, os.getpid(), own_code())
        )
        while True:
            seen = -1  # the channel's descriptors signal only changes
            while self.channel.received != seen:
                seen = self.channel.received
                self.channel.receive(self._command)
                self.channel.read_monitor()
            lost_at = self.channel.lost_at
            if self.ended or (lost_at is not None and time.monotonic() >= lost_at):
                break
            self.loop.turn(None if lost_at is None else max(0.0, lost_at - time.monotonic()))
        if self.dismissed:
            self.channel.send(m.Bye())
        self.channel.close()

    def _end_all(self) -> None:
        self.ended = True

    def _command(self, message: m.ToExecutor) -> None:
        match message:
            case m.Employ():
                for _ in range(message.count):
                    self.background.do(lambda: self._connect(message), self._connected)
            case m.Finish():
                self.ended = self.dismissed = True
            case _:
                raise AssertionError(f"an outpost is told {message}")

    def _connect(self, employ: m.Employ) -> SealedLink | None:
        """A link to an executor; None if it is gone meanwhile, which is its own affair."""
        try:
            sock = socket.create_connection((employ.host, employ.port), _CONNECT_S)
            own = knock(self.spec.secret, self.machine, 0)
            send_frame(sock, encode(own))
            frame = FrameReader(sock).read()
        except OSError:
            return None
        told = None if frame is None else is_answer(self.spec.secret, own, frame)
        if told is None:
            sock.close()
            return None
        return SealedLink(sock, self.spec.secret, own, told, connects=True)

    def _connected(self, link: SealedLink | None) -> None:
        if link is None:
            return
        worker = _Worker(link)
        self.loop.add(link, lambda: self._from_executor(worker))
        link.send(b"")

    def _from_executor(self, worker: _Worker) -> None:
        frames = worker.far.receive()
        if frames is None:
            self._end(worker)
            return
        for frame in frames:
            if worker.near is not None:
                worker.near.send(frame)
            elif not self._begin(worker, frame):
                self._end(worker)
                return

    def _begin(self, worker: _Worker, spec: bytes) -> bool:
        """Have a worker made. The first frame is what its host must know."""
        name = hashlib.blake2b(spec, digest_size=16).digest()
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = _Host(self._new_host(spec))
        try:
            near = Link(ask_for_worker(host.control))
        except (BrokenPipeError, ConnectionResetError):
            del self.hosts[name]
            return False
        worker.near, worker.host = near, name
        host.workers += 1
        self.loop.add(near, lambda: self._from_worker(worker))
        return True

    def _new_host(self, spec: bytes) -> socket.socket:
        ours, theirs = socket.socketpair()
        told, read = socket.socketpair()
        with theirs, told, read:
            socket.send_fds(self.hosting, [b"h"], [theirs.fileno(), read.fileno()])
            read.close()
            told.sendall(spec)
        return ours

    def _from_worker(self, worker: _Worker) -> None:
        assert worker.near is not None
        frames = worker.near.receive()
        if frames is None:
            self._end(worker)
            return
        for frame in frames:
            worker.far.send(frame)

    def _end(self, worker: _Worker) -> None:
        """Let go of a worker. A host without any is not kept."""
        for link in (worker.far, worker.near):
            if link is not None:
                self.loop.remove(link)
                link.close()
        host = self.hosts.get(worker.host)
        if worker.near is not None and host is not None:
            host.workers -= 1
            if not host.workers:
                host.control.close()
                del self.hosts[worker.host]


def _fork_hosts(requests: socket.socket) -> None:
    """Fork a host for every request, from a process that has neither threads nor other sockets."""
    parent = os.getpid()
    while True:
        _, ends, _, _ = socket.recv_fds(requests, 1, 2)
        if not ends:
            return
        if os.fork():
            for end in ends:
                os.close(end)
            continue
        code = 1
        try:
            die_with(parent)
            requests.close()
            control, told = (socket.socket(fileno=end) for end in ends)
            with told, told.makefile("rb") as file:
                spec = pickle.load(file)  # from the executor, which has shown that it is ours
            run_host(spec.host, control)
            code = 0
        except Exception:  # noqa: BLE001  # a forked process has nobody above it to tell
            traceback.print_exc()
        finally:
            os._exit(code)


def run_outpost(spec: OutpostSpec, task: socket.socket) -> None:
    """Be an outpost for as long as the task holds its end of the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if not os.fork():
        try:
            die_with(parent)
            ours.close()
            task.close()
            _fork_hosts(theirs)
        finally:
            os._exit(0)
    theirs.close()
    Outpost(spec, ours, task).run()
