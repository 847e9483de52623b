"""The chain between two topics in other engines, for benchmarks/kafka.py: PyFlink with its Kafka
connector, and plain PySpark as micro-batches with its own. They get environments of their own, made
on first use. Connectors come from Maven Central, which has none for Flink 2.3 and Spark 4.3 yet, so
versions are the newest that there are connectors for."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import peers

from sojourn.engine.spark.jars import jars
from sojourn.engine.spark.java import find_java

CACHE = Path.home() / ".cache" / "sojourn"
CONNECTORS = {
    "flink-kafka": "org.apache.flink:flink-connector-kafka:5.0.0-2.2",
    "spark-kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
}
WANTED = ("flink-connector", "kafka-clients", "spark-sql-kafka", "spark-token", "commons-pool2")
peers.PEERS |= {
    "flink-kafka": "apache-flink==2.2.0",
    "spark-kafka": "pyspark[sql]==4.2.0 pandas<3",
}
Gone = Callable[[], str | None]
"""Why a chain has ended, if it has."""

FLINK_JOB = r"""
import sys
from pyflink.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer, KafkaRecordSerializationSchema, KafkaSink, KafkaSource)

jars, folder, servers, source, target, size, millis = sys.argv[1:8]
config = Configuration()
config.set_string("python.execution-mode", "process")
config.set_string("python.fn-execution.bundle.size", size)
config.set_string("python.fn-execution.bundle.time", millis)
config.set_string("python.operator-chaining.enabled", "false")
config.set_string("execution.buffer-timeout.interval", "0ms" if int(millis) < 5 else "2ms")
config.set_string("rest.bind-address", "127.0.0.1")
config.set_string("taskmanager.memory.process.size", "2g")
config.set_string("pipeline.jars", jars)
config.set_string("execution.checkpointing.storage", "filesystem")
config.set_string("execution.checkpointing.dir", "file://" + folder + "/checkpoints")
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
               .set_property("linger.ms", "1")
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


def ready(peer: str) -> tuple[str, Path, Path]:
    """A peer's Python, a Java for it, and a folder with its connector, all made on first use."""
    python, home = peers.python_of(peer), find_java(os.environ, CACHE).home
    return python, home, jars(peer, (CONNECTORS[peer],), home, CACHE)


@contextmanager
def chain(peer: str, job: str, *given: str) -> Iterator[Gone]:
    """The chain in another engine, in an environment of its own, whose files end with it."""
    python, home, connector = ready(peer)
    paths = [path.as_uri() for path in connector.glob("*.jar") if path.name.startswith(WANTED)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environ = {
            **os.environ,
            "PYTHONPATH": "",
            "JAVA_HOME": str(home),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}",
            "TMPDIR": folder,
            "SPARK_LOCAL_DIRS": folder,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "_python_worker_execution_mode": "process",
            "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": python,
        }
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

            def gone() -> str | None:
                if process.poll() is None:
                    return None
                return f"{peer} has ended:\n{told.read_text(errors='replace')[-3000:]}"

            try:
                yield gone
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with its Java and Python workers


def flink(servers: str, source: str, target: str, *bundles: str) -> AbstractContextManager[Gone]:
    """The chain in PyFlink; `bundles` are most tuples and most milliseconds."""
    return chain("flink-kafka", FLINK_JOB, servers, source, target, *bundles)


def micro_batches(servers: str, source: str, target: str) -> AbstractContextManager[Gone]:
    """The chain as micro-batches of plain PySpark."""
    return chain("spark-kafka", SPARK_JOB, servers, source, target)
