"""Bundles as columns, for operators that ask for them: numpy arrays and Arrow tables in and out.
Neither library is loaded unless an operator needs it."""

import sys
from typing import Any


def as_columns(values: list[Any], kind: str | None) -> Any:
    """A bundle as an operator wants it: a list, a numpy array, an Arrow table if the values are
    mappings from column to value, or an Arrow array otherwise."""
    if kind == "numpy":
        import numpy as np

        made = np.asarray(values)
        if made.dtype.kind in "US" and not all(isinstance(value, str | bytes) for value in values):
            raise TypeError("a numpy array cannot hold values of several kinds; leave out columns")
        return made
    if kind == "arrow":
        import pyarrow as pa

        made = pa.array(values)  # for mappings, with the columns that any of them has
        return pa.Table.from_struct_array(made) if pa.types.is_struct(made.type) else made
    return values


def from_columns(found: Any) -> list[Any] | None:
    """The values of an array or a table, as plain Python values; None if it is neither."""
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    if numpy is not None and isinstance(found, numpy.ndarray):
        return list(found.tolist()) if found.ndim < 2 else list(found)
    kinds = (arrow.Table, arrow.RecordBatch, arrow.Array, arrow.ChunkedArray) if arrow else ()
    if isinstance(found, kinds):
        return list(found.to_pylist())
    return None
