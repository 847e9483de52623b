"""The channel between the driver and all executors: reports and acknowledgements up, commands
down. Executors connect out to the driver; both sides prove that they hold the topology's keys
(CURVE), and without them nothing is read of a connection.

The keys reach executors inside Spark's own closure. The driver listens on loopback unless the
topology runs on a cluster."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from sojourn.engine.wire import messages as m

# How long an executor waits for a lost driver before it ends itself.
LOST_AFTER_S = 3.0
# How long one that starts tries to reach the driver.
JOIN_AFTER_S = 10.0


@dataclass(frozen=True)
class ChannelKeys:
    """What an executor needs to join."""

    address: str
    server_public: bytes
    client_public: bytes
    client_secret: bytes


class ChannelServer:
    """The driver's end: one socket, used by one thread."""

    def __init__(self, host: str) -> None:
        self.context = zmq.Context()
        self.authenticator = ThreadAuthenticator(self.context)
        self.authenticator.start()
        server_public, server_secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        self.authenticator.configure_curve_callback("*", _Only(client_public))
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.curve_server = True
        self.socket.curve_publickey = server_public
        self.socket.curve_secretkey = server_secret
        self.socket.linger = 0
        self.socket.router_handover = True  # an executor may start anew elsewhere
        self.socket.sndhwm = self.socket.rcvhwm = 0
        port = self.socket.bind_to_random_port(f"tcp://{host}")
        self.keys = ChannelKeys(f"tcp://{host}:{port}", server_public, client_public, client_secret)

    def send(self, executor: bytes, message: m.ToExecutor) -> None:
        """To one executor; one that is gone is no error."""
        self.send_frame(executor, m.encode(message))

    def send_frame(self, executor: bytes, frame: bytes) -> None:
        """The same, of a message that is encoded."""
        self.socket.send_multipart([executor, frame])

    def receive(self, timeout_s: float) -> list[tuple[bytes, m.ToDriver]]:
        """What has come, waiting for the first."""
        found = []
        wait = self.socket.poll(round(timeout_s * 1000))
        while wait:
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
    """An executor's end, for its loop: `fileno` signals that something may have come."""

    def __init__(self, keys: ChannelKeys, identity: bytes) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.identity = identity
        self.socket.curve_serverkey = keys.server_public
        self.socket.curve_publickey = keys.client_public
        self.socket.curve_secretkey = keys.client_secret
        self.socket.sndhwm = self.socket.rcvhwm = 0
        self.monitor = self.socket.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        )
        self.lost_at: float | None = time.monotonic() + JOIN_AFTER_S
        self.socket.connect(keys.address)

    def fileno(self) -> int:
        """For selectors."""
        return int(self.socket.fd)

    def send(self, message: m.ToDriver) -> None:
        """To the driver."""
        self.socket.send(m.encode(message))

    def receive(self, handle: Callable[[m.ToExecutor], None]) -> None:
        """Hand on all that has come."""
        while True:
            try:
                frame = self.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            handle(m.decode_to_executor(frame))

    def read_monitor(self) -> None:
        """Notice that the driver is gone, or back."""
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            gone = event == zmq.EVENT_DISCONNECTED
            self.lost_at = time.monotonic() + LOST_AFTER_S if gone else None

    def close(self) -> None:
        """Send what waits, for a moment."""
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close(linger=1000)
        self.context.term()
