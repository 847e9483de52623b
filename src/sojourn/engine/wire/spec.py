"""What an elastic executor is told when it starts, how the channel knows it, and how a Spark task
presents itself to it. Written by the driver and by tasks, read by the executor."""

import functools
import hashlib
import os
import secrets
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.channel import ChannelKeys
from sojourn.engine.wire.layout import Place, Route
from sojourn.operators import Emits

END = b"E"
OUTPOST = "outpost/"  # how the identity of an outpost begins
NO_BATCH = -1
PACKAGE = Path(__file__).parents[2]  # where Sojourn is installed
WINDOW = 4  # rows that an executor may have sent without being told that Spark has taken them
TOLD_AT = WINDOW // 2  # rows to tell of at once, because each message wakes the executor


@dataclass(frozen=True)
class HostSpec:
    """What a host needs to know about its vertex."""

    vertex: str
    executor: int
    run: str
    code: bytes
    classes: tuple[tuple[str, str, bytes], ...]
    routes: tuple[Route, ...]
    threads: bool
    emits: Emits
    key: bytes  # the function from a value to its key, if there is one
    ttl_s: float | None
    broadcast: bool  # whether there is an input of which every worker gets all
    zero_s: float  # when the topology would have begun, had it never been down
    keep_going: bool
    tracked_per_s: float
    timed_every: int
    queue_bytes: int
    epoch: int
    room: Path = Path()  # of a sink, in the checkpoint


@dataclass(frozen=True)
class ExecutorSpec:
    """All an executor is told when it starts. Travels inside Spark's own closure."""

    place: Place
    number: int  # of all executors
    host: HostSpec
    kind: str  # source, operator or sink
    keyed: bool
    shards: int
    executors: int
    senders: int  # executors of the topology that have somebody to send to
    processors: int
    on_error: str
    lanes: tuple[int, ...]
    directory: Path  # of this executor's files
    letters: Path  # of this vertex's dead letters
    epoch: int
    max_bundle: int
    max_queue: int
    queue_bytes: int
    max_rest_s: float
    max_sojourn_s: float | None  # the target
    shed_after_s: float | None  # tuples that would wait longer are dropped
    slots: int  # tuples that a worker of an async operator handles at once, else 0
    bundled: bool  # whether its code takes all waiting tuples at once
    chain: tuple[str, ...]  # the operators behind it that share its workers
    secret: bytes
    keys: ChannelKeys
    suspects: frozenset[bytes] = frozenset()
    guilty: tuple[m.Suspect, ...] = ()
    tables: Mapping[str, list[int]] = field(default_factory=dict)  # of divided vertices

    def owner_of(self, shard: int) -> int:
        """Which executor of this vertex a shard belongs to at the start."""
        table = self.tables.get(self.place.vertex) if self.keyed else None
        return shard % self.executors if table is None else table[shard]


@dataclass(frozen=True)
class OutpostSpec:
    """All an outpost is told when it starts."""

    keys: ChannelKeys
    secret: bytes
    spark_executor: str


class Attach(msgspec.Struct, array_like=True):
    """The first frame of a task's link. The link is for rows. With NO_BATCH it is for telling how
    many rows Spark has taken, which must be heard even while no more rows are read."""

    secret: bytes
    batch: int


def identity(place: Place, epoch: int) -> bytes:
    """How the channel knows a new executor. No two are the same, because Spark may move a
    partition to another machine between batches, where another executor takes the place."""
    return f"{place.vertex}/{place.executor}/{secrets.token_hex(4)}/{epoch}".encode()


def outpost_identity(machine: str) -> bytes:
    """How the channel knows an outpost."""
    return f"{OUTPOST}{machine}/{secrets.token_hex(4)}".encode()


def machine_name() -> str:
    """Identifies a machine as far as room for workers goes, which is a Spark executor. Workers of a
    cluster on one host have temporary directories of their own."""
    return f"{socket.gethostname()}:{tempfile.gettempdir()}/{spark_executor_id()}"


def spark_executor_id() -> str:
    """The Spark executor that this process was started by, as the cluster or its command line says;
    empty if that cannot be found."""
    pid = os.getpid()
    while pid > 1 and "SPARK_EXECUTOR_ID" not in os.environ:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except OSError:
            break
        if "--executor-id" in words:
            return words[words.index("--executor-id") + 1]
        pid = int(status.rpartition(")")[2].split()[1])
    return os.environ.get("SPARK_EXECUTOR_ID", "")


@functools.cache
def own_code() -> str:
    """Identifies the version of Sojourn that this process has, also between two releases."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.is_file():  # and no broken link, as an editor makes
            digest.update(path.read_bytes())
    return digest.hexdigest()


def boot_id() -> str:
    """Identifies this machine since its last boot, and so its steady clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
