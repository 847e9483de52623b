"""The far end of a measurement: answers round trips, notes when packets of streams come, and counts
bytes. Only those who know its token get an answer."""

import contextlib
import hmac
import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

from sojourn.errors import InputError
from sojourn.probing.packets import (
    DONE,
    READY,
    TRIP_BYTES,
    Greeting,
    exactly,
    received,
    stamp,
    unpacked,
)

_log = logging.getLogger("sojourn")
_MOST_PACKETS = 10_000_000
_BUFFER = 1 << 22
_BACKLOG = 16
_GREETING_S = 10.0
_TRIES = 20  # ports that are free for TCP, but perhaps not for UDP


class _Arrivals:
    """When each packet of a stream came, in ns; 0 for those that have not."""

    def __init__(self, packets: int) -> None:
        self.times_ns = [0] * packets
        self.missing = packets
        self.last_s = time.monotonic()
        self.news = threading.Condition()

    def add(self, number: int, at_ns: int) -> None:
        """A packet has come; of two copies the first counts."""
        with self.news:
            if number < len(self.times_ns) and not self.times_ns[number]:
                self.times_ns[number] = at_ns
                self.missing -= 1
                self.last_s = time.monotonic()
                self.news.notify_all()

    def wait(self, patience_s: float) -> None:
        """Until all have come, or none for a while."""
        with self.news:
            self.last_s = time.monotonic()
            while self.missing and (left_s := self.last_s + patience_s - time.monotonic()) > 0:
                self.news.wait(left_s)


class Echo:
    """Listens on an address, by TCP and UDP on the same port, until it is closed."""

    def __init__(self, token: bytes, host: str = "127.0.0.1", port: int = 0) -> None:
        self.token = token
        self.listener, self.packets = _bound(host, port)
        self.address: tuple[str, int] = self.listener.getsockname()
        self.streams: dict[int, _Arrivals] = {}
        self.connections: dict[socket.socket, threading.Thread] = {}
        self.lock = threading.Lock()
        self.awake, self.wake = socket.socketpair()
        self.thread = threading.Thread(target=self._listen, name="echo", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Hang up on everybody."""
        self.wake.close()
        self.thread.join()
        with self.lock:
            open_now = dict(self.connections)
            for connection in open_now:
                with contextlib.suppress(OSError):  # the probe may have gone
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in open_now.values():
            thread.join()
        for each in (self.listener, self.packets, self.awake):
            each.close()

    def __enter__(self) -> "Echo":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        while True:
            ready, _, _ = select.select([self.packets, self.listener, self.awake], [], [])
            if self.awake in ready:
                return
            if self.packets in ready:
                self._take(*received(self.packets))
            if self.listener in ready:
                self._accept()

    def _take(self, data: bytes, at_ns: int) -> None:
        found = unpacked(data)
        if found is None or not hmac.compare_digest(found[0], self.token):
            return
        arrivals = self.streams.get(found[1])
        if arrivals is not None:
            arrivals.add(found[2], at_ns)

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
        with self.lock:
            self.connections[connection] = thread
        thread.start()

    def _serve(self, connection: socket.socket) -> None:
        answers: dict[bytes, Callable[[socket.socket, Greeting], None]] = {
            Greeting.TRIPS: self._trips,
            Greeting.STREAM: self._stream,
            Greeting.THROUGHPUT: self._throughput,
        }
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_GREETING_S)
            greeting = _greeting(connection)
            connection.settimeout(None)
            if greeting is not None and hmac.compare_digest(greeting.token, self.token):
                answers[greeting.wants](connection, greeting)
        except OSError:
            _log.debug("a probe has gone", exc_info=True)
        finally:
            with self.lock:
                del self.connections[connection]
                connection.close()

    def _trips(self, connection: socket.socket, _greeting: Greeting) -> None:
        connection.sendall(READY)
        while asked := exactly(connection, TRIP_BYTES):
            connection.sendall(asked)

    def _stream(self, connection: socket.socket, greeting: Greeting) -> None:
        arrivals = self.streams[greeting.stream] = _Arrivals(greeting.packets)
        try:
            connection.sendall(READY)
            if exactly(connection, len(DONE)) == DONE:
                arrivals.wait(greeting.patience_ms / 1e3)
                connection.sendall(struct.pack(f"!{greeting.packets}q", *arrivals.times_ns))
        finally:
            del self.streams[greeting.stream]

    def _throughput(self, connection: socket.socket, _greeting: Greeting) -> None:
        """Counts from when the first bytes came, and without them."""
        connection.sendall(READY)
        buffer = bytearray(_BUFFER)
        connection.recv_into(buffer)
        began_ns, size = time.monotonic_ns(), 0
        while more := connection.recv_into(buffer):
            size += more
        connection.sendall(struct.pack("!QQ", size, time.monotonic_ns() - began_ns))


def _greeting(connection: socket.socket) -> Greeting | None:
    """What a connection begins with; None if it is none."""
    data = exactly(connection, Greeting.FORM.size)
    if not data:
        return None
    greeting = Greeting(*Greeting.FORM.unpack(data))
    known = greeting.wants in (Greeting.TRIPS, Greeting.STREAM, Greeting.THROUGHPUT)
    return greeting if known and greeting.packets <= _MOST_PACKETS else None


def _bound(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Sockets for TCP and UDP on the same port."""
    for left in reversed(range(1 if port else _TRIES)):
        try:
            return _pair(host, port)
        except OSError as error:
            if not left:
                raise InputError(
                    f"{host}:{port}: must be an address of this machine with a free port; "
                    f"{error.strerror or error}; give another one"
                ) from None
    raise AssertionError("the last try returns or raises")


def _pair(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    with contextlib.ExitStack() as made:
        listener = made.enter_context(socket.create_server((host, port), backlog=_BACKLOG))
        packets = made.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        stamp(packets)
        packets.bind(listener.getsockname())
        made.pop_all()
        return listener, packets
