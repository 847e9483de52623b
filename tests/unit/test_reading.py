"""The processes that read a source, as operators that control decides about."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from test_control import SHAPE, FakeEngine, OnePool, by_fives, ticks

from sojourn.control.controller import Shape
from sojourn.control.loop import ControlLoop
from sojourn.control.negotiator import Negotiator
from sojourn.control.reading import ReadingEngine, parted, with_readers
from sojourn.control.situation import Limits
from sojourn.ports import Allocation, Pressure, Sample, Samples
from sojourn.topology import Edge

PLAIN = Shape(
    "chain",
    {"in": "source", "match": "operator", "out": "sink"},
    Limits({"match": 1}, {"match": 64}, {"out": 1}),
    {"match": 2},
)
READERS = {"in": (1, 6)}


@dataclass
class Fused:
    """The fake chain, whose first operator is the work of the processes that read its source."""

    inner: FakeEngine = field(default_factory=FakeEngine)
    on_pressure: Callable[[Pressure], None] | None = None

    def samples(self, peek: bool = False) -> Samples:
        found = self.inner.samples(peek)
        vertices = dict(found.vertices)
        parse = vertices.pop("parse")
        vertices["in"] = replace(parse, name="in", lag_s=vertices["in"].lag_s)
        return replace(found, vertices=vertices)

    def allocation(self) -> dict[str, int]:
        found = self.inner.allocation()
        return {"in" if name == "parse" else name: k for name, k in found.items()}

    def resize(self, allocation: Allocation) -> None:
        self.inner.resize({"parse" if n == "in" else n: k for n, k in allocation.items()})


def test_control_knows_the_readers_as_an_operator() -> None:
    shape = with_readers(PLAIN, READERS)
    assert shape.known == {**PLAIN.known, "in.readers": "operator"}
    assert (shape.limits.minimum, shape.limits.maximum) == (
        {"match": 1, "in.readers": 1},
        {"match": 64, "in.readers": 6},
    )
    assert shape.start == {"match": 2, "in.readers": 1}
    assert shape.edges == ()  # of an old journal
    edges = (Edge("in", "match", "even"), Edge("match", "out"))
    assert with_readers(replace(PLAIN, edges=edges), READERS).edges == (
        Edge("in", "in.readers"),
        Edge("in.readers", "match", "even"),
        Edge("match", "out"),
    )


def test_a_sources_sample_is_that_of_where_tuples_come_from_and_that_of_who_reads_them() -> None:
    whole = replace(
        Fused().samples().vertices["in"], lag_s=1.0, backlog={"a": 100}, shed=3, dropped=2
    )
    source, readers = parted(whole)
    assert source.emitted == {"in.readers": whole.arrivals}
    assert (source.behind_s, source.shed, source.dropped) == (2.0, 3, 0)
    assert (source.service_s, source.processors) == (None, 0)
    assert (readers.name, readers.emitted) == ("in.readers", whole.emitted)
    assert (readers.behind_s, readers.shed, readers.dropped) == (0.0, 0, 2)
    assert (readers.service_s, readers.arrival_rate) == (whole.service_s, whole.arrival_rate)


def test_control_gives_a_source_the_readers_that_it_needs() -> None:
    engine = Fused(FakeEngine(rate=150))  # which keep one and a half readers busy
    made = ReadingEngine(engine, READERS)
    assert made.allocation() == {"in.readers": 1, "match": 2}
    shape = with_readers(PLAIN, READERS)
    loop = ControlLoop(made, shape, by_fives(max_sojourn_s=0.1), Negotiator(OnePool()))
    records = ticks(loop, 10)
    assert engine.allocation()["in"] in (2, 3)
    assert SHAPE.start["parse"] == 1
    assert records[-1].within_target
    assert {"in", "in.readers"} <= records[-1].samples.vertices.keys()
    assert engine.on_pressure is not None


def test_what_waits_in_splits_counts_as_being_behind() -> None:
    sample: Sample = replace(Fused().samples().vertices["in"], arrival_rate=50.0, lag_s=0.5)
    assert replace(sample, backlog={"a": 60, "b": 40}).behind_s == 2.0
    assert replace(sample, backlog={"a": 5}).behind_s == 0.5
    assert replace(sample, backlog={"a": 5}, arrival_rate=0.0).behind_s == 0.5
