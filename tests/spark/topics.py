"""What tests write to topics and read from them, with no code of ours."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

NewTopics = Callable[..., str]


def send(
    servers: str,
    topic: str,
    *values: bytes,
    key: bytes | None = None,
    to: int = 0,
    time_s: float | None = None,
) -> None:
    """Have the topic hold values."""
    producer = Producer({"bootstrap.servers": servers})
    answers: list[Any] = []
    time_ms = 0 if time_s is None else round(time_s * 1000)  # 0 is now
    for value in values:
        producer.produce(
            topic, value, key, to, timestamp=time_ms, on_delivery=lambda e, _: answers.append(e)
        )
    producer.flush(30)
    assert answers == [None] * len(values)


def held(servers: str, topic: str, isolation: str = "read_committed") -> list[tuple[int, bytes]]:
    """Partition and value of all that readers of the topic see now."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, left = [], set(partitions)
    while left:
        message: Any = consumer.poll(30)
        if (error := message.error()) is not None:
            assert error.name() == "_PARTITION_EOF", error
            left.discard(message.partition())
        else:
            found.append((message.partition(), message.value()))
    consumer.close()
    return found
