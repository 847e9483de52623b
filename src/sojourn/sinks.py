"""Where results go: files published batch by batch, the console, a Python callable.
Described in a topology; driven by the engine in a process of its own.

The engine calls `begin`, `write` …, `end` for every batch, and starts batch n only after n-1 is
committed. After a failure it begins the same batch again, under a higher epoch."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec

from sojourn.durable import sync


class Sink:
    """Base of all sinks. `part` numbers the executors of the sink, should there be several; `run`
    names the checkpoint, and so all starts that go on with one another's work."""

    run = ""

    def open(self, part: int) -> None:
        """Called once before the first batch."""

    def begin(self, batch: int, epoch: int) -> None:
        """A batch starts; all before it are committed, and what was begun of it is void."""

    def write(self, value: Any) -> str | None:  # noqa: ARG002
        """Take one value; a returned line is printed by the driver."""
        raise TypeError(f"{type(self).__name__} must define write(self, value)")

    def end(self) -> None:
        """The batch is complete, though not committed: make sure that nothing can get lost."""

    def close(self, committed: int) -> None:
        """The topology stops; batches up to `committed` are committed."""


class _Files(Sink):
    """One file per batch, written aside and moved into view when its batch is committed, so that
    readers see each result once: `part-0-batch-000012-3fb2a1.jsonl`. The last part differs from
    one checkpoint to another, so that a new run overwrites nothing of an old one."""

    suffix = ""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).resolve()
        self.part = 0
        self.pending: Path | None = None

    def open(self, part: int) -> None:
        self.part = part
        self.staging.mkdir(parents=True, exist_ok=True)

    @property
    def staging(self) -> Path:
        return self.directory / "_staging" / f"part-{self.part}{self.run and '-'}{self.run}"

    def begin(self, batch: int, epoch: int) -> None:
        self.publish(batch - 1)
        self.pending = self.staging / f"{batch}.{epoch}{self.suffix}"

    def end(self) -> None:
        """Make the attempt durable. One without results leaves an empty file, which voids what
        earlier attempts at the batch have written."""
        assert self.pending is not None
        self.pending.touch()
        sync(self.pending)
        sync(self.staging)

    def publish(self, committed: int) -> None:
        """Move what is committed into view: of each batch the attempt with the highest epoch,
        which is the one that was committed. Later batches were cut short and go."""
        best: dict[int, tuple[int, Path]] = {}
        for path in self.staging.iterdir():
            number, epoch = map(int, path.name.removesuffix(self.suffix).split("."))
            if number <= committed and best.get(number, (-1, path))[0] < epoch:
                best[number] = (epoch, path)
        for number, (_, path) in sorted(best.items()):
            if path.stat().st_size:
                run = f"-{self.run}" if self.run else ""
                name = f"part-{self.part}-batch-{number:06d}{run}{self.suffix}"
                path.replace(self.directory / name)
        sync(self.directory)
        for path in self.staging.iterdir():
            path.unlink()

    def close(self, committed: int) -> None:
        self.publish(committed)
        shutil.rmtree(self.staging)
        if not any(self.staging.parent.iterdir()):
            self.staging.parent.rmdir()


class _Jsonl(_Files):
    suffix = ".jsonl"

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self.file: IO[bytes] | None = None

    def write(self, value: Any) -> None:
        if self.file is None:
            assert self.pending is not None
            self.file = self.pending.open("wb")
        self.file.write(msgspec.json.encode(value) + b"\n")

    def end(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None
        super().end()


class _Parquet(_Files):
    suffix = ".parquet"
    rows_per_group = 50_000

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self.rows: list[dict[str, Any]] = []
        self.writer: Any = None

    def write(self, value: Any) -> None:
        self.rows.append(value if isinstance(value, dict) else {"value": value})
        if len(self.rows) >= self.rows_per_group:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.rows:
            return
        columns = dict.fromkeys(column for row in self.rows for column in row)
        if self.writer is None:
            rows = [{column: row.get(column) for column in columns} for row in self.rows]
            table = pa.Table.from_pylist(rows)
            self.writer = pq.ParquetWriter(self.pending, table.schema)
        else:
            known = self.writer.schema.names
            if unknown := [column for column in columns if column not in known]:
                raise ValueError(f"column {unknown[0]!r} came too late; the file has {known}")
            table = pa.Table.from_pylist(self.rows, schema=self.writer.schema)
        self.writer.write_table(table)
        self.rows = []

    def end(self) -> None:
        self._flush()
        if self.writer is not None:
            self.writer.close()
            self.writer = None
        super().end()


class _Console(Sink):
    def write(self, value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, default=str)


class _Call(Sink):
    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function

    def write(self, value: Any) -> None:
        self.function(value)


def jsonl(directory: str | Path) -> Sink:
    """One file of JSON lines per batch in `directory`; each result stands there exactly once."""
    return _Jsonl(directory)


def parquet(directory: str | Path) -> Sink:
    """One Parquet file per batch in `directory`; each result stands there exactly once. Values
    are mappings of column to value; anything else becomes the column `value`."""
    return _Parquet(directory)


def console() -> Sink:
    """Every value on the driver's standard output at once; after a failure some appear again."""
    return _Console()


def call(function: Callable[[Any], object]) -> Sink:
    """Call a function with every value at once, in the sink's process; after a failure it may be
    called again with some."""
    return _Call(function)
