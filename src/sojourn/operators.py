"""The code that users write for an operator: a function, or a class with state and timers. Finds
out what kind of code it is, and refuses code that cannot run. Used by topologies, and by the
workers that run the code."""

import copy
import dis
import inspect
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sojourn.errors import InputError
from sojourn.typed import Code, T

if TYPE_CHECKING:
    from typing import Any as _Anything
else:
    _Anything = object  # with Any as its base, isinstance would be much slower at run time

Emits = Literal["many", "one", "same"]
"""What an operator emits for a value: the values it returns, the one it returns, or the value
itself if it returns true."""
METHODS: dict[Emits, str] = {"many": "t.operator", "one": "t.map", "same": "t.filter"}
"""The method of a topology for each."""


class Timers(Protocol):
    """The type of `self.timers`: sets timers for the key of the current tuple. The payload tells
    the timers of a key apart; a new timer replaces one with the same payload."""

    @property
    def now(self) -> float:
        """The time, in seconds as `time.time` counts them; in a test, the time of its clock."""

    @property
    def ran(self) -> float:
        """Seconds that the topology has run, over all its starts."""

    def after(self, seconds: float | str, payload: Any = None) -> None:
        """Call `on_timer(key, payload)` after that many seconds, or after a time such as "5min"."""

    def at(self, when: float, payload: Any = None) -> None:
        """Call `on_timer(key, payload)` at that time, in seconds as `time.time` counts them."""

    def cancel(self, payload: Any = None) -> bool:
        """Remove the timer with that payload. Returns whether there was one."""


class Operator:
    """Base of operators that keep something between tuples.

    `open` is called once in every worker, `process` for every tuple, `close` when the worker ends.
    `self.state` is a mapping over the keys of the current shard, kept across restarts. It exists
    only where the topology declares `key=`. Change a value in it only while you process the tuple
    that read it. `self.broadcast` is a mapping that is the same in every worker. It holds the last
    value of each key from the inputs declared as `broadcast=`."""

    state: MutableMapping[Any, Any]
    timers: Timers
    broadcast: Mapping[Any, Any]
    columns: Literal["numpy", "arrow"] | None = None
    hand: Any = None  # set by the worker
    _gathers = False  # many values to one, as windows do: no map or filter can be made of it

    @property
    def key(self) -> Any:
        """The key of the current tuple, where the topology declares `key=`. Not known in
        `process_bundle`, whose values have many keys."""
        if self.hand is None:
            raise InputError(f"{type(self).__name__} uses self.key, which needs a key; add key=…")
        return self.hand.key

    def open(self) -> Any:
        """Set up what cannot be pickled: models, connections."""

    def process(self, value: Any, /) -> Any:  # noqa: ARG002
        """Return or yield the values that follow from this one, or None for none."""
        raise TypeError(f"{type(self).__name__} must define process(self, value)")

    def process_bundle(self, values: Any, /) -> Any:  # noqa: ARG002
        """Define this instead of `process` to take all waiting values at once, for code that is
        faster that way. `values` is a list. With `columns = "numpy"` it is an array. With
        `columns = "arrow"` it is a table if the values are mappings, and an array otherwise.

        Return an array or a table with one result per value, or a list that holds, for each value,
        what `process` would return. With a key, all values belong to one shard. If the call raises,
        each value is passed by itself."""
        raise TypeError(f"{type(self).__name__} must define process_bundle(self, values)")

    def on_timer(self, key: Any, payload: Any, /) -> Any:  # noqa: ARG002
        """Called when a timer is due that `self.timers` has set for this key. Return or yield
        values as `process` does under `t.operator`."""
        raise TypeError(f"{type(self).__name__} must define on_timer(self, key, payload)")

    def on_broadcast(self, key: Any, value: Any, /) -> Any:
        """Called in every worker when `self.broadcast` has changed. A worker that starts calls it
        for everything the mapping holds. `value` is None if the key was removed. Prepare here what
        follows from a change, such as a compiled rule."""

    def close(self) -> Any:
        """Release what `open` set up."""


UserCode = Code[Any, Any]
"""A function, or an operator: its class, a `functools.partial` of that, or an instance."""


@dataclass(frozen=True)
class Output(_Anything):  # type: ignore[misc]
    """A value for one named output only: `return Output("rejected", value)`. Type checkers accept
    it among values of any type, because it does not change what the plain output carries."""

    name: str
    value: Any


