"""What users' operators may return, and what follows from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sojourn.operators import Emits, Output

Reader = Callable[[str, Any, Any], Sequence[Any]]
"""From the operator's name, what it returned and the value it got, to the values it emits."""


def _many(name: str, returned: Any, value: Any) -> Sequence[Any]:  # noqa: ARG001
    if type(returned) is tuple or type(returned) is list:  # what most return
        return returned
    if returned is None:
        return ()
    if isinstance(returned, Output):
        return (returned,)
    record = isinstance(returned, tuple) and hasattr(returned, "_fields")
    if record or isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
        raise TypeError(
            f"operator {name!r} returned {type(returned).__name__} {returned!r:.60}; to emit it, "
            "return [value] or use t.map(); for none, return None"
        )
    return list(returned)  # a generator that fails half-way leaves no results


def _one(name: str, returned: Any, value: Any) -> Sequence[Any]:  # noqa: ARG001
    return (returned,)


def _same(name: str, returned: Any, value: Any) -> Sequence[Any]:  # noqa: ARG001
    return (value,) if returned else ()


READERS: dict[Emits, Reader] = {"many": _many, "one": _one, "same": _same}
