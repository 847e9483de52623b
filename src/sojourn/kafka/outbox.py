"""Results on their way to a topic, exactly once. A sink's processes write them into files; when a
commit is recorded, the driver sends the files in transactions that also say which commit it was.

No transaction can be resumed by another process, so what was sent is asked for after a restart: the
marker is an offset in a consumer group of the sink's own. A new producer with the same
transactional id first ends what its predecessor left open, and the predecessor can send no more."""

import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sojourn.errors import InputError, TopologyFailed
from sojourn.kafka.client import Cluster, Trouble, confluent, largest
from sojourn.kafka.message import Record

if TYPE_CHECKING:
    from confluent_kafka import Producer

CHUNK_BYTES = 16 << 20  # of a transaction, which must be over within its timeout
CHUNK = 100_000
_ASK_S = 10.0  # after which a new producer is made, as old ones get stuck where a broker dies
_LENGTH = struct.Struct("<I")
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
_FOR_GOOD = {"MSG_SIZE_TOO_LARGE", "INVALID_RECORD"}
_BUFFER_BYTES = 1 << 20
_PAUSE_S = 0.2
BEGUN = "begun"


def pack(record: Record) -> bytes:
    """A record as it stands in a file."""
    time_ms = 0 if record.time_s is None else round(record.time_s * 1000)
    data = msgspec.msgpack.encode(
        (record.value, record.key, record.headers, record.partition, time_ms)
    )
    return _LENGTH.pack(len(data)) + data


def unpack(path: Path) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The records of a file, with their sizes."""
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        while head := file.read(_LENGTH.size):
            (size,) = _LENGTH.unpack(head)
            yield size, msgspec.msgpack.decode(file.read(size))


class Outbox:
    """What the driver sends for one sink. `name` is that of its transactions and of its group;
    `room` is where it notes that there has been a first transaction."""

    def __init__(self, cluster: Cluster, topic: str, name: str, room: Path) -> None:
        self.cluster, self.topic, self.name, self.room = cluster, topic, name, room
        self.trouble = Trouble(cluster)
        self.producer: Producer | None = None
        self.limit: int | None = None
        self.refused = ""

    def publish(self, files: list[Path], commit: int, again: bool = False) -> None:
        """Send the files of a commit, and remove them. With `again`, some or all may have been
        sent before."""
        while True:
            try:
                if self.producer is None:
                    self._open()
                self._publish(files, commit, again)
                break
            except confluent().KafkaException as error:
                self.producer = None  # the next one finds out what was sent
                name, told = error.args[0].name(), error.args[0].str()
                if name in _FENCED:
                    raise TopologyFailed(
                        f"topic {self.topic!r}: another run sends the results of this sink "
                        f"({self.name}); only one may use a checkpoint; stop one of them"
                    ) from None
                if self.refused or name in _FOR_GOOD or "AUTHORIZATION" in name:
                    raise TopologyFailed(
                        f"topic {self.topic!r} refuses a result of commit {commit}: "
                        f"{self.refused or self.cluster.safe(told)}; correct its settings and "
                        "start again: nothing committed is lost"
                    ) from None
                self.trouble.met(told)
                time.sleep(_PAUSE_S)
        self.trouble.over()
        for path in files:
            path.unlink(missing_ok=True)

    def _open(self) -> None:
        """A producer that has ended the transactions of all before it, and what these have sent."""
        if self.limit is None:
            self.limit = largest(self.cluster, self.topic, self.trouble)
        self.refused = ""
        producer = self.cluster.producer(
            self.trouble,
            transactional_id=self.name,
            enable_idempotence=True,
            message_max_bytes=self.limit,
            delivery_report_only_error=True,
            on_delivery=self._undelivered,
        )
        producer.init_transactions(min(_ASK_S, self.cluster.timeout_s))
        asked = self.cluster.consumer(
            self.trouble, self.name, enable_auto_commit=False, isolation_level="read_committed"
        )
        self.group = asked.consumer_group_metadata()
        (found,) = asked.committed([self._marker(0)], min(_ASK_S, self.cluster.timeout_s))
        asked.close()
        self.known = found.offset >= 0
        self.done = max(0, found.offset)  # the last commit that was sent as a whole
        number, _, count = (found.metadata or "").partition(":")
        self.begun = (int(number), int(count)) if count else (0, 0)  # and one in part
        self.producer = producer

    def _publish(self, files: list[Path], commit: int, again: bool) -> None:
        if commit <= self.done:
            return
        begun = self.room / BEGUN
        if again and not self.known and begun.exists():
            raise TopologyFailed(
                f"topic {self.topic!r}: it is not known whether the results of commit {commit} "
                f"were sent, because the offsets of group {self.name} have expired; look whether "
                f"those in {files[0].parent} are in the topic, delete {begun} if they are not, or "
                "the files too if they are, and start again"
            )
        missing = [path for path in files if not path.exists()]
        if missing:
            raise InputError(
                f"topic {self.topic!r}: results cannot be sent, because {missing[0]} is missing; "
                "all machines, including the driver's, must see the checkpoint"
            )
        self._send(files, commit, self.begun[1] if self.begun[0] == commit else 0)
        begun.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        begun.touch(mode=0o600)

    def _send(self, files: Iterable[Path], commit: int, skip: int) -> None:
        producer = self.producer
        assert producer is not None
        count = waiting = waiting_bytes = 0
        produce, topic = producer.produce, self.topic
        for path in files:
            for size, (value, key, headers, partition, time_ms) in unpack(path):
                count += 1
                if count <= skip:
                    continue
                if waiting >= CHUNK or (waiting and waiting_bytes + size > CHUNK_BYTES):
                    self._commit(self.done, f"{commit}:{count - 1}")
                    waiting = waiting_bytes = 0
                if not waiting:
                    producer.begin_transaction()
                waiting += 1
                waiting_bytes += size
                more: dict[str, Any] = {} if not time_ms else {"timestamp": time_ms}
                if headers:
                    more["headers"] = [(name, held) for name, held in headers]
                if partition is not None:
                    more["partition"] = partition
                while True:
                    try:
                        produce(topic, value, key, **more)
                        break
                    except BufferError:
                        producer.poll(0.1)
        if not waiting:
            producer.begin_transaction()
        self._commit(commit, "")
        self.done = commit

    def _commit(self, done: int, metadata: str) -> None:
        """Commit a transaction, with what was sent by its end."""
        assert self.producer is not None
        marker = self._marker(done, metadata)
        self._flush(self.producer)
        self.producer.send_offsets_to_transaction([marker], self.group, _ASK_S)
        self.producer.commit_transaction(_ASK_S)
        self.known = True

    def _flush(self, producer: "Producer") -> None:
        """Wait until all is in the topic, for as long as it gets less."""
        least, since_s = len(producer), self.trouble.clock()
        while left := producer.flush(_PAUSE_S):
            now = self.trouble.clock()
            if left < least:
                least, since_s = left, now
            elif now - since_s > _ASK_S:
                error = confluent().KafkaError(confluent().KafkaError._TIMED_OUT)
                raise confluent().KafkaException(error)

    def _marker(self, done: int, metadata: str = "") -> Any:
        return confluent().TopicPartition(self.topic, 0, done, metadata)

    def _undelivered(self, error: Any, _message: Any) -> None:
        if error is not None and error.name() in _FOR_GOOD:
            self.refused = error.str()
