"""Chains: operators that share workers, as the topology they amount to and as their worker runs
them."""

from collections.abc import Iterator
from typing import Any

import pytest

import sojourn as sj
from sojourn.chains import behind, chained_to, contracted, stage_of
from sojourn.control.controller import shape_of
from sojourn.engine.driver.merge import Change, merge
from sojourn.engine.wire import messages as m
from sojourn.engine.worker.code import OperatorCode, Shared
from sojourn.errors import InputError


def split(line: str) -> list[Any]:
    return [*line.split(), sj.Output("lengths", len(line))]


class Long(sj.Operator):
    """Words of more than three letters; others are rejected."""

    opened = closed = 0

    def open(self) -> None:
        Long.opened += 1

    def process(self, word: str) -> Iterator[Any]:
        yield word if len(word) > 3 else sj.Output("rejected", word)

    def close(self) -> None:
        Long.closed += 1


def shout(word: str) -> list[str]:
    return [word.upper()]


def topology() -> sj.Topology:
    """lines → (split → long → shout) → out, with what leaves the chain half-way."""
    t = sj.Topology("chained")
    lines = t.source("lines", sj.sources.iterable(lambda: ["a quick brown fox"]))
    words = t.operator("split", split, lines, processors=3)
    long = t.operator("long", Long, words, chain=True)
    loud = t.operator("shout", shout, long, chain=True)
    t.sink("out", sj.sinks.console(), loud)
    t.sink("short", sj.sinks.console(), long["rejected"])
    t.sink("words", sj.sinks.console(), words)
    t.sink("lengths", sj.sinks.console(), words["lengths"])
    t.check()
    return t


def test_a_chain_is_a_single_operator() -> None:
    t = topology()
    assert chained_to(t) == {"long": "split", "shout": "split"}
    made = contracted(t)
    made.check()
    assert list(made.operators) == ["split"]
    assert made.operators["split"].processors == 3
    assert behind(made.operators["split"].code) == ("long", "shout")
    assert {(e.sender, e.receiver, e.output) for e in made.edges} == {
        ("lines", "split", None),
        ("split", "out", "shout"),
        ("split", "short", "long.rejected"),
        ("split", "words", None),
        ("split", "lengths", "lengths"),
    }
    assert made.levels()["out"] == 2
    assert shape_of(t).start == {"split": 3}
    assert [*shape_of(t).known] == ["lines", "split", "out", "short", "words", "lengths"]


def test_a_topology_without_chains_is_left_as_it_is() -> None:
    t = sj.Topology("plain")
    t.operator("a", shout, t.source("s", sj.sources.iterable(list)))
    assert contracted(t) is t


def test_a_worker_runs_the_whole_chain() -> None:
    code = OperatorCode(contracted(topology()).operators["split"].code, "split", Shared())
    found = list(code.process("a quick brown fox", -1))
    assert found == [
        "a",
        sj.Output("long.rejected", "a"),
        "quick",
        sj.Output("shout", "QUICK"),
        "brown",
        sj.Output("shout", "BROWN"),
        "fox",
        sj.Output("long.rejected", "fox"),
        sj.Output("lengths", 17),
    ]
    assert [served for served, _, _ in code.stages()] == [4, 2]
    assert [served for served, _, _ in code.stages()] == [0, 0]
    opened = Long.opened
    code.close()
    assert (opened, Long.closed) == (1, 1)


def test_what_a_stage_returns_is_checked_by_its_own_name() -> None:
    t = sj.Topology("wrong")
    a = t.operator("a", shout, t.source("s", sj.sources.iterable(list)))
    t.operator("b", len, a, chain=True)  # type: ignore[arg-type]
    code = OperatorCode(contracted(t).operators["a"].code, "a", Shared())
    with pytest.raises(TypeError, match="operator 'b' returned int 4"):
        list(code.process("word", -1))


def report(served: int, stages: dict[str, m.Moments], emitted: dict[str, int]) -> m.Report:
    at_s = 10.0 if served > 10 else 0.0
    fields: list[Any] = ["a", 0, 2, 2, 0, served, 0, 0.0, 0.0]
    fields += [served, served, served * 0.003, served * 1e-5, 2 * at_s]
    fields += [emitted, 0, 0, None, 0.0, at_s, 0, 0, True, True, 0, stages]
    return m.Report(*fields)


def test_samples_are_of_each_operator() -> None:
    before = report(10, {"b": (20, 0.02, 2e-5)}, {"out[b]": 5, "c": 1})
    now = report(110, {"b": (220, 0.22, 2.2e-4)}, {"out[b]": 155, "c": 11})
    found = merge([Change(now, before)])
    assert list(found) == ["a", "b"]
    b = found["b"]
    assert (b.head, b.served, b.processors) == ("a", 200, 0)
    assert b.service_s == pytest.approx(0.001)
    assert b.busy == pytest.approx(0.2 / 20)
    assert b.emitted == {"out": 150}
    assert found["a"].emitted == {"out[b]": 150, "c": 10}
    assert found["a"].head is None


def test_an_edge_of_a_chain_is_its_stages() -> None:
    assert stage_of("out[b]", ("b", "c")) == ("b", "out")
    assert stage_of("out[c.rejected]", ("b", "c")) == ("c", "out[rejected]")
    assert stage_of("out", ("b",)) is None
    assert stage_of("out[other]", ("b",)) is None


class Counted(sj.Operator):
    def process(self, word: str) -> None:
        self.state[word] = 1


class Many(sj.Operator):
    def process_bundle(self, words: list[str]) -> list[Any]:
        return [[word] for word in words]


def test_what_cannot_be_chained_is_refused() -> None:
    def start() -> tuple[sj.Topology, Any, Any]:
        t = sj.Topology("wrong")
        source = t.source("s", sj.sources.iterable(list))
        return t, source, t.operator("a", shout, source)

    t, source, a = start()
    t.operator("b", shout, source, chain=True)
    with pytest.raises(InputError, match=r"'b': with chain=True .* must be an operator"):
        t.check()
    t, source, a = start()
    t.operator("b", shout, a, source, chain=True)
    with pytest.raises(InputError, match=r"only input, which must be an operator; got 'a', 's'"):
        t.check()
    t, _, a = start()
    t.operator("b", Counted, a, key=str, chain=True)
    with pytest.raises(InputError, match="cannot be chained to 'a' because 'b' has a key"):
        t.check()
    t, _, a = start()
    t.operator("b", Many, a, chain=True)
    with pytest.raises(InputError, match="'b' has process_bundle; leave out chain=True"):
        t.check()
    t, _, a = start()
    with pytest.raises(InputError, match="from its input; leave them out"):
        t.operator("b", shout, a, processors=2, chain=True)
    t, _, a = start()
    with pytest.raises(InputError, match="chain must be one of False, True; got 'yes'"):
        t.operator("b", shout, a, chain="yes")  # type: ignore[call-overload]


def test_outputs_of_a_chain_must_differ() -> None:
    t = sj.Topology("wrong")
    a = t.operator("a", shout, t.source("s", sj.sources.iterable(list)))
    b = t.operator("b", shout, a, chain=True)
    t.sink("out", sj.sinks.console(), b)
    t.sink("odd", sj.sinks.console(), a["b"])
    with pytest.raises(
        InputError, match="its output 'b' has the same name as an output that leaves"
    ):
        contracted(t)
