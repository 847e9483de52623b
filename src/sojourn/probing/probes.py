"""The near end of a measurement: sends, and makes figures of what the echo server saw."""

import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from sojourn.errors import InputError
from sojourn.probing import figures
from sojourn.probing.figures import Link, RoundTrips, Stream
from sojourn.probing.packets import DONE, READY, TRIP_BYTES, Greeting, exactly, packet
from sojourn.probing.ping import Ping, Refused

RATES_BPS = (10_000, 100_000, 1_000_000)  # those of the paper
_TIMEOUT_S = 30.0
_TRIP_S = 0.02  # from one round trip to the next
_UNANSWERED = 3  # pings, before it is taken that there never is an answer
_CHUNK = bytes(1 << 18)
_AFTER_S = 5.0


@dataclass(frozen=True)
class Plan:
    """How long each measurement takes, and for how long after the last packet of a stream others
    are waited for; those that come later are lost."""

    seconds: float
    patience_s: float = _AFTER_S

    @property
    def total_s(self) -> float:
        """How long a link and the capacity take, one after the other, at least."""
        return (len(RATES_BPS) + 3) * self.seconds


@dataclass(frozen=True)
class Target:
    """An echo server, and the token that it knows."""

    host: str
    port: int
    token: bytes

    @contextmanager
    def connected(self, greeting: Greeting) -> Iterator[socket.socket]:
        """A connection that has been accepted."""
        where = f"{self.host}:{self.port}"
        try:
            connection = socket.create_connection((self.host, self.port), _TIMEOUT_S)
        except OSError as error:
            raise InputError(
                f"{where}: must be where `sojourn measure --serve` listens; {error}; start it "
                "there, and let TCP and UDP pass to this port"
            ) from None
        with connection:
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(greeting.packed())
                if exactly(connection, len(READY)) != READY:
                    raise InputError(
                        f"{where}: hung up; the token must be the one that --serve has printed"
                    )
                yield connection
            except OSError as error:
                raise InputError(f"{where}: no longer answers: {error}; try again") from None


def link(
    sender: str, receiver: str, target: Target, plan: Plan, tell: Callable[[str], None]
) -> Link:
    """All about the way from one machine to another, one measurement after the other."""
    tell(f"{sender} → {receiver}: round trips …")
    network, application = round_trips(target, plan.seconds)
    streams = []
    for rate_bps in RATES_BPS:
        tell(f"{sender} → {receiver}: jitter at {rate_bps // 1000} kbps …")
        streams.append(stream(target, rate_bps, plan))
    tell(f"{sender} → {receiver}: throughput …")
    carried = throughput(target, plan.seconds)
    return Link(sender, receiver, network, application, tuple(streams), carried)


def round_trips(target: Target, seconds: float) -> tuple[RoundTrips | str, RoundTrips]:
    """Of ICMP and of the application, in turn, so that both see the same network. Those of ICMP
    are those of the kernels; or why there are none."""
    pinged: list[float | None] = []
    answered: list[float] = []
    why = ""
    with ExitStack() as stack:
        greeting = Greeting(target.token, Greeting.TRIPS)
        connection = stack.enter_context(target.connected(greeting))
        try:
            ping = stack.enter_context(Ping(target.host))
        except Refused as refused:
            ping, why = None, str(refused)
        for _ in _paced(_TRIP_S, max(1, round(seconds / _TRIP_S)), seconds):
            if ping is not None and not _is_silent(pinged):
                try:
                    pinged.append(ping.trip())
                except Refused as refused:  # by a firewall
                    ping, why = None, str(refused)
            answered.append(_trip(connection))
    came = [one for one in pinged if one is not None]
    network: RoundTrips | str = why or f"none of {len(pinged)} pings was answered"
    if came:
        network = figures.round_trips(came, len(pinged))
    return network, figures.round_trips(answered, len(answered))


def _is_silent(pinged: list[float | None]) -> bool:
    return len(pinged) >= _UNANSWERED and all(one is None for one in pinged)


def _trip(connection: socket.socket) -> float:
    """Seconds from sending a tuple to having its answer."""
    asked = secrets.token_bytes(TRIP_BYTES)
    began_ns = time.monotonic_ns()
    connection.sendall(asked)
    if exactly(connection, TRIP_BYTES) != asked:
        raise ConnectionError("it answered something else than it was sent")
    return (time.monotonic_ns() - began_ns) / 1e9


def stream(target: Target, rate_bps: int, plan: Plan) -> Stream:
    """Packets at a rate, as stamped on sending here and on receiving there."""
    sent_ns, came_ns = stamps(target, rate_bps, plan)
    return figures.stream(rate_bps, sent_ns, came_ns)


def stamps(target: Target, rate_bps: int, plan: Plan) -> tuple[list[int], list[int]]:
    """When each packet of a stream was sent and when it came, in ns; 0 if it did not come."""
    count, number = figures.packets(rate_bps, plan.seconds), secrets.randbits(32)
    greeting = Greeting(target.token, Greeting.STREAM, number, count, round(plan.patience_s * 1000))
    sent_ns = []
    with (
        target.connected(greeting) as connection,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets,
    ):
        address = connection.getpeername()
        for place in _paced(figures.interval_s(rate_bps), count):
            data = packet(target.token, number, place)
            sent_ns.append(time.time_ns())
            packets.sendto(data, address)
        connection.sendall(DONE)
        connection.settimeout(_TIMEOUT_S + plan.patience_s)
        answer = exactly(connection, 8 * count)
        if not answer:
            raise ConnectionError("it hung up before it told what came")
    return sent_ns, list(struct.unpack(f"!{count}q", answer))


def throughput(target: Target, seconds: float) -> float:
    """Bits a second over TCP, as the other end got them."""
    with target.connected(Greeting(target.token, Greeting.THROUGHPUT)) as connection:
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            connection.sendall(_CHUNK)
        connection.shutdown(socket.SHUT_WR)
        answer = exactly(connection, 16)
        if not answer:
            raise ConnectionError("it hung up before it told what came")
    size, took_ns = struct.unpack("!QQ", answer)
    return float(size * 8 / (took_ns / 1e9))


def _paced(interval_s: float, count: int, at_most_s: float | None = None) -> Iterator[int]:
    """Numbers, one per interval, and no more after a time. One that is late does not make others
    late."""
    began_s = time.monotonic()
    for number in range(count):
        early_s = began_s + number * interval_s - time.monotonic()
        if early_s > 0:
            time.sleep(early_s)
        if number and at_most_s is not None and time.monotonic() > began_s + at_most_s:
            return
        yield number
