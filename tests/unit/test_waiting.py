"""Async operators: many tuples at once in a worker, answered as they are done."""

import asyncio
from typing import Any

import pytest
from test_worker import serving, work

import sojourn as sj
from sojourn.engine.wire import messages as m
from sojourn.engine.worker.code import OperatorCode, Shared
from sojourn.errors import InputError
from sojourn.operators import is_async
from sojourn.testing import Bench

gates: dict[str, asyncio.Event] = {}


class Ask(sj.Operator):
    """Waits at a gate of the word's own until another word opens it."""

    async def open(self) -> None:
        self.loop = asyncio.get_running_loop()
        gates.clear()

    async def process(self, word: str) -> list[str]:
        if word == "bad":
            raise ValueError(word)
        if word.startswith("open "):
            gates[word.removeprefix("open ")].set()
        else:
            gates[word] = asyncio.Event()
            await gates[word].wait()
        assert asyncio.get_running_loop() is self.loop
        return [word]

    async def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop


async def twice(value: int) -> Any:
    yield value
    yield value


def test_tuples_are_answered_as_they_are_done() -> None:
    with serving(OperatorCode(Ask, "ask", Shared())) as (tell, answer):
        for word in ("a", "b", "open b", "open a"):
            tell(work(word, shard=-1))
        places = [answer().place for _ in range(4)]  # "open b" is the first
        assert places in ([2, 1, 1, 0], [2, 2, 1, 0], [2, 2, 0, 0])
        tell(m.Close())


def test_a_cut_comes_after_all_that_was_given_before(tmp_path: Any) -> None:
    with serving(OperatorCode(Ask, "ask", Shared())) as (tell, answer):
        tell(work("a", shard=-1))
        tell(work("open a", shard=-1))
        tell(m.Save(1, str(tmp_path / "file"), hold=False, last=False))
        kinds = [type(answer()) for _ in range(4)]
        assert kinds == [m.Done, m.Done, m.Cut, m.Saved]
        tell(m.Close())


@pytest.mark.parametrize("keep_going", [False, True])
def test_what_fails_meets_on_error(keep_going: bool) -> None:
    with serving(OperatorCode(Ask, "ask", Shared()), keep_going=keep_going) as (tell, answer):
        tell(work("bad", shard=-1))
        found = answer()
        if keep_going:
            assert isinstance(found, m.Done)
            assert [letter.shown for letter in found.failed] == ["'bad'"]
        else:
            assert isinstance(found, m.Fatal)
            assert "processing 'bad' raised" in found.error
        tell(m.Close())


class Cancelled(sj.Operator):
    async def process(self, _value: str) -> None:
        raise asyncio.CancelledError


def test_a_tuple_that_is_cancelled_has_failed() -> None:
    code = OperatorCode(Cancelled, "cancelled", Shared())
    with serving(code, keep_going=True) as (tell, answer):
        tell(work("a", shard=-1))
        found = answer()
        assert isinstance(found, m.Done)
        assert len(found.failed) == 1
        tell(m.Close())


class HalfAsync(sj.Operator):
    async def open(self) -> None: ...

    def process(self, value: int) -> list[int]:
        return [value]


def test_open_is_async_only_where_process_is() -> None:
    t = sj.Topology("t")
    with pytest.raises(InputError, match=r"HalfAsync\.open is async, but process is not"):
        t.operator("half", HalfAsync, source(t))


def test_an_async_generator_emits_what_it_yields() -> None:
    t = sj.Topology("t")
    t.sink("out", sj.sinks.call(print), t.operator("twice", twice, source(t)))
    with Bench(t) as bench:
        bench.send("n", 7)
        bench.run()
        assert bench.outputs["out"] == [7, 7]


def source(t: sj.Topology) -> sj.Vertex:
    return t.source("n", sj.sources.iterable(lambda: range(3)))


def test_concurrency_is_a_number_of_tuples() -> None:
    t = sj.Topology("t")
    n = source(t)
    t.operator("a", Ask, n)
    t.operator("b", Ask(), n, concurrency=8, processors=20)
    assert [is_async(code) for code in (Ask, Ask(), twice, source)] == [True, True, True, False]
    assert [spec.concurrency for spec in t.operators.values()] == [64, 8]
    for options, told in (
        ({"concurrency": "thread"}, "concurrency must be a whole number"),
        ({"concurrency": 0}, "concurrency must be a whole number from 1"),
        ({"key": lambda v: v}, "is async, so its tuples finish in any order"),
    ):
        with pytest.raises(InputError, match=told):
            t.operator("c", Ask, n, **options)
    with pytest.raises(InputError, match="concurrency must be one of 'process', 'thread'; got 8"):
        t.operator("d", lambda v: [v], n, concurrency=8)
    t.map("e", lambda v: v, t.operator("f", Ask, n), chain=True)
    with pytest.raises(InputError, match="'f' has an async process; leave out chain=True"):
        t.check()
