"""What `sojourn.sources.kafka` reads from a real broker. The reading runs in the test itself."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from topics import NewTopics, send

from sojourn.engine.spark.broker import Broker
from sojourn.errors import InputError, TopologyFailed
from sojourn.sources import Source, Unreadable, kafka


def pieces(source: Source[Any], positions: Mapping[str, Any], count: int) -> list[tuple[Any, ...]]:
    """So many of what a source yields, and then the reading is closed."""
    reading = source.read_splits(positions)
    found = list(islice((piece for piece in reading if piece is not None), count))
    close(reading)
    return found


def close(reading: Iterator[Any]) -> None:
    reading.close()  # type: ignore[attr-defined]  # it is a generator


def test_partitions_are_splits_and_positions_are_offsets(broker: Broker, topics: NewTopics) -> None:
    topic = topics(2)
    send(broker.servers, topic, b"a", b"b")
    send(broker.servers, topic, b"c", to=1)
    source = kafka(broker.servers, topic)
    assert source.splits() == ["0", "1"]
    found = pieces(source, {"0": None, "1": None}, 3)
    assert sorted(found) == [("a", "0", 1), ("b", "0", 2), ("c", "1", 1)]
    assert pieces(source, {"0": 1}, 1) == [("b", "0", 2)]


def test_what_comes_later_is_read_and_counted(broker: Broker, topics: NewTopics) -> None:
    topic = topics()
    source = kafka(broker.servers, topic)
    reading = source.read_splits({"0": None})
    assert next(reading) is None
    send(broker.servers, topic, b"a", b"b", b"c")
    while next(reading) is None:
        pass
    assert source.backlog() == {"0": 2}
    close(reading)
    assert source.backlog() is None


def test_a_reading_may_begin_before_the_one_before_it_is_closed(
    broker: Broker, topics: NewTopics
) -> None:
    """As it does in a process that gets other splits."""
    topic = topics(2)
    send(broker.servers, topic, b"a")
    source = kafka(broker.servers, topic)
    first, second = source.read_splits({"0": None}), source.read_splits({"1": None})
    assert next(piece for piece in first if piece is not None) == ("a", "0", 1)
    assert next(second) is None
    close(first)
    assert source.backlog() == {"1": 0}
    close(second)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        ("bytes", b"[1]"),
        ("text", "[1]"),
        ("json", [1]),
        (lambda message: (message.key, message.headers, message.offset), (b"k", (("h", b"x"),), 0)),
    ],
)
def test_values_are_read_as_asked(
    broker: Broker, topics: NewTopics, read: Any, value: object
) -> None:
    topic = topics()
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(topic, b"[1]", b"k", headers=[("h", b"x")])
    producer.flush(30)
    ((found, _, _),) = pieces(kafka(broker.servers, topic, read=read), {"0": None}, 1)
    assert found == value


def test_a_message_knows_where_and_when_it_was(broker: Broker, topics: NewTopics) -> None:
    topic = topics()
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(topic, None, timestamp=1_700_000_000_500)
    producer.flush(30)
    source = kafka(broker.servers, topic, read="message", arrival="message")
    ((message, split, after, made_s),) = pieces(source, {"0": None}, 1)
    assert (message.topic, message.partition, message.value) == (topic, 0, None)
    assert (split, after, made_s) == ("0", message.offset + 1, message.time_s)
    assert made_s == 1_700_000_000.5


def test_a_start_may_be_late_timed_or_given(broker: Broker, topics: NewTopics) -> None:
    topic = topics(2)
    producer = Producer({"bootstrap.servers": broker.servers})
    for second in range(4):
        producer.produce(topic, b"x", partition=0, timestamp=1_700_000_000_000 + 1000 * second)
    producer.flush(30)
    noon = datetime.fromtimestamp(1_700_000_002, UTC)

    def begins(start: Any) -> object:
        return kafka(broker.servers, topic, start=start).splits()

    assert begins("latest") == {"0": 4, "1": 0}
    assert begins(noon) == {"0": 2, "1": 0}
    assert begins(datetime.now(UTC)) == {"0": 4, "1": 0}
    assert begins({0: 3}) == {"0": 3, "1": None}
    with pytest.raises(InputError, match=r"start names partition 2, but .* partitions 0 to 1"):
        begins({0: 3, 2: 7})


def test_kafkas_tools_see_how_far_we_are(broker: Broker, topics: NewTopics) -> None:
    topic = topics()
    send(broker.servers, topic, b"a", b"b", b"c")
    pieces(kafka(broker.servers, topic, group="shown"), {"0": None}, 2)
    asked = Consumer({"bootstrap.servers": broker.servers, "group.id": "shown"})
    (found,) = asked.committed([TopicPartition(topic, 0)], 30)
    asked.close()
    assert found.offset == 2


def test_what_cannot_be_read_is_told_by_its_place(broker: Broker, topics: NewTopics) -> None:
    topic = topics()
    send(broker.servers, topic, b"1", b"{", b"3")
    one, two, three = pieces(kafka(broker.servers, topic, read="json"), {"0": None}, 3)
    assert (one[0], three[0], two[2]) == (1, 3, 2)
    assert two[0].shown == f"topic '{topic}', partition 0, offset 1: b'{{'"
    assert "DecodeError" in two[0].error


def test_an_expired_offset_is_told_and_what_is_there_is_read(
    broker: Broker, topics: NewTopics
) -> None:
    topic = topics()
    send(broker.servers, topic, *(b"%d" % n for n in range(8)))
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0)].result(30)
    missed, first, second = pieces(kafka(broker.servers, topic), {"0": 2}, 3)
    assert isinstance(missed[0], Unreadable)
    assert missed[0].shown == f"topic '{topic}', partition 0, offset 2"
    assert "has offsets 6 to 7; 4 messages are missing" in missed[0].error
    assert (missed[1:], first, second) == (("0", 6), ("6", "0", 7), ("7", "0", 8))


def test_marks_of_transactions_are_passed_and_may_expire(broker: Broker, topics: NewTopics) -> None:
    topic = topics()
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    producer.commit_transaction(30)
    assert pieces(kafka(broker.servers, topic), {"0": None}, 2) == [("a", "0", 1), ("0", 2)]
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(30)
    producer.begin_transaction()
    producer.produce(topic, b"b")
    producer.commit_transaction(30)
    assert pieces(kafka(broker.servers, topic), {"0": 2}, 2) == [("b", "0", 3), ("0", 4)]


def test_beyond_the_end_nothing_is_read_twice(broker: Broker, topics: NewTopics) -> None:
    topic = topics()
    send(broker.servers, topic, b"0", b"1")
    reading: Any = kafka(broker.servers, topic).read_splits({"0": 7})
    missed = next(piece for piece in reading if piece is not None)
    assert "has offsets 0 to 1; the topic has lost messages or was made anew" in missed[0].error
    assert missed[1:] == ("0", 2)
    send(broker.servers, topic, b"2")
    assert next(piece for piece in reading if piece is not None) == ("2", "0", 3)
    reading.close()


def test_a_topic_that_does_not_exist_is_named(broker: Broker, topics: NewTopics) -> None:
    there = topics()
    source = kafka(broker.servers, f"{there}-too", timeout=0.2)
    with pytest.raises(InputError, match=f"topic '{there}-too': does not exist at 127.* {there},"):
        source.splits()


def test_no_broker_is_one_message() -> None:
    source = kafka("127.0.0.1:1", "orders", timeout=0.3)
    with pytest.raises(TopologyFailed, match=r"Kafka at 127.0.0.1:1 could not be used for") as told:
        source.splits()
    assert "refused" in str(told.value)


def test_tls_and_sasl_let_us_in_and_a_wrong_password_is_told_without_it(
    broker: Broker, topics: NewTopics, secure: tuple[str, dict[str, str]]
) -> None:
    (servers, options), topic = secure, topics()
    send(broker.servers, topic, b"a")
    source = kafka(servers, topic, options=options)
    assert source.splits() == ["0"]
    assert pieces(source, {"0": None}, 1) == [("a", "0", 1)]
    wrong = kafka(servers, topic, options={**options, "sasl.password": "close-sesame"})
    with pytest.raises(TopologyFailed, match=r"refuses us: .*correct options=") as told:
        pieces(wrong, {"0": None}, 1)
    assert "sesame" not in f"{told.value} {wrong!r} {wrong.__dict__}"


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"servers": "host"}, "servers must be HOST:PORT"),
        ({"topic": "a b"}, "topic must be 1 to 249 letters"),
        ({"read": "xml"}, "read must be one of 'bytes', 'text', 'json', 'message', or a function"),
        ({"start": "first"}, "start must be 'earliest', 'latest', a datetime with a time zone"),
        ({"start": datetime(2026, 1, 1)}, "a datetime with a time zone"),
        ({"arrival": "sent"}, "arrival must be 'read' or 'message'"),
        ({"timeout": 0}, "timeout must be above zero"),
        ({"group": ""}, "group must be a name"),
        ({"form": "text"}, "there is no option 'form'"),
        ({"options": {"group.id": "g"}}, "the option 'group.id' belongs to group="),
        ({"options": {"no.such": 1}}, "a setting cannot be used: .*no.such"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        kafka(**{"servers": "127.0.0.1:9092", "topic": "orders", **given})
