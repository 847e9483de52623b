"""A topic to be read, as a user asks for it: where reading begins, and what becomes of messages.
Used by `sojourn.sources.kafka`; `reader.py` does the reading."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict

from sojourn.errors import InputError, check_options
from sojourn.kafka import client
from sojourn.kafka.client import Cluster, Trouble, checked, checked_topic, confluent
from sojourn.kafka.message import reader
from sojourn.kafka.reader import SETTINGS, Reading

Start = Literal["earliest", "latest"] | datetime | Mapping[int, int]


class KafkaOptions(TypedDict, total=False):
    """How a topic is read."""

    start: Start
    """Where the very first start begins: at the `"earliest"` message, the `"latest"`, a time, or an
    offset for each partition. Later starts go on from the checkpoint."""
    arrival: Literal["read", "message"]
    """From when the sojourn counts: when the message was read, or the message's own time."""
    group: str
    """The consumer group in which Kafka's own tools show how far we are."""
    timeout: float | str
    """How long Kafka may be away."""
    options: Mapping[str, Any] | None
    """Settings of librdkafka, such as those of TLS and SASL."""


def made_topic(
    servers: str,
    topic: str,
    read: Any,
    unreadable: Callable[[str, str], Any],
    start: Start = "earliest",
    arrival: Literal["read", "message"] = "read",
    group: str = "sojourn",
    timeout: float | str = "2min",
    options: Mapping[str, Any] | None = None,
    **unknown: object,
) -> "Topic":
    """A topic as a user asks for it."""
    what = f"kafka source {topic!r}"
    check_options(what, unknown, KafkaOptions.__annotations__)
    checked_topic(topic, what)
    if arrival not in ("read", "message"):
        raise InputError(f"{what}: arrival must be 'read' or 'message'; got {arrival!r}")
    if not isinstance(group, str) or not group:
        raise InputError(f"{what}: group must be a name; got {group!r}")
    cluster = checked(what, servers, options, timeout)
    cluster.consumer(Trouble(cluster), group, **SETTINGS).close()  # refuses what cannot be set
    return Topic(
        cluster,
        topic,
        group,
        checked_start(what, start),
        reader(what, read),
        arrival == "message",
        unreadable,
    )


def checked_start(what: str, start: object) -> Start:
    """Where a user wants to begin."""
    if start in ("earliest", "latest"):
        return start
    if isinstance(start, datetime) and start.tzinfo is not None:
        return start
    if isinstance(start, Mapping) and all(
        isinstance(one, int) and not isinstance(one, bool) and one >= 0
        for pair in start.items()
        for one in pair
    ):
        return dict(start)
    raise InputError(
        f"{what}: start must be 'earliest', 'latest', a datetime with a time zone, or offsets by "
        f"partition, such as {{0: 120, 1: 95}}; got {start!r:.100}"
    )


@dataclass
class Topic:
    """A topic to be read, and how. `live` is the reading in this process that began last."""

    cluster: Cluster
    name: str
    group: str
    start: Start
    parse: Callable[[Any], Any]
    produced: bool  # whether a message's own time is its intended arrival
    unreadable: Callable[[str, str], Any]  # what stands for a message that cannot be read
    asking: tuple[Any, Trouble] | None = field(default=None, repr=False)  # a client, and its own
    live: Reading | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "asking": None, "live": None}

    def splits(self) -> list[str] | dict[str, int | None]:
        """The partitions, and the offsets at which the very first start begins if that is not at
        their beginning."""
        if self.asking is None:
            trouble = Trouble(self.cluster)
            self.asking = self.cluster.admin(trouble), trouble
        try:
            return self._splits(*self.asking)
        except Exception:
            self.asking = None  # the next time begins anew
            raise

    def _splits(self, asked: Any, trouble: Trouble) -> list[str] | dict[str, int | None]:
        found = client.partitions(self.cluster, asked, self.name, trouble)
        if self.start == "earliest":
            return [str(number) for number in found]
        if isinstance(self.start, Mapping):
            if unknown := sorted(self.start.keys() - set(found)):
                raise InputError(
                    f"topic {self.name!r}: start names partition {unknown[0]}, but at "
                    f"{self.cluster.servers} it has partitions 0 to {len(found) - 1}; correct start"
                )
            return {str(number): self.start.get(number) for number in found}
        at = self._offsets(asked, found, trouble)
        return {str(number): at[number] for number in found}

    def _offsets(self, asked: Any, numbers: list[int], trouble: Trouble) -> dict[int, int]:
        """Where partitions are now, or were at a time."""
        admin = confluent().admin
        spec = admin.OffsetSpec.latest()
        if isinstance(self.start, datetime):
            spec = admin.OffsetSpec.for_timestamp(round(self.start.timestamp() * 1000))
        at: dict[int, int] = {}
        while len(at) < len(numbers):
            left = [number for number in numbers if number not in at]
            wanted = {confluent().TopicPartition(self.name, number): spec for number in left}
            try:
                for partition, found in asked.list_offsets(wanted).items():
                    at[partition.partition] = found.result(client.ASK_S).offset
            except (confluent().KafkaException, TimeoutError) as error:
                why = client.reason(error)
                if client.is_forbidden(error):
                    raise InputError(
                        f"topic {self.name!r} at {self.cluster.servers}: {why}; ask for access"
                    ) from None
                trouble.met(why)
                continue
            behind = [number for number, offset in at.items() if offset < 0]
            if behind:  # nothing is as late as that: begin with what comes
                spec = admin.OffsetSpec.latest()
                for number in behind:
                    del at[number]
        trouble.over()
        return at

    def read(self, positions: Mapping[str, Any]) -> Iterator[tuple[Any, ...] | None]:
        """Value, split, position after it and, if asked for, when it was produced; None while there
        is nothing."""
        reading = self.live = Reading(
            self.cluster,
            self.name,
            self.group,
            self.parse,
            self.produced,
            self.unreadable,
            {int(split): at for split, at in positions.items()},
        )
        try:
            yield from reading.run()
        finally:
            reading.close()
            if self.live is reading:  # and not that of other splits, which has begun meanwhile
                self.live = None

    def backlog(self) -> dict[str, int] | None:
        """The messages behind those that were yielded, by partition."""
        return None if self.live is None else self.live.backlog()
