"""The bench on which topologies are tested."""

import re
from pathlib import Path
from typing import Any

import pytest

import sojourn as sj
from sojourn.errors import InputError
from sojourn.testing import Bench, Step, Timer


class Count(sj.Operator):
    def process(self, word: str) -> Any:
        self.state[word] = self.state.get(word, 0) + 1
        self.timers.after(60, "tell")
        if word == "bad":
            raise ValueError(word)
        return [(word, self.state[word])] if word != "silent" else None

    def on_timer(self, key: Any, payload: Any) -> Any:
        yield sj.Output("told", (payload, key, self.state.pop(key)))


def topology(on_error: Any = "fail") -> sj.Topology:
    t = sj.Topology("words")
    lines = t.source("lines", sj.sources.iterable(lambda: ["a b", "b"]))
    words = t.operator("split", str.split, lines)
    counts = t.operator("count", Count, words, key=lambda word: word, on_error=on_error)
    t.sink("out", sj.sinks.call(print), counts)
    t.sink("told", sj.sinks.call(print), counts["told"])
    return t


def test_steps_are_taken_one_by_one() -> None:
    bench = Bench(topology())
    bench.send("lines", "x silent")
    assert bench.step() == Step("split", "x silent", ("x", "silent"))
    assert bench.step() == Step("count", "x", (("x", 1),))
    assert bench.step() == Step("count", "silent", ())
    assert bench.outputs["out"] == []
    assert bench.step() == Step("out", ("x", 1), ())
    assert bench.step() is None
    assert bench.outputs == {"out": [("x", 1)], "told": []}


def test_state_and_timers_can_be_looked_at() -> None:
    with Bench(topology(), now=100.0) as bench:
        assert bench.read("lines") == 2
        bench.run()
        assert bench.state("count") == {"a": 1, "b": 2}
        assert bench.timers("count") == [Timer("a", "tell", 160.0), Timer("b", "tell", 160.0)]
        bench.advance(59)
        assert bench.outputs["told"] == []
        bench.advance("1s")
        assert bench.outputs["told"] == [("tell", "a", 1), ("tell", "b", 2)]
        assert (bench.state("count"), bench.timers("count"), bench.now) == ({}, [], 160.0)


def test_a_source_is_read_as_far_as_is_wanted() -> None:
    bench = Bench(topology())
    assert (bench.read("lines", 1), bench.read("lines"), bench.read("lines")) == (1, 1, 0)


def test_what_fails_meets_on_error() -> None:
    bench = Bench(topology())
    bench.send("lines", "bad")
    with pytest.raises(ValueError, match="bad"):
        bench.run()
    bench = Bench(topology("skip"))
    bench.send("lines", "bad good")
    bench.run()
    assert [(step.vertex, step.value) for step in bench.failed] == [("count", "bad")]
    assert (bench.state("count"), len(bench.timers("count"))) == ({"good": 1}, 1)
    assert bench.outputs["out"] == [("good", 1)]


class Kept(sj.Operator):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def process(self, value: int) -> list[int]:
        self.seen.append(value)
        return [len(self.seen)]


def test_benches_do_not_share_operators() -> None:
    t = sj.Topology("kept")
    t.sink("out", sj.sinks.call(print), t.operator("kept", Kept(), t.source("n", numbers())))
    first, second = Bench(t), Bench(t)
    for bench in (first, second):
        bench.send("n", 7)
        bench.run()
        assert bench.outputs["out"] == [1]


def numbers() -> sj.Source:
    return sj.sources.iterable(tuple)


def test_a_chain_fails_as_its_head_does() -> None:
    t = sj.Topology("chain")
    head = t.map("head", lambda v: v, t.source("n", numbers()), on_error="skip")
    t.sink("out", sj.sinks.call(print), t.map("tail", lambda v: 1 / v, head, chain=True))
    bench = Bench(t)
    bench.send("n", 0, 2)
    bench.run()
    assert (bench.outputs["out"], len(bench.failed)) == ([0.5], 1)


def test_every_receiver_has_a_copy() -> None:
    t = sj.Topology("copies")
    lists = t.source("lists", sj.sources.iterable(tuple))
    t.sink("one", sj.sinks.call(print), t.map("add", lambda found: found.append(1), lists))
    t.sink("two", sj.sinks.call(print), t.map("same", lambda found: found, lists))
    bench = Bench(t)
    bench.send("lists", [])
    bench.run()
    assert bench.outputs == {"one": [None], "two": [[]]}


def test_the_page_on_topologies_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tweets.txt").write_text("to be\n", encoding="utf-8")
    Path("prices.jsonl").write_text('{"item": "tea", "price": 2}\n', encoding="utf-8")
    page = Path(__file__).parents[2] / "docs" / "topologies.md"
    found = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    blocks = [block for block in found if "sj.run(" not in block]  # that one takes Spark
    assert len(blocks) == len(found) - 1
    names: dict[str, Any] = {}
    for block in blocks:
        if "clicks," in block:  # it goes on with a stream of its own
            names["t"] = t = sj.Topology("clicks")
            names["clicks"] = t.source("clicks", sj.sources.iterable(list))
        if "Price, orders" in block:
            names["t"] = t = sj.Topology("orders")
            names["orders"] = t.source("orders", sj.sources.iterable(list))
        if "Bench(t)" in block:
            exec(blocks[0], names)
        exec(block, names)
        if "Price, orders" in block:
            names["t"].sink("out", sj.sinks.call(print), names["priced"])
            bench = Bench(names["t"])
            bench.read("prices")
            bench.run()
            bench.send("orders", {"id": 7, "item": "tea", "count": 3})
            bench.run()
            assert bench.outputs["out"] == [(7, 6)]


def test_an_unknown_name_is_told() -> None:
    bench = Bench(topology())
    with pytest.raises(InputError, match="no source 'line'; known are lines"):
        bench.send("line", 1)
    with pytest.raises(InputError, match="no operator 'counts'; known are split, count"):
        bench.state("counts")