def checked_code(what: str, code: UserCode, emits: Emits, keyed: bool, broadcast: bool) -> UserCode:
    """The code, if it can run."""
    kind = operator_class(code)
    if kind is None:
        if not callable(code):
            raise InputError(f"{what}: must be a function or an Operator; got {code!r}")
        if inspect.isclass(code) and emits == "many":
            raise InputError(
                f"{what}: the class {code.__name__} must define process(self, value), or "
                "process_bundle(self, values); to make an object from each value, use t.map"
            )
        if broadcast:
            raise InputError(
                f"{what}: is a function, which has no self.broadcast; make it an Operator, or "
                "leave out broadcast="
            )
        _check_one(what, code, emits)
        return code
    one = getattr(kind, "process", Operator.process) is not Operator.process
    if one == takes_bundles(code):
        raise InputError(
            f"{what}: the class {kind.__name__} must define process(self, value), or "
            f"process_bundle(self, values); it has {'both' if one else 'neither'}"
        )
    columns = getattr(kind, "columns", None)
    if columns is not None:
        one_of(what, "columns", columns, ("numpy", "arrow"))
    if not keyed and _uses(kind, "state"):
        raise InputError(f"{what}: {kind.__name__} uses self.state, which needs a key; add key=…")
    if not broadcast and (_uses(kind, "broadcast") or hears_broadcasts(kind)):
        raise InputError(
            f"{what}: {kind.__name__} uses self.broadcast or on_broadcast, which need an input; "
            "add broadcast=…"
        )
    if getattr(kind, "_gathers", False) and emits != "many":
        raise InputError(
            f"{what}: {kind.__name__} emits one value for many, and {METHODS[emits]} at most one "
            "for each; use t.operator"
        )
    _check_one(what, getattr(kind, "process", None), emits)
    for method in ("open", "close", "on_broadcast", "on_timer"):
        found = getattr(kind, method, None)
        waits = inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)
        if waits and (method == "on_timer" or not is_async(code)):
            rule = (
                "which a keyed operator's methods cannot be; make it a plain method"
                if method == "on_timer"
                else "but process is not; make both async, or neither"
            )
            raise InputError(f"{what}: {kind.__name__}.{method} is async, {rule}")
    if _uses(kind, "timers") and not has_timers(code):
        raise InputError(
            f"{what}: {kind.__name__} uses self.timers, which call on_timer when they are due; "
            f"define on_timer(self, key, payload){'' if keyed else ', and add key=…'}"
        )
    if has_timers(code) and not (keyed and one):
        raise InputError(
            f"{what}: {kind.__name__} has on_timer, so it needs process(self, value) and a key for "
            "its timers; add key=…"
        )
    return code


def _check_one(what: str, function: object, emits: Emits) -> None:
    """A function that yields returns no value that a map or a filter could go by."""
    yields = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if yields and emits != "many":
        raise InputError(
            f"{what}: yields its values, and {METHODS[emits]} takes the one that is returned; "
            "return it, or use t.operator"
        )


def operator_class(code: object) -> type | None:
    """The class of an operator that is given as a class, a partial of one, or an instance. None for
    a function, or for a class such as `int` that makes one value from another."""
    kind = code.func if isinstance(code, partial) else code
    if inspect.isclass(kind):
        has = issubclass(kind, Operator) or hasattr(kind, "process")
        return kind if has or hasattr(kind, "process_bundle") else None
    made = isinstance(code, Operator) or (hasattr(code, "process") and not callable(code))
    return type(code) if made else None


def made(code: Any, copied: bool) -> Any:
    """The operator that a worker runs: a new one, or the given instance, which is `copied` where
    workers share a process."""
    if inspect.isclass(code) or isinstance(code, partial):
        return code()
    return copy.deepcopy(code) if copied else code


def takes_bundles(code: object) -> bool:
    """Whether an operator's code wants many values at once."""
    many = getattr(operator_class(code), "process_bundle", Operator.process_bundle)
    return many is not Operator.process_bundle


def has_timers(code: object) -> bool:
    """Whether an operator's code may set timers."""
    return getattr(operator_class(code), "on_timer", Operator.on_timer) is not Operator.on_timer


def hears_broadcasts(kind: type) -> bool:
    """Whether an operator's class wants to be told what was broadcast."""
    return getattr(kind, "on_broadcast", Operator.on_broadcast) is not Operator.on_broadcast


def is_async(code: object) -> bool:
    """Whether an operator's code is async."""
    found = getattr(operator_class(code), "process", code)
    return inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)


def _uses(code: type, name: str) -> bool:
    """Whether any method of the class, or of its bases below Operator, mentions self's `name`."""
    return any(
        _mentions(name, function.__code__, function.__code__.co_varnames[:1])
        for base in code.__mro__
        if base not in (Operator, object)
        for function in vars(base).values()
        if inspect.isfunction(function)
    )


def _mentions(name: str, code: CodeType, self_names: tuple[str, ...]) -> bool:
    before = None
    for step in dis.get_instructions(code):
        if step.argval == name and step.opname.endswith("_ATTR") and before in self_names:
            return True
        before = step.argval
    return any(
        _mentions(name, inner, self_names)
        for inner in code.co_consts
        if isinstance(inner, CodeType)
    )


def one_of(what: str, knob: str, value: T, known: tuple[T, ...]) -> T:
    """The value, if it is a known one."""
    if value not in known:
        options = ", ".join(map(repr, known))
        raise InputError(f"{what}: {knob} must be one of {options}; got {value!r}")
    return value
