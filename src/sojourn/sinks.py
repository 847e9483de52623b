"""Where results go: files that hold each result once, the console, a Python callable.
Described in a topology; driven by the engine in a process of its own, whose commits they are part
of. A sink shows nothing itself: it names the files that a commit is to show, and the driver moves
them into view once the commit is recorded. So a process left over from an earlier start spoils
nothing.

The engine promises: the commits of an epoch come one after the other, and one is published before
the next is cut. After a failure a new process opens the sink under a higher epoch, when the last
commit is published, and values after that commit are written again."""

import contextlib
import io
import itertools
import json
import math
import os
import re
import reprlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from sojourn.durable import sync
from sojourn.errors import InputError

JSONL_ROLL_BYTES = 32 << 20
PARQUET_ROLL_BYTES = 64 << 20
PARQUET_ROLL_S = 60.0
_BUFFER_BYTES = 256 << 10


@dataclass(frozen=True)
class Staged:
    """What a sink has made durable for a commit: files to be moved into view once it is recorded
    (from, to), and files kept aside for a later one."""

    publish: tuple[tuple[str, str], ...] = ()
    held: tuple[str, ...] = ()


def publish(staged: Iterable[tuple[str, str]]) -> None:
    """Move the files of a recorded commit into view. To do it again does no harm: a staged file
    that is no longer there was moved before."""
    folders = set()
    for source, target in staged:
        try:
            os.replace(source, target)
        except FileNotFoundError:
            if not os.path.exists(target):
                raise InputError(
                    f"{target}: cannot be published, as {source} is not there; the directory of a "
                    "sink must be one that all machines see, the driver's included, and what lies "
                    "in it must stay while the checkpoint is in use"
                ) from None
        folders |= {os.path.dirname(source), os.path.dirname(target)}
    for folder in folders:
        if os.path.isdir(folder):
            sync(Path(folder))


class Sink:
    """Base of all sinks; `write` is all that one needs. `run` names the checkpoint, and so all
    starts that go on with one another's work."""

    run = ""

    def open(self, part: int, epoch: int, held: Sequence[str] = ()) -> None:
        """Called once before the first value. `part` numbers the executors of the sink, should
        there be several; `epoch` numbers the starts; `held` is what the last commit held."""

    def write(self, value: Any) -> str | None:  # noqa: ARG002
        """Take one value, or raise and leave no trace of it; a returned line is printed by the
        driver."""
        raise TypeError(f"{type(self).__name__} must define write(self, value)")

    def cut(self, last: bool = False) -> Callable[[], Staged]:  # noqa: ARG002
        """A commit's cut: all written so far belongs to it, all written from now on to the next.
        Returns at once; the function it returns makes that durable, and is called in another
        thread while writing goes on. `last`: the topology stops, so hold nothing back."""
        return Staged

    def close(self) -> None:
        """The topology stops, and no function that `cut` returned is running."""


