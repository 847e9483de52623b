"""What runs inside a Spark task: a pump between the rows of its partition and the elastic executor
of that partition, over a Unix socket in a private directory. Starts the executor if there is none.
A level's lane has no executor: its task sends rows for later levels on as they come.

It looks at no tuple. Rows go to the executor as they come, and what comes back goes on to the next
stage. Spark sends a batch of rows to Python only once it has seen the row after it. So every row is
followed by an empty one where it is read (`pushed`), batches have two rows, and an empty row comes
before all others. A batch is then an empty row and a full one, and the row after it is always
there."""

import contextlib
import hashlib
import itertools
import os
import secrets
import socket
import sys
import tempfile
import threading
import traceback
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn import durable
from sojourn.engine.spark.nursery import start_executor
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import PREFIX, encode, send_frame, spans
from sojourn.engine.wire.channel import ChannelClient, ChannelKeys
from sojourn.engine.wire.layout import Place, next_partition
from sojourn.engine.wire.spec import END, NO_BATCH, TOLD_AT, Attach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "pid int, data binary"
_READ_BYTES = 1 << 18
_LONGEST_PATH = 107


def starter(secret: bytes) -> bytes:
    """The row that becomes the empty one before all others. Nobody else can make it: after a second
    one, every row would wait for the next."""
    return hashlib.blake2b(b"starter", key=secret, digest_size=16).digest()


def pushed(rows: "DataFrame", first: bytes) -> "DataFrame":
    """Rows as a task reads them: each is followed by an empty one, and the first is replaced by
    one."""
    from pyspark.sql import functions as F  # noqa: N812

    data, nothing = F.col("data"), F.lit(None).cast("binary")
    # Not with a filter: Spark would have the sender apply it.
    found = F.when(data.isNull(), F.array().cast("array<binary>"))
    found = found.when(data == F.lit(first), F.array(nothing)).otherwise(F.array(data, nothing))
    return rows.select("pid", F.explode(found).alias("data"))


@dataclass(frozen=True)
class Task:
    """One level of the query: for every partition but the lane's, the pickled spec of its
    executor."""

    specs: tuple[bytes, ...]
    places: tuple[Place, ...]
    lanes: tuple[int, ...]
    level: int
    run: str
    secret: bytes
    epoch: int
    keys: ChannelKeys
    receivers: int  # partitions of the next level

    @property
    def partitions(self) -> int:
        """How many there are at this level."""
        return len(self.specs) + (self.lanes[self.level] >= 0)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The function that mapInArrow calls."""
        from pyspark import TaskContext

        _hush_broken_pipes()
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        if partition == 0 and self.receivers:
            pids = list(range(self.receivers))
            yield record_batch(pids, [starter(self.secret)] * len(pids))
        if partition == self.lanes[self.level]:
            yield from self._waved_through(batches)
            return
        _call_yourself(self.places[partition].vertex)
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        sock = _connect(self.run, self.places[partition], self.specs[partition])
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        send_frame(sock, encode(Attach(self.secret, batch)))
        taken = socket.socket(socket.AF_UNIX)
        taken.connect(sock.getpeername())
        send_frame(taken, encode(Attach(self.secret, NO_BATCH)))
        pump = _Pump(sock, batches)
        pump.start()
        try:
            yield from record_batches(sock, taken)
        except ConnectionError:
            self._tell(self.places[partition].vertex)
            raise
        finally:
            sock.close()
            taken.close()
        pump.join()
        if pump.error is not None:
            raise pump.error

    def _tell(self, vertex: str) -> None:
        """Tell the driver at once that an executor is gone. Spark would, but its Python worker
        waits for seconds before it lets the task fail."""
        name = f"{vertex}/task/{secrets.token_hex(4)}/{self.epoch}".encode()
        channel = ChannelClient(self.keys, name)
        channel.send(m.Failed(vertex, f"an executor of {vertex!r} is gone", False))
        channel.close()

    def _waved_through(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Rows for later levels, unopened."""
        for batch in batches:
            for row in batch.column(1).to_pylist():
                if row is not None:
                    level, target, *_ = PREFIX.unpack_from(row)
                    pid = next_partition(self.lanes, self.level, level, target)
                    yield record_batch([pid], [row])


