"""A chain between two Kafka topics beside the same chain without Kafka and beside other engines,
and what is left of 50 000 messages when everything is killed.

    python benchmarks/kafka.py [--quick] [--engines …] [--json FILE] [compare] [kills]

    compare  three no-op operators, each in a process of its own, between two topics of a real
             broker on this machine, at 50/s and flat out. On our engine at least once and exactly
             once (a commit every second); without Kafka, from a source to a sink that does nothing;
             in PyFlink 2.2 with its Kafka connector, at least once; in plain PySpark 4.0 as micro-
             batches with its connector. Messages of 100 bytes hold when they were due; end to end
             is from then until another program has read them behind the chain. Flat out, messages
             lie in the topic before the chain starts, and what comes out in seconds that count is
             divided by their number.
    kills    50 000 messages with keys in three partitions are counted by key, from topic to topic,
             exactly once. The broker is away for a minute. Then source, worker, executor, Spark's
             Python worker, driver and broker are killed at random moments, and the processes that
             read change from one to three to two while the topology runs.

Rule: at 50/s our median (at least once) is at most 10 ms above that without Kafka; flat out we
carry at least 0.7 of what the chain carries without Kafka. PyFlink's and PySpark's medians and
rates are told as ratios to ours. After the kills, readers of committed messages see each count once
and the counts of each key in order. Seconds with more than 5 % of the CPU stolen do not count.

PyFlink and PySpark get environments of their own, `.venv-flink-kafka` and `.venv-spark-kafka`, made
on first use. Connectors come from Maven Central, which has none for Flink 2.3 and Spark 4.3 yet, so
versions are those that there are connectors for.
"""

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import curve
import peers
from confluent_kafka import Consumer, Producer, TopicPartition
from engine import PAD, nothing, same
from kafka_kills import kills
from machine import Steal, sojourns, summary

import sojourn as sj
from sojourn.engine.spark.jars import jars
from sojourn.engine.spark.java import find_java
from sojourn.testing import Broker

RATE = 50
ABOVE_MS = 10.0
SHARE = 0.7
FLAT_PER_S = 150_000  # that many lie in the topic for each second that it may take
STARTS_S = 40  # until something comes out, and rates are steady
LASTS = ("-XX:TieredStopAtLevel=4", "-Xmx1g")  # for the broker's Java
CACHE = Path.home() / ".cache" / "sojourn"
FLINK = "org.apache.flink:flink-connector-kafka:5.0.0-2.2"
SPARK = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
WANTED = ("flink-connector", "kafka-clients", "spark-sql-kafka", "spark-token", "commons-pool2")
peers.PEERS |= {"flink-kafka": "apache-flink==2.2.0", "spark-kafka": "pyspark[sql]==4.0.0"}

FLINK_JOB = r"""
import sys
from pyflink.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer, KafkaRecordSerializationSchema, KafkaSink, KafkaSource)

jars, _, servers, source, target, size, millis = sys.argv[1:8]
config = Configuration()
config.set_string("python.execution-mode", "process")
config.set_string("python.fn-execution.bundle.size", size)
config.set_string("python.fn-execution.bundle.time", millis)
config.set_string("python.operator-chaining.enabled", "false")
config.set_string("execution.buffer-timeout.interval", "0ms" if int(millis) < 5 else "2ms")
config.set_string("rest.bind-address", "127.0.0.1")
config.set_string("taskmanager.memory.process.size", "2g")
config.set_string("pipeline.jars", jars)
env = StreamExecutionEnvironment.get_execution_environment(config)
env.set_parallelism(1)
env.enable_checkpointing(1000)
read = (KafkaSource.builder().set_bootstrap_servers(servers).set_topics(source)
        .set_group_id("flink").set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema()).build())
stream = env.from_source(read, WatermarkStrategy.no_watermarks(), "in")
for _ in range(3):
    stream = stream.rebalance().map(lambda v: v, output_type=Types.STRING()).disable_chaining()
form = (KafkaRecordSerializationSchema.builder().set_topic(target)
        .set_value_serialization_schema(SimpleStringSchema()).build())
stream.sink_to(KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(form)
               .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build())
env.execute("chain")
"""
SPARK_JOB = r"""
import sys
from pyspark.sql import SparkSession

jars, folder, servers, source, target = sys.argv[1:6]
spark = (SparkSession.builder.master("local[8]").config("spark.jars", jars.replace(";", ","))
         .config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
         .config("spark.sql.shuffle.partitions", "1").getOrCreate())


def stage(batches):
    yield from batches


rows = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        .option("subscribe", source).option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "200000").load().select("value"))
for _ in range(3):
    rows = rows.repartition(1, "value").mapInArrow(stage, rows.schema)
(rows.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
 .option("topic", target).option("checkpointLocation", folder + "/checkpoint").start()
 .awaitTermination())
"""


