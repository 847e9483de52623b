"""Trials on Spark: a topology with so many tasks, sources in parts and sinks that keep nothing."""

import itertools
from typing import Any

import pytest

import sojourn as sj
from sojourn.errors import InputError
from sojourn.ports import Parallelism
from sojourn.profile import Repeated, SparkPlatform, in_parts, recorded
from sojourn.testing import Bench


def words(out: Any = None) -> sj.Topology:
    t = sj.Topology("words")
    lines = t.source("lines", sj.sources.iterable(lambda: itertools.cycle(["a b", "b"])))
    split = t.operator("split", str.split, lines, processors=2)
    t.sink("out", sj.sinks.jsonl("out") if out is None else out, split)
    return t


def test_a_source_in_parts_gives_every_message_once_in_every_turn() -> None:
    values = ["a", "b", "c", "d", "e"]
    parts = [Repeated(values, part, 3, None) for part in range(3)]
    found = [list(itertools.islice(part.read(None), 5)) for part in parts]
    assert sorted(value for some in found for value, _ in some) == sorted(values * 3)
    value, position = found[1][1]
    assert next(parts[1].read(found[1][0][1])) == (value, position)  # it goes on where it was


def test_a_topology_to_be_tried() -> None:
    written: list[str] = []
    made = in_parts(
        words(sj.sinks.call(written.append)),
        {"lines": ["a b", "c"]},
        Parallelism({"split": 5}, {"lines": 2}),
        100.0,
    )
    made.check()
    assert list(made.sources) == ["lines", "lines.part2"]
    assert made.operators["split"].processors == 5
    paces = [spec.source.pace for spec in made.sources.values()]
    assert [pace.rate for pace in paces if pace is not None] == [50.0, 50.0]
    assert [(edge.sender, edge.receiver) for edge in made.edges] == [
        ("lines", "split"),
        ("lines.part2", "split"),
        ("split", "out"),
    ]
    bench = Bench(made)
    bench.read("lines", 2)
    bench.run()
    assert written == []  # no result of a trial is taken for one
    assert in_parts(words(), {"lines": ["a"]}, Parallelism({}, {}), None).sources.keys() == {
        "lines"
    }


def test_a_sample_is_what_a_source_gives_first() -> None:
    source = words().sources["lines"].source
    assert recorded(source, most=3) == ["a b", "b", "a b"]
    assert recorded(source, 1, most=2) == ["b", "a b"]
    assert recorded(source, most=10**9, seconds=0.0) == ["a b"]
    t = sj.Topology("empty")
    lines = t.source("lines", sj.sources.iterable(list))
    t.sink("out", sj.sinks.call(print), t.operator("split", str.split, lines))
    with pytest.raises(InputError, match="source 'lines': gives nothing"):
        SparkPlatform(t, 1, 2)
