"""A real Kafka broker on this machine, for trying things out and for tests. It listens on loopback
only. Its jars come from Maven Central, once. It needs Java, found as for Spark, and the client of
`sojourn[kafka]`."""

import errno
import fcntl
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from sojourn import durable
from sojourn.engine.spark.jars import jars
from sojourn.engine.spark.java import find_java
from sojourn.engine.spark.process import Process
from sojourn.errors import InputError
from sojourn.kafka.client import confluent

KAFKA = "4.3.1"
_WAIT_S = 30.0
_WANTED = (f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-simple:1.7.36")
_JAVA = (
    *("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",  # says when it is up
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_CLUSTER = "c29qb3Vybi1icm9rZXItMQ"  # its name; any will do
# One broker is all there is, so nothing is copied to others, and internal topics are small.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",  # a misspelt name shall be told
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
}


class Broker:
    """A broker with its data in `directory`. It is up once made, and ends with us, or by `close`.
    `settings` are Kafka's own, beside or instead of those that it has anyway, and `options` Java's:
    it starts quickly, and others suit a load that lasts."""

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.options = options
        self.directory = directory.resolve()
        with ExitStack() as failing:
            self.lock = failing.enter_context(_claimed(self.directory))
            self._prepare(port, settings or {})
            self.start()
            failing.pop_all()

    def make_topics(self, partitions: Mapping[str, int]) -> None:
        """Make topics with so many partitions, unless they are there."""
        admin = confluent().admin
        client = admin.AdminClient({"bootstrap.servers": self.servers})
        there = client.list_topics(timeout=_WAIT_S).topics
        new = [admin.NewTopic(name, n, 1) for name, n in partitions.items() if name not in there]
        for made in client.create_topics(new).values() if new else ():
            made.result(_WAIT_S)

    def start(self) -> None:
        """Start it, again on the same port, and return when it is up."""
        command = (*self.java, "kafka.Kafka", str(self.file))
        log = self.directory / "broker.log"
        self.process = Process("the Kafka broker", command, log, os.environ)
        self.process.await_line("Kafka Server (started)")

    def kill(self) -> None:
        """End it at once, as a power cut does."""
        os.killpg(self.process.process.pid, signal.SIGKILL)
        self.process.stop()

    def close(self) -> None:
        """End it."""
        self.process.stop()
        self.lock.close()

    def _prepare(self, port: int | None, settings: Mapping[str, str]) -> None:
        """Find what it needs, and write down how it is to be."""
        self.port, controller = _checked(port) or free_port(), free_port()
        self.servers = f"127.0.0.1:{self.port}"
        cache = Path.home() / ".cache" / "sojourn"
        java = find_java(os.environ, cache).home
        path = jars("kafka", _WANTED, java, cache)
        self.java = (str(java / "bin" / "java"), *_JAVA, *self.options, "-cp", f"{path}/*")
        self.file = self.directory / "server.properties"
        found = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.directory / "data"),
            **settings,
        }
        lines = "".join(f"{key}={value}\n" for key, value in found.items())
        self.file.write_text(lines, encoding="utf-8")
        self.file.chmod(0o600)  # settings may be secret
        self._format()

    def _format(self) -> None:
        """Prepare its directory, unless it was before."""
        done = subprocess.run(
            [
                *(*self.java, "kafka.tools.StorageTool", "format", "--ignore-formatted"),
                *("-t", _CLUSTER, "-c", str(self.file)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the Kafka broker's directory: {done.stderr.strip()[-1000:]}")

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _claimed(directory: Path) -> IO[bytes]:
    """A directory for one broker, until what is returned is closed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = durable.private_file(directory / "lock")
    except OSError as error:
        raise InputError(
            f"{directory}: must be a directory that can be made and written to "
            f"({error.strerror}); choose another"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise InputError(
            f"{directory}: another broker uses it; stop that one, or choose another directory"
        ) from None
    return lock


def _checked(port: int | None) -> int | None:
    """A port that nobody uses, if one was given."""
    if port:
        try:
            with socket.socket() as found:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                found.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            raise InputError(
                f"port {port}: the broker cannot listen there ({error}); choose another"
            ) from None
    return port


def free_port() -> int:
    """A port of loopback that nobody uses now. Systems give higher ones to connections, which could
    take it while a broker is away."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            return port
