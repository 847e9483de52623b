"""Messages from topic to topic while everything is killed at random; the second half of
benchmarks/kafka.py. Run by itself, it is the driver that is killed, too:

    python benchmarks/kafka_kills.py SERVERS CHECKPOINT
"""

import json
import os
import random
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
from confluent_kafka import Consumer, Producer, TopicPartition

import sojourn as sj
from sojourn.testing import Broker
from sojourn.wiring import Running

KEYS = 50
PER_S = 150
READERS = (3, 2)  # after the one that each driver starts with
SETTLE_S = 20.0
KINDS: dict[str, Callable[[Running], int]] = {
    "source": lambda running: victims.executor(running, "orders"),
    "executor": lambda running: victims.executor(running, "count"),
    "sink": lambda running: victims.executor(running, "out"),
    "worker": lambda running: victims.worker(running, "count"),
    "spark python worker": lambda running: victims.spark_python_worker(running, "count"),
    "driver": lambda _: os.getpid(),
}


class Count(sj.Operator):
    """Counts the messages of each key."""

    def process(self, message: Any) -> Iterator[tuple[str, int]]:
        """One message."""
        key = message.key.decode()
        self.state[key] = self.state.get(key, 0) + 1
        yield key, self.state[key]


def topology(servers: str) -> sj.Topology:
    """orders → count → counts."""
    t = sj.Topology("kills")
    read = sj.sources.kafka(servers, "orders", read="message")
    orders = t.source("orders", read)
    counts = t.operator("count", Count, orders, key=lambda message: message.key, processors=2)
    written = sj.sinks.kafka(servers, "counts", key=lambda pair: pair[0])
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
    except (StopIteration, IndexError, ProcessLookupError):
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
    """A driver process, started again whenever it is gone."""

    def __init__(self, servers: str, checkpoint: str) -> None:
        self.servers, self.checkpoint = servers, checkpoint
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Start one, and wait until it runs."""
        self.starts += 1
        command = [sys.executable, __file__, self.servers, self.checkpoint]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "runs\n":
            sys.exit("a driver did not start")

    def tell(self, word: str) -> bool:
        """Tell it what to do. Returns whether it could."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        if word in ("driver", "stop"):
            code = self.process.wait(180)
            if word == "stop" and code:
                sys.exit("a driver did not stop well")
            return True
        said = self.process.stdout.readline()
        if not said:
            sys.exit(f"a driver has ended, told to: {word}")
        return said == "done\n"


def kills(count: int, away_s: float, seed: int) -> dict[str, Any]:
    """Count messages while everything is killed, and check what has come out."""
    draw, killed = random.Random(seed), dict.fromkeys((*KINDS, "broker"), 0)
    changes = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as checkpoint,
        Broker(Path(folder)) as broker,
    ):
        broker.make_topics({"orders": 3, "counts": 2})
        driver = Driver(broker.servers, checkpoint)
        feed = threading.Thread(target=send, args=(broker.servers, count), daemon=True)
        feed.start()
        feed.join(5)
        print(f"the broker is away for {away_s:.0f} s", file=sys.stderr, flush=True)
        broker.kill()
        time.sleep(away_s)
        broker.start()
        order = [*killed, "readers"]
        while feed.is_alive():
            draw.shuffle(order)
            for kind in order:
                feed.join(draw.uniform(2, 8))
                if not feed.is_alive():
                    break
                print(f"now: {kind}", file=sys.stderr, flush=True)
                if kind == "readers":
                    changes += all(driver.tell(str(number)) for number in READERS)
                    continue
                if kind == "broker":
                    killed[kind] += 1
                    broker.kill()
                    broker.start()
                    continue
                killed[kind] += driver.tell(kind)
                if kind == "driver":
                    driver.start()
        deadline = time.monotonic() + 120
        while len(seen(broker.servers)) < count and time.monotonic() < deadline:
            time.sleep(1)
        driver.tell("stop")
        found = seen(broker.servers)
    last = dict.fromkeys((f"key-{n}" for n in range(KEYS)), 0)
    wrong = 0
    for key, number in found:
        wrong += number != last[key] + 1
        last[key] = number
    missed = [f"{wrong} counts are out of order"] if wrong else []
    if len(found) != count:
        missed.append(f"{len(found)} counts of {count} messages")
    missed += [f"no {kind} was killed" for kind, number in killed.items() if not number]
    if not changes:
        missed.append("readers never changed from one to three to two")
    return {
        "messages": count,
        "away_s": away_s,
        "killed": killed,
        "readers_changed": changes,
        "drivers": driver.starts,
        "missed": missed,
    }


def send(servers: str, count: int) -> None:
    """Have the first topic get messages, each once, at a pace."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    began = time.monotonic()
    for number in range(count):
        producer.produce("orders", b"x", b"key-%d" % (number % KEYS))
        if number % 25 == 0:
            producer.poll(0)
            time.sleep(max(0.0, began + number / PER_S - time.monotonic()))
    while producer.flush(10):
        pass


def seen(servers: str) -> list[tuple[str, int]]:
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
        if message.error() is not None:
            left -= 1
        else:
            key, number = json.loads(message.value() or b"")
            found.append((key, number))
    consumer.close()
    return found


if __name__ == "__main__":
    drive(sys.argv[1], sys.argv[2])
