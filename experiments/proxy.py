"""A network whose faults are known: passes UDP packets and TCP connections on to an address, and
delays or loses them. It notes what it did to each, so what is measured through it can be compared
with that. On loopback nothing can be measured otherwise, as there is nothing to see.

    python experiments/proxy.py 127.0.0.1:7000 --delay 50ms --jitter 5ms --loss 0.02

UDP packets overtake one another, as each is delayed by itself; they only go onward, as probes are
told over TCP what came. TCP keeps its order and loses nothing. Both ways are delayed alike."""

import argparse
import contextlib
import heapq
import itertools
import random
import select
import socket
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sojourn.probing.packets import parse_address, received, stamp, unpacked
from sojourn.units import format_duration, parse_duration

_CHUNK = 1 << 20
_BUFFER = 1 << 22


@dataclass(frozen=True)
class Weather:
    """What is done to all that passes: a delay each way, on top of it an exponential time with a
    mean of `jitter_s`, and of UDP packets a share is lost."""

    delay_s: float
    jitter_s: float = 0.0
    loss: float = 0.0
    seed: int = 0

    def delayed_s(self, draws: random.Random) -> float:
        """By how much the next one is."""
        return self.delay_s + (draws.expovariate(1 / self.jitter_s) if self.jitter_s else 0.0)


@dataclass
class Packet:
    """A UDP packet: its number, when it came, and by how much it was delayed in fact; None if it
    was lost."""

    number: int
    came_ns: int
    delayed_s: float | None = None


@dataclass
class Chunk:
    """What was read at once of a TCP connection, onward or back, and by how much it was delayed in
    fact."""

    onward: bool
    size: int
    delayed_s: float


class _Way:
    """One direction of a TCP connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, onward: bool) -> None:
        self.source, self.sink, self.onward = source, sink, onward
        self.due_ns = 0  # of what came last; nothing overtakes it


class Proxy:
    """Listens on a port of its own until it is closed, and does everything in one thread."""

    def __init__(self, target: tuple[str, int], weather: Weather) -> None:
        self.target, self.weather = target, weather
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listener.getsockname()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        stamp(self.udp)
        self.udp.bind(self.address)
        self.onward = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.packets: list[Packet] = []
        self.chunks: list[Chunk] = []
        self.ways: dict[socket.socket, _Way] = {}
        self.sockets: list[socket.socket] = [self.listener, self.udp, self.onward]
        self.due: list[tuple[int, int, Callable[[], None]]] = []  # ns, order, what to do then
        self.order = itertools.count()
        self.of_udp, self.of_tcp = (random.Random(f"{weather.seed} {kind}") for kind in "ut")
        self.awake, self.wake = socket.socketpair()
        self.thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Nothing passes any more."""
        self.wake.close()
        self.thread.join()
        for each in (*self.sockets, self.awake):
            each.close()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            wait_s = max(0.0, (self.due[0][0] - time.time_ns()) / 1e9) if self.due else None
            listened = [self.udp, self.listener, self.awake, *self.ways]
            ready, _, _ = select.select(listened, [], [], wait_s)
            if self.awake in ready:
                return
            while self.due and self.due[0][0] <= time.time_ns():
                heapq.heappop(self.due)[2]()
            for each in ready:
                if each is self.udp:
                    self._packet(*received(self.udp))
                elif each is self.listener:
                    self._accept()
                elif each in self.ways:
                    self._chunk(self.ways[each])

    def _at(self, due_ns: int, do: Callable[[], None]) -> None:
        heapq.heappush(self.due, (due_ns, next(self.order), do))

    def _packet(self, data: bytes, came_ns: int) -> None:
        found = unpacked(data)
        if found is None:
            return
        packet = Packet(found[2], came_ns)
        self.packets.append(packet)
        lost = self.of_udp.random() < self.weather.loss
        delay_s = self.weather.delayed_s(self.of_udp)
        if not lost:
            self._at(came_ns + round(delay_s * 1e9), lambda: self._send(packet, data))

    def _send(self, packet: Packet, data: bytes) -> None:
        packet.delayed_s = (time.time_ns() - packet.came_ns) / 1e9
        self.onward.sendto(data, self.target)

    def _accept(self) -> None:
        near, _ = self.listener.accept()
        far = socket.create_connection(self.target)
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stamp(each)
            self.sockets.append(each)
        self.ways[near], self.ways[far] = _Way(near, far, True), _Way(far, near, False)

    def _chunk(self, way: _Way) -> None:
        try:
            data, came_ns = received(way.source, _CHUNK)
        except ConnectionError:
            data, came_ns = b"", time.time_ns()
        due_ns = came_ns + round(self.weather.delayed_s(self.of_tcp) * 1e9)
        way.due_ns = max(way.due_ns, due_ns)
        if not data:
            del self.ways[way.source]
        self._at(way.due_ns, lambda: self._pass(way, data, came_ns))

    def _pass(self, way: _Way, data: bytes, came_ns: int) -> None:
        delayed_s = (time.time_ns() - came_ns) / 1e9
        with contextlib.suppress(OSError):  # that end may have gone
            if not data:
                way.sink.shutdown(socket.SHUT_WR)
                return
            way.sink.sendall(data)
            self.chunks.append(Chunk(way.onward, len(data), delayed_s))


def main() -> None:
    """Until Ctrl-C; then what was done to packets is told."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("target", help="ADDRESS:PORT")
    parser.add_argument("--delay", default="0ms")
    parser.add_argument("--jitter", default="0ms", help="mean of an exponential time")
    parser.add_argument("--loss", type=float, default=0.0, help="share of UDP packets")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    weather = Weather(
        parse_duration(given.delay, "--delay"),
        parse_duration(given.jitter, "--jitter"),
        given.loss,
        given.seed,
    )
    with Proxy(parse_address(given.target, "target"), weather) as proxy:
        print(f"listening on {proxy.address[0]}:{proxy.address[1]}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    passed = [packet.delayed_s for packet in proxy.packets if packet.delayed_s is not None]
    print(f"{len(passed)} of {len(proxy.packets)} packets were passed on")
    if passed:
        print(f"they were delayed by {format_duration(statistics.fmean(passed))} on average")


if __name__ == "__main__":
    main()