class Feed(threading.Thread):
    """Sends messages that hold when they were due, at a rate."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self.topic, self.enough = topic, threading.Event()

    def run(self) -> None:
        draw, due = random.Random(1), time.time()
        while not self.enough.wait(max(0.0, due - time.time())):
            self.producer.produce(self.topic, f"{due:.6f} {PAD}")
            self.producer.poll(0)
            due += draw.expovariate(RATE)
        self.producer.flush(30)


def fill(servers: str, topic: str, count: int) -> None:
    """Have a topic hold messages."""
    producer = Producer({"bootstrap.servers": servers})
    value = f"{time.time():.6f} {PAD}"
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)


def clean_rates(seconds: float, total: Callable[[], int], most: float = math.inf) -> list[float]:
    """How much a count grows in each second of which nobody stole too much, until there are enough
    of these or it has reached the most that it can."""
    rates: list[float] = []
    began = time.time()
    while len(rates) < seconds and time.time() < began + 3 * seconds:
        before, first, start = curve.ticks(), total(), time.time()
        time.sleep(1)
        last, end, now = total(), time.time(), curve.ticks()
        if last >= most:
            break
        if (now[7] - before[7]) / max(1, sum(now) - sum(before)) <= curve.STOLEN:
            rates.append((last - first) / (end - start))
    if not rates:
        sys.exit("no rate was measured: all seconds were stolen, or there was too little to count")
    return rates


def clean_seconds(seconds: float, look: Callable[[], None]) -> Iterator[tuple[float, float]]:
    """Seconds of which nobody stole too much, until there are enough. `look` passes the time."""
    found, began = 0, time.time()
    while found < seconds and time.time() < began + 3 * seconds:
        before, start = curve.ticks(), time.time()
        while time.time() < start + 1:
            look()
        now = curve.ticks()
        if (now[7] - before[7]) / max(1, sum(now) - sum(before)) <= curve.STOLEN:
            found += 1
            yield start, time.time()


def reader(servers: str, topic: str) -> Consumer:
    """A program behind the chain."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "behind",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def at_rate(servers: str, source: str, target: str, seconds: float) -> dict[str, float]:
    """End to end through a chain that runs."""
    feed, consumer = Feed(servers, source), reader(servers, target)
    feed.start()
    ended: list[tuple[float, float]] = []

    def look() -> None:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            due = float((message.value() or b"").split(b" ", 1)[0])
            ended.append((time.time(), time.time() - due))

    warm = time.time() + 60
    while not ended and time.time() < warm:
        look()
    settled = time.time() + peers.WARM_S
    while time.time() < settled:
        look()
    spans = list(clean_seconds(seconds, look))
    feed.enough.set()
    feed.join()
    consumer.close()
    ranked = sorted(took for at, took in ended if any(a <= at < b for a, b in spans))
    if not ranked:
        sys.exit("nothing came through")
    p99 = ranked[int(0.99 * (len(ranked) - 1))]
    return {"p50_ms": statistics.median(ranked) * 1e3, "p99_ms": p99 * 1e3}


