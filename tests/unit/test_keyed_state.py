"""A shard's state: a dict to its user, which knows what changed and can be put back."""

import copy
import pickle
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Any, NamedTuple
from unittest.mock import patch

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.engine.wire.messages import Change
from sojourn.engine.worker import state as state_module
from sojourn.engine.worker import values
from sojourn.engine.worker.keys import identified, key_bytes, key_of
from sojourn.engine.worker.state import State
from sojourn.errors import InputError


def moved_by(state: State) -> State:
    """The state as another worker has it."""
    return State.unpacked(values.loads(values.dumps(state.packed())))


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    A = "a"


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Trade:
    symbol: str
    price: float
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Order:
    symbol: str
    price: float


def commit(state: State) -> dict[Any, Any]:
    """What a commit saves: the keys, with their values; those gone with `...`."""
    state.cut()
    assert state.drain(lambda: False)
    return saved(state.take_changes())


def saved(changes: list[Change]) -> dict[Any, Any]:
    assert len({identity for identity, _, _ in changes}) == len(changes), "a key is saved once"
    return {
        key_of(identity, key): ... if value is None else values.loads(value)
        for identity, key, value in changes
    }


# A dict to its user.


def test_it_does_what_a_dict_does() -> None:
    state = State()
    state["a"] = 1
    state |= {"b": 2}
    state.update([("c", 3)], d=4)
    assert state == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert state == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert state == State(dict(state))
    assert state != {"a": 1}
    assert state != 5
    assert repr(state) == "{'a': 1, 'b': 2, 'c': 3, 'd': 4}"
    assert list(state) == list(state.keys()) == ["a", "b", "c", "d"]
    assert list(reversed(state)) == ["d", "c", "b", "a"]
    assert list(reversed(state.items())) == [("d", 4), ("c", 3), ("b", 2), ("a", 1)]
    assert list(reversed(state.values())) == [4, 3, 2, 1]
    assert (len(state), bool(state), bool(State())) == (4, True, False)
    assert ("a" in state, "z" in state) == (True, False)
    assert (("a", 1) in state.items(), 4 in state.values(), 5 in state.values()) == (
        (True, True, False)
    )
    assert state.keys() & {"a", "z"} == {"a"}
    assert state.items() - {("a", 1)} == {("b", 2), ("c", 3), ("d", 4)}
    assert (state.get("z"), state.get("z", 9), state.get("a", 9)) == (None, 9, 1)
    assert (state.setdefault("a", 9), state.setdefault("e", 5)) == (1, 5)
    assert (state.pop("e"), state.pop("e", None), state.popitem()) == (5, None, ("d", 4))
    assert state | {"a": 0} == {"a": 0, "b": 2, "c": 3}
    assert {"a": 0, "y": 0} | state == {"a": 1, "y": 0, "b": 2, "c": 3}
    assert {**state} == dict(state) == state.copy() == copy.copy(state) == copy.deepcopy(state)
    assert type(state.copy()) is dict
    assert pickle.loads(pickle.dumps(state)) == state
    assert max(state, key=state.get) == "c"
    match state:
        case {"a": found}:
            assert found == 1
    del state["a"]
    state.clear()
    assert state == {}
    with pytest.raises(TypeError, match="unhashable"):
        hash(state)
    with pytest.raises(TypeError, match="unsupported operand"):
        state | 5  # type: ignore[operator]


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s["gone"],
        lambda s: s.pop("gone"),
        lambda s: s.__delitem__("gone"),
        lambda s: (s.popitem(), s.pop("a")),
    ],
)
def test_a_key_that_is_not_there_is_an_error(act: Callable[[State], Any]) -> None:
    state = State({"a": 1})
    with pytest.raises(KeyError):
        act(state)
    assert "gone" not in commit(state)


def test_changing_it_while_going_over_it_is_an_error() -> None:
    state = State({"a": 1, "b": 2})
    entries = iter(state.items())
    next(entries)
    state["c"] = 3
    with pytest.raises(RuntimeError, match="changed size"):
        next(entries)


# What changed.

FIXED = [
    *(1, 1.5, "a", b"a", True, None, 1j, Decimal(1), date.max, datetime(2026, 11, 15, tzinfo=UTC)),
    *(timedelta(1), UTC, Colour.RED, Level.LOW, (1, ("a", None)), frozenset({1, (2,)}), ()),
]
OPEN = [[], {}, set(), bytearray(), ([],), (1, ({},)), Counter(), Trade("a", 1), np.zeros(2)]


