"""State on disk: what an executor keeps, saved at the end of every batch under the checkpoint.

Each batch adds one file with the shards that changed and an index that says, for every shard,
in which file it stands. Files are named by batch and epoch (the number of the topology's start):
a batch that was run again has several indexes, and the one with the highest epoch counts, because
no start re-runs a batch that was committed. So a process left over from an earlier start cannot
spoil anything, whatever it still writes."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sojourn.errors import InputError

MAX_FILES = 20


class Index(msgspec.Struct):
    """Where each shard stands (file, offset, length), and feedback tuples not yet handed over."""

    shards: dict[int, tuple[str, int, int]]
    parked: bytes = b""


class StateStore:
    """The saved state of one vertex, as one of its executors sees it."""

    def __init__(self, checkpoint: Path, vertex: str, executor: int, executors: int) -> None:
        self.root = checkpoint / "sojourn" / "state" / vertex
        self.executor, self.executors = executor, executors
        self.own = self.root / str(executor)
        self.index = Index({})

    def load(self, batch: int) -> tuple[dict[int, bytes], list[bytes]]:
        """Shards and parked feedback as they were at the end of `batch` (-1: at the start), also
        if the vertex had another number of executors then."""
        if batch < 0:
            return {}, []
        shards: dict[int, bytes] = {}
        parked: list[bytes] = []
        folders = (
            sorted(self.root.iterdir(), key=lambda p: int(p.name)) if self.root.is_dir() else []
        )
        found = False
        for folder in folders:
            index = self._read_index(folder, batch)
            if index is None:
                continue
            found = True
            if int(folder.name) % self.executors == self.executor and index.parked:
                parked.append(index.parked)
            for shard, (name, offset, length) in index.shards.items():
                if shard % self.executors == self.executor:
                    with (folder / name).open("rb") as file:
                        file.seek(offset)
                        shards[shard] = file.read(length)
        if not found:
            raise InputError(
                f"{self.root}: the checkpoint has no state of batch {batch}, which is committed; "
                "was a part of it deleted? Start with another checkpoint"
            )
        return shards, parked

    def save(self, batch: int, epoch: int, changed: Mapping[int, bytes], parked: bytes) -> None:
        """Make the end of a batch durable; returns when it is on disk."""
        self.own.mkdir(parents=True, exist_ok=True)
        if len({name for name, _, _ in self.index.shards.values()}) >= MAX_FILES:
            changed = {**self._stored(), **changed}
        name = f"{batch}.{epoch}.data"
        places = dict(self.index.shards)
        offset = 0
        for shard, data in changed.items():
            places[shard] = (name, offset, len(data))
            offset += len(data)
        if changed:
            _write(self.own / name, b"".join(changed.values()))
        self.index = Index(places, parked)
        _write(self.own / f"{batch}.{epoch}.index", msgspec.msgpack.encode(self.index))
        self._clean(batch)

    def adopt(self, shards: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """What was loaded must be saved in full by the first batch, as it may come from folders
        of other executors."""
        self.index = Index({})
        return shards

    def _stored(self) -> dict[int, bytes]:
        stored = {}
        for shard, (name, offset, length) in self.index.shards.items():
            with (self.own / name).open("rb") as file:
                file.seek(offset)
                stored[shard] = file.read(length)
        return stored

    def _read_index(self, folder: Path, batch: int) -> Index | None:
        epochs = [int(path.name.split(".")[1]) for path in folder.glob(f"{batch}.*.index")]
        if not epochs:
            return None
        data = (folder / f"{batch}.{max(epochs)}.index").read_bytes()
        return msgspec.msgpack.decode(data, type=Index)

    def _clean(self, batch: int) -> None:
        """Drop what neither this batch nor the one before it, which may be the last committed,
        refers to."""
        kept = set()
        for number in (batch - 1, batch):
            index = self._read_index(self.own, number)
            if index is not None:
                kept |= {name for name, _, _ in index.shards.values()}
        for path in self.own.glob("*.index"):
            if int(path.name.split(".")[0]) < batch - 1:
                path.unlink()
        for path in self.own.glob("*.data"):
            if path.name not in kept and int(path.name.split(".")[0]) < batch:
                path.unlink()


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, and on disk."""
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
