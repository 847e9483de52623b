"""Trials on Spark: a topology with so many tasks, sources in parts and sinks that keep nothing."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sojourn as sj
from sojourn import durable
from sojourn.engine.driver.record import Record, write_record
from sojourn.engine.wire import messages as m
from sojourn.engine.worker import values
from sojourn.errors import InputError
from sojourn.ports import Parallelism, Sample, Samples
from sojourn.profile import Repeated, SparkPlatform, SparkTrial, in_parts, recorded
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
    assert recorded("lines", source, most=3) == ["a b", "b", "a b"]
    assert recorded("lines", source, 1, most=2) == ["b", "a b"]
    assert recorded("lines", source, most=10**9, seconds=0.1)[:2] == ["a b", "b"]
    t = sj.Topology("empty")
    lines = t.source("lines", sj.sources.iterable(list))
    t.sink("out", sj.sinks.call(print), t.operator("split", str.split, lines))
    with pytest.raises(InputError, match="source 'lines': gives nothing"):
        SparkPlatform(t, 1, 2)


def test_a_sample_is_taken_where_a_run_stands(tmp_path: Path) -> None:
    position = values.dumps((1, 1, 0.0, 0.0))
    folder = tmp_path / "checkpoint"
    with pytest.raises(InputError, match="is none; give that of a run"):
        SparkPlatform(words(), 1, 2, checkpoint=folder)
    durable.private_directory(folder / "sojourn")
    write_record(folder, Record(number=3, parts=[m.Part("lines", 0, position=position)]))
    assert SparkPlatform(words(), 1, 2, checkpoint=folder).samples["lines"][:3] == ["b", "a b", "b"]


def test_a_source_that_gives_nothing_for_long_is_not_waited_for() -> None:
    class Quiet(sj.Source[int]):
        def read(self, _position: Any, /) -> Iterator[tuple[int, int]]:
            yield 1, 1
            threading.Event().wait()

    assert recorded("quiet", Quiet(), seconds=0.2) == [1]

    class Broken(sj.Source[int]):
        def read(self, _position: Any, /) -> Iterator[tuple[int, int]]:
            raise OSError("gone")

    with pytest.raises(InputError, match=r"source 'broken': cannot be read .*OSError: gone"):
        recorded("broken", Broken())


class Told(sj.Operator):
    """Hears rules."""

    def process(self, line: str) -> str:
        return line

    def on_broadcast(self, key: Any, value: Any, /) -> None:
        """It is enough to hear it."""


def test_what_all_workers_are_told_is_told_once() -> None:
    t = sj.Topology("rules")
    rules = t.source("rules", sj.sources.iterable(lambda: [("x", 1), ("y", 2)]))
    lines = t.source("lines", sj.sources.iterable(lambda: ["a", "b"]))
    t.operator("split", Told, lines, broadcast=[rules])
    made = in_parts(
        t, {"rules": [("x", 1)], "lines": ["a", "b"]}, Parallelism({}, {"lines": 2}), 100.0
    )
    assert [value for value, _ in made.sources["rules"].source.read(None)] == [("x", 1)]
    assert len(made.sources) == 3


def completed(*readings: dict[str, int]) -> list[float]:
    """Of a topology whose lines have two words each, second by second."""
    running: Any = None
    trial = SparkTrial(running, words(), {"lines": 1})
    found = []
    for number, served in enumerate(readings):
        emitted = {
            "lines": {"split": served["lines"]},
            "split": {"out": 2 * served["split"]},
            "out": {},
        }
        samples = Samples(
            float(number),
            {
                name: Sample(name, 1.0, 1, 1, 0, n, n, None, None, None, None, 0.5, emitted[name])
                for name, n in served.items()
            },
            None,
            0,
        )
        trial.count(samples)
        found.append(trial.completed(samples))
    return found


def test_what_only_comes_to_wait_is_not_completed() -> None:
    assert completed({"lines": 100, "split": 100, "out": 200}) == pytest.approx([100])
    assert completed({"lines": 100, "split": 80, "out": 160}) == pytest.approx([80])
    assert completed({"lines": 100, "split": 80, "out": 80}) == pytest.approx([40])


def test_what_was_sent_in_a_burst_is_completed_when_it_is_served() -> None:
    burst = {"lines": 1000, "split": 50, "out": 100}
    after = {"lines": 0, "split": 50, "out": 100}
    assert completed(burst, after, after) == pytest.approx([50, 50, 50])


def test_what_comes_back_is_served_again_and_not_completed_twice() -> None:
    t = sj.Topology("loop")
    lines = t.source("lines", sj.sources.iterable(list))
    again = t.operator("again", lambda v: [v], lines)
    t.feedback(again, again)
    t.sink("out", sj.sinks.call(print), again)
    running: Any = None
    trial = SparkTrial(running, t, {"lines": 1})
    back = next(edge.name for edge in t.edges if edge.feedback)
    sent = {"lines": {"again": 1000}, "again": {back: 500, "out": 0}, "out": {}}
    served = {"lines": 1000, "again": 1000, "out": 0}
    vertices = {
        name: Sample(name, 1.0, 1, 1, 0, n, n, None, None, None, None, 0.5, sent[name])
        for name, n in served.items()
    }
    samples = Samples(0.0, vertices, None, 0)
    trial.count(samples)
    assert trial.completed(samples) == pytest.approx(1000 * 1000 / 1500)