class _Files(Sink):
    """Files written aside, in a folder of the sink's own, and moved into view when committed:
    `part-0-000007-000012-3fb2a1.jsonl` is of part 0, epoch 7, number 12. The last piece differs
    from one checkpoint to another. Names sort in the order in which files were begun."""

    suffix = ""

    def __init__(self, directory: str | Path, roll_bytes: int) -> None:
        if isinstance(roll_bytes, bool) or not isinstance(roll_bytes, int) or roll_bytes < 1:
            raise InputError(
                f"the sink in {directory}: roll_bytes must be a whole number above zero; "
                f"got {roll_bytes!r}"
            )
        self.directory = Path(directory).resolve()
        self.roll_bytes = roll_bytes
        self.part = self.epoch = self.sequence = 0
        self.staged = Staged()

    def open(self, part: int, epoch: int, held: Sequence[str] = ()) -> None:
        self.part, self.epoch = part, epoch
        for path in held:
            if not path.endswith(self.suffix) or not os.path.exists(path):
                raise InputError(
                    f"the sink in {self.directory}: cannot go on, as the checkpoint counts on "
                    f"{path}, which is not there or not of its kind; restore it, or start with a "
                    "new checkpoint"
                )
        for folder, mode in ((self.directory, 0o777), (self.staging, 0o700)):
            for made in (folder.parent, folder):
                if not made.is_dir():
                    made.mkdir(mode, parents=True, exist_ok=True)
                    sync(made.parent)
        self._marker.touch()
        self._clear([*held, str(self._marker)])
        self.numbers = itertools.count()

    @property
    def staging(self) -> Path:
        return self.directory / "_staging" / f"part-{self.part}{self._run}"

    @property
    def _run(self) -> str:
        return f"-{self.run}" if self.run else ""

    @property
    def _marker(self) -> Path:
        """Stands in the folder while the sink is open and no newer one has been opened. A sink that
        finds its own gone removes nothing any more."""
        return self.staging / f"{self.epoch:06d}-open"

    def _aside(self) -> Path:
        """A name in the staging folder that was not used before: were a staged file replaced by
        that of a later commit, to publish the earlier one again would show the later."""
        return self.staging / f"{self.epoch:06d}-{next(self.numbers):06d}{self.suffix}"

    def _next_name(self) -> Path:
        """Where the next file is shown."""
        while True:
            number = f"{self.epoch:06d}-{self.sequence:06d}"
            path = self.directory / f"part-{self.part}-{number}{self._run}{self.suffix}"
            self.sequence += 1
            if not path.exists():
                return path

    def _clear(self, kept: Iterable[str]) -> None:
        """Remove what this epoch and lower ones have left aside."""
        keep = {Path(path).resolve() for path in kept}
        for path in self.staging.iterdir():
            epoch = path.name.partition("-")[0]
            if epoch.isdigit() and int(epoch) <= self.epoch and path not in keep:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Leave nothing but what a commit may count on."""
        if self._marker.exists():
            self._clear([*self._counted_on(), *(source for source, _ in self.staged.publish)])
            for folder in (self.staging, self.staging.parent):
                with contextlib.suppress(OSError):  # others have files there
                    folder.rmdir()

    def _counted_on(self) -> Iterable[str]:
        return ()


class _Jsonl(_Files):
    """One growing file aside. A commit shows a copy of what it has, in the place of the copy
    before it; the file itself at last, when it is long enough and the next one is begun. As to
    copy it over and over takes more the more often it is done, that too is bounded."""

    suffix = ".jsonl"
    commits_per_file = 256

    def __init__(self, directory: str | Path, roll_bytes: int) -> None:
        super().__init__(directory, roll_bytes)
        self.buffer = bytearray()
        self.path: Path | None = None
        self.target = self.directory
        self.size = self.cut_size = self.commits = 0

    def write(self, value: Any) -> None:
        line = msgspec.json.encode(value) + b"\n"
        if len(self.buffer) >= _BUFFER_BYTES:
            self._drain()
        self.buffer += line

    def _drain(self) -> None:
        if self.path is None:
            path, self.target = self._aside(), self._next_name()
            path.touch(exist_ok=False)
            self.path = path
            self.size = self.cut_size = self.commits = 0
        with io.FileIO(self.path, "r+b") as file:
            file.seek(self.size)
            while self.buffer:
                written = file.write(self.buffer)
                del self.buffer[:written]
                self.size += written

    def cut(self, last: bool = False) -> Callable[[], Staged]:
        if self.buffer:
            self._drain()
        if self.path is None or self.size == self.cut_size:
            return Staged
        path, target, size = self.path, self.target, self.size
        self.cut_size = size
        self.commits += 1
        whole = last or size >= self.roll_bytes or self.commits >= self.commits_per_file
        if whole:
            self.path = None

        def stage() -> Staged:
            source = path
            if not whole:
                source = self._aside()
                _copy(path, source, size)
            sync(source)
            sync(self.staging)
            self.staged = Staged(((str(source), str(target)),))
            return self.staged

        return stage


def _copy(source: Path, target: Path, size: int) -> None:
    """The first `size` bytes of a file that may be growing."""
    with io.FileIO(source) as old, io.FileIO(target, "xb") as new:
        left = size
        with contextlib.suppress(OSError):  # not every file system can; a real fault shows below
            while left and (done := os.copy_file_range(old.fileno(), new.fileno(), left)):
                left -= done
        while left:
            data = old.read(min(left, 1 << 20))
            if not data:
                raise OSError(f"{source} is {left} bytes shorter than what was written to it")
            left -= len(data)
            while data:
                data = data[new.write(data) :]


class _Parquet(_Files):
    """Each commit makes a piece of its rows, which is held; pieces that are large or old enough
    are merged into one file, which is shown. Columns keep their types for as long as the sink is
    open, so that pieces can be merged; those of earlier starts may differ."""

    suffix = ".parquet"
    rows_per_group = 50_000

    def __init__(
        self,
        directory: str | Path,
        roll_bytes: int,
        roll_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(directory, roll_bytes)
        if isinstance(roll_s, bool) or not (
            isinstance(roll_s, int | float) and 0 < roll_s < math.inf
        ):
            raise InputError(
                f"the sink in {directory}: roll_s must be a number of seconds above zero; "
                f"got {roll_s!r}"
            )
        self.roll_s, self.clock = roll_s, clock
        self.rows: list[dict[str, Any]] = []
        self.type: Any = None
        self.known = _Known()
        self.fresh: list[Path] = []
        self.pieces: list[Path] = []
        self.merged: list[Path] = []
        self.since: float | None = None

    def open(self, part: int, epoch: int, held: Sequence[str] = ()) -> None:
        super().open(part, epoch, held)
        self.pieces = [Path(path) for path in held]
        if held:
            self.since = -math.inf  # how old they are is not known

    def write(self, value: Any) -> None:
        row = dict(value) if isinstance(value, dict) else {"value": value}
        if not self.known.fits(row):
            self._admit(row)
        if len(self.rows) >= self.rows_per_group:
            self._flush()
        self.rows.append(row)

    def _admit(self, row: dict[str, Any]) -> None:
        """Have Arrow say whether a row can be written, and which types hold it and all before."""
        import pyarrow as pa

        try:
            if not row or not all(isinstance(column, str) for column in row):
                raise TypeError("a row needs at least one column, and names that are text")
            nested = {c: item for c, item in row.items() if isinstance(item, dict | list | tuple)}
            if nested and not _reads_as(nested, pa.array([nested]).to_pylist()[0]):
                raise TypeError("the items of a list are of several types")
            own = pa.array([row]).type
            wider = own if self.type is None else _joined(self.type, own, "")
            pa.array([row], wider)
            if wider != self.type:
                _check_type(wider)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
            raise ValueError(
                f"Parquet cannot hold {reprlib.repr(row)}: {error}; give each column values of one "
                "type: a number, text, bytes, a time, or lists and mappings of these"
            ) from error
        if wider != self.type:
            try:
                pa.array(self.rows, wider)
            except (pa.ArrowException, ArithmeticError):
                self._flush()
            self.type = wider
        self.known.learn(row)

    def _flush(self) -> None:
        """Put the rows so far into a piece of their own, so that they take no more memory."""
        self.fresh.append(self._piece(self.rows, self.type))
        self.rows = []

    def _piece(self, rows: list[dict[str, Any]], row_type: Any) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._aside()
        pq.write_table(pa.Table.from_struct_array(pa.array(rows, row_type)), path)
        return path

    def cut(self, last: bool = False) -> Callable[[], Staged]:
        rows, self.rows = self.rows, []
        fresh, self.fresh = self.fresh, []
        row_type, now = self.type, self.clock()
        if self.since is None and (rows or fresh):
            self.since = now
        due = last or (self.since is not None and now - self.since >= self.roll_s)

        def stage() -> Staged:
            if self._marker.exists():
                for path in self.merged:  # their commit is published by now
                    path.unlink(missing_ok=True)
            self.merged = []
            if rows:
                fresh.append(self._piece(rows, row_type))
            for path in fresh:
                sync(path)
            self.pieces = [*self.pieces, *fresh]
            shown: tuple[tuple[str, str], ...] = ()
            if due or sum(path.stat().st_size for path in self.pieces) >= self.roll_bytes:
                shown = self._merge()
            sync(self.staging)
            self.staged = Staged(shown, tuple(map(str, self.pieces)))
            return self.staged

        return stage

    def _merge(self) -> tuple[tuple[str, str], ...]:
        """Make as few files of the pieces as their types allow."""
        import pyarrow.parquet as pq

        runs: list[tuple[Any, list[Path]]] = []
        for path in self.pieces:
            schema = pq.read_schema(path)
            both = _unified(runs[-1][0], schema) if runs else None
            if both is None:
                runs.append((schema, [path]))
            else:
                runs[-1] = (both, [*runs[-1][1], path])
        shown = []
        for schema, paths in runs:
            source = paths[0]
            if len(paths) > 1:
                source = self._aside()
                _merged(source, schema, paths, self.rows_per_group)
                sync(source)
            shown.append((str(source), str(self._next_name())))
        self.merged, self.pieces, self.since = self.pieces, [], None
        return tuple(shown)

    def _counted_on(self) -> Iterable[str]:
        """The pieces; also those that were merged, unless it is plain that this was committed."""
        shown = all(os.path.exists(target) for _, target in self.staged.publish)
        return map(str, self.pieces if shown else [*self.pieces, *self.merged])


def _merged(target: Path, schema: Any, pieces: list[Path], rows_per_group: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(target, schema) as writer:
        tables = [schema.empty_table()]
        for number, path in enumerate(pieces, 1):
            with pq.ParquetFile(path) as file:
                tables.append(file.read())
            if number == len(pieces) or sum(map(len, tables)) >= rows_per_group:
                writer.write_table(pa.concat_tables(tables, promote_options="default"))
                del tables[1:]


def _unified(one: Any, other: Any) -> Any:
    """The schema of a file that holds the rows of both, or None."""
    import pyarrow as pa

    try:
        return pa.unify_schemas([one, other])
    except pa.ArrowException:
        return None


def _joined(one: Any, other: Any, column: str) -> Any:
    """The type that holds what either does, unchanged."""
    import pyarrow as pa

    is_a = pa.types
    if one.equals(other) or is_a.is_null(other):
        return one
    if is_a.is_null(one):
        return other
    if is_a.is_list(one) and is_a.is_list(other):
        return pa.list_(_joined(one.value_type, other.value_type, f"{column}[]"))
    if is_a.is_struct(one) and is_a.is_struct(other):
        types = {field.name: field.type for field in one}
        for field in other:
            name = f"{column}.{field.name}" if column else field.name
            types[field.name] = _joined(types.get(field.name, pa.null()), field.type, name)
        return pa.struct(list(types.items()))
    if is_a.is_timestamp(one) and is_a.is_timestamp(other):
        if one.unit == other.unit and one.tz and other.tz:
            return one  # the same instants, in the zone that came first
    elif all(is_a.is_integer(found) for found in (one, other)):
        return pa.int64()
    elif all(is_a.is_integer(found) or is_a.is_floating(found) for found in (one, other)):
        return pa.float64()
    elif all(is_a.is_integer(found) or is_a.is_decimal(found) for found in (one, other)):
        schemas = [pa.schema([(column, found)]) for found in (one, other)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    raise TypeError(f"column {column!r} has {one} so far, and {other} does not go with it")


def _reads_as(value: Any, read: Any) -> bool:
    """Whether Arrow made of a value what it was. It is generous with lists of several types."""
    if isinstance(value, dict):
        return all(_reads_as(item, read[column]) for column, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_reads_as, value, read))
    kind = type(value)
    told = (kind in _PLAIN or kind is Decimal) and not (kind is float and math.isnan(value))
    return bool(not told or read == value)


def _check_type(row_type: Any) -> None:
    """Raise if Parquet has no such type, though Arrow has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.ParquetWriter(io.BytesIO(), pa.schema(list(row_type))).close()