@pytest.mark.parametrize("value", FIXED)
def test_reading_what_cannot_change_marks_nothing(value: Any) -> None:
    state = State({"a": value})
    assert state["a"] is state.get("a") is state.setdefault("a", 1)
    assert list(state.values()) == [value]
    assert dict(state) == {**state} == dict(state.items())
    assert state.cut() == 0


@pytest.mark.parametrize("value", OPEN)
@pytest.mark.parametrize(
    "read",
    [
        lambda s: s["a"],
        lambda s: s.get("a"),
        lambda s: s.setdefault("a", 1),
        lambda s: next(iter(s.values())),
        lambda s: next(iter(s.items())),
        lambda s: next(reversed(s.values())),
        dict,
        lambda s: {**s},
        lambda s: s.copy(),
        lambda s: s | {},
    ],
)
def test_reading_what_can_change_marks_its_key(value: Any, read: Callable[[State], Any]) -> None:
    state = State({"a": value})
    read(state)
    assert commit(state).keys() == {"a"}
    assert state.cut() == 0


def test_looking_at_keys_marks_nothing() -> None:
    state = State({"a": [], "b": {}})
    assert ("a" in state, len(state), list(state), list(state.keys())) == (
        (True, 2, ["a", "b"], ["a", "b"])
    )
    assert state.get("c", []) == []
    assert state == {"a": [], "b": {}}
    assert repr(state) == "{'a': [], 'b': {}}"
    assert [] in state.values()
    assert state.cut() == 0


def test_values_not_handed_out_are_not_marked() -> None:
    state = State({n: [n] for n in range(10)})
    for number, value in state.items():
        value.append(0)
        if number == 2:
            break
    assert commit(state) == {0: [0, 0], 1: [1, 0], 2: [2, 0]}


def test_usual_ways_of_changing_in_place_are_saved() -> None:
    state = State({"list": [1], "nested": {"a": {"b": []}}, "counter": Counter(), "kept": [0]})
    state["list"].append(2)
    state["list"] += [3]
    state["nested"]["a"]["b"].append(1)
    state.get("counter").update("aab")
    state.setdefault("new", {}).setdefault("x", []).append(1)
    assert commit(state) == {
        "list": [1, 2, 3],
        "nested": {"a": {"b": [1]}},
        "counter": Counter("aab"),
        "new": {"x": [1]},
    }
    state.setdefault("new", {}).setdefault("x", []).append(2)
    assert commit(state) == {"new": {"x": [1, 2]}}


def test_deletions_are_saved() -> None:
    state = State({"a": 1, "b": [], "c": 3, "d": 4})
    del state["a"]
    state.pop("b").append(1)
    assert commit(state) == {"a": ..., "b": ...}
    state.clear()
    assert commit(state) == {"c": ..., "d": ...}
    state["a"] = 5
    assert commit(state) == {"a": 5}


def test_a_saved_key_that_was_put_and_deleted_is_gone() -> None:
    state = State({"a": 1, "b": []})
    state["a"] = 2
    state["b"].append(1)
    del state["a"]
    del state["b"]
    assert commit(state) == {"a": ..., "b": ...}


def test_a_key_that_came_and_went_between_cuts_leaves_no_trace() -> None:
    state = State({"old": 1})
    state["new"] = 1
    del state["new"]
    del state["old"]
    state["old"] = 2
    del state["old"]
    assert commit(state) == {"old": ...}
    state["old"] = 3
    del state["old"]
    assert commit(state) == {}


# A commit.


def test_what_is_saved_is_as_of_the_cut() -> None:
    state = State({"put": 1, "changed": [1], "deleted": 1, "popped": [1], "gone": 1})
    for key in ("put", "deleted"):
        state[key] = 2
    state["changed"].append(2)
    state["popped"].append(2)
    del state["gone"]
    state.cut()
    state["put"] = 3
    state["changed"].append(3)
    del state["deleted"]
    state.pop("popped").append(3)
    state["gone"] = "again"
    state["new"] = 1
    assert state.drain(lambda: False)
    first = saved(state.take_changes())
    assert first == {
        "put": 2,
        "changed": [1, 2],
        "deleted": 2,
        "popped": [1, 2],
        "gone": ...,
    }
    assert commit(state) == {
        "put": 3,
        "changed": [1, 2, 3],
        "deleted": ...,
        "popped": ...,
        "gone": "again",
        "new": 1,
    }


def test_tuples_between_cut_and_drain_leave_the_cut_as_it_was() -> None:
    state = State()
    state.update({n: [n] for n in range(4)})
    state.cut()
    for number in range(4):
        state.remember()
        state[number].append("late")
        state.forget()
    assert state.drain(lambda: False)
    assert saved(state.take_changes()) == {n: [n] for n in range(4)}


