"""Topologies between topics, on real Spark and a real broker."""

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from conftest import executors
from pyspark.sql import SparkSession
from topics import NewTopics, held, send

import sojourn as sj
from sojourn.engine.spark.broker import Broker
from sojourn.errors import TopologyFailed

KEYS = 5
SETTINGS = {"commit": 0.5}


class Count(sj.Operator):
    """Counts messages, which are numbered by key."""

    def process(self, message: Any) -> Iterator[tuple[str, int, int]]:
        key = message.key.decode()
        self.state[key] = self.state.get(key, 0) + 1
        yield key, self.state[key], int(message.value)


def counted(broker: Broker, source: str, target: str, readers: int) -> sj.Topology:
    """Counts the messages of each key, from topic to topic."""
    t = sj.Topology("counted")
    read = sj.sources.kafka(broker.servers, source, read="message", timeout=60)
    orders = t.source("orders", read, executors=readers)
    counts = t.operator("count", Count, orders, key=lambda message: message.key, executors=2)
    written = sj.sinks.kafka(broker.servers, target, key=lambda pair: pair[0], timeout=60)
    t.sink("out", written, counts, executors=2)
    return t


class Feed(threading.Thread):
    """Sends messages until told to stop, and counts them."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self.topic, self.sent, self.enough = topic, 0, threading.Event()

    def run(self) -> None:
        while not self.enough.wait(0.01):
            for _ in range(KEYS):
                key, number = self.sent % KEYS, self.sent // KEYS + 1
                self.producer.produce(self.topic, b"%d" % number, b"key-%d" % key)
                self.sent += 1
            self.producer.poll(0)

    def finish(self) -> int:
        self.enough.set()
        self.join()
        assert self.producer.flush(60) == 0
        return self.sent


def by_key(broker: Broker, topic: str) -> dict[str, list[tuple[int, int]]]:
    """Counts, and the numbers of the messages."""
    found: dict[str, list[tuple[int, int]]] = {}
    for _, value in held(broker.servers, topic):
        key, count, number = json.loads(value)
        found.setdefault(key, []).append((count, number))
    return found


def await_that(running: Any, condition: Callable[[], bool]) -> None:
    """Return when a condition comes true; commits may bring it about."""
    while not condition():
        assert running.await_commit(60), running.error


def arrive(broker: Broker, topic: str, count: int) -> None:
    """Return when so many messages have come."""
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "tests"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for _ in range(count):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
    consumer.close()


def size(broker: Broker, topic: str) -> int:
    return len(held(broker.servers, topic))


def test_results_are_exact_though_processes_are_killed_and_readers_change(
    spark: SparkSession, broker: Broker, topics: NewTopics, tmp_path: Path
) -> None:
    source, target = topics(3), topics(2)
    feed = Feed(broker.servers, source)
    feed.start()
    check = tmp_path / "checkpoint"
    with sj.start(
        counted(broker, source, target, 2), spark=spark, checkpoint=check, settings=SETTINGS
    ) as running:
        await_that(running, lambda: size(broker, target) > 50)
        running.resize({"orders": 3})
        await_that(running, lambda: running.allocation()["orders"] == 3)
        for pid in executors()[:3]:
            os.kill(pid, signal.SIGKILL)
        before = size(broker, target)
        await_that(running, lambda: size(broker, target) > before)
        assert running.restarts > 0
    with sj.start(
        counted(broker, source, target, 1), spark=spark, checkpoint=check, settings=SETTINGS
    ) as running:
        sent = feed.finish()
        await_that(running, lambda: size(broker, target) >= sent)
        nothing_waits = {"0": 0, "1": 0, "2": 0}
        await_that(running, lambda: running.samples().vertices["orders"].backlog == nothing_waits)
    expected = [(number, number) for number in range(1, sent // KEYS + 1)]
    assert by_key(broker, target) == {f"key-{key}": expected for key in range(KEYS)}


def test_at_least_once_comes_before_the_commit_and_new_partitions_are_read(
    spark: SparkSession, broker: Broker, topics: NewTopics
) -> None:
    source, target = topics(1), topics(1)
    made_s = time.time() - 1000
    t = sj.Topology("at-once")
    read = sj.sources.kafka(broker.servers, source, arrival="message")
    lines = t.source("lines", read, executors=2)
    upper = t.map("upper", str.upper, lines)
    t.sink(
        "out", sj.sinks.kafka(broker.servers, target, write="text", delivery="at_least_once"), upper
    )
    with sj.start(t, spark=spark, settings={"commit": "1h"}):
        send(broker.servers, source, b"a", b"b", time_s=made_s)
        arrive(broker, target, 2)  # long before a commit
    with sj.start(t, spark=spark, settings=SETTINGS) as running:
        found: list[sj.ports.Sojourn | None] = []

        def measured() -> bool:
            found.append(running.samples().sojourn)
            return found[-1] is not None

        await_that(running, measured)
        assert found[-1] is not None
        assert found[-1].max_s > 999  # the wait in Kafka is part of it
        await_that(running, lambda: size(broker, target) == 4)
        admin = AdminClient({"bootstrap.servers": broker.servers})
        admin.create_partitions([NewPartitions(source, 2)])[source].result(30)
        send(broker.servers, source, b"new", to=1)
        await_that(running, lambda: size(broker, target) == 5)
        assert running.await_commit(30)
    assert sorted({value for _, value in held(broker.servers, target)}) == [b"A", b"B", b"NEW"]


def test_what_cannot_be_read_or_written_is_a_dead_letter_and_secrets_stay_secret(
    spark: SparkSession,
    broker: Broker,
    topics: NewTopics,
    secure: tuple[str, dict[str, str]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, target = topics(), topics(max_message_bytes="1000")
    servers, options = secure
    t = sj.Topology("letters")
    read = sj.sources.kafka(servers, source, read="json", options=options)
    values = t.source("values", read, on_error="dead-letter")
    longer = t.map("longer", lambda value: value * 1000, values)
    out = sj.sinks.kafka(servers, target, options=options)
    t.sink("out", out, longer, on_error="dead-letter")
    send(broker.servers, source, b'"', b"1", b'"text"', b"2")
    check = tmp_path / "checkpoint"
    caplog.set_level(logging.DEBUG)
    with sj.start(
        t,
        spark=spark,
        checkpoint=check,
        settings=SETTINGS,
        max_sojourn="1s",
        journal=tmp_path / "journal.jsonl",
    ) as running:
        await_that(running, lambda: size(broker, target) == 2)
        assert running.await_commit(30)
    assert [value for _, value in held(broker.servers, target)] == [b"1000", b"2000"]
    letters = [
        json.loads(line)
        for path in sorted((check / "sojourn" / "dead-letters").glob("*/*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    told = {letter["operator"]: (letter["value"], letter["error"]) for letter in letters}
    assert told["values"][0].startswith(f"topic '{source}', partition 0, offset 0")
    assert "takes messages of at most 1000 bytes" in told["out"][1]
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"open-sesame" not in path.read_bytes(), path
    assert "open-sesame" not in caplog.text


@pytest.fixture
def expired(broker: Broker, topics: NewTopics) -> str:
    """A topic with three messages, of which only the last is left."""
    source = topics()
    send(broker.servers, source, b"1", b"2", b"3")
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.delete_records([TopicPartition(source, 0, 2)])[TopicPartition(source, 0)].result(30)
    return source


def test_an_offset_that_has_expired_ends_the_topology_with_its_place(
    spark: SparkSession, broker: Broker, topics: NewTopics, expired: str
) -> None:
    t = sj.Topology("expired")
    read = sj.sources.kafka(broker.servers, expired, start={0: 1})
    t.sink("out", sj.sinks.kafka(broker.servers, topics()), t.source("values", read))
    with pytest.raises(TopologyFailed) as told, sj.start(t, spark=spark) as running:
        running.wait()
    assert f"topic '{expired}', partition 0, offset 1" in str(told.value)
    assert "the partition has offsets 2 to 2; 1 messages are missing" in str(told.value)
    assert "Traceback" not in str(told.value)


def test_an_offset_that_has_expired_may_be_skipped(
    spark: SparkSession, broker: Broker, topics: NewTopics, expired: str
) -> None:
    target = topics()
    t = sj.Topology("skipped")
    read = sj.sources.kafka(broker.servers, expired, start={0: 1}, read="json")
    values = t.source("values", read, on_error="skip")
    t.sink("out", sj.sinks.kafka(broker.servers, target), values)
    dropped = 0

    def counted_all() -> bool:
        nonlocal dropped
        dropped += running.samples().vertices["values"].dropped
        return dropped == 1 and size(broker, target) == 1

    with sj.start(t, spark=spark, settings=SETTINGS) as running:
        await_that(running, counted_all)
    assert held(broker.servers, target) == [(0, b"3")]
