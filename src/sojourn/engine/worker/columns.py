"""Bundles as columns, for operators that ask for them: numpy arrays and Arrow tables in and out.
Neither library is loaded unless an operator wants it."""

import sys
from typing import Any


def as_columns(values: list[Any], kind: str | None) -> Any:
    """A bundle as an operator wants it: a list, a numpy array, or, of mappings from column to
    value, an Arrow table; of other values an Arrow array."""
    if kind == "numpy":
        import numpy as np

        return np.asarray(values)
    if kind == "arrow":
        import pyarrow as pa

        records = all(isinstance(value, dict) for value in values)
        return pa.Table.from_pylist(values) if records else pa.array(values)
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