_EXACT = 1 << 53  # whole numbers up to this one fit into any column that holds whole numbers
_PLAIN = {type(None), bool, int, float, str, bytes, date, datetime, list, tuple, dict}
_SURROGATES = re.compile("[\ud800-\udfff]")


class _Known:
    """The kinds of plain values that a column, an item of a list or a whole row is known to hold.
    What fits need not be tried with Arrow, which takes twenty times as long."""

    def __init__(self) -> None:
        self.kinds: set[object] = set()
        self.inner: dict[str | None, _Known] = {}

    def fits(self, value: Any) -> bool:
        """Whether a value can be written; False: it must be tried."""
        kind = type(value)
        if kind is datetime and value.tzinfo is not None:
            return value.tzinfo is UTC and UTC in self.kinds
        if kind not in self.kinds:
            return False
        if kind is int:
            return bool(-_EXACT <= value <= _EXACT)
        if kind is str:
            return bool(value.isascii() or not _SURROGATES.search(value))
        if kind is dict:
            for column, item in value.items():
                known = self.inner.get(column)
                if known is None or not known.fits(item):
                    return False
            return bool(value)
        if kind is list or kind is tuple:
            return all(map(self.inner[None].fits, value))
        return True

    def learn(self, value: Any) -> None:
        """A value has been tried and can be written."""
        kind = type(value)
        if kind is datetime and value.tzinfo is not None:
            self.kinds.add(value.tzinfo if value.tzinfo is UTC else None)
        elif kind in _PLAIN:
            self.kinds.add(kind)
        if kind is dict:
            for column, item in value.items():
                self.inner.setdefault(column, _Known()).learn(item)
        elif kind is list or kind is tuple:
            known = self.inner.setdefault(None, _Known())
            for item in value:
                known.learn(item)