def flat_out(servers: str, target: str, seconds: float, most: int) -> dict[str, float]:
    """Messages per second that come out of a chain that runs, of so many at most."""
    consumer = reader(servers, target)

    def out() -> int:
        return int(consumer.get_watermark_offsets(TopicPartition(target, 0), 30)[1])

    warm = time.time() + 60
    while not out() and time.time() < warm:
        time.sleep(0.2)
    time.sleep(5)
    rates = clean_rates(seconds, out, most)
    if len(rates) < seconds / 3 and out() >= most:
        sys.exit(
            f"all {most} messages came out within {len(rates)} seconds that count; raise FLAT_PER_S"
        )
    consumer.close()
    if not any(rates):
        sys.exit("nothing came out flat out")
    return {"per_s": statistics.mean(rates), "seconds": len(rates)}


def topology(servers: str, source: str, target: str, delivery: Any) -> sj.Topology:
    """The chain between topics."""
    t = sj.Topology("chain")
    a = t.operator("a", same, t.source("in", sj.sources.kafka(servers, source)))
    c = t.operator("c", same, t.operator("b", same, a))
    t.sink("out", sj.sinks.kafka(servers, target, write="text", delivery=delivery), c)
    return t


def without_kafka(seconds: float, rate: float | None) -> dict[str, float]:
    """The same chain from a source of its own to a sink that does nothing."""
    t = sj.Topology("chain")
    if rate is None:
        values = sj.sources.iterable(lambda: (PAD for _ in range(10**9)))
    else:
        values = sj.sources.paced(lambda _: PAD, rate=rate)
    a = t.operator("a", same, t.source("in", values))
    t.sink("out", sj.sinks.call(nothing), t.operator("c", same, t.operator("b", same, a)))
    with Steal() as steal, sj.start(t) as running:
        sojourns(running, 5)
        if rate is not None:
            found = summary(sojourns(running, seconds, steal))
            return {"p50_ms": found["median_ms"], "p99_ms": found["p99_ms"]}
        served = 0

        def out() -> int:
            nonlocal served
            served += running.samples().vertices["out"].served
            return served

        rates = clean_rates(seconds, out)
        return {"per_s": statistics.mean(rates), "seconds": len(rates)}


@contextmanager
def ours(servers: str, source: str, target: str, delivery: str) -> Iterator[None]:
    """The chain on our engine."""
    with sj.start(topology(servers, source, target, delivery), settings={"commit": 1}):
        yield


@contextmanager
def other(peer: str, job: str, connector: str, *given: str) -> Iterator[None]:
    """The chain in another engine, in an environment of its own."""
    python, home = peers.python_of(peer), find_java(os.environ, CACHE).home
    found = jars(peer, (connector,), home, CACHE)
    paths = [path.as_uri() for path in found.glob("*.jar") if path.name.startswith(WANTED)]
    environ = {**os.environ, "PYTHONPATH": "", "JAVA_HOME": str(home)}
    environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    environ["_python_worker_execution_mode"] = "process"
    environ["PATH"] = f"{Path(python).parent}:{os.environ['PATH']}"
    environ["PYSPARK_PYTHON"] = python
    with tempfile.TemporaryDirectory() as folder:
        script, told = Path(folder, "job.py"), Path(folder, "told")
        script.write_text(job, encoding="utf-8")
        with (
            told.open("wb") as log,
            subprocess.Popen(
                [python, str(script), ";".join(paths), folder, *given],
                env=environ,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            ) as process,
        ):
            try:
                yield
            finally:
                ended = process.poll() is not None
                if not ended:
                    os.killpg(process.pid, signal.SIGKILL)  # with its Java and Python workers
            if ended:
                sys.exit(f"{peer} failed:\n{told.read_text(errors='replace')[-3000:]}")


def flink(servers: str, source: str, target: str, *bundles: str) -> AbstractContextManager[None]:
    """The chain in PyFlink; `bundles` are most tuples and most milliseconds."""
    return other("flink-kafka", FLINK_JOB, FLINK, servers, source, target, *bundles)


