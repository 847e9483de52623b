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


def test_a_restart_keeps_state_and_timers_and_nothing_else() -> None:
    t = sj.Topology("restarted")
    source = t.source("words", numbers())
    counts = t.operator("count", Count, source, key=lambda word: word)
    t.sink("out", sj.sinks.call(print), counts, t.operator("kept", Kept(), source))
    t.sink("told", sj.sinks.call(print), counts["told"])
    bench = Bench(t)
    bench.send("words", "a")
    bench.run()
    bench.send("words", "a")
    bench.restart(down="50s")
    assert bench.state("count") == {"a": 1}
    assert bench.timers("count") == [Timer("a", "tell", 60.0)]
    bench.run()
    assert bench.outputs["out"] == [("a", 1), 1, ("a", 2), 1], "'kept' has begun anew"
    bench.restart()
    assert bench.timers("count") == [Timer("a", "tell", 110.0)]
    bench.advance(60)
    assert bench.outputs["told"] == [("tell", "a", 2)]


class Careful(sj.Operator):
    """Notes when it is opened and closed."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def open(self) -> None:
        (self.notes / f"opened-{len(list(self.notes.iterdir()))}").touch()

    def close(self) -> None:
        (self.notes / f"closed-{len(list(self.notes.iterdir()))}").touch()

    def process(self, value: Any) -> list[Any]:
        return [value]


def test_operators_are_closed_before_they_are_made_anew(tmp_path: Path) -> None:
    t = sj.Topology("careful")
    t.operator("careful", Careful(tmp_path), t.source("n", numbers()))
    with Bench(t) as bench:
        bench.restart()
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["closed-1", "closed-3", "opened-0", "opened-2"]


def test_sinks_write_what_has_reached_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[int] = []
    t = sj.Topology("published")
    source = t.source("n", numbers())
    t.sink("files", sj.sinks.jsonl(tmp_path), source)
    t.sink("shown", sj.sinks.console(), source)
    t.sink("called", sj.sinks.call(called.append), source)
    bench = Bench(t)
    for value in (1, 2):
        bench.send("n", value)
        bench.run()
        assert len(list(tmp_path.glob("*.jsonl"))) == value - 1, "nothing is written before"
        bench.publish()
    bench.publish()
    written = [path.read_text(encoding="utf-8") for path in sorted(tmp_path.glob("*.jsonl"))]
    assert (written, called, capsys.readouterr().out) == (["1\n", "2\n"], [1, 2], "1\n2\n")
    assert not (tmp_path / "_staging").exists()


def test_what_a_sink_cannot_write_meets_on_error(tmp_path: Path) -> None:
    for on_error in ("fail", "skip"):
        t = sj.Topology("odd")
        sink = sj.sinks.jsonl(tmp_path / on_error)
        t.sink("out", sink, t.source("n", numbers()), on_error=on_error)
        bench = Bench(t)
        bench.send("n", {1j: 2}, 3)
        bench.run()
        if on_error == "fail":
            with pytest.raises(TypeError):
                bench.publish()
            continue
        bench.publish()
        assert [(step.vertex, step.value) for step in bench.failed] == [("out", {1j: 2})]
        (path,) = (tmp_path / on_error).glob("*.jsonl")
        assert path.read_text(encoding="utf-8") == "3\n"


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
    with pytest.raises(InputError, match="no source 'line'; known: lines"):
        bench.send("line", 1)
    with pytest.raises(InputError, match="no operator 'counts'; known: split, count"):
        bench.state("counts")


def test_a_wrong_time_or_topology_is_told() -> None:
    wrong: Any = "t"
    with pytest.raises(InputError, match=r"Bench: needs a sojourn\.Topology; got 't'"):
        Bench(wrong)
    with pytest.raises(InputError, match="Bench: now: must be a number; got 'noon'"):
        Bench(topology(), now="noon")  # type: ignore[arg-type]
    bench = Bench(topology(), now=100)
    for attempt in (bench.advance, bench.restart):
        with pytest.raises(InputError, match=r"must not be below zero, as time .*; got -5"):
            attempt(-5)
    assert bench.now == 100
