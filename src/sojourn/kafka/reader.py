"""Reads a topic: assigned partitions, from given offsets on. Positions are offsets in our commits;
Kafka's own group offsets are only written, so that Kafka's tools show where we are.

A reader goes on through what passes: brokers that are away, partitions without a leader. Used by
`topic.py`."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sojourn.errors import InputError
from sojourn.kafka import client
from sojourn.kafka.client import Clock, Cluster, Trouble, confluent
from sojourn.kafka.message import time_of, whole

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_log = logging.getLogger("sojourn")
_AT_ONCE = 4000  # many, because after each call a busy interpreter makes us wait for our turn
_WAIT_S = 0.5
_SHOW_S = 5.0
_PROBE_S = 0.5
_LOOK_S = 10.0  # how often it is asked whether each partition can be read, if nothing ails it
SETTINGS = {
    "enable_auto_commit": False,
    "enable_auto_offset_store": False,
    "auto_offset_reset": "error",  # nothing is skipped in silence
    "enable_partition_eof": True,  # whose offset is behind the marks of transactions
}


class Reading:
    """The reading of some partitions of a topic, from an offset of each; None is the beginning."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        group: str,
        parse: Callable[[Any], Any],
        produced: bool,
        unreadable: Callable[[str, str], Any],
        at: dict[int, int | None],
        clock: Clock = time.monotonic,
    ) -> None:
        self.cluster, self.topic, self.parse, self.produced = cluster, topic, parse, produced
        self.group, self.unreadable, self.at = group, unreadable, at
        self.clock, self.trouble = clock, Trouble(cluster, clock)
        self.consumer: Consumer = cluster.consumer(self.trouble, group, **SETTINGS)
        self.caught_up = False
        self.shown_s = self.looked_s = self.asked_s = clock()
        self.may_show = True
        self.shown: dict[int, int | None] = dict(at)

    def run(self) -> Iterator[tuple[Any, ...] | None]:
        """Read for ever."""
        consumer = self.consumer
        client.partitions(self.cluster, consumer, self.topic, self.trouble)
        consumer.assign([self._place(number) for number in self.at])
        parse, produced, at = self.parse, self.produced, self.at
        names = {number: str(number) for number in at}
        while True:
            # While nobody asked for messages, as there was no room for more, nobody could hear
            # either that trouble was over.
            self.trouble.unheard(self.clock() - self.asked_s)
            messages: list[Any] = consumer.consume(_AT_ONCE, 0)
            if not messages and (first := consumer.poll(_WAIT_S)) is not None:
                messages = [first]
            self._show()
            self._look()
            self.asked_s = self.clock()
            if not messages:
                self.caught_up = self.trouble.since_s is None
                yield None
                continue
            self.caught_up = False
            for message in messages:
                number = message.partition()
                if message.error() is not None:
                    yield self._failed(message)
                    continue
                split, after = names[number], message.offset() + 1
                try:
                    value = parse(message)
                except Exception as error:  # noqa: BLE001  # user code may raise anything
                    value = self._unreadable(message, error)
                at[number] = after
                if produced and (made_s := time_of(message)) is not None:
                    yield value, split, after, made_s
                else:
                    yield value, split, after

    def backlog(self) -> dict[str, int]:
        if self.caught_up:  # what is left are marks of transactions, which nobody reads
            return {str(number): 0 for number in self.at}
        found = {}
        for number, at in self.at.items():
            low, high = self.consumer.get_watermark_offsets(self._place(number), cached=True)
            if high >= 0:  # it is known once something was fetched
                found[str(number)] = max(0, high - max(low, at or 0))
        return found

    def close(self) -> None:
        self._show(now=True)
        self.consumer.close()

    def _place(self, number: int) -> Any:
        at = self.at[number]
        beginning = confluent().OFFSET_BEGINNING
        return confluent().TopicPartition(self.topic, number, beginning if at is None else at)

    def _show(self, now: bool = False) -> None:
        """Write where we are into the group, for people to look at. Nobody reads it back, so it may
        fail."""
        if not self.may_show or (not now and self.clock() < self.shown_s + _SHOW_S):
            return
        self.shown_s = self.clock()
        moved = [number for number, at in self.at.items() if at != self.shown[number]]
        if moved:
            self.shown.update((number, self.at[number]) for number in moved)
            try:
                self.consumer.commit(
                    offsets=[self._place(number) for number in moved], asynchronous=True
                )
            except confluent().KafkaException:
                pass

    def _look(self) -> None:
        """See whether every partition can be read: the library tells neither that its trouble is
        over nor that some partition has no leader, while others go on."""
        now = self.clock()
        if now < self.looked_s + (_LOOK_S if self.trouble.since_s is None else _PROBE_S):
            return
        self.looked_s = now
        lack = client.lacking(self.consumer, self.topic, self.trouble, self.at, _PROBE_S)
        if lack:
            self.trouble.met(lack)
        elif lack is not None:
            self.trouble.over()

    def _failed(self, message: Any) -> tuple[Any, ...] | None:
        """What to yield for an error in place of a message. Raises what cannot pass."""
        error, number = message.error(), message.partition()
        if error.name() == "_PARTITION_EOF":
            return self._passed(number, message.offset())
        if error.name() == "_AUTO_OFFSET_RESET":
            return self._jump(number)
        if error.name() == "GROUP_AUTHORIZATION_FAILED":
            if self.may_show:
                _log.warning(
                    "topic %r: Kafka's tools cannot show how far it is read, because group %r may "
                    "not be written (%s); name another in group=",
                    self.topic,
                    self.group,
                    error.str(),
                )
            self.may_show = False
            return None
        if "AUTHORIZATION" in error.name():
            raise InputError(
                f"topic {self.topic!r} at {self.cluster.servers}: {error.str()}; ask for access"
            )
        self.trouble.met(error.str())
        return None

    def _passed(self, number: int, end: int) -> tuple[Any, ...] | None:
        """All is read. If marks of transactions came last, they are behind us as well: they expire
        like messages, and would be missed then."""
        if end <= (self.at[number] or 0):
            return None
        self.at[number] = end
        return str(number), end

    def _jump(self, number: int) -> tuple[Any, ...] | None:
        """The offset to go on from is not there: go to what is there. What was missed counts as a
        message that cannot be read. Beyond the end, nothing is read a second time: that is where
        brokers have lost what we had read, or where the topic was made anew."""
        try:
            low, high = self.consumer.get_watermark_offsets(self._place(number), timeout=_PROBE_S)
        except confluent().KafkaException as error:
            self.trouble.met(error.args[0].str())
            self._again(number)
            return None
        at = self.at[number]
        if at is None or low <= at <= high:  # it is there by now
            self.trouble.met(f"topic {self.topic!r}, partition {number}: no offset to go on from")
            self._again(number)
            return None
        self.at[number] = there = min(max(at, low), high)
        missed = f"; {low - at} messages are missing" if at < low else ""
        if at > high:
            missed = "; the topic has lost messages or was made anew, and is read from its end on"
        self._again(number)
        return (
            self.unreadable(
                f"topic {self.topic!r}, partition {number}, offset {at}",
                f"it is not there: the partition has offsets {low} to {high - 1}{missed}; "
                "on_error other than 'fail' goes on with what is there",
            ),
            str(number),
            there,
        )

    def _again(self, number: int) -> None:
        """Begin anew with a partition. A seek is refused after an error."""
        self.consumer.incremental_unassign([self._place(number)])
        self.consumer.incremental_assign([self._place(number)])

    def _unreadable(self, message: Any, error: Exception) -> Any:
        found = whole(message)
        return self.unreadable(
            f"topic {found.topic!r}, partition {found.partition}, offset {found.offset}: "
            f"{found.value!r:.200}",
            f"{type(error).__name__}: {error}",
        )
