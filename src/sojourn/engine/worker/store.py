"""State on disk: files of changes. Each commit adds one, `merge` makes one from several, and `read`
restores the state from all of them, oldest first.

A file holds blocks of changes, shard by shard; then an index that says where each shard's blocks
are; then a trailer of fixed size that says where the index is. The trailer is written last, so a
file that was cut short lacks it. Every part has a checksum."""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Self, TypeVar
from zlib import crc32

import msgspec

from sojourn import durable
from sojourn.engine.wire.messages import Change
from sojourn.engine.worker import values
from sojourn.engine.worker.keys import key_of
from sojourn.engine.worker.state import ANEW, State
from sojourn.errors import InputError
from sojourn.topology import MAX_SHARDS

TABLE = MAX_SHARDS  # the number under which broadcasts are saved beside the shards
_MAGIC = b"sojourn1"
TRAILER = struct.Struct("<QI8s")  # where the index begins, its checksum, magic
_HEAD = struct.Struct("<QI")  # a block's length and checksum
BLOCK = 1 << 18  # bytes
_FIRST_BLOCK, _MOST_PER_BLOCK = 64, 4096  # changes
_FEW_FILES = 6
_MANY_FILES = 16

_T = TypeVar("_T")
_Place = tuple[int, int, int]  # offset, length, number of changes
_encoder = msgspec.msgpack.Encoder()
_changes = msgspec.msgpack.Decoder(list[Change])
_index = msgspec.msgpack.Decoder(dict[int, _Place])


def write(path: Path, shards: Mapping[int, list[Change]]) -> int:
    """Make a file of changes, which is on disk when this returns. Returns its size in bytes."""
    return _write(path, shards.items())


def read(paths: Sequence[Path], shards: Callable[[int], bool]) -> dict[int, State]:
    """The state of the shards that `shards` accepts, from files given oldest first."""
    found: dict[int, dict[Any, Any]] = {}
    for path in paths:
        with File(path) as file:
            for shard in filter(shards, file.index):
                data = found.setdefault(shard, {})
                for block in file.blocks(shard):
                    _apply(block, data)
    return {shard: State(data) for shard, data in found.items()}


def newest(paths: Sequence[Path], shard: int) -> list[Change]:
    """The newest change of each key of a shard, as it was written."""
    with ExitStack() as stack:
        return _newest([stack.enter_context(File(path)) for path in paths], shard, True)


def merge(paths: Sequence[Path], out: Path, drop_deleted: bool) -> int:
    """Make one file from several that follow one another, oldest first. It holds the newest change
    of each key. Deletions may be dropped where there is no older file. Returns the new file's size
    in bytes."""
    with ExitStack() as stack:
        files = [stack.enter_context(File(path)) for path in paths]
        shards = sorted(set().union(*(file.index for file in files)))
        return _write(out, ((shard, _newest(files, shard, drop_deleted)) for shard in shards))


def to_merge(sizes: Sequence[int]) -> int:
    """How many of the newest files to merge into one; 0 for none. `sizes` are oldest first.

    A file is merged once those after it are together as large, so its content is written again only
    when the file doubles. A merge needs a few files to be worthwhile. If there are many files
    nevertheless, the few newest are merged, which are the smallest."""
    count = newer = 0
    for number, size in enumerate(reversed(sizes), 1):
        if size <= newer:
            count = number
        newer += size
    if count >= _FEW_FILES:
        return count
    return _FEW_FILES if len(sizes) >= _MANY_FILES else 0


def _apply(block: list[Change], data: dict[Any, Any]) -> None:
    loads = values.loads
    for identity, pickled, value in block:
        if not identity:
            data.clear()
            continue
        key = key_of(identity, pickled)
        if value is None:
            data.pop(key, None)
        else:
            data[key] = loads(value)


