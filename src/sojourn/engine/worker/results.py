"""What users' operators may return, and what follows from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from sojourn.operators import METHODS, Emits, Output

Reader = Callable[[str, Any, Any], Sequence[Any]]
"""From the operator's name, what it returned and the value it got, to the values it emits."""


def _many(name: str, returned: Any, value: Any) -> Sequence[Any]:  # noqa: ARG001
    if type(returned) is tuple or type(returned) is list:  # what most return
        return returned
    if returned is None:
        return ()
    if isinstance(returned, Output):
        return (returned,)
    if type(returned) is not GeneratorType and _is_one(returned):
        shown = " ".join(repr(returned).split())  # that of a table has many lines
        raise TypeError(
            f"operator {name!r} returned {type(returned).__name__} {shown:.60}; to emit it, "
            "return [value] or use t.map(); for none, return None"
        )
    return list(returned)  # a generator that fails half-way leaves no results


def _is_one(returned: Any) -> bool:
    """Whether it is one value, or falls apart into what nobody means: a text into characters, a
    mapping into keys, a table into the names of its columns."""
    if isinstance(returned, str | bytes | bytearray | memoryview | Mapping):
        return True
    record = isinstance(returned, tuple) and hasattr(returned, "_fields")
    table = hasattr(returned, "columns") and hasattr(returned, "shape")
    return record or table or not isinstance(returned, Iterable)


_UNFINISHED = (GeneratorType, CoroutineType, AsyncGeneratorType)


def _one(name: str, returned: Any, value: Any) -> Sequence[Any]:  # noqa: ARG001
    if isinstance(returned, _UNFINISHED):
        raise _unfinished(name, returned, "one")
    return (returned,)


def _same(name: str, returned: Any, value: Any) -> Sequence[Any]:
    if returned is True:  # what most return
        return (value,)
    if isinstance(returned, _UNFINISHED):
        raise _unfinished(name, returned, "same")
    if isinstance(returned, Output):
        raise TypeError(
            f"operator {name!r} returned {returned!r:.60}; t.filter takes true or false; to choose "
            "an output, use t.operator"
        )
    return (value,) if returned else ()


def _unfinished(name: str, returned: Any, emits: Emits) -> TypeError:
    """For what is no value yet, and so would be taken for one, or for true."""
    if isinstance(returned, CoroutineType):
        returned.close()  # or Python would warn that it was never awaited
        remedy = "make the function that awaits it async"
    else:
        remedy = "return the value, or use t.operator, which emits all that it yields"
    kind = type(returned).__name__.replace("_", " ")
    return TypeError(
        f"operator {name!r} returned a {kind}; {METHODS[emits]} takes a value; {remedy}"
    )


READERS: dict[Emits, Reader] = {"many": _many, "one": _one, "same": _same}
