"""Messages from topic to topic while everything is killed at random; the second half of
benchmarks/kafka.py. Run by itself, it is the driver that is killed, too:

    python benchmarks/kafka_kills.py SERVERS CHECKPOINT
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import victims
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import sojourn as sj
from sojourn.testing import Broker
from sojourn.wiring import Running

KEYS = 50
PER_S = 150
READERS = (3, 2)  # after the one that each driver starts with
SETTLE_S = 20.0
BACK_S = 30.0  # after which results come again once the broker is back
ANSWER_S = 180.0  # that a driver has to answer
KINDS: dict[str, Callable[[Running], int]] = {
    "source": lambda running: victims.executor(running, "orders"),
    "executor": lambda running: victims.executor(running, "count"),
    "sink": lambda running: victims.executor(running, "out"),
    "worker": lambda running: victims.worker(running, "count"),
    "spark python worker": lambda running: victims.spark_python_worker(running, "count"),
    "driver": lambda _: os.getpid(),
}


class Lost(Exception):
    """A driver that does not answer, or has ended by itself."""


class Count(sj.Operator):
    """Counts the messages of each key, which are numbered by key."""

    def process(self, message: Any) -> Iterator[tuple[str, int, int]]:
        """One message."""
        key = message.key.decode()
        self.state[key] = self.state.get(key, 0) + 1
        yield key, self.state[key], int(message.value)


def topology(servers: str) -> sj.Topology:
    """orders → count → counts."""
    t = sj.Topology("kills")
    read = sj.sources.kafka(servers, "orders", read="message")
    orders = t.source("orders", read)
    counts = t.operator("count", Count, orders, key=lambda message: message.key, processors=2)
    written = sj.sinks.kafka(servers, "counts", key=lambda counted: counted[0])
    t.sink("out", written, counts, executors=2)
    return t


def drive(servers: str, checkpoint: str) -> None:
    """A driver: kills what it is told to on its standard input, itself included, and answers
    whether it has. A number is how many processes are to read."""
    settings = {"commit": 1}
    with sj.start(topology(servers), checkpoint=checkpoint, settings=settings) as running:
        print("runs", flush=True)
        for line in sys.stdin:
            word = line.strip()
            if word == "stop":
                break
            done = read_by(running, int(word)) if word.isdecimal() else kill(running, word)
            print("done" if done else "not done", flush=True)


def kill(running: Running, kind: str) -> bool:
    """Kill one process of a kind, if there is one now."""
    try:
        os.kill(KINDS[kind](running), signal.SIGKILL)
    except (StopIteration, IndexError, ProcessLookupError, RuntimeError):  # as they change just now
        print(f"no {kind} to kill now", file=sys.stderr)
        return False
    return True


def read_by(running: Running, readers: int) -> bool:
    """Have so many processes read. Returns whether they do, and others did before."""
    if running.allocation()["orders"] == readers:
        return False
    running.resize({"orders": readers})
    deadline = time.monotonic() + SETTLE_S
    while running.allocation()["orders"] != readers:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


class Driver:
    """A driver process, started again whenever it was killed."""

    def __init__(self, servers: str, checkpoint: str) -> None:
        self.command = [sys.executable, __file__, servers, checkpoint]
        self.starts = 0

    def start(self) -> None:
        """Start one, and wait until it runs."""
        self.starts += 1
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._said() != "runs":
            raise Lost("a driver did not start")

    def tell(self, word: str) -> bool:
        """Tell it what to do. Returns whether it could."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Lost(f"a driver had ended before it was told: {word}") from None
        if word not in ("driver", "stop"):
            return self._said() == "done"
        try:
            code = self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            raise Lost(f"a driver did not end, told: {word}") from None
        if word == "stop" and code:
            raise Lost(f"a driver ended with code {code}, told to stop")
        return True

    def _said(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], ANSWER_S)[0]:
            raise Lost(f"a driver said nothing for {ANSWER_S:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Lost(f"a driver ended with code {self.process.wait()}")
        return line.strip()

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        if self.starts:
            self.process.kill()
            self.process.wait()


class Feed(threading.Thread):
    """Sends messages, each once, at a pace."""

    def __init__(self, servers: str, count: int) -> None:
        super().__init__(daemon=True)
        self.servers, self.count = servers, count
        self.errors: list[str] = []

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        began = time.monotonic()
        for number in range(self.count):
            key, value = b"key-%d" % (number % KEYS), b"%d" % (number // KEYS + 1)
            producer.produce("orders", value, key, on_delivery=self._delivered)
            if number % 25 == 0:
                producer.poll(0)
                time.sleep(max(0.0, began + number / PER_S - time.monotonic()))
        while producer.flush(10):
            pass

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.errors.append(str(error))


def kills(count: int, away_s: float, seed: int) -> dict[str, Any]:
    """Count messages while everything is killed, and check what has come out."""
    done: dict[str, Any] = {"messages": count, "away_s": away_s}
    killed = done["killed"] = dict.fromkeys((*KINDS, "broker"), 0)
    missed: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as checkpoint,
        Broker(Path(folder)) as broker,
    ):
        broker.make_topics({"orders": 3, "counts": 2})
        feed = Feed(broker.servers, count)
        try:
            with Driver(broker.servers, checkpoint) as driver:
                driver.start()
                feed.start()
                feed.join(5)
                done["back_s"] = interrupted(broker, away_s)
                done["readers_changed"] = churn(broker, driver, feed, killed, random.Random(seed))
                deadline = time.monotonic() + 120
                while len(seen(broker.servers)) < count and time.monotonic() < deadline:
                    time.sleep(1)
                driver.tell("stop")
                done["drivers"] = driver.starts
        except (Lost, KafkaException, RuntimeError) as error:  # the last two: of the broker
            missed.append(f"{type(error).__name__}: {error}")
        sent, found = held(broker.servers, "orders", 3), seen(broker.servers)
    if feed.errors or sent != count:
        missed.append(f"undecided: {sent} of {count} messages were sent, {feed.errors[:3]}")
    if done.get("back_s", 0.0) > BACK_S:
        missed.append(f"results came {done['back_s']:.0f} s after the broker was back")
    missed += judged(found, count)
    missed += [f"no {kind} was killed" for kind, number in killed.items() if not number]
    if not done.get("readers_changed"):
        missed.append("readers never changed from one to three to two")
    return {**done, "missed": missed}


def interrupted(broker: Broker, away_s: float) -> float:
    """Have the broker be away. Returns how long after that results come again."""
    print(f"the broker is away for {away_s:.0f} s", file=sys.stderr, flush=True)
    broker.kill()
    time.sleep(away_s)
    broker.start()
    back, before = time.monotonic(), len(seen(broker.servers))
    while len(seen(broker.servers)) <= before and time.monotonic() < back + ANSWER_S:
        time.sleep(0.2)
    return time.monotonic() - back


def churn(
    broker: Broker, driver: Driver, feed: Feed, killed: dict[str, int], draw: random.Random
) -> int:
    """Kill everything at random moments for as long as messages are sent. Returns how often readers
    changed from one to three to two."""
    order, changes = [*killed, "readers"], 0
    while feed.is_alive():
        draw.shuffle(order)
        for kind in order:
            feed.join(draw.uniform(2, 8))
            if not feed.is_alive():
                break
            print(f"now: {kind}", file=sys.stderr, flush=True)
            if kind == "readers":
                driver.tell("1")  # unless it is one that reads
                changes += all(driver.tell(str(number)) for number in READERS)
            elif kind == "broker":
                killed[kind] += 1
                broker.kill()
                broker.start()
            else:
                killed[kind] += driver.tell(kind)
                if kind == "driver":
                    driver.start()
    return changes


def judged(found: list[tuple[str, int, int]], count: int) -> list[str]:
    """What is wrong with what was counted: each message of a key counts once, in its order."""
    last = dict.fromkeys((f"key-{n}" for n in range(KEYS)), 0)
    strange = swapped = 0
    for key, counted, number in found:
        strange += counted != last[key] + 1
        swapped += counted != number
        last[key] = counted
    missed = [f"{strange} counts are out of order"] if strange else []
    if swapped:
        missed.append(f"{swapped} messages were lost, doubled or out of order")
    few = [key for n, key in enumerate(last) if last[key] != len(range(n, count, KEYS))]
    if few:
        missed.append(f"{len(found)} counts of {count} messages; of {', '.join(few[:5])} too few")
    return missed


def held(servers: str, topic: str, partitions: int) -> int:
    """How many messages a topic has, with Kafka's own marks of transactions."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "behind"})
    ends = (
        consumer.get_watermark_offsets(TopicPartition(topic, number), 30)[1]
        for number in range(partitions)
    )
    found = sum(ends)
    consumer.close()
    return found


def seen(servers: str) -> list[tuple[str, int, int]]:
    """What readers of committed messages see in the second topic, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "behind",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("counts", number, 0) for number in range(2)])
    found, left = [], 2
    while left:
        message = consumer.poll(30)
        if message is None:
            break
        error = message.error()
        if error is None:
            key, counted, number = json.loads(message.value() or b"")
            found.append((key, counted, number))
        elif error.code() == KafkaError._PARTITION_EOF:
            left -= 1
    consumer.close()
    return found


if __name__ == "__main__":
    drive(sys.argv[1], sys.argv[2])
