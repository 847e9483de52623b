"""Where results go: files that hold each result once, the console, a Python callable.
Described in a topology; driven by the engine in a process of its own, whose commits they are part
of. A sink shows nothing itself: it names the files that a commit is to show, and the driver moves
them into view once the commit is recorded. So a process left over from an earlier start spoils
nothing.

The engine promises: the commits of an epoch come one after the other, and one is published before
the next is cut. After a failure a new process opens the sink under a higher epoch, when the last
commit is published, and values after that commit are written again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sojourn.sinks.columns import Parquet
from sojourn.sinks.files import Jsonl
from sojourn.sinks.sink import Sink, Staged, publish
from sojourn.typed import T

__all__ = ["Sink", "Staged", "call", "console", "jsonl", "parquet", "publish"]

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
    """Files of JSON lines in `directory`; each result stands there exactly once, as soon as it is
    committed. The newest file of a start is replaced by a longer one with every commit, until it
    has `roll_bytes` and the next is begun; readers see whole lines only."""
    return Jsonl(directory, roll_bytes)


def parquet(
    directory: str | Path, *, roll_s: float = PARQUET_ROLL_S, roll_bytes: int = PARQUET_ROLL_BYTES
) -> Sink[Any]:
    """Parquet files in `directory`; each result stands there exactly once. What is committed is
    shown when there are `roll_bytes` of it, after `roll_s` seconds, or when the topology stops.
    Values are mappings of column to value; anything else becomes the column `value`."""
    return Parquet(directory, roll_bytes, roll_s)


def console() -> Sink[Any]:
    """Every value on the driver's standard output at once; after a failure some appear again."""
    return _Console()


def call(function: Callable[[T], object]) -> Sink[T]:
    """Call a function with every value at once, in the sink's process; after a failure it may be
    called again with some."""
    return _Call(function)
