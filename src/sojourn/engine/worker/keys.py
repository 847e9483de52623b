"""From a key to its shard, and to the bytes that it is saved under. Both are the same in every
process and after every restart."""

import pickle
import struct
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from decimal import Decimal
from math import nan
from numbers import Complex, Integral, Number, Real
from typing import Any
from zlib import crc32

from sojourn.engine.worker import values
from sojourn.errors import InputError

_LONG = 255
_PLAIN = frozenset({str, int, bytes, type(None)})


def key_hash(key: Any) -> int:
    """A hash that does not depend on the process. It is equal for keys that compare equal as dict
    keys. Numbers are hashed by value, text by its bytes, and tuples, sets and dataclasses by their
    parts. Other keys are hashed by their pickle, so equal ones must pickle equally."""
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if type(key) is int:  # a shortcut; the general way for numbers gives the same
        return crc32(hash(key).to_bytes(8, "little", signed=True))
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


def key_bytes(key: Any) -> bytes:
    """Bytes that are equal for keys that compare equal as dict keys, and only for those, by the
    rules of `key_hash`. All NaNs count as one key, though a dict tells them apart."""
    kind = type(key)
    if kind is str:
        return b"s" + str.encode(key, "utf-8", "surrogatepass")
    if kind is int:
        size = (key.bit_length() + 8) >> 3
        return b"i" + int.to_bytes(key, size, "little", signed=True)
    if kind is tuple:
        return b"t" + _joined(map(key_bytes, key))
    if kind is bytes:
        return b"".join((b"b", key))
    if kind is float and not key.is_integer() and key == key:  # noqa: PLR0124
        return b"f" + struct.pack("<d", key)
    if key is None:
        return b"n"
    return _other_bytes(key)


def identified(key: Any) -> tuple[bytes, bytes]:
    """A key's bytes, and its pickle unless `key_of` can do without it."""
    try:
        identity = key_bytes(key)
        if type(key) in _PLAIN or _restorable(key):
            return identity, b""
        return identity, values.dumps(key)
    except Exception as error:
        raise InputError(
            f"state: a key must be picklable; got {key!r:.80} of type {type(key).__name__} "
            f"({error}); use a plain value as the key"
        ) from error


def key_of(identity: bytes, pickled: bytes) -> Any:
    """The key that `identified` made these from."""
    return values.loads(pickled) if pickled else _restored(identity)


def _restored(identity: bytes) -> Any:
    rest = identity[1:]
    match identity[:1]:
        case b"s":
            return rest.decode("utf-8", "surrogatepass")
        case b"i":
            return int.from_bytes(rest, "little", signed=True)
        case b"t":
            return tuple(map(_restored, _parts(rest)))
        case b"b":
            return rest
        case b"n":
            return None
        case b"f":
            return struct.unpack("<d", rest)[0]
        case b"e":
            return frozenset(map(_restored, _parts(rest)))
        case b"p":
            return values.loads(rest)
    raise AssertionError(f"no key can be made of {identity!r:.60}")


def _restorable(key: Any) -> bool:
    """Whether the bytes give back the same key, not an equal key of another type."""
    kind = type(key)
    if kind in _PLAIN:
        return True
    if kind is float:
        return not key.is_integer()
    if kind is tuple or kind is frozenset:
        return all(map(_restorable, key))
    return _other_bytes(key)[:1] == b"p"


def _other_bytes(key: Any) -> bytes:
    if isinstance(key, str):
        return b"s" + key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, Number):
        return _number_bytes(key)
    if isinstance(key, tuple):
        return b"t" + _joined(map(key_bytes, key))
    if isinstance(key, frozenset):
        return b"e" + _joined(sorted(map(key_bytes, key)))
    if is_dataclass(key) and not isinstance(key, type):
        kind = type(key)
        parts: list[Any] = [f"{kind.__module__}.{kind.__qualname__}"]
        parts += [getattr(key, field.name) for field in fields(key) if field.compare]
        return b"d" + _joined(map(key_bytes, parts))
    return b"p" + values.dumps(key)


def _number_bytes(key: Any) -> bytes:
    """One form for each value: an int for whole numbers, a float where a float can hold the value,
    else the ratio."""
    if isinstance(key, Integral):
        return key_bytes(int(key))
    if isinstance(key, Complex) and not isinstance(key, Real):
        number = complex(key)
        if number.imag:
            return b"c" + _joined(map(key_bytes, (number.real, number.imag)))
        key = number.real
    if key != key:  # noqa: PLR0124
        return b"f" + struct.pack("<d", nan)
    if key in (float("inf"), float("-inf")):
        return b"f" + struct.pack("<d", float(key))
    if not isinstance(key, Real | Decimal) or not hasattr(key, "as_integer_ratio"):
        return b"p" + values.dumps(key)
    over, under = key.as_integer_ratio()
    if under == 1:
        return key_bytes(over)
    try:
        number = over / under
    except OverflowError:
        number = nan
    if number == number and number.as_integer_ratio() == (over, under):  # noqa: PLR0124
        return b"f" + struct.pack("<d", number)
    return b"r" + _joined(map(key_bytes, (over, under)))


def _joined(parts: Iterable[bytes]) -> bytes:
    """Parts with their lengths, so that different parts never join to the same bytes."""
    joined = bytearray()
    for part in parts:
        size = len(part)
        if size < _LONG:
            joined.append(size)
        else:
            joined += struct.pack("<BQ", _LONG, size)
        joined += part
    return bytes(joined)


def _parts(joined: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(joined):
        size, at = joined[at], at + 1
        if size == _LONG:
            size, at = struct.unpack_from("<Q", joined, at)[0], at + 8
        yield joined[at : at + size]
        at += size