class _Console(Sink):
    def write(self, value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, default=str)


class _Call(Sink):
    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function

    def write(self, value: Any) -> None:
        self.function(value)


def jsonl(directory: str | Path, *, roll_bytes: int = JSONL_ROLL_BYTES) -> Sink:
    """Files of JSON lines in `directory`; each result stands there exactly once, as soon as it is
    committed. The newest file of a start is replaced by a longer one with every commit, until it
    has `roll_bytes` and the next is begun; readers see whole lines only."""
    return _Jsonl(directory, roll_bytes)


def parquet(
    directory: str | Path, *, roll_s: float = PARQUET_ROLL_S, roll_bytes: int = PARQUET_ROLL_BYTES
) -> Sink:
    """Parquet files in `directory`; each result stands there exactly once. What is committed is
    shown when there are `roll_bytes` of it, after `roll_s` seconds, or when the topology stops.
    Values are mappings of column to value; anything else becomes the column `value`."""
    return _Parquet(directory, roll_bytes, roll_s)


def console() -> Sink:
    """Every value on the driver's standard output at once; after a failure some appear again."""
    return _Console()


def call(function: Callable[[Any], object]) -> Sink:
    """Call a function with every value at once, in the sink's process; after a failure it may be
    called again with some."""
    return _Call(function)