def plain_spark(servers: str, source: str, target: str) -> AbstractContextManager[None]:
    """The chain as micro-batches of plain PySpark."""
    return other("spark-kafka", SPARK_JOB, SPARK, servers, source, target)


ENGINES: dict[str, tuple[Any, ...]] = {
    "at least once": (ours, "at_least_once"),
    "exactly once": (ours, "exactly_once"),
    "PyFlink": (flink, "1", "1"),
    "micro-batches": (plain_spark,),
}


def compare(seconds: float, names: list[str]) -> dict[str, Any]:
    """These engines, at a rate and flat out."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), options=LASTS) as broker:
        servers = broker.servers
        for way in ("rate", "flat"):
            note(f"without Kafka, {way} …")
            rate_per_s = RATE if way == "rate" else None
            found[f"without Kafka, {way}"] = without_kafka(seconds, rate_per_s)
            note(str(found[f"without Kafka, {way}"]))
        broker.make_topics({"full": 1})
        most = round(FLAT_PER_S * (STARTS_S + 1.5 * seconds))
        note(f"filling a topic with {most} messages …")
        fill(servers, "full", most)
        for number, name in enumerate(names):
            engine, *more = ENGINES[name]
            rate, flat = f"rate-{number}", f"flat-{number}"
            broker.make_topics({f"in-{number}": 1, rate: 1, flat: 1})
            note(f"{name}, rate …")
            with engine(servers, f"in-{number}", rate, *more):
                found[f"{name}, rate"] = at_rate(servers, f"in-{number}", rate, seconds)
            note(str(found[f"{name}, rate"]))
            note(f"{name}, flat …")
            large = ("10000", "1000") if engine is flink else more
            with engine(servers, "full", flat, *large):
                found[f"{name}, flat"] = flat_out(servers, flat, seconds, most)
            note(str(found[f"{name}, flat"]))
    above = found["at least once, rate"]["p50_ms"] - found["without Kafka, rate"]["p50_ms"]
    share = found["at least once, flat"]["per_s"] / found["without Kafka, flat"]["per_s"]
    missed = []
    if above > ABOVE_MS:
        missed.append(f"at {RATE}/s the median is {above:.1f} ms above that without Kafka")
    if share < SHARE:
        missed.append(f"flat out it carries {share:.2f} of what it carries without Kafka")
    ratios = {
        name: {
            "p50": found[f"{name}, rate"]["p50_ms"] / found["at least once, rate"]["p50_ms"],
            "per_s": found["at least once, flat"]["per_s"] / found[f"{name}, flat"]["per_s"],
        }
        for name in names
        if ENGINES[name][0] is not ours
    }
    return {**found, "above_ms": above, "share": share, "ahead": ratios, "missed": missed}


def note(text: str) -> None:
    """Say what is going on."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """What was asked for; ends with code 1 where the rule is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="compare, kills; both if none")
    parser.add_argument(
        "--quick", action="store_true", help="8 s each; 20 000 messages, and the broker 10 s away"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to put the figures")
    parser.add_argument("--engines", default=",".join(ENGINES), help="which, beside without Kafka")
    options = parser.parse_args()
    names = options.engines.split(",")
    if "at least once" not in names or not set(names) <= set(ENGINES):
        parser.error(f"engines are {', '.join(ENGINES)}, and the first is needed; got {names}")
    found: dict[str, Any] = {}
    for part in options.parts or ("compare", "kills"):
        if part == "compare":
            found[part] = compare(8.0 if options.quick else 30.0, names)
        elif part == "kills":
            found[part] = kills(
                *((20_000, 10.0) if options.quick else (50_000, 60.0)), options.seed
            )
        else:
            parser.error(f"unknown part {part!r}; known: compare, kills")
        print(json.dumps({part: found[part]}, indent=2), flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    wrong = [told for part in found.values() for told in part["missed"]]
    if wrong:
        sys.exit("missed: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