def test_draining_stops_when_told_and_goes_on_later() -> None:
    state = State()
    state.update({n: n for n in range(1000)})
    assert state.cut() == 1000
    calls = 0
    while not state.drain(lambda: True):
        calls += 1
    assert 10 < calls <= 100
    assert saved(state.take_changes()) == {n: n for n in range(1000)}


def test_large_values_are_drained_one_at_a_time() -> None:
    state = State()
    state.update({n: bytes(100_000) for n in range(10)})
    state.cut()
    asked: list[int] = []
    assert state.drain(lambda: bool(asked.append(1)))  # type: ignore[func-returns-value]
    assert len(asked) == 10


def test_steps_out_of_order_are_refused() -> None:
    state = State()
    state["a"] = 1
    state.cut()
    with pytest.raises(AssertionError, match="1 keys pending"):
        state.cut()
    with pytest.raises(AssertionError, match="after they were drained"):
        state.take_changes()
    with pytest.raises(AssertionError, match="once drained; 1 pending"):
        state.packed()
    assert state.drain(lambda: True)
    with pytest.raises(AssertionError, match="1 not taken"):
        state.cut()
    assert saved(state.take_changes()) == {"a": 1}


def test_what_cannot_be_pickled_is_told_by_its_key_every_time() -> None:
    state = State()
    state["fine"] = 1
    state["bad"] = lambda: None
    state["last"] = 1
    state.cut()
    for _ in range(2):
        with pytest.raises(InputError, match=r"state of key 'bad': .* type function .*; keep pl"):
            state.drain(lambda: False)
        with pytest.raises(AssertionError):
            state.take_changes()
    state = State()
    state[lambda: None] = 1
    state.cut()
    with pytest.raises(InputError, match=r"a key must be picklable; got <function .* plain value"):
        state.drain(lambda: False)


# A tuple that fails.


def test_a_failed_tuple_changes_nothing() -> None:
    before = {"list": [1], "number": 1, "deleted": {"a": [1]}, "popped": [2], "same": [3]}
    state = State(copy.deepcopy(before))

    def process() -> None:
        state["list"].append(2)
        state["list"] = "other"
        state["number"] += 1
        del state["deleted"]
        state.pop("popped").append(3)
        state["new"] = []
        state["new"].append(1)
        state["came"] = 1
        del state["came"]
        for value in state.values():
            if isinstance(value, list):
                value.clear()
        raise ValueError("half-way")

    state.remember()
    with pytest.raises(ValueError, match="half-way"):
        process()
    state.roll_back()
    assert state == before
    state["list"].append(5)
    assert state == {**before, "list": [1, 5]}
    assert {k: v for k, v in commit(state).items() if v is not ...}.items() <= state.items()


def test_clearing_is_rolled_back() -> None:
    state = State({n: [n] for n in range(5)})
    state.remember()
    state.clear()
    state.roll_back()
    assert state == {n: [n] for n in range(5)}


def test_a_new_key_deleted_by_a_failed_tuple_is_still_saved() -> None:
    state = State()
    state["a"] = 1
    state.remember()
    del state["a"]
    state.roll_back()
    assert commit(state) == {"a": 1}


def test_what_is_forgotten_is_not_rolled_back() -> None:
    state = State({"a": [1]})
    state.remember()
    state["a"].append(2)
    state.forget()
    state.roll_back()
    assert state == {"a": [1, 2]}


def test_a_roll_back_while_keys_are_pending_saves_what_was_cut() -> None:
    state = State({"a": [1], "b": 1})
    state["a"].append(2)
    state["b"] = 2
    state.cut()
    state.remember()
    state["a"].append(3)
    del state["b"]
    state.roll_back()
    assert state.drain(lambda: False)
    assert saved(state.take_changes()) == {"a": [1, 2], "b": 2}
    assert state == {"a": [1, 2], "b": 2}
    state["c"] = 1
    assert commit(state)["c"] == 1


# A move.


def test_a_move_takes_the_marks_along() -> None:
    state = State({"a": 1, "b": [], "c": 1})
    state["a"] = 2
    del state["c"]
    moved = moved_by(state)
    assert moved == {"a": 2, "b": []}
    assert commit(moved) == {"a": 2, "c": ...}
    assert commit(moved_by(moved)) == {}