def _newest(files: list["File"], shard: int, drop_deleted: bool) -> list[Change]:
    newest: dict[bytes, Change] = {}
    for block in chain.from_iterable(file.blocks(shard) for file in files):
        if block[0] == ANEW:
            newest.clear()
        newest.update(zip(map(itemgetter(0), block), block, strict=True))
    if drop_deleted:
        return [change for change in newest.values() if change[2] is not None]
    return list(newest.values())


def _write(path: Path, shards: Iterable[tuple[int, list[Change]]]) -> int:
    # The name is new, and nobody reads the file before this returns, so no temporary file is made.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=BLOCK) as file:
            index: dict[int, _Place] = {}
            offset = 0
            for shard, changes in shards:
                length = 0
                for data in _encoded(changes, path, shard):
                    file.write(_HEAD.pack(len(data), crc32(data)))
                    file.write(data)
                    length += _HEAD.size + len(data)
                if length:
                    index[shard] = offset, length, len(changes)
                    offset += length
            data = _encoder.encode(index)
            file.write(data)
            file.write(TRAILER.pack(offset, crc32(data), _MAGIC))
        durable.sync(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    durable.sync(path.parent)
    return offset + len(data) + TRAILER.size


def _encoded(changes: list[Change], path: Path, shard: int) -> Iterator[bytes]:
    """Blocks of similar size. They are small, because encoding one keeps other threads waiting."""
    at, step = 0, _FIRST_BLOCK
    while at < len(changes):
        some = changes[at : at + step]
        try:
            data = _encoder.encode(some)
        except msgspec.EncodeError as error:
            largest = max(len(part or b"") for part in chain.from_iterable(some))
            raise InputError(
                f"{path}: a key and its value must each take less than 4 GiB; got {largest} bytes "
                f"in shard {shard}; keep less under one key"
            ) from error
        if len(data) > BLOCK and len(some) > 1:
            step = max(1, len(some) * BLOCK // (2 * len(data)))
            continue
        yield data
        at += len(some)
        if len(data) < BLOCK // 4:
            step = min(2 * step, _MOST_PER_BLOCK)


class File:
    """A file of changes, open for reading, and where in it each shard is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = path.open("rb")
        except FileNotFoundError as error:
            raise InputError(
                f"{path}: the checkpoint lacks this file of state; was a part of it deleted? "
                "Start with another checkpoint"
            ) from error
        try:
            self.index = self._read_index()
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def blocks(self, shard: int) -> Iterator[list[Change]]:
        """The changes of a shard, a block at a time."""
        offset, left, count = self.index.get(shard, (0, 0, 0))
        self.file.seek(offset)
        while left:
            size, checksum = _HEAD.unpack(self._exactly(_HEAD.size))
            if _HEAD.size + size > left:
                raise self._refused(f"a block of shard {shard} is too long")
            block = self._decoded(self._exactly(size), checksum, _changes)
            left -= _HEAD.size + size
            count -= len(block)
            yield block
        if count:
            raise self._refused(f"shard {shard} has the wrong number of changes")

    def _read_index(self) -> dict[int, _Place]:
        end = self.file.seek(0, os.SEEK_END) - TRAILER.size
        if end < 0:
            raise self._refused("it is too short")
        self.file.seek(end)
        offset, checksum, magic = TRAILER.unpack(self._exactly(TRAILER.size))
        if magic != _MAGIC or offset > end:
            raise self._refused("it does not end like a file of state")
        self.file.seek(offset)
        return self._decoded(self._exactly(end - offset), checksum, _index)

    def _exactly(self, size: int) -> bytes:
        data = self.file.read(size)
        if len(data) < size:
            raise self._refused("it ends too early")
        return data

    def _decoded(self, data: bytes, checksum: int, decoder: msgspec.msgpack.Decoder[_T]) -> _T:
        if crc32(data) != checksum:
            raise self._refused("a checksum is wrong")
        try:
            return decoder.decode(data)
        except msgspec.DecodeError as error:
            raise self._refused(str(error)) from error

    def _refused(self, why: str) -> InputError:
        return InputError(
            f"{self.path}: is not a complete file of state: {why}; was it cut short, or is it "
            "another program's? Start with another checkpoint"
        )
