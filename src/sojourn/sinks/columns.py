"""The sink that writes Parquet: a piece with every commit, merged into larger files."""

import io
import math
import os
import re
import reprlib
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from sojourn.durable import sync
from sojourn.errors import InputError
from sojourn.sinks.files import Files
from sojourn.sinks.sink import Staged


class Parquet(Files):
    """Each commit makes a piece of its rows and holds it. Pieces that are large or old enough are
    merged into one file, which is shown. Columns keep their types while the sink is open, so that
    pieces can be merged. Pieces of earlier starts may have other types."""

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
            self.since = -math.inf  # their age is not known

    def write(self, value: Any) -> None:
        row = dict(value) if isinstance(value, dict) else {"value": value}
        if not self.known.fits(row):
            self._admit(row)
        if len(self.rows) >= self.rows_per_group:
            self._flush()
        self.rows.append(row)

    def _admit(self, row: dict[str, Any]) -> None:
        """Have Arrow say whether a row can be written, and find the types that hold it and all rows
        before it."""
        import pyarrow as pa

        try:
            if not row or not all(isinstance(column, str) for column in row):
                raise TypeError("a row needs at least one column, and column names must be text")
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
        """Write the rows so far to a piece of their own, to free their memory."""
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
        """Merge the pieces into as few files as their types allow."""
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
        """The pieces, and those that were merged unless the merged files are already in view."""
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
    """A type that holds the values of both, unchanged."""
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
    raise TypeError(f"column {column!r} has {one} so far, which does not go with {other}")


def _reads_as(value: Any, read: Any) -> bool:
    """Whether Arrow reads a value back unchanged. It may convert lists of several types."""
    if isinstance(value, dict):
        return all(_reads_as(item, read.get(column)) for column, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_reads_as, value, read))
    kind = type(value)
    told = (kind in _PLAIN or kind is Decimal) and not (kind is float and math.isnan(value))
    return bool(not told or read == value)


def _check_type(row_type: Any) -> None:
    """Raise if Parquet lacks a type that Arrow has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.ParquetWriter(io.BytesIO(), pa.schema(list(row_type))).close()


_EXACT = 1 << 53  # whole numbers up to this one fit into any column that holds whole numbers
_PLAIN = {type(None), bool, int, float, str, bytes, date, datetime, list, tuple, dict}
_SURROGATES = re.compile("[\ud800-\udfff]")


class _Known:
    """The kinds of plain values that a column, an item of a list or a whole row is known to hold.
    A value that fits need not be tried with Arrow, which takes twenty times as long."""

    def __init__(self) -> None:
        self.kinds: set[object] = set()
        self.inner: dict[str | None, _Known] = {}

    def fits(self, value: Any) -> bool:
        """Whether a value surely can be written; if False, it must be tried."""
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
        """Note that a value was tried and can be written."""
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