def test_values_and_keys_of_the_user_s_own_classes() -> None:
    made = types.new_class("Price", exec_body=lambda body: body.update(__module__="apps.prices"))
    values.register([("apps.prices", "Price", cloudpickle.dumps(made))])
    price: Any = values.loads(values.dumps(made))
    state = State()
    state[1] = price()
    state[price] = [price()]
    found = commit(state)
    assert type(found[1]) is type(found[price][0]) is price
    state.remember()
    del state[price]
    state.roll_back()
    assert type(moved_by(state)[price][0]) is price


# Against a dict.

FEW_KEYS = st.sampled_from(["a", 1])
MANY_KEYS = st.sampled_from(
    [
        *(0, 1, 1.0, True, 2.5, Decimal("2.5"), "a", "b", b"a", None, (1, "a"), (1.0, Word.A)),
        *(frozenset({"x", "y"}), Trade("a", 1.0), Pair("a", 2), Colour.RED, date(2026, 1, 1)),
    ]
)
VALUES = st.sampled_from([0, "v", (1, 2), (1, [2]), [], [1], {"n": [1]}])


def _put(data: Any, key: Any, value: Any) -> Any:
    data[key] = value


def _append(data: Any, key: Any, value: Any) -> Any:
    found = data.setdefault(key, [])
    if isinstance(found, list):
        found.append(value)
    elif isinstance(found, dict):
        found["n"].append(value)
    elif isinstance(found, tuple) and isinstance(found[1], list):
        found[1].append(value)
    return found


def _count(data: Any, key: Any, value: Any) -> Any:  # noqa: ARG001
    found = data.get(key, 0)
    data[key] = found + 1 if isinstance(found, int) else 0


def _delete(data: Any, key: Any, value: Any) -> Any:  # noqa: ARG001
    if key in data:
        del data[key]


def _pop(data: Any, key: Any, value: Any) -> Any:
    found = data.pop(key, None)
    if isinstance(found, list):
        found.append(value)


def _pop_last(data: Any, key: Any, value: Any) -> Any:  # noqa: ARG001
    return data.popitem() if data else None


def _update(data: Any, key: Any, value: Any) -> Any:
    data.update({key: value, "b": 1})


def _change_all(data: Any, key: Any, value: Any) -> Any:  # noqa: ARG001
    for found in data.values():
        if isinstance(found, list):
            found.append(value)


def _clear(data: Any, key: Any, value: Any) -> Any:  # noqa: ARG001
    data.clear()


ACTS = st.sampled_from([_put, _append, _count, _delete, _pop])
RARE_ACTS = st.sampled_from([_pop_last, _update, _change_all, _clear])
STEP = st.tuples(ACTS | ACTS | RARE_ACTS, FEW_KEYS | FEW_KEYS | MANY_KEYS, VALUES)
TUPLE = st.tuples(st.lists(STEP, max_size=4), st.sampled_from(["fail", "ok", "unnoted"]))
EVENTS = st.lists(
    TUPLE | TUPLE | st.sampled_from(["cut", "cut", "drain", "drain all", "move"]), min_size=15
)


class Disk:
    """What commits have saved, by identity, and what they should have."""

    def __init__(self) -> None:
        self.changes: dict[bytes, Change] = {}
        self.cut: dict[Any, Any] | None = None

    def add(self, changes: list[Change]) -> None:
        self.changes.update({change[0]: change for change in changes})
        data = saved(list(self.changes.values()))
        assert {key: value for key, value in data.items() if value is not ...} == self.cut
        self.cut = None


@settings(max_examples=150)
@given(EVENTS)
def test_it_equals_a_dict_whatever_happens(events: list[Any]) -> None:
    state, model, disk = State(), dict[Any, Any](), Disk()
    with patch.object(state_module, "_SLICE", 0):
        for event in [*events, "drain all", "cut", "drain all"]:
            match event:
                case "cut" if disk.cut is None:
                    state.cut()
                    disk.cut = copy.deepcopy(model)
                case "drain" | "drain all" if disk.cut is not None:
                    if state.drain(lambda event=event: event == "drain"):  # type: ignore[misc]
                        disk.add(state.take_changes())
                case "move" if disk.cut is None:
                    state = moved_by(state)
                case (steps, end):
                    model = _tuple(state, model, steps, end)
            assert state == model
            assert list(state) == list(model)


def _tuple(state: State, model: dict[Any, Any], steps: Any, end: str) -> dict[Any, Any]:
    before = copy.deepcopy(model)
    if end != "unnoted":
        state.remember()
    for act, key, value in steps:
        assert act(state, key, copy.deepcopy(value)) == act(model, key, copy.deepcopy(value))
    if end == "fail":
        state.roll_back()
        assert state == before
        return {key: before[key] for key in state}
    if end == "ok":
        state.forget()
    return model


