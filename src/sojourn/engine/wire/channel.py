"""The channel between the driver and all executors: reports and acknowledgements up, commands
down. Executors connect out to the driver. Both sides prove that they hold the topology's keys
(CURVE); without them, nothing is read from a connection.

The keys reach executors inside Spark's own closure. The driver listens on loopback unless the
topology runs on a cluster.

Only samples can get lost on the way, and nobody waits to send: what a full socket does not take
stays in order in a bounded backlog. If a connection breaks, what was on it is lost. So it is not
resumed: the executor ends, and the topology goes back to the last commit.

Both ends send heartbeats, because a network that is cut closes no connection. Only executors judge
by them. The driver does not: if it were too slow to read an executor's messages, the executor would
seem silent to it."""

import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import zmq

from sojourn.engine.wire import messages as m

HEARTBEAT_S = 0.5
# How long an executor may hear nothing from the driver before it ends itself. It waits for a driver
# that pauses for less.
LOST_AFTER_S = 4.0
# How long an executor that starts tries to reach the driver, and how often.
JOIN_AFTER_S = 10.0
RECONNECT_S = 1.0
# Messages in a socket, each way. The limit of an executor is higher: while its socket is full, it
# does not hear the driver either.
HIGH_WATER = 1000
CLIENT_RECEIVES = 10_000
MAX_BACKLOG = 64 << 20
_MOST_AT_ONCE = 10_000
_CLOSE_S = 1.0
_EVENT = struct.Struct("=H")


@dataclass(frozen=True)
class ChannelKeys:
    """What an executor needs to join."""

    address: str
    server_public: bytes
    client_public: bytes
    client_secret: bytes


