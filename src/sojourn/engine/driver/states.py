"""Reads state from outside, as of the last commit, even while the topology runs. Reads the files
that the commit's record names; used by programs that look into a checkpoint."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from sojourn import durable
from sojourn.engine.driver.record import Record, last_record, state_root
from sojourn.engine.wire import messages as m
from sojourn.engine.worker import store
from sojourn.errors import InputError
from sojourn.units import parse_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRIES = 5


@overload
def read_state(checkpoint: str | Path, operator: str) -> Iterator[tuple[Any, Any]]: ...
@overload
def read_state(checkpoint: str | Path, operator: str, *, spark: "SparkSession") -> "DataFrame": ...
def read_state(
    checkpoint: str | Path, operator: str, *, spark: "SparkSession | None" = None
) -> "Iterator[tuple[Any, Any]] | DataFrame":
    """The pairs of key and value that an operator had at the last commit, in no order. With
    `spark`, a DataFrame with the columns `key` and `value`. Values are unpickled, so do not read a
    checkpoint that others can write to."""
    path = parse_path(checkpoint, "read_state: the checkpoint")
    _check(path, operator)
    pairs = _pairs(path, operator)
    if spark is None:
        return pairs
    rows = list(pairs)
    if not rows:
        return spark.createDataFrame([], "key string, value string")
    try:
        return spark.createDataFrame(rows, ["key", "value"])
    except Exception as error:
        raise InputError(
            f"read_state: the values of {operator!r} do not fit into columns ({error}); read them "
            "without spark, and make rows from them"
        ) from error


def _check(checkpoint: Path, operator: str) -> None:
    shape = checkpoint / "sojourn" / "topology.json"
    if not shape.is_file():
        raise InputError(f"read_state: {checkpoint} is not a checkpoint of a topology")
    durable.private_directory(checkpoint / "sojourn")
    found = json.loads(shape.read_bytes())
    keyed = [name[8:-1] for name, what in found.items() if what.endswith(" shards")]
    if operator not in keyed:
        known = ", ".join(keyed) or "none"
        raise InputError(f"read_state: no operator {operator!r} has a key; those with one: {known}")


def _pairs(checkpoint: Path, operator: str) -> Iterator[tuple[Any, Any]]:
    for shard in _shards(checkpoint, operator):
        yield from shard.items()


def _shards(checkpoint: Path, operator: str) -> list[dict[Any, Any]]:
    """Every shard's state. A running topology may have merged the files meanwhile; its next record
    then names others."""
    for tries in range(_TRIES):
        record = last_record(checkpoint)
        try:
            return _read(checkpoint, record, operator)
        except InputError:
            if tries + 1 == _TRIES or last_record(checkpoint).number == record.number:
                raise
    raise AssertionError("the last try returns or raises")


def _read(checkpoint: Path, record: Record, operator: str) -> list[dict[Any, Any]]:
    root, parts = state_root(checkpoint), record.of(operator)
    found: list[dict[Any, Any]] = []
    for part in parts:
        saved = part.saved(len(parts))

        def theirs(shard: int, saved: m.SavedFiles = saved) -> bool:
            own = 0 <= shard < store.TABLE  # timers are below, broadcasts at TABLE
            return own and saved.count_for(shard)

        try:
            states = store.read([root / name for name in saved.files], theirs)
        except (AttributeError, ImportError) as error:
            raise InputError(
                f"read_state: {error}; define or import the classes of the values first"
            ) from error
        found += [dict(state) for state in states.values()]
    return found
