"""From a key to its shard, the same in every process and after every restart."""

import pickle
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any
from zlib import crc32


def key_hash(key: Any) -> int:
    """A hash that does not depend on the process, equal for keys that compare equal as dict keys:
    numbers by value, text by its bytes, tuples, sets and dataclasses by their parts. All else goes
    by its pickle, so keys of other kinds that are equal must pickle equally."""
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return crc32(key)
    if isinstance(key, Number):
        value = 0 if key != key else hash(key)  # noqa: PLR0124  # NaN hashes by its address
        return crc32(value.to_bytes(8, "little", signed=True))
    if key is None:
        return 0
    if isinstance(key, tuple):
        return _combined(map(key_hash, key))
    if isinstance(key, frozenset):
        return _combined(sorted(map(key_hash, key)))
    if is_dataclass(key):
        return _combined(key_hash(getattr(key, field.name)) for field in fields(key))
    return crc32(pickle.dumps(key, protocol=5))


def _combined(parts: Iterable[int]) -> int:
    combined = 1
    for part in parts:
        combined = crc32(part.to_bytes(4, "little"), combined)
    return combined
