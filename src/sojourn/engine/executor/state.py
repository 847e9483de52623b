"""State on disk: what an executor keeps, saved at the end of every batch under the checkpoint.

Each batch adds one file with the shards that changed and an index that says, for every shard,
in which file it stands. Files are named by batch and epoch (the number of the topology's start):
a batch that was run again has several indexes, and the one with the highest epoch counts, because
no start re-runs a batch that was committed. So a process left over from an earlier start cannot
spoil anything, whatever it still writes."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from sojourn import durable
from sojourn.errors import InputError

MAX_FILES = 20


class Index(msgspec.Struct):
    """Where each shard stands (file, offset, length), feedback tuples not yet handed over, and how
    many executors the vertex had."""

    shards: dict[int, tuple[str, int, int]]
    parked: bytes
    executors: int


class StateStore:
    """The saved state of one vertex, as one of its executors sees it."""

    def __init__(self, checkpoint: Path, vertex: str, executor: int, executors: int) -> None:
        self.root = checkpoint / "sojourn" / "state" / vertex
        self.executor, self.executors = executor, executors
        self.own = self.root / str(executor)
        self.index = Index({}, b"", executors)

    def load(self, batch: int) -> tuple[dict[int, bytes], list[bytes]]:
        """Shards and parked feedback as they were at the end of `batch` (-1: at the start), also
        if the vertex had another number of executors then."""
        if batch < 0:
            return {}, []
        indexes = self._committed(batch)
        shards: dict[int, bytes] = {}
        parked: list[bytes] = []
        for folder, index in indexes.items():
            if int(folder.name) % self.executors == self.executor and index.parked:
                parked.append(index.parked)
            for shard, (name, offset, length) in index.shards.items():
                if shard % self.executors == self.executor:
                    with (folder / name).open("rb") as file:
                        file.seek(offset)
                        shards[shard] = file.read(length)
        return shards, parked

    def _committed(self, batch: int) -> dict[Path, Index]:
        """The indexes of a committed batch, by folder: those of the last start that ran it."""
        found = [
            (int(path.name.split(".")[1]), path) for path in self.root.glob(f"*/{batch}.*.index")
        ]
        epoch = max((number for number, _ in found), default=-1)
        indexes = {
            path.parent: msgspec.msgpack.decode(path.read_bytes(), type=Index)
            for number, path in found
            if number == epoch
        }
        if not indexes or len(indexes) != next(iter(indexes.values())).executors:
            raise InputError(
                f"{self.root}: the checkpoint lacks state of batch {batch}, which is committed; "
                "was a part of it deleted? Start with another checkpoint"
            )
        return indexes

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
            durable.write(self.own / name, b"".join(changed.values()))
        self.index = Index(places, parked, self.executors)
        durable.write(self.own / f"{batch}.{epoch}.index", msgspec.msgpack.encode(self.index))
        self._clean(batch, epoch)

    def _stored(self) -> dict[int, bytes]:
        stored = {}
        for shard, (name, offset, length) in self.index.shards.items():
            with (self.own / name).open("rb") as file:
                file.seek(offset)
                stored[shard] = file.read(length)
        return stored

    def _clean(self, batch: int, epoch: int) -> None:
        """Drop what this start, or one before it, wrote and what neither this batch nor the one
        before it, which may be the last committed, refers to."""
        kept = {name for name, _, _ in self.index.shards.values()}
        for path in self.own.glob(f"{batch - 1}.*.index"):
            index = msgspec.msgpack.decode(path.read_bytes(), type=Index)
            kept |= {name for name, _, _ in index.shards.values()}
        for path in self.own.iterdir():
            number, start = map(int, path.name.split(".")[:2])
            old = number < batch - 1 if path.suffix == ".index" else number < batch
            if old and start <= epoch and path.name not in kept:
                path.unlink()
