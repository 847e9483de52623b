"""Results on their way to a topic, exactly once. A sink's processes write them into files; when a
commit is recorded, the driver sends the files in transactions that also say which commit it was.

No transaction can be resumed by another process, so what was sent is asked for after a restart: the
marker is an offset in a consumer group of the sink's own. A new producer with the same
transactional id first ends what its predecessor left open, and the predecessor can send no more.
The marker names the process that wrote it, so that a commit of the same number that another run has
sent is not taken for ours.

Kafka forgets a marker that nobody writes for a week. So it is written once a day though nothing is
sent, and a file says which commit was sent last, or was about to be, and by which processes: if
Kafka knows no marker when that is to be sent again, it may have forgotten it."""

import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sojourn import durable
from sojourn.errors import InputError, TopologyFailed
from sojourn.kafka.client import Clock, Cluster, Trouble, confluent, lacking, limits
from sojourn.kafka.message import Record, produced

if TYPE_CHECKING:
    from confluent_kafka import Producer

CHUNK_BYTES = 16 << 20  # of a transaction, which must be over within its timeout
CHUNK = 100_000
KEEP_S = 86_400.0  # how often a marker is written though nothing is sent
OF_VALUES = {"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "_UNKNOWN_PARTITION", "INVALID_TIMESTAMP"}
_MORE_S = 1.0  # beyond the library's own limit
_LIMIT_S = 60.0  # of a transaction, unless options say another
_ASK_S = 10.0  # after which a new producer is made, as old ones get stuck where a broker dies
_IDLE_MS = 30_000  # until a connection is closed, which wakes who waits for a coordinator
_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_RIGHTS = {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "the transactional id",
    "GROUP_AUTHORIZATION_FAILED": "the group",
}
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
_BUFFER_BYTES = 1 << 20
_PAUSE_S = 0.2
BEGUN = "begun"


def pack(record: Record) -> bytes:
    """A record as it stands in a file."""
    data = _encode(record)
    return _LENGTH.pack(len(data)) + data


def unpack(path: Path) -> Iterator[tuple[int, Record]]:
    """The records of a file, with their sizes."""
    decode = msgspec.msgpack.Decoder(Record).decode
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        while head := file.read(_LENGTH.size):
            (size,) = _LENGTH.unpack(head)
            yield size, decode(file.read(size))


class Outbox:
    """What the driver sends for one sink. `name` is that of its transactions and of its group;
    `room` is where it notes what it is about to send."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        name: str,
        room: Path,
        clock: Clock = time.monotonic,
    ) -> None:
        self.cluster, self.topic, self.name, self.room = cluster, topic, name, room
        self.clock = clock
        self.trouble = Trouble(cluster)
        self.token = secrets.token_hex(4)
        self.producer: Producer | None = None
        self.limit: int | None = None
        self.refused = ""
        self.chunk, self.chunk_bytes = CHUNK, CHUNK_BYTES
        self.limit_s = float(cluster.options.get("transaction.timeout.ms", _LIMIT_S * 1000)) / 1000
        self.begun_s = 0.0  # when the last transaction was begun
        self.kept_s: float | None = None  # when the marker was written

    def publish(self, files: list[Path], commit: int, again: bool = False) -> None:
        """Send the files of a commit, and remove them. With `again`, some or all may have been
        sent before. Without files, only keep the marker."""
        if not files and self.kept_s is not None and self.clock() < self.kept_s + KEEP_S:
            return
        while True:
            try:
                if self.producer is None:
                    self._open()
                    noted = again and (not files or self._has_noted(commit))
                    self._check_age(commit, noted or self.by == self.token)
                self._publish(files, commit, again)
                break
            except confluent().KafkaException as error:
                self.producer = None  # the next one finds out what was sent
                self._failed(error.args[0], commit)
        self.trouble.over()
        for path in files:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Send no more."""
        self.producer = None

    def _failed(self, error: Any, commit: int) -> None:
        """Raise what a new producer does not help against, and pause before that."""
        name, told = error.name(), self.cluster.safe(error.str())
        is_late = self.clock() >= self.begun_s + self.limit_s
        if is_late and name in (*_FENCED, "INVALID_TXN_STATE"):  # and Kafka has ended it
            told = f"a transaction took longer than {self.limit_s:g} s"
            self.chunk, self.chunk_bytes = max(1, self.chunk // 4), self.chunk_bytes // 4
        elif name in _FENCED:
            raise TopologyFailed(
                f"topic {self.topic!r}: another run sends the results of this sink "
                f"({self.name}); only one may use a checkpoint; stop one of them"
            )
        elif name in _RIGHTS:
            raise TopologyFailed(
                f"topic {self.topic!r}: results cannot be sent exactly once: {told}; ask for "
                f"access to {_RIGHTS[name]} {self.name}, and start again, which sends them"
            )
        elif self.refused or name in OF_VALUES or "AUTHORIZATION" in name:
            raise TopologyFailed(
                f"topic {self.topic!r} refuses a result of commit {commit}: "
                f"{self.refused or told}; correct its settings and start again, which sends it"
            )
        self.trouble.met(told)
        time.sleep(_PAUSE_S)

    def _open(self) -> None:
        """A producer that has ended the transactions of all before it, and what these have sent."""
        if self.limit is None:
            self.limit = limits(self.cluster, self.topic, self.trouble).size
        self.refused = ""
        producer = self.cluster.producer(
            self.trouble,
            transactional_id=self.name,
            message_max_bytes=self.limit,
            delivery_report_only_error=True,
            on_delivery=self._undelivered,
            connections_max_idle_ms=_IDLE_MS,
        )
        self.begun_s = self.clock()
        producer.init_transactions(min(_ASK_S, self.cluster.timeout_s))
        asked = self.cluster.consumer(self.trouble, self.name, enable_auto_commit=False)
        self.group = asked.consumer_group_metadata()
        (found,) = asked.committed([self._marker(0)], min(_ASK_S, self.cluster.timeout_s))
        asked.close()
        if found.error is not None:
            raise confluent().KafkaException(found.error)
        self.known = found.offset >= 0
        self.done = max(0, found.offset)  # the last commit that was sent as a whole
        self.by, _, part = (found.metadata or "").rpartition(" ")
        number, _, count = part.partition(":")
        self.begun = (int(number), int(count)) if count else (0, 0)  # and one in part
        self.producer = producer

    def _check_age(self, commit: int, again: bool) -> None:
        """Refuse a checkpoint that was made before what was sent: its results would be taken for
        those."""
        sent = max(self.done, self.begun[0])
        if commit < sent or (commit == sent and not again):
            raise TopologyFailed(
                f"topic {self.topic!r}: the checkpoint is older than what was sent: its next "
                f"results are those of commit {commit}, and commit {sent} was sent (group "
                f"{self.name}); start with the newest copy of the checkpoint, or with a new one"
            )

    def _publish(self, files: list[Path], commit: int, again: bool) -> None:
        if commit <= self.done:
            return
        if not files:
            self._mark(self.done if self.known else commit)
            return
        missing = [path for path in files if not path.exists()]
        unsure = again and not self.known and self._noted() == commit
        away = [path for path in missing if not (unsure and path.parent.is_dir())]
        if away:
            raise InputError(
                f"topic {self.topic!r}: results cannot be sent, because {away[0]} is missing; "
                "all machines, including the driver's, must see the checkpoint"
            )
        left = files
        if not self.known:
            if unsure:
                if not missing:
                    folders = ", ".join(sorted({str(path.parent) for path in files}))
                    raise TopologyFailed(
                        f"topic {self.topic!r}: it is not known whether the results of commit "
                        f"{commit} were sent, because the offsets of group {self.name} have "
                        f"expired; look whether those in {folders} are in the topic; "
                        f"delete these files if they are, or {self.room / BEGUN} if they are not, "
                        "and start again"
                    )
                left = []  # the first file is removed when all are sent
            self._mark(commit - 1)
        note = durable.private_directory(self.room) / BEGUN
        tokens = self._note()[1] if self._noted() == commit else []
        words = [str(commit), *dict.fromkeys([*tokens, self.token])]
        durable.write(note, " ".join(words).encode("ascii"))
        self._send(left, commit, self.begun[1] if self.begun[0] == commit else 0)

    def _note(self) -> tuple[int, list[str]]:
        """The commit that was to be sent last, and the processes that were to send it."""
        note = self.room / BEGUN
        commit, *tokens = note.read_text(encoding="ascii").split() if note.exists() else ["0"]
        return int(commit), tokens

    def _noted(self) -> int:
        """The commit that was to be sent last, if there is a note; else 0."""
        return self._note()[0]

    def _has_noted(self, commit: int) -> bool:
        """Whether whoever sent a commit had noted here that it would. Earlier versions did not note
        who."""
        noted, tokens = self._note()
        return noted == commit and (not tokens or self.by in tokens)

    def _mark(self, done: int) -> None:
        """Write the marker, and nothing else."""
        self._begin()
        self._commit(done)

    def _send(self, files: Iterable[Path], commit: int, skip: int) -> None:
        assert self.producer is not None
        producer, topic = self.producer, self.topic
        count = waiting = waiting_bytes = 0
        produce = producer.produce
        for path in files:
            for size, record in unpack(path):
                count += 1
                if count <= skip:
                    continue
                if waiting >= self.chunk or (waiting and waiting_bytes + size > self.chunk_bytes):
                    self._commit(self.done, f"{commit}:{count - 1}")
                    waiting = waiting_bytes = 0
                if not waiting:
                    self._begin()
                waiting += 1
                waiting_bytes += size
                more = produced(record)
                while True:
                    try:
                        produce(topic, record.value, record.key, **more)
                        break
                    except BufferError:
                        producer.poll(0.1)
        if not waiting:
            self._begin()
        self._commit(commit)

    def _begin(self) -> None:
        assert self.producer is not None
        self.begun_s = self.clock()
        self.producer.begin_transaction()

    def _commit(self, done: int, metadata: str = "") -> None:
        """Commit a transaction, with what was sent by its end."""
        assert self.producer is not None
        marker = self._marker(done, f"{self.token} {metadata}")
        self._flush(self.producer)
        ask_s = min(_ASK_S, self.cluster.timeout_s)
        send = self.producer.send_offsets_to_transaction
        _within(ask_s + _MORE_S, send, [marker], self.group, ask_s)
        self.producer.commit_transaction(_ASK_S)
        self.known, self.done = True, done
        self.kept_s = self.clock()
        self.trouble.over()

    def _flush(self, producer: "Producer") -> None:
        """Wait until all is in the topic, for as long as it gets less."""
        least, since_s = len(producer), self.trouble.clock()
        while left := producer.flush(_PAUSE_S):
            now = self.trouble.clock()
            if left < least:
                least, since_s = left, now
            elif now - since_s > _ASK_S:
                self.trouble.why = lacking(producer, self.topic, self.trouble) or self.trouble.why
                raise _timed_out()

    def _marker(self, done: int, metadata: str = "") -> Any:
        return confluent().TopicPartition(self.topic, 0, done, metadata)

    def _undelivered(self, error: Any, _message: Any) -> None:
        if error is not None and error.name() in OF_VALUES:
            self.refused = self.cluster.safe(error.str())


def _within(limit_s: float, call: Callable[..., object], *given: object) -> None:
    """Call what forgets its own limit: the library waits without end for a group's coordinator that
    is not there (librdkafka 5456, 5511). Who is left waiting is fenced by the next producer."""
    met: list[BaseException | None] = []

    def run() -> None:
        try:
            call(*given)
            met.append(None)
        except BaseException as error:  # noqa: BLE001  # raised below
            met.append(error)

    thread = threading.Thread(target=run, name="sojourn-kafka", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not met:
        raise _timed_out()
    try:
        if met[0] is not None:
            raise met[0]
    finally:
        met.clear()  # an error holds what it passed through, and so would hold itself


def _timed_out() -> Exception:
    kafka = confluent()
    error: Exception = kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
    return error
