"""Inputs that every worker gets: declared, addressed, kept, saved and told."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_worker import TO_ALL, serving

import sojourn as sj
from sojourn.control.controller import shape_of
from sojourn.engine.driver.record import Record
from sojourn.engine.executor.table import Table
from sojourn.engine.executor.workers import Workers
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import layout
from sojourn.engine.worker import store, values
from sojourn.engine.worker.code import OperatorCode, Shared
from sojourn.engine.worker.router import Router, broadcast_of
from sojourn.errors import InputError
from sojourn.settings import EngineSettings, SimulatorSettings
from sojourn.simulator.draws import Distribution
from sojourn.simulator.engine import SimulatedEngine
from sojourn.simulator.workload import OperatorLoad, Workload
from sojourn.testing import Bench, Step


class Price(sj.Operator):
    def process(self, order: Any) -> Any:
        name, count = order
        return [(name, count * self.broadcast.get(name, 0))]


class Hears(Price):
    def open(self) -> None:
        self.heard: list[Any] = []

    def on_broadcast(self, key: Any, value: Any) -> None:
        self.heard.append((key, value))


class Told(sj.Operator):
    def process(self, line: str) -> Any:
        return [(line, dict(self.broadcast))]


class Plain(sj.Operator):
    def process(self, value: Any) -> Any:
        return [value]


def priced(code: Any = Price, **options: Any) -> sj.Topology:
    t = sj.Topology("priced")
    prices = t.source("prices", sj.sources.iterable(lambda: [("tea", 2)]))
    orders = t.source("orders", sj.sources.iterable(lambda: [("tea", 3)], rate=10))
    found = t.operator("price", code, orders, broadcast=prices, **options)
    t.sink("out", sj.sinks.call(print), found)
    return t


def test_the_last_value_of_each_key_is_there_for_every_tuple() -> None:
    with Bench(priced()) as bench:
        bench.send("orders", ("tea", 3))
        bench.send("prices", ("tea", 2), ("pot", 9))
        bench.send("orders", ("tea", 3), ("pot", 1))
        bench.send("prices", ("tea", 4), ("pot", None))
        bench.send("orders", ("tea", 3), ("pot", 1))
        assert bench.run()[1] == Step("price", ("tea", 2), ())
        assert bench.broadcast("price") == {"tea": 4}
        bench.restart()
        assert bench.broadcast("price") == {"tea": 4}
        expected = [("tea", 0), ("tea", 6), ("pot", 9), ("tea", 12), ("pot", 0)]
        assert bench.outputs["out"] == expected


def test_an_operator_may_hear_of_each_change() -> None:
    code = OperatorCode(Hears, "price", Shared(), broadcast=True)
    told = [("tea", 2), ("tea", None), (("a", 1.5), [1])]
    code.tell([m.decode_change(broadcast_of("price", pair)) for pair in told])
    operator: Any = code.operator
    assert operator.heard == told
    assert dict(operator.broadcast) == {("a", 1.5): [1]}
    with pytest.raises(TypeError):
        operator.broadcast["tea"] = 3


@pytest.mark.parametrize("value", ["tea", ("tea",), ["tea", 2], ("tea", 2, 3), {"tea": 2}])
def test_what_is_not_a_pair_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"broadcast to 'price' must be a \(key, value\) pair"):
        broadcast_of("price", value)


def test_a_pair_that_is_refused_meets_its_senders_on_error() -> None:
    t = sj.Topology("priced")
    lines = t.source("lines", sj.sources.iterable(lambda: ["tea 2"]))
    prices = t.map("prices", lambda s: tuple(s.split()), lines, on_error="skip", key=len)
    t.sink("out", sj.sinks.call(print), t.operator("price", Told, lines, broadcast=[prices]))
    bench = Bench(t)
    bench.send("lines", "tea 2", "tea")
    bench.run()
    assert [(step.vertex, step.value) for step in bench.failed] == [("prices", "tea")]
    assert bench.broadcast("price") == {"tea": "2"}


def test_what_cannot_be_broadcast_to_is_refused() -> None:
    t = sj.Topology("t")
    one = t.source("one", sj.sources.iterable(lambda: [1]))
    two = t.source("two", sj.sources.iterable(lambda: [(1, 2)]))
    with pytest.raises(InputError, match=r"is a function, which has no self\.broadcast"):
        t.operator("f", lambda value: [value], one, broadcast=two)
    with pytest.raises(InputError, match=r"uses self.broadcast or on_broadcast.*add broadcast=…"):
        t.operator("f", Price, one)
    with pytest.raises(InputError, match=r"uses self.broadcast or on_broadcast"):
        t.operator("f", type("Only", (Plain,), {"on_broadcast": lambda *_: None}), one)
    with pytest.raises(InputError, match="has no input; name at least one"):
        t.operator("f", Price, broadcast=two)
    with pytest.raises(InputError, match="unknown input 7"):
        t.operator("f", Price, one, broadcast=[7])  # type: ignore[list-item]
    assert set(t.vertices) == {"one", "two"}


@pytest.mark.parametrize("head", [False, True])
def test_a_broadcast_goes_with_no_chain(head: bool) -> None:
    t = sj.Topology("t")
    one = t.source("one", sj.sources.iterable(lambda: [(1, 2)]))
    first = t.operator("first", Price, one, broadcast=one) if head else t.map("first", len, one)
    t.operator("second", Plain, first, chain=True) if head else t.operator(
        "second", Price, first, broadcast=one, chain=True
    )
    with pytest.raises(InputError, match="has a broadcast input; leave out chain=True"):
        t.check()


def test_it_is_drawn() -> None:
    assert "prices  source    → price (broadcast)" in str(priced())
    assert ">broadcast</text>" in priced()._repr_svg_()


def test_an_operator_that_broadcasts_has_a_key_so_that_values_stay_in_order() -> None:
    t = sj.Topology("t")
    one = t.source("one", sj.sources.iterable(lambda: [(1, 2)]))
    pairs = t.map("pairs", tuple, one)
    with pytest.raises(InputError, match=r"its broadcast input 'pairs' has no key.*give it key=…"):
        t.operator("price", Price, one, broadcast=pairs)
    t.operator("price", Price, one, broadcast=t.map("keyed", tuple, one, key=len))
    assert [(e.sender, e.receiver) for e in t.edges if e.broadcast] == [("keyed", "price")]


def test_every_executor_gets_a_copy_which_is_no_part_of_a_tree() -> None:
    t = priced(key=lambda order: order[0], executors=3)
    router = Router(layout(t).routes["prices"], seed=1)
    assert router.send([("tea", 2)], root=7) == 0
    groups = router.collect()
    assert [(g.executor, g.shards, g.traces) for g in groups] == [
        (0, [-2], []),
        (1, [-3], []),
        (2, [-4], []),
    ]
    (payload,) = {payload for group in groups for payload in group.payloads}
    _, _, value = m.decode_change(payload)
    assert value is not None
    assert values.loads(value) == 2


def test_a_table_says_what_changed_since_the_last_cut(tmp_path: Path) -> None:
    table = Table()
    table.take([broadcast_of("", pair) for pair in [("a", 1), ("b", 1), ("a", 2)]])
    first = table.cut()
    assert len(first) == 2
    assert table.cut() == []
    table.take([broadcast_of("", ("b", None))])
    second = table.cut()
    assert [change[2] for change in second] == [None]
    assert [values.loads(entry[2] or b"") for entry in table.entries.values()] == [2]
    paths = [tmp_path / "1", tmp_path / "2"]
    for path, changes in zip(paths, (first, second), strict=True):
        store.write(path, {store.TABLE: changes, 3: first})
    loaded = Table()
    loaded.load(store.newest(paths, store.TABLE), anew=False)
    assert (loaded.entries, loaded.cut()) == (table.entries, [])
    loaded.load(store.newest(paths, store.TABLE), anew=True)
    assert loaded.cut() == list(table.entries.values())


def test_all_executors_take_up_the_first_ones_table(tmp_path: Path) -> None:
    parts = [m.Part("price", n, state=[(f"price/{n}/1.keys", 5)]) for n in (1, 0)]
    record = Record(1, 0, parts)
    for executors in (2, 3):
        for executor in range(executors):
            found = record.welcome(tmp_path, "price", executor, executors)
            assert found.table == ["price/0/1.keys"]
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=m.Welcome)
    assert again == found


def test_broadcasts_are_no_load() -> None:
    topology = priced()
    assert set(shape_of(topology).known) == {"orders", "price", "out"}
    load = Workload({"price": OperatorLoad(Distribution("constant", 0.01))})
    engine = SimulatedEngine(topology, load, SimulatorSettings(), EngineSettings(), seed=1)
    engine.advance(10.0)
    samples = engine.samples()
    assert set(samples.vertices) == {"orders", "price", "out"}
    assert samples.vertices["price"].arrivals == pytest.approx(100, abs=2)


def test_a_topology_without_broadcasts_is_itself() -> None:
    topology = priced()
    topology.edges = [replace(edge, broadcast=False) for edge in topology.edges]
    assert topology.without_broadcasts() is topology


class Raises(Price):
    def on_broadcast(self, key: Any, value: Any) -> None:  # noqa: ARG002
        raise ValueError(value)


def test_what_a_broadcast_raises_names_its_key() -> None:
    code = OperatorCode(Raises, "price", Shared(), broadcast=True)
    with pytest.raises(RuntimeError, match="the broadcast of key 'tea' raised"):
        code.tell([m.decode_change(broadcast_of("price", ("tea", 2)))])


def test_an_async_operator_takes_up_a_broadcast_while_it_waits() -> None:
    class Asks(sj.Operator):
        async def open(self) -> None:
            self.told = asyncio.Event()

        async def on_broadcast(self, key: Any, value: Any) -> None:  # noqa: ARG002
            self.told.set()

        async def process(self, value: Any) -> Any:
            await self.told.wait()  # which only the broadcast ends
            return [(value, dict(self.broadcast))]

    code = OperatorCode(Asks, "asks", Shared(), broadcast=True)
    with serving(code, routes=(TO_ALL,)) as (tell, answer):
        tell(m.Work([values.dumps(1)], [], []))
        tell(m.Broadcast([m.decode_change(broadcast_of("asks", ("tea", 2)))]))
        answers = [answer(), answer()]
    assert {type(found) for found in answers} == {m.Told, m.Done}


def test_a_broadcast_counts_until_every_worker_has_taken_it_up() -> None:
    links = [Sent(), Sent(), Sent()]
    made = iter(links)
    table = Table()
    workers = Workers(lambda: next(made), False, [], 10, table=table)  # type: ignore[arg-type, return-value]
    workers.resize(2)
    for number, worker in enumerate(workers.all):
        workers.ready(worker, number + 1)
    workers.tell(table.take([broadcast_of("", ("tea", b"x" * 1000))]))
    assert workers.telling_bytes > 1000
    assert (workers.idle, workers.may_cut) == (False, False)
    for worker in workers.all:
        worker.telling.popleft()
    assert (workers.idle, workers.may_cut, workers.telling_bytes) == (True, True, 0)
    workers.resize(3)
    (frame,) = links[2].frames
    message = m.decode_to_worker(frame)
    assert isinstance(message, m.Broadcast)
    assert message.changes == list(table.entries.values())
    assert workers.may_cut, "a worker that starts holds no commit up"


class Sent:
    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def send(self, *parts: bytes) -> None:
        self.frames.append(b"".join(parts))
