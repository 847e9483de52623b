"""Bundles as columns, for operators that ask for them: numpy arrays and Arrow tables in and out.
Neither library is loaded unless an operator wants it."""

import sys
from typing import Any


def as_columns(values: list[Any], kind: str | None) -> Any:
    """A bundle as an operator wants it: a list, a numpy array, or, of mappings from column to
    value, an Arrow table; of other values an Arrow array."""
    if kind == "numpy":
        import numpy as np

        made = np.asarray(values)
        if made.dtype.kind in "US" and not all(isinstance(value, str | bytes) for value in values):
            raise TypeError("values of several kinds have no common numpy array; leave columns out")
        return made
    if kind == "arrow":
        import pyarrow as pa

        made = pa.array(values)  # of mappings, with the columns that any of them has
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
