"""Users' values as bytes: what tuples and state are made of between processes.

Classes of the user's own modules travel by value. Where workers run, no module of that name holds
them, so plain pickle refuses their instances. Such classes are sent to every host, and their
instances refer to them by name."""

import io
import pickle
import sys
from typing import Any

import cloudpickle

_classes: dict[tuple[str, str], type | Exception] = {}
_own: set[type] = set()
_plain_dumps = pickle.dumps


def register(classes: list[tuple[str, str, bytes]]) -> None:
    """Take the classes of the user's modules: module, name and the cloudpickled class. If one
    cannot be rebuilt here, the error is raised when a value needs it."""
    for module, name, data in classes:
        try:
            _classes[module, name] = cloudpickle.loads(data)
        except Exception as error:  # noqa: BLE001  # most classes of a module are no values
            _classes[module, name] = error


def dumps(value: Any) -> bytes:
    """Plain pickle where that is enough."""
    if not _own or type(value) not in _own:
        try:
            return _plain_dumps(value, 5)
        except (pickle.PicklingError, AttributeError):
            data = _dumps(value)
            _own.add(type(value))
            return data
    return _dumps(value)


def _dumps(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def pickler(file: Any) -> pickle.Pickler:
    """A pickler that writes values to a file bit by bit."""
    return (_Pickler if _classes else pickle.Pickler)(file, protocol=5)


loads = pickle.loads


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            first = obj.__qualname__.split(".")[0]
            if (obj.__module__, first) in _classes:
                return _class_named, (obj.__module__, obj.__qualname__)
        return NotImplemented


def _class_named(module: str, name: str) -> Any:
    """The class that a pickled value refers to."""
    first, *rest = name.split(".")
    found: Any = _classes.get((module, first))
    if found is None and module in sys.modules:  # in a program that only reads state
        found = getattr(sys.modules[module], first, None)
    if found is None:
        raise AttributeError(
            f"a value has the class {name!r} of {module!r}, which the application no longer has"
        )
    if isinstance(found, Exception):
        raise found
    for part in rest:
        found = getattr(found, part)
    return found


def shown(payload: bytes) -> str:
    """A tuple's value as text, as far as it can be shown."""
    try:
        return repr(loads(payload))[:200]
    except Exception as error:  # noqa: BLE001  # the payload itself may be what is broken
        return f"a tuple that cannot be unpickled ({error})"
