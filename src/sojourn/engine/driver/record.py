"""The record of a commit: which files count. Written by the driver once every executor has saved
its part; recovery reads the newest one and nothing else.

A record is one file, which is there whole or not at all. Only the driver writes records. It holds
the checkpoint's lock while it does, so no other start can come in between."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from sojourn import durable
from sojourn.engine.wire import messages as m
from sojourn.errors import InputError

_PUBLISHED = "published"
_KEPT = 2  # the newest record, and the one before it for people to look at


class Record(msgspec.Struct):
    """A commit: its number, the start that made it, each executor's part, and for how long the
    topology had run. Number 0 is the beginning, before any. `splits` has the pickled positions of
    sources' splits, by vertex; they stay when a split is read no more."""

    number: int = 0
    epoch: int = 0
    parts: list[m.Part] = []
    ran_s: float = 0.0
    splits: dict[str, dict[str, bytes]] = {}

    @property
    def files(self) -> set[str]:
        """All files below the state's folder that count."""
        logs = {part.log for part in self.parts if part.log}
        return logs | {name for part in self.parts for name, _ in part.state}

    def welcome(self, root: Path, vertex: str, executor: int, executors: int) -> m.Welcome:
        """What concerns one of the `executors` that a vertex has now."""
        parts = self.of(vertex)
        anew = len(parts) != executors
        wanted = [part for part in parts if anew or part.executor == executor]
        return m.Welcome(
            commit=self.number,
            state=[part.saved(len(parts)) for part in wanted if part.state],
            sizes=[] if anew else [size for part in wanted for _, size in part.state],
            anew=anew,
            logs=[str(root / part.log) for part in self.parts if vertex in part.log_to],
            position=next((part.position for part in wanted), b""),
            held=[name for part in wanted for name in part.held if not anew or executor == 0],
            table=[name for part in parts if part.executor == 0 for name, _ in part.state],
        )

    def tables(self, executors: Mapping[str, int]) -> dict[str, list[int]]:
        """The executor of each shard, of the vertices whose shards were divided while the topology
        ran, and that have as many executors now."""
        found: dict[str, list[int]] = {}
        for vertex, count in executors.items():
            owned = {part.executor: part.shards for part in self.of(vertex)}
            if len(owned) == count and all(shards is not None for shards in owned.values()):
                by_shard = {s: e for e, shards in owned.items() for s in shards or ()}
                found[vertex] = [by_shard[shard] for shard in range(len(by_shard))]
        return found

    def read_on(self, parts: Iterable[m.Part]) -> dict[str, dict[str, bytes]]:
        """The positions of splits after these parts of the next commit, which say how far the
        splits have moved on. They are taken out of the parts."""
        found = {vertex: dict(positions) for vertex, positions in self.splits.items()}
        for part in parts:
            if part.splits:
                found.setdefault(part.vertex, {}).update(part.splits)
                part.splits = {}
        return found

    def of(self, vertex: str) -> list[m.Part]:
        """The parts of a vertex's executors, in order."""
        found = [part for part in self.parts if part.vertex == vertex]
        return sorted(found, key=lambda part: part.executor)


def state_root(checkpoint: Path) -> Path:
    """Where executors keep what they save."""
    return checkpoint / "sojourn" / "state"


def rooms(checkpoint: Path) -> Path:
    """Where each sink has a directory of its own: what is staged for commits in folders, and what
    the sink keeps beside them."""
    return checkpoint / "sojourn" / "sinks"


def last_record(checkpoint: Path) -> Record:
    """The newest record. If it cannot be read, that is an error: an older one does not replace
    it."""
    numbers = _numbers(checkpoint)
    if not numbers:
        if (checkpoint / "spark" / "commits").is_dir():
            raise InputError(
                f"checkpoint {checkpoint}: was made by an older version, before Sojourn had its "
                "own commits, and cannot be used; start with another"
            )
        return Record()
    path = _folder(checkpoint) / str(max(numbers))
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{path}: the record of the last commit cannot be read ({error}); "
            "restore the checkpoint from a copy, or start with another"
        ) from error


def write_record(checkpoint: Path, record: Record) -> None:
    """Make a commit durable. From here on it counts."""
    folder = durable.private_directory(_folder(checkpoint))
    durable.write(folder / str(record.number), msgspec.msgpack.encode(record))
    for number in sorted(_numbers(checkpoint))[:-_KEPT]:
        (folder / str(number)).unlink(missing_ok=True)


def last_published(checkpoint: Path) -> int:
    """The last commit after which all was held, if its results are in view; else 0."""
    path = _folder(checkpoint) / _PUBLISHED
    return int(path.read_text(encoding="ascii")) if path.exists() else 0


def write_published(checkpoint: Path, number: int) -> None:
    """Note that all results up to a commit are in view, so that a later start need not look for
    them."""
    durable.write(_folder(checkpoint) / _PUBLISHED, str(number).encode("ascii"))


def drop(checkpoint: Path, names: Iterable[str]) -> None:
    """Remove files that no longer count."""
    for name in names:
        (state_root(checkpoint) / name).unlink(missing_ok=True)


def sweep(checkpoint: Path, record: Record) -> None:
    """Before a new start, and after the last commit is published, remove what earlier starts have
    left and no commit needs."""
    for path in rooms(checkpoint).glob("*/*/*"):
        path.unlink(missing_ok=True)
    root = state_root(checkpoint)
    kept = record.files
    for path in root.glob("*/*/*"):
        if str(path.relative_to(root)) not in kept:
            path.unlink(missing_ok=True)


def _folder(checkpoint: Path) -> Path:
    return checkpoint / "sojourn" / "commits"


def _numbers(checkpoint: Path) -> list[int]:
    folder = _folder(checkpoint)
    if not folder.is_dir():
        return []
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
