"""From Kafka's messages to values, and back. What cannot be read or written raises."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sojourn.errors import InputError

_MOST_S = 10**11  # the year 5138; larger numbers are other units


@dataclass(frozen=True)
class Message:
    """A message that was read, as Kafka holds it. `time_s` is its own time, in seconds as
    `time.time` counts them; None if it has none."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time_s: float | None
    topic: str
    partition: int
    offset: int


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A message to write. Without a key, it gets that of `key=`. Without a key or a partition, any
    partition will do. Without a time it has the one at which it is written."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    time_s: float | None = None


def time_of(message: Any) -> float | None:
    """When a message of the library says that it was made."""
    kind, milliseconds = message.timestamp()
    return milliseconds / 1000 if kind else None


def whole(message: Any) -> Message:
    """A message of the library as ours."""
    return Message(
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        time_of(message),
        message.topic(),
        message.partition(),
        message.offset(),
    )


def _bytes(message: Any) -> bytes:
    value: bytes | None = message.value()
    if value is None:
        raise ValueError("the message has no value; read='message' takes such ones, too")
    return value


def _text(message: Any) -> str:
    return _bytes(message).decode("utf-8")


def _json(message: Any) -> Any:
    return msgspec.json.decode(_bytes(message))


_READERS: dict[str, Callable[[Any], Any]] = {
    "bytes": _bytes,
    "text": _text,
    "json": _json,
    "message": whole,
}


def reader(what: str, read: object) -> Callable[[Any], Any]:
    """From a message of the library to a value, as a user names it."""
    if callable(read):
        return lambda message: read(whole(message))
    if isinstance(read, str) and read in _READERS:
        return _READERS[read]
    raise InputError(
        f"{what}: read must be one of {', '.join(map(repr, _READERS))}, or a function from a "
        f"sojourn.sources.Message to a value; got {read!r:.100}"
    )


def _written_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"write='bytes' takes bytes; got {type(value).__name__}")


def _written_text(value: Any) -> bytes | None:
    return None if value is None else str(value).encode("utf-8")


def _written_json(value: Any) -> bytes | None:
    return msgspec.json.encode(value)


_WRITERS: Mapping[str, Callable[[Any], bytes | None]] = {
    "bytes": _written_bytes,
    "text": _written_text,
    "json": _written_json,
}


def produced(record: Record) -> dict[str, Any]:
    """What a producer of the library is given, beside topic, value and key."""
    more: dict[str, Any] = {}
    if record.headers:
        more["headers"] = [(name, held) for name, held in record.headers]
    if record.partition is not None:
        more["partition"] = record.partition
    if record.time_s is not None:
        more["timestamp"] = round(record.time_s * 1000)
    return more


def writer(what: str, write: object, key: Callable[[Any], Any] | None) -> Callable[[Any], Record]:
    """From a value to a message, as a user names it."""
    if key is not None and not callable(key):
        raise InputError(f"{what}: key must be a function from a value to its key; got {key!r}")
    form: Callable[[Any], Any] | None = write if callable(write) else _WRITERS.get(str(write))
    if form is None:
        raise InputError(
            f"{what}: write must be one of {', '.join(map(repr, _WRITERS))}, or a function from a "
            f"value to bytes or a sojourn.sinks.Record; got {write!r:.100}"
        )

    def record(value: Any, form: Callable[[Any], Any] = form) -> Record:
        made = form(value)
        if made is None or isinstance(made, bytes):
            return Record(made) if key is None else Record(made, _key(key(value)))
        if not isinstance(made, Record):
            raise TypeError(
                f"the function write= must return bytes, None or a Record; got "
                f"{type(made).__name__}"
            )
        _check(made)
        if made.key is None and key is not None:
            return msgspec.structs.replace(made, key=_key(key(value)))
        return made

    return record


def _check(record: Record) -> None:
    """Refuse what Kafka would refuse later, when it is too late to drop it."""
    headers, partition, time_s = record.headers, record.partition, record.time_s
    for name, held in (("value", record.value), ("key", record.key)):
        if held is not None and not isinstance(held, bytes):
            raise TypeError(f"a Record's {name} must be bytes or None; got {held!r:.100}")
    if not isinstance(headers, tuple | list) or not all(map(_is_header, headers)):
        raise TypeError(
            f"a Record's headers must be pairs of a str and bytes or None; got {headers!r:.100}"
        )
    if partition is not None and (
        isinstance(partition, bool) or not isinstance(partition, int) or partition < 0
    ):
        raise TypeError(f"a Record's partition must be a number or None; got {partition!r:.100}")
    if time_s is not None and (
        isinstance(time_s, bool) or not isinstance(time_s, int | float) or not 0 < time_s < _MOST_S
    ):
        raise TypeError(
            f"a Record's time_s must be seconds as time.time counts, or None; got {time_s!r:.100}"
        )


def _is_header(pair: Any) -> bool:
    return (
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and (pair[1] is None or isinstance(pair[1], bytes))
    )


def _key(key: Any) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    return str(key).encode("utf-8")
