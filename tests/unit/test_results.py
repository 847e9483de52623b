"""What operators emit: many values, one, or the value itself; and what is taken for a mistake."""

from collections import namedtuple
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sojourn as sj
from sojourn.chains import contracted
from sojourn.engine.worker.code import OperatorCode, Shared
from sojourn.operators import Emits

Point = namedtuple("Point", "x y")


def emitted(returned: Any, emits: Emits = "many") -> list[Any]:
    return list(OperatorCode(lambda _: returned, "op", Shared(), emits=emits).process("in", -1))


@pytest.mark.parametrize(
    ("returned", "values"),
    [
        ([1, 2], [1, 2]),
        ((1, 2), [1, 2]),
        (None, []),
        ((n for n in (1, 2)), [1, 2]),
        (sj.Output("late", 3), [sj.Output("late", 3)]),
        ([{"a": 1}], [{"a": 1}]),
        (["text"], ["text"]),
    ],
)
def test_an_operator_emits_what_it_returns_one_by_one(returned: Any, values: list[Any]) -> None:
    assert emitted(returned) == values


@pytest.mark.parametrize(
    "returned",
    [
        {"a": 1},
        "text",
        b"bytes",
        bytearray(b"bytes"),
        memoryview(b"bytes"),
        7,
        Point(1, 2),
        pd.DataFrame({"a": [1], "b": [2]}),
    ],
)
def test_what_looks_like_one_value_is_refused(returned: Any) -> None:
    with pytest.raises(TypeError, match=r"operator 'op' returned .*return \[value\] or use t.map"):
        emitted(returned)


@pytest.mark.parametrize("returned", [{"a": 1}, "text", [1, 2], None, Point(1, 2)])
def test_a_map_emits_what_it_returns_whatever_it_is(returned: Any) -> None:
    assert emitted(returned, "one") == [returned]


@pytest.mark.parametrize(("emits", "method"), [("one", "t.map"), ("same", "t.filter")])
def test_what_is_no_value_yet_is_refused(emits: Emits, method: str) -> None:
    async def awaits() -> None: ...

    async def streams() -> Any:
        yield 1

    for returned, kind in (
        ((n for n in (1, 2)), "generator"),
        (streams(), "async generator"),
        (awaits(), "coroutine"),
    ):
        with pytest.raises(TypeError, match=f"'op' returned a {kind}; {method} takes a value; "):
            emitted(returned, emits)


def test_a_filter_chooses_no_output() -> None:
    with pytest.raises(TypeError, match=r"returned Output.*; t.filter takes true or false; to"):
        emitted(sj.Output("odd", 1), "same")


@pytest.mark.parametrize(("returned", "values"), [(True, ["in"]), (0, []), (np.bool_(1), ["in"])])
def test_a_filter_emits_the_value_itself(returned: Any, values: list[Any]) -> None:
    assert emitted(returned, "same") == values


class Odd(sj.Operator):
    columns = "numpy"

    def process_bundle(self, values: Any) -> Any:
        return values % 2 == 1


def test_bundles_are_mapped_and_filtered_too() -> None:
    kept = OperatorCode(Odd, "odd", Shared(), emits="same").process_bundle([1, 2, 3], -1)
    assert [list(found) for found in kept] == [[1], [], [3]]
    told = OperatorCode(Odd, "odd", Shared(), emits="one").process_bundle([1, 2], -1)
    assert [list(found) for found in told] == [[True], [False]]


class Above(sj.Operator):
    def __init__(self, least: int) -> None:
        self.least = least
        self.seen: list[int] = []

    def process(self, value: int) -> bool:
        self.seen.append(value)
        return value > self.least


@pytest.mark.parametrize("code", [Above(2), partial(Above, 2), partial(Above, least=2)])
def test_an_instance_and_a_partial_are_operators(code: Any) -> None:
    t = sj.Topology("t")
    t.filter("above", code, t.source("n", sj.sources.iterable(lambda: range(5))))
    spec = t.operators["above"]
    made = OperatorCode(spec.code, "above", Shared(), emits=spec.emits)
    assert [list(made.process(n, -1)) for n in (1, 3)] == [[], [3]]


def test_workers_that_are_threads_have_an_instance_each() -> None:
    given, shared = Above(2), Shared(in_threads=True)
    first, second = (OperatorCode(given, "above", shared, emits="same") for _ in range(2))
    first.process(7, -1)
    assert [list(first.process(1, -1)), list(second.process(3, -1)), given.seen] == [[], [3], []]


def test_a_chain_maps_and_filters() -> None:
    t = sj.Topology("t")
    n = t.source("n", sj.sources.iterable(lambda: range(5)))
    big = t.filter("big", Above(1), t.map("twice", lambda v: v * 2, n), chain=True)
    told = t.map("told", lambda v: {"v": v}, big, chain=True)
    t.sink("out", sj.sinks.call(print), told)
    spec = contracted(t).operators["twice"]
    code = OperatorCode(spec.code, "twice", Shared(), emits=spec.emits)
    assert [list(code.process(v, -1)) for v in (0, 3)] == [[], [sj.Output("told", {"v": 6})]]