# Keys as bytes.

EQUAL = [
    (1, 1.0, True, Decimal(1), Fraction(1), 1 + 0j, Level.LOW, np.int64(1), np.float32(1)),
    (0, 0.0, -0.0, False, Decimal("-0"), 0j),
    (0.5, Decimal("0.50"), Fraction(1, 2), np.float16(0.5), 0.5 + 0j),
    (2**200, float(2**200), Decimal(2**200)),
    (float("inf"), Decimal("inf"), np.float64("inf")),
    (2j, complex(0, 2), np.complex64(2j)),
    ("a", Word.A, np.str_("a")),
    ((1, "a"), (True, Word.A), Pair(1.0, "a")),
    (frozenset({"x", "y", 1}), frozenset({1.0, "y", "x"})),
    (Trade("a", 1), Trade("a", 1.0, "noted")),
]


@pytest.mark.parametrize("keys", EQUAL)
def test_equal_keys_have_equal_bytes(keys: tuple[Any, ...]) -> None:
    assert len(set(keys)) == 1, "to a dict they are one"
    assert len({key_bytes(key) for key in keys}) == 1


def test_nan_is_one_key() -> None:
    nans = [float("nan"), -float("nan"), Decimal("nan"), np.float32("nan")]
    assert len({key_bytes(key) for key in nans}) == 1


def test_different_keys_have_different_bytes() -> None:
    keys: list[Any] = [kind[0] for kind in EQUAL]
    keys += [b"a", "", b"", None, "None", (), ((),), ("a",), ("a", "b"), ("ab", ""), (("a",), "b")]
    keys += [frozenset(), frozenset({"a"}), frozenset({("a",)}), Order("a", 1), ("a", 1)]
    keys += [-1, 127, 128, -128, -129, 255, 256, 2**64, Fraction(1, 3), 1 / 3, Decimal("0.1"), 0.1]
    keys += [-float("inf"), 2 + 2j, Colour.RED, Colour.BLUE, date(2026, 1, 1), "x" * 300]
    keys += [("x" * 255,), ("x" * 254,), Fraction(10**400 * 3 + 1, 3), "\ud83d", "\ud83d\ude00"]
    assert len(set(keys)) == len(keys)
    assert len({key_bytes(key) for key in keys}) == len(keys)


HASHABLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.decimals(allow_nan=False, places=3) | st.fractions(),
    lambda parts: st.tuples(parts, parts) | st.frozensets(parts, max_size=3)
    | st.tuples(parts) | st.builds(Order, parts, parts) | st.builds(Pair, parts, parts),
    max_leaves=5,
)  # fmt: skip


ALIKE = st.recursive(
    st.sampled_from([0, False, 1, 1.0, Level.LOW, 0.5, Fraction(1, 2), "a", Word.A, b"a", None]),
    lambda parts: st.tuples(parts) | st.tuples(parts, parts) | st.builds(Pair, parts, parts)
    | st.frozensets(parts, max_size=2) | st.builds(Order, parts, parts),
    max_leaves=3,
)  # fmt: skip


@given(st.one_of(st.tuples(HASHABLE, HASHABLE), st.tuples(ALIKE, ALIKE)))
def test_bytes_are_equal_if_and_only_if_keys_are(keys: tuple[Any, Any]) -> None:
    one, other = keys
    assert (key_bytes(one) == key_bytes(other)) == (one == other)


@given(HASHABLE)
def test_a_key_comes_back_as_it_was(key: Any) -> None:
    found = key_of(*identified(key))
    assert found == key
    assert type(found) is type(key)
    if type(key) is tuple:
        assert list(map(type, found)) == list(map(type, key))
    assert key_bytes(found) == key_bytes(key)


def test_plain_keys_need_no_pickle() -> None:
    plain = ["a", 1, b"a", None, 1.5, ("a", (1, b"b")), frozenset({"a"}), Colour.RED, date.max]
    assert [identified(key)[1] for key in plain] == [b""] * len(plain)
    assert all(identified(key)[1] for key in [True, 1.0, Level.LOW, (1, True), Pair(1, 2)])


def test_bytes_are_the_same_in_every_process() -> None:
    keys = "[frozenset('abcdefgh'), (frozenset('xyz'), 1.5), 'a', 7]"
    code = (
        "from sojourn.engine.worker.keys import key_bytes\n"
        f"print([key_bytes(key) for key in {keys}])"
    )
    for seed in "12":
        answer = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.strip() == str([key_bytes(key) for key in eval(keys)])