def _hush_broken_pipes() -> None:
    """Hide the tracebacks of broken pipes. When a query is stopped, Spark closes its Python
    workers' sockets, and each worker would print one to the user's terminal. Other tracebacks are
    shown."""
    shown = traceback.print_exc

    def print_exc(*arguments: Any, **options: Any) -> None:
        if not isinstance(sys.exception(), BrokenPipeError):
            shown(*arguments, **options)

    if shown.__module__ == "traceback":
        traceback.print_exc = print_exc


def _call_yourself(name: str) -> None:
    """So that `top` tells Spark's Python workers apart."""
    with contextlib.suppress(OSError):  # where there is no such file
        Path("/proc/self/comm").write_text(name, encoding="utf-8")


class _Pump(threading.Thread):
    """Sends the partition's rows to the executor."""

    def __init__(self, sock: socket.socket, batches: Iterator[Any]) -> None:
        super().__init__(daemon=True)
        self.sock, self.batches = sock, batches
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for batch in self.batches:
                if batch.schema.names[-1] != "data":
                    continue  # the clock's rows carry nothing
                for data in batch.column(1).to_pylist():
                    if data is not None:
                        send_frame(self.sock, data)
            send_frame(self.sock, END)
        except Exception as error:  # noqa: BLE001  # raised by the task itself once it has ended
            self.error = error
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # closed already, which is what is wanted


def record_batches(sock: socket.socket, taken: socket.socket) -> Iterator[Any]:
    """Record batches of what the executor sends, until it says that the batch is over. Tells over
    `taken` how many rows Spark has taken, a few at a time."""
    buffer, room = bytearray(), memoryview(bytearray(_READ_BYTES))
    untold = 0
    while True:
        read = sock.recv_into(room)
        if not read:
            raise ConnectionError("the elastic executor is gone")
        buffer += room[:read]
        pids: list[int] = []
        rows: list[bytes] = []
        ended, end = False, 0
        for begin, end in spans(buffer):
            if end - begin == len(END):
                ended = True
            else:
                pids.append(int.from_bytes(buffer[begin : begin + 2], "little"))
                rows.append(bytes(buffer[begin + 2 : end]))
        del buffer[:end]
        if rows:
            yield record_batch(pids, rows)
            untold += len(rows)
            if untold >= TOLD_AT and not ended:
                send_frame(taken, untold.to_bytes(2, "little"))
                untold = 0
        if ended:
            return


def record_batch(pids: list[int], rows: list[bytes]) -> Any:
    """Rows for Spark, each for the partition of that number."""
    import pyarrow as pa

    # Not with pa.array: it would load pandas to see whether these are its objects.
    ends = array("i", itertools.accumulate(map(len, rows), initial=0))
    whole = [None, pa.py_buffer(array("i", pids))]
    parts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(rows))]
    arrays = [
        pa.Array.from_buffers(pa.int32(), len(pids), whole),
        pa.Array.from_buffers(pa.binary(), len(rows), parts),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["pid", "data"])


def _connect(run: str, place: Place, spec: bytes) -> socket.socket:
    """Connect to the executor of this place. Start it if nobody listens there."""
    path = sockets(run) / f"{place.level}-{place.partition}"
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise OSError(
            f"{path}: the path of a socket may have {_LONGEST_PATH} bytes; "
            "set TMPDIR to a directory with a shorter name"
        )
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(path))
        return sock
    except (FileNotFoundError, ConnectionRefusedError):
        path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(2)
    with listener:
        start_executor(listener, spec)
    sock.connect(str(path))
    return sock


def sockets(run: str) -> Path:
    """A private directory of this user for the sockets of one run."""
    root = durable.private_directory(Path(tempfile.gettempdir()) / f"sojourn-{os.getuid()}")
    return durable.private_directory(root / run)
