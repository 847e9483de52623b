"""From a key to its shard, the same in every process and after every restart."""

import pickle
from typing import Any
from zlib import crc32


def key_hash(key: Any) -> int:
    """A hash that does not depend on the process, equal for keys that compare equal as dict keys:
    numbers by value, text by its bytes, tuples by their parts, all else by its pickle."""
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return crc32(key)
    if isinstance(key, bool | int | float | complex):
        return crc32(hash(key).to_bytes(8, "little", signed=True))
    if key is None:
        return 0
    if isinstance(key, tuple):
        combined = 1
        for part in key:
            combined = crc32(key_hash(part).to_bytes(4, "little"), combined)
        return combined
    return crc32(pickle.dumps(key, protocol=5))
