"""State as an operator has it: a mapping over the keys of one shard. It knows which keys changed,
so a commit saves only those.

A commit is `cut` between two tuples. `drain` then pickles what had changed, in slices for which the
worker finds time. A key that is touched before its turn is pickled first. So what is saved is as of
the cut, and no tuple waits for more than its own keys. `store` writes the changes.

A value that can be changed in place counts as changed once it is handed out. So it must be changed
while the tuple that read it is processed, and be kept under one key only. Keys are in the order of
a dict until a restart, or until the roll-back of a deletion."""

from collections.abc import (
    Callable,
    ItemsView,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, Self

from sojourn.engine.wire.messages import Change
from sojourn.engine.worker import values
from sojourn.engine.worker.keys import identified
from sojourn.errors import InputError

_SCALARS = frozenset(
    {int, float, str, bytes, bool, type(None), complex, Decimal}
    | {date, datetime, time, timedelta, timezone}
)
_SLICE = 4096
_PER_KEY = 256
_ABSENT: Any = object()
ANEW: Change = (b"", b"", None)
"""Of a shard, nothing that was saved before counts."""


class _Copy(bytes):
    """The pickle of a value that can be changed in place."""


class Packed(NamedTuple):
    """A shard's state as it travels."""

    data: dict[Any, Any]
    changed: dict[Any, bool | None]
    anew: bool = False


class State(MutableMapping[Any, Any]):  # noqa: PLW1641  # like a dict, it has no hash
    """One shard's state; to the user's code, a dict. It takes over the dict it is made from, and
    has no changes then."""

    # For a changed key: whether it is new since the last cut. A new key that goes leaves no trace.
    # For a pending key the same, and None once it is pickled.
    __slots__ = ("_anew", "_changed", "_data", "_guarded", "_left", "_notes", "_pending", "_saved")

    def __init__(self, data: dict[Any, Any] | None = None) -> None:
        self._data: dict[Any, Any] = {} if data is None else data
        self._changed: dict[Any, bool | None] = {}
        self._pending: dict[Any, bool | None] = {}
        self._left: Iterator[Any] = iter(())
        self._saved: list[Change] = []
        self._notes: dict[Any, Any] | None = None
        self._guarded = False
        self._anew = False

    # What a dict does.

    def __getitem__(self, key: Any) -> Any:
        value = self._data[key]
        if type(value) not in _SCALARS:
            self._handed_out(key, value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._guarded:
            self._before(key)
        if key not in self._changed:
            self._changed[key] = key not in self._data
        self._data[key] = value

    def __delitem__(self, key: Any) -> None:
        if key not in self._data:
            raise KeyError(key)
        if self._guarded:
            self._before(key)
        if self._changed.get(key):
            del self._changed[key]
        else:
            self._changed[key] = False
        del self._data[key]

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._data)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._data.keys())

    def __repr__(self) -> str:
        return repr(self._data)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, State):
            return self._data == other._data
        return self._data == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __or__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**self, **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def __ior__(self, other: Any) -> Self:  # type: ignore[misc]
        self.update(other)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._data,)

    def copy(self) -> dict[Any, Any]:
        """A plain dict of the same values."""
        return dict(self.items())

    __copy__ = copy

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or the default."""
        value = self._data.get(key, default)
        if type(value) not in _SCALARS and key in self._data:
            self._handed_out(key, value)
        return value

    def pop(self, key: Any, default: Any = _ABSENT) -> Any:
        """Take a key out."""
        value = self._data.get(key, _ABSENT)
        if value is not _ABSENT:
            del self[key]
            return value
        if default is _ABSENT:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[Any, Any]:
        """Take out the key that came last."""
        if not self._data:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._data))
        return key, self.pop(key)

    def keys(self) -> KeysView[Any]:
        """The keys. Reading keys marks none as read."""
        return self._data.keys()

    def values(self) -> "_Values":
        """The values. Those handed out count as read."""
        return _Values(self)

    def items(self) -> "_Items":
        """The keys with their values. Those handed out count as read."""
        return _Items(self)

    # The life of a tuple: a failed one is undone, and the next one begins.

    def remember(self) -> None:
        """From here on, note the value of each key before it is first touched."""
        self._notes = {}
        self._guarded = True

    def forget(self) -> None:
        """Drop the notes and keep what was done."""
        self._notes = None
        self._guarded = bool(self._pending)

    def roll_back(self) -> None:
        """Put back all that was touched since `remember`, and drop the notes."""
        notes = self._notes or {}
        for key, note in notes.items():
            if note is _ABSENT:
                self._data.pop(key, None)
            else:
                self._data[key] = values.loads(note) if type(note) is _Copy else note
                self._changed.setdefault(key, False)
        self.forget()

    # The life of a commit.

    def cut(self) -> int:
        """Take what changed since the last cut, as it is now, for the next commit. Returns how many
        keys changed."""
        if self._pending or self._saved or self._notes is not None:
            raise AssertionError(
                f"a cut comes between tuples and after the last one's changes were taken; "
                f"{len(self._pending)} keys pending, {len(self._saved)} not taken"
            )
        if self._changed:
            self._pending, self._changed = self._changed, {}
            self._left = iter(self._pending)
            self._guarded = True
        if self._anew:
            self._saved.append(ANEW)
            self._anew = False
        return len(self._pending) + len(self._saved)

    def drain(self, until: Callable[[], bool]) -> bool:
        """Pickle pending keys until none is left, or until `until`, which is asked after every few,
        says stop. Returns whether none is left."""
        budget = _SLICE
        pending, save = self._pending, self._save
        try:
            for key in self._left:
                if pending[key] is None:
                    continue
                budget -= save(key)
                if budget < 0:
                    if until():
                        return False
                    budget = _SLICE
        except BaseException:
            # The key that failed must still be saved, so the next drain must meet it again.
            self._left = iter(pending)
            raise
        self._pending = {}
        self._guarded = self._notes is not None
        return True

    def take_changes(self) -> list[Change]:
        """What the last cut found changed. Call it once `drain` has said that none is left."""
        if self._pending:
            raise AssertionError("changes are taken after they were drained; some keys are pending")
        saved, self._saved = self._saved, []
        return saved

    def packed(self) -> Packed:
        """The whole shard, for another process, including what changed since the last cut. It must
        not be used here any more."""
        if self._pending or self._notes is not None:
            raise AssertionError(
                f"a shard is packed between tuples and once drained; {len(self._pending)} pending"
            )
        return Packed(self._data, self._changed, self._anew)

    @classmethod
    def unpacked(cls, packed: Packed) -> Self:
        """The shard that another process packed."""
        state = cls(packed.data)
        state._changed, state._anew = packed.changed, packed.anew
        return state

    def mark_all(self) -> None:
        """Count every key as changed, so that the next commit saves the whole shard."""
        self._changed = dict.fromkeys(self._data, False)

    def renew(self) -> None:
        """The same, and forget what was saved before, because it was saved elsewhere."""
        self.mark_all()
        self._anew = True

    def _handed_out(self, key: Any, value: Any) -> None:
        """Mark a key whose value may be changed in place from now on."""
        if self._guarded:
            if _fixed(value):
                return
            self._before(key)
        if key not in self._changed and not _fixed(value):
            self._changed[key] = False

    def _before(self, key: Any) -> None:
        """Before a key is touched, keep its value for the commit under way and for a roll-back."""
        if self._pending.get(key) is not None:
            self._save(key)
        notes = self._notes
        if notes is not None and key not in notes:
            value = self._data.get(key, _ABSENT)
            fixed = value is _ABSENT or _fixed(value)
            notes[key] = value if fixed else _Copy(_pickled(key, value))

    def _save(self, key: Any) -> int:
        """Pickle a pending key. Returns about how much work that was."""
        value = self._data.get(key, _ABSENT)
        if value is not _ABSENT:
            pickled = _pickled(key, value)
            self._saved.append((*identified(key), pickled))
            self._pending[key] = None
            return _PER_KEY + len(pickled)
        if not self._pending[key]:  # else the key came and went
            self._saved.append((*identified(key), None))
        self._pending[key] = None
        return _PER_KEY

    def _entries(self, entries: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        for key, value in entries:
            if type(value) not in _SCALARS:
                self._handed_out(key, value)
            yield key, value


class _Items(ItemsView[Any, Any]):
    _mapping: State

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping._entries(iter(self._mapping._data.items()))

    def __reversed__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping._entries(reversed(self._mapping._data.items()))


class _Values(ValuesView[Any]):
    _mapping: State

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.items())

    def __reversed__(self) -> Iterator[Any]:
        return (value for _, value in reversed(self._mapping.items()))

    def __contains__(self, value: object) -> bool:
        return value in self._mapping._data.values()


def _fixed(value: Any) -> bool:
    """Whether a value certainly cannot be changed in place."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is tuple or kind is frozenset:
        return _SCALARS.issuperset(map(type, value)) or all(map(_fixed, value))
    return isinstance(value, Enum)


def _pickled(key: Any, value: Any) -> bytes:
    try:
        return values.dumps(value)
    except Exception as error:
        raise InputError(
            f"state of key {key!r:.80}: a value must be picklable; got one of type "
            f"{type(value).__name__} ({error}); keep plain data, and make the rest in open()"
        ) from error
