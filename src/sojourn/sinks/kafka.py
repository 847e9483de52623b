"""The sink that writes a Kafka topic: into an outbox, which the driver sends once a commit is
recorded, or straight to the topic."""

import itertools
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sojourn.durable import private_directory, sync
from sojourn.errors import InputError, TopologyFailed
from sojourn.kafka.client import Cluster, Limits, Trouble, confluent, lacking, limits
from sojourn.kafka.message import Record, produced
from sojourn.kafka.outbox import BEGUN, OF_VALUES, Outbox, pack
from sojourn.sinks.sink import Sink, Staged, publish

if TYPE_CHECKING:
    from confluent_kafka import Producer

Delivery = Literal["exactly_once", "at_least_once"]
_BUFFER_BYTES = 256 << 10
_ROOM_BYTES = 120  # what Kafka adds to a message that is alone in its batch
_WAIT_S = 0.1
_LOOK = 64  # messages between two looks at what the library has to say
_ASK_S = 5.0
_MOST_S = 540.0  # that a commit may wait for what was sent


class Outgoing(Sink[Any]):
    """Values as messages of a topic. What cannot be written raises before anything is written."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        record: Callable[[Any], Record],
        key: Callable[[Any], Any] | None,
        delivery: Delivery,
    ) -> None:
        if delivery not in ("exactly_once", "at_least_once"):
            raise InputError(
                f"kafka sink {topic!r}: delivery must be 'exactly_once' or 'at_least_once'; "
                f"got {delivery!r}"
            )
        self.cluster, self.topic, self.record, self.key = cluster, topic, record, key
        self.delivery = delivery
        if delivery == "at_least_once" and cluster.timeout_s > _MOST_S:
            raise InputError(
                f"kafka sink {topic!r}: timeout must be at most 9min where delivery is "
                f"'at_least_once', as a commit waits for what was sent; got {cluster.timeout_s:g} s"
            )
        self.mark = f"kafka topic {topic}"
        self.limits: Limits
        self.asked_s = 0.0
        self.to: _Aside | _Straight
        self.outbox: Outbox | None = None
        cluster.producer(Trouble(cluster))  # refuses what cannot be set

    def open(self, part: int, epoch: int, held: Sequence[str] = ()) -> None:  # noqa: ARG002
        self._ask()
        if self.delivery == "exactly_once":
            self.to = _Aside(private_directory(self.room / str(part)), epoch, self.mark)
        else:
            self.to = _Straight(self.cluster, self.topic, self.limits.size)

    def write(self, value: Any) -> None:
        record = self.record(value)
        size = len(record.value or b"") + len(record.key or b"") + _ROOM_BYTES
        if record.headers:
            size += sum(len(name.encode()) + len(held or b"") + 10 for name, held in record.headers)
        limits = self.limits
        if size > limits.size:
            raise ValueError(
                f"topic {self.topic!r} takes messages of at most {limits.size} bytes, with "
                f"{_ROOM_BYTES} for Kafka itself; got {size - _ROOM_BYTES}; raise the topic's "
                "max.message.bytes"
            )
        if record.partition is not None:
            self._check_partition(record.partition)
        if limits.keys and record.key is None:
            raise ValueError(
                f"topic {self.topic!r} keeps the last message of each key, and takes none without "
                "a key; give key=, or a Record with a key"
            )
        if record.time_s is not None:
            self._check_time(record.time_s)
        self.to.write(record)

    def _ask(self) -> None:
        self.asked_s = time.monotonic()
        self.limits = limits(self.cluster, self.topic, Trouble(self.cluster))

    def _check_time(self, time_s: float) -> None:
        """Refuse one that is too far in the past or the future."""
        ahead_s, limits = time_s - time.time(), self.limits
        for side, by_s, most_s in (
            ("after", ahead_s, limits.after_s),
            ("before", -ahead_s, limits.before_s),
        ):
            if by_s > most_s:
                raise ValueError(
                    f"topic {self.topic!r} takes messages of at most {most_s:g} s {side} now; got "
                    f"a Record with time_s {time_s!r}, which is {by_s:.0f} s; correct write=, or "
                    f"raise the topic's message.timestamp.{side}.max.ms"
                )

    def _check_partition(self, partition: int) -> None:
        """Refuse one that there is not. It may have been added since we asked."""
        if partition >= self.limits.partitions and time.monotonic() >= self.asked_s + _ASK_S:
            self._ask()
        if partition >= (count := self.limits.partitions):
            raise ValueError(
                f"topic {self.topic!r} has partitions 0 to {count - 1}; got a Record "
                f"with partition {partition}; correct write=, or add partitions"
            )

    def cut(self, last: bool = False) -> Callable[[], Staged]:  # noqa: ARG002
        return self.to.cut()

    def publish(self, staged: Sequence[tuple[str, str]], commit: int, again: bool = False) -> None:
        own = [Path(source) for source, target in staged if target == self.mark]
        publish([pair for pair in staged if pair[1] != self.mark], again)
        if self.outbox is None and (own or (self.room / BEGUN).exists()):
            name = f"sojourn-{self.run}-{self.room.name}"
            self.outbox = Outbox(self.cluster, self.topic, name, self.room)
        if self.outbox is not None:
            self.outbox.publish(own, commit, again)

    def retire(self) -> None:
        if self.outbox is not None:
            self.outbox.close()
            self.outbox = None

    def close(self) -> None:
        self.to.close()


class _Aside:
    """Files for the driver to send: one for each commit with results."""

    def __init__(self, folder: Path, epoch: int, mark: str) -> None:
        self.folder, self.mark = folder, mark
        token, numbers = secrets.token_hex(3), itertools.count()
        self.names = (folder / f"{epoch:06d}-{token}-{number:06d}" for number in numbers)
        self.buffer = bytearray()
        self.path: Path | None = None
        self.size = 0

    def write(self, record: Record) -> None:
        packed = pack(record)
        if len(self.buffer) >= _BUFFER_BYTES:
            self._drain()
        self.buffer += packed

    def _drain(self) -> None:
        if self.path is None:
            self.path, self.size = next(self.names), 0
        with open(self.path, "ab", opener=_private) as file:
            file.truncate(self.size)  # what a full disk has cut short is written again
            file.write(self.buffer)
        self.size += len(self.buffer)
        self.buffer.clear()

    def cut(self) -> Callable[[], Staged]:
        if self.buffer:
            self._drain()
        path, self.path = self.path, None
        if path is None:
            return Staged

        def stage() -> Staged:
            sync(path)
            sync(self.folder)
            return Staged(((str(path), self.mark),))

        return stage

    def close(self) -> None:
        """Leave all to the driver."""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class _Interval:
    """The messages between two cuts."""

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self.lock = threading.Lock()  # the library calls back in whichever thread asks it to
        self.sent = self.done = 0
        self.refused: Any = None  # the error of a message

    def delivered(self, error: Any, _message: Any) -> None:
        with self.lock:
            self.done += 1
            self.refused = error or self.refused
        if error is None:
            self.trouble.over()


class _Straight:
    """A producer. A commit waits until all that was sent before its cut is in the topic."""

    def __init__(self, cluster: Cluster, topic: str, limit: int) -> None:
        self.cluster, self.topic = cluster, topic
        self.trouble = Trouble(cluster)
        limit_ms = max(1000, round(cluster.timeout_s * 1000))
        self.producer: Producer = cluster.producer(
            self.trouble, message_max_bytes=limit, message_timeout_ms=limit_ms
        )
        self.interval = _Interval(self.trouble)
        self.calls = 0

    def write(self, record: Record) -> None:
        interval, more = self.interval, produced(record)
        self.calls += 1
        if self.calls == _LOOK:
            self.calls = 0
            self._poll(0)
        while True:
            try:
                self.producer.produce(
                    self.topic, record.value, record.key, on_delivery=interval.delivered, **more
                )
                break
            except BufferError:
                self._poll(_WAIT_S)
            except confluent().KafkaException as error:
                if error.args[0].name() in OF_VALUES:
                    raise
                raise self._broken(error.args[0]) from None
        interval.sent += 1

    def cut(self) -> Callable[[], Staged]:
        interval, self.interval = self.interval, _Interval(self.trouble)

        def stage() -> Staged:
            while interval.done < interval.sent:
                self._poll(_WAIT_S)
            if interval.refused is not None:
                raise self._broken(interval.refused)
            self.trouble.over()
            return Staged()

        return stage

    def _poll(self, wait_s: float) -> None:
        try:
            self.producer.poll(wait_s)
        except confluent().KafkaException as error:
            raise self._broken(error.args[0]) from None

    def _broken(self, error: Any) -> TopologyFailed:
        """What an error means of which no value is to blame."""
        told = self.cluster.safe(error.str())
        if error.name() in ("_MSG_TIMED_OUT", "REQUEST_TIMED_OUT"):
            lack = lacking(self.producer, self.topic, self.trouble)
            self.trouble.why = lack or self.trouble.why or told
            return self.trouble.gave_up(self.cluster.timeout_s)
        remedy = "start again, which goes on after the last commit"
        if error.name() in OF_VALUES or "AUTHORIZATION" in error.name():
            remedy = "correct its settings and start again"
        return TopologyFailed(f"topic {self.topic!r} did not take a result: {told}; {remedy}")

    def close(self) -> None:
        """Nothing is left to be sent: the last commit has waited for it."""
        self.producer.flush(_WAIT_S)
