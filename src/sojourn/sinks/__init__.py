"""Where results go: files that hold each result once, the console, a Python callable.
A topology describes a sink. The engine drives it in a process of its own, as part of its commits.
There, a sink shows nothing: it names what a commit should show, and the driver shows that once the
commit is recorded. So a process left over from an earlier start does no harm.

The engine guarantees: the commits of an epoch come one after the other, and each is published
before the next is cut. After a failure, once the last commit is published, a new process opens the
sink under a higher epoch. Values after that commit are written again."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from sojourn.kafka.client import checked, checked_topic
from sojourn.kafka.message import Record, writer
from sojourn.sinks.columns import Parquet
from sojourn.sinks.files import Jsonl
from sojourn.sinks.kafka import Delivery, Outgoing
from sojourn.sinks.sink import Sink, Staged, publish
from sojourn.typed import T

__all__ = ["Record", "Sink", "Staged", "call", "console", "jsonl", "kafka", "parquet", "publish"]

JSONL_ROLL_BYTES = 32 << 20
PARQUET_ROLL_BYTES = 64 << 20
PARQUET_ROLL_S = 60.0


class _Console(Sink[Any]):
    def write(self, value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, default=str)


class _Call(Sink[T]):
    def __init__(self, function: Callable[[T], object]) -> None:
        self.function = function

    def write(self, value: T) -> None:
        self.function(value)


def jsonl(directory: str | Path, *, roll_bytes: int = JSONL_ROLL_BYTES) -> Sink[Any]:
    """Files of JSON lines in `directory`. They hold each result exactly once, as soon as it is
    committed. Every commit replaces the newest file of a start by a longer one, until it has
    `roll_bytes` and the next begins. Readers see only whole lines."""
    return Jsonl(directory, roll_bytes)


def parquet(
    directory: str | Path, *, roll_s: float = PARQUET_ROLL_S, roll_bytes: int = PARQUET_ROLL_BYTES
) -> Sink[Any]:
    """Parquet files in `directory`. They hold each result exactly once. Committed results appear
    when `roll_bytes` of them have gathered, after `roll_s` seconds, or when the topology stops.
    Values are mappings of column to value; anything else becomes the column `value`."""
    return Parquet(directory, roll_bytes, roll_s)


def console() -> Sink[Any]:
    """Print every value on the driver's standard output at once. After a failure some appear
    again."""
    return _Console()


def kafka(
    servers: str,
    topic: str,
    *,
    write: Literal["bytes", "text", "json"] | Callable[[Any], bytes | Record | None] = "json",
    key: Callable[[Any], str | bytes | None] | None = None,
    delivery: Delivery = "exactly_once",
    timeout: float | str = "2min",
    options: Mapping[str, Any] | None = None,
) -> Sink[Any]:
    """Messages of a Kafka topic. `write` makes them of values: as "json", "text" or "bytes", or by
    a function that returns bytes or a `Record`. With `delivery="exactly_once"`, readers of
    committed messages see each result once, as soon as it is committed. With "at_least_once",
    results are sent at once, and after a failure some are sent again. `timeout` says how long
    Kafka may be away, and `options` are settings of librdkafka, such as those of TLS and SASL."""
    what = f"kafka sink {topic!r}"
    checked_topic(topic, what)
    cluster = checked(what, servers, options, timeout)
    return Outgoing(cluster, topic, writer(what, write, key), key, delivery)


def call(function: Callable[[T], object]) -> Sink[T]:
    """Call a function with every value as it comes, in the sink's process. After a failure it may
    be called again with some."""
    return _Call(function)