class _Backlog:
    """Frames that a full socket did not take, in order."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.bytes = 0

    def add(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.bytes += len(frame)

    def send_on(self, takes: Callable[[bytes], bool]) -> None:
        """As many as are taken."""
        while self.frames and takes(self.frames[0]):
            self.bytes -= len(self.frames.popleft())


class ChannelServer:
    """The driver's end: one socket, used by one thread. An executor that reads nothing while more
    than `max_backlog` bytes wait for it is listed in `overrun`. It gets no more messages, because
    some would be missing."""

    def __init__(
        self, host: str, high_water: int = HIGH_WATER, max_backlog: int = MAX_BACKLOG
    ) -> None:
        from zmq.auth.thread import ThreadAuthenticator  # loads much that clients need not

        self.context = zmq.Context()
        self.authenticator = ThreadAuthenticator(self.context)
        self.authenticator.start()
        server_public, server_secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        self.authenticator.configure_curve_callback("*", _Only(client_public))
        self.max_backlog = max_backlog
        self.backlogs: dict[bytes, _Backlog] = {}
        self.overrun: list[bytes] = []
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.curve_server = True
        self.socket.curve_publickey = server_public
        self.socket.curve_secretkey = server_secret
        self.socket.linger = 0
        self.socket.router_handover = True  # an executor may start anew elsewhere
        self.socket.router_mandatory = True  # sending to a full or unknown peer raises
        self.socket.sndhwm = self.socket.rcvhwm = high_water
        self.socket.heartbeat_ivl = round(HEARTBEAT_S * 1000)
        self.socket.heartbeat_timeout = 0  # none
        port = self.socket.bind_to_random_port(f"tcp://{host}")
        self.keys = ChannelKeys(f"tcp://{host}:{port}", server_public, client_public, client_secret)

    def send(self, executor: bytes, message: m.ToExecutor) -> None:
        """Send a message to one executor. It is no error if that one is gone."""
        self.send_frame(executor, m.encode(message))

    def send_frame(self, executor: bytes, frame: bytes) -> None:
        """The same for an encoded message."""
        if executor in self.overrun:
            return
        backlog = self.backlogs.get(executor)
        if backlog is None:
            if self._takes(executor, frame):
                return
            backlog = self.backlogs[executor] = _Backlog()
        backlog.add(frame)
        if backlog.bytes > self.max_backlog:
            del self.backlogs[executor]
            self.overrun.append(executor)

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        for executor, backlog in list(self.backlogs.items()):
            backlog.send_on(partial(self._takes, executor))
            if not backlog.frames:
                del self.backlogs[executor]

    def _takes(self, executor: bytes, frame: bytes) -> bool:
        """Whether a frame is done with: it is sent, or its executor is gone."""
        try:
            self.socket.send_multipart([executor, frame], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        return True

    def receive(self, timeout_s: float) -> list[tuple[bytes, m.ToDriver]]:
        """Wait for a message and return all that have come. Also send what waits."""
        self.flush()
        found: list[tuple[bytes, m.ToDriver]] = []
        wait = self.socket.poll(round(timeout_s * 1000))
        while wait and len(found) < _MOST_AT_ONCE:
            try:
                sender, frame = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            found.append((sender, m.decode_to_driver(frame)))
        return found

    def close(self) -> None:
        """Leave nothing behind."""
        self.socket.close()
        self.authenticator.stop()
        self.context.term()


class _Only:
    """Lets in who holds the one client key."""

    def __init__(self, client_public: bytes) -> None:
        self.client_public = client_public

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002
        return key == self.client_public


class ChannelClient:
    """An executor's end, for its loop. `fileno` signals that something may have come, or that there
    is room again. `lost_at` is when to give the driver up, as far as is known; `received` is how
    many messages have come; `dropped` is how many with samples found no room."""

    def __init__(
        self,
        keys: ChannelKeys,
        identity: bytes,
        lost_after_s: float = LOST_AFTER_S,
        high_water: tuple[int, int] = (HIGH_WATER, CLIENT_RECEIVES),
        max_backlog: int = MAX_BACKLOG,
    ) -> None:
        self.context = zmq.Context()
        self.address = keys.address
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.identity = identity
        self.socket.curve_serverkey = keys.server_public
        self.socket.curve_publickey = keys.client_public
        self.socket.curve_secretkey = keys.client_secret
        self.socket.sndhwm, self.socket.rcvhwm = high_water
        self.socket.heartbeat_ivl = round(HEARTBEAT_S * 1000)
        self.socket.heartbeat_timeout = round(lost_after_s * 1000)
        self.socket.reconnect_ivl = round(RECONNECT_S * 1000)
        self.monitor = self.socket.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        )
        self.max_backlog = max_backlog
        self.backlog = _Backlog()
        self.received = self.dropped = 0
        self.joined = self.given_up = False
        self.lost_at: float | None = time.monotonic() + JOIN_AFTER_S
        self.socket.connect(self.address)

    def fileno(self) -> int:
        """For selectors."""
        return int(self.socket.fd)

    @property
    def backlog_bytes(self) -> int:
        """How much waits to be sent. Senders should hold back while it is much."""
        return self.backlog.bytes

    def send(self, message: m.ToDriver) -> None:
        """Send a message to the driver, at once or as soon as there is room; this call never waits.
        Samples that would have to wait are dropped. A driver that lets too much wait is given
        up."""
        if self.given_up:
            return
        frame = m.encode(message)
        if not self.backlog.frames and self._takes(frame):
            return
        if isinstance(message, m.Traces):
            self.dropped += 1
            return
        self.backlog.add(frame)
        if self.backlog.bytes > self.max_backlog:
            self._give_up()

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        self.backlog.send_on(self._takes)

    def _takes(self, frame: bytes) -> bool:
        try:
            self.socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self, handle: Callable[[m.ToExecutor], None]) -> None:
        """Hand on all messages that have come, and send what waits, until neither is possible. From
        then on `fileno` signals what is new."""
        # Checking for one may use up the signal of the other.
        while (can := _events(self.socket)) and (can & zmq.POLLIN or self.backlog.frames):
            if can & zmq.POLLIN:
                self.received += 1
                handle(m.decode_to_executor(self.socket.recv(zmq.NOBLOCK)))
            else:
                self.flush()

    def read_monitor(self) -> None:
        """Notice that the driver is there, or gone."""
        while _events(self.monitor) & zmq.POLLIN:
            # Number, then value. pyzmq's own function for this is in a module that loads slowly.
            (event,) = _EVENT.unpack_from(self.monitor.recv_multipart()[0])
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED and not self.given_up:
                self.joined, self.lost_at = True, None
            elif event == zmq.EVENT_DISCONNECTED and self.joined:
                self._give_up()

    def _give_up(self) -> None:
        """Send nothing more, because earlier messages would be missing."""
        if not self.given_up:
            self.given_up = True
            self.lost_at = time.monotonic()
            self.backlog = _Backlog()
            self.socket.linger = 0
            self.socket.disconnect(self.address)

    def close(self) -> None:
        """Send what waits, for a moment."""
        self.socket.disable_monitor()
        self.monitor.close()
        end = time.monotonic() + _CLOSE_S
        self.flush()
        while self.backlog.frames and (left_s := end - time.monotonic()) > 0:
            self.socket.poll(round(left_s * 1000), zmq.POLLOUT)
            self.flush()
        self.socket.close(linger=0 if self.given_up else round(_CLOSE_S * 1000))
        self.context.term()


def _events(socket: "zmq.Socket[bytes]") -> int:
    """Whether something has come, and whether there is room."""
    return int(socket.get(zmq.EVENTS))
