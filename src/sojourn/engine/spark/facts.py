"""What a look at a Spark session tells of the facts that the engine stands on, and of a cluster's
machines. `tests/spark/test_contract.py` checks the facts one by one. Used by `sojourn doctor`."""

import platform
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pyspark.sql import SparkSession

from sojourn.engine.spark.session import AT_START, PER_QUERY

_CLOCK = "org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream"
_LOOK_S = 0.1


@dataclass(frozen=True)
class Seen:
    """A task slot of a cluster: its machine, the Python and the Sojourn there, and by how much that
    machine's clock differs from ours at least."""

    host: str
    python: str
    sojourn: str
    off_s: float


def lacking(spark: SparkSession) -> list[str]:
    """The settings and classes that the engine uses and that this Spark does not have. It would
    accept an unknown setting and do nothing."""
    jvm: Any = spark._jvm
    known = jvm.org.apache.spark.internal.config.ConfigEntry
    unknown = [key for key in {**AT_START, **PER_QUERY} if known.findEntry(key) is None]
    try:
        jvm.java.lang.Class.forName(_CLOCK)
    except Exception:  # noqa: BLE001  # Java's own, in whatever way it comes
        unknown.append(_CLOCK)
    return unknown


def slots(spark: SparkSession, wait_s: float) -> list[Seen]:
    """The task slots of a cluster, as soon as there are some. None if no machine came in time."""
    context = spark.sparkContext
    java = context._jsc.sc()
    deadline = time.monotonic() + wait_s
    while len(java.statusTracker().getExecutorInfos()) < 2:  # the driver is one of them
        if time.monotonic() > deadline:
            return []
        time.sleep(_LOOK_S)
    count = context.defaultParallelism
    rows = context.parallelize(range(count), count)
    begun_s = time.time()
    found = rows.mapPartitions(_look).collect()
    ended_s = time.time()
    return [
        Seen(host, python, sojourn, max(begun_s - time_s, time_s - ended_s, 0.0))
        for host, python, sojourn, time_s in found
    ]


def version() -> str:
    """Of the Sojourn here."""
    return str(import_module("sojourn").__version__)


def _look(_: Iterable[int]) -> Iterator[tuple[str, str, str, float]]:
    yield socket.gethostname(), platform.python_version(), version(), time.time()
