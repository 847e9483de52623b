"""Adds up what each customer orders, from one Kafka topic to another, each order exactly once.

    python examples/kafka_orders.py [--count 500] [--servers HOST:PORT]

Without --servers it brings up a broker of its own, on loopback, which needs Java. It writes the
orders itself, and reads the totals back as any other program would.
"""

import argparse
import contextlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

import sojourn as sj
from sojourn.testing import Broker

CUSTOMERS = 20
PARTITIONS = 3


class Total(sj.Operator):
    """Adds up the orders of each customer; the state is kept per customer."""

    def process(self, order: dict[str, int]) -> tuple[int, int]:
        customer = order["customer"]
        self.state[customer] = self.state.get(customer, 0) + order["price"]
        return customer, self.state[customer]


def topology(servers: str) -> sj.Topology:
    """Topic orders → total → topic totals."""
    t = sj.Topology("kafka-orders")
    read = sj.sources.kafka(servers, "orders", read="json", start="latest")
    orders = t.source("orders", read, executors=2)
    totals = t.map("total", Total, orders, key=lambda order: order["customer"])
    t.sink("totals", sj.sinks.kafka(servers, "totals", key=lambda total: total[0]), totals)
    return t


def order(servers: str, count: int) -> int:
    """Write that many orders; returns what they cost together."""
    producer, draw, paid = Producer({"bootstrap.servers": servers}), random.Random(9), 0
    for _ in range(count):
        customer, price = draw.randrange(CUSTOMERS), draw.randrange(1, 100)
        paid += price
        value = json.dumps({"customer": customer, "price": price})
        producer.produce("orders", value, str(customer))
    producer.flush()
    return paid


def behind(servers: str) -> Consumer:
    """Another program, which reads what comes into the topic of totals from now on."""
    settings = {"bootstrap.servers": servers, "group.id": "reader"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    places = [TopicPartition("totals", number) for number in range(PARTITIONS)]
    for place in places:
        _, place.offset = consumer.get_watermark_offsets(place, 30)
    consumer.assign(places)
    return consumer


def totals(consumer: Consumer, running: sj.Running) -> Iterator[tuple[int, int]]:
    """What appears in the topic of totals, as soon as it is committed, while the topology runs."""
    while running.error is None:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            customer, total = json.loads(message.value() or b"")
            yield customer, total


def main() -> None:
    """Run until every order is in a total."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=500, help="orders")
    parser.add_argument("--servers", help="a broker that runs, with the topics orders and totals")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers, kept = options.servers, Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if servers is None:
            print("starting a broker …", flush=True)
            broker = stack.enter_context(Broker(kept / "broker"))
            broker.make_topics({"orders": PARTITIONS, "totals": PARTITIONS})
            servers = broker.servers
        print("starting Spark …", flush=True)
        # In earnest this is a directory that lasts: the next start goes on from what it holds.
        checkpoint = kept / "checkpoint"
        running = stack.enter_context(
            sj.start(topology(servers), checkpoint=checkpoint, settings={"commit": 1})
        )
        consumer = behind(servers)
        stack.callback(consumer.close)
        paid = order(servers, options.count)
        found: dict[int, Any] = {}
        number = 0
        for number, (customer, total) in enumerate(totals(consumer, running), 1):
            found[customer] = total
            if number == options.count:
                break
        right = "as was paid" if sum(found.values()) == paid else f"but {paid} was paid"
        print(f"{number} orders of {len(found)} customers, {sum(found.values())} in all, {right}")


if __name__ == "__main__":
    main()
