"""Records as ticks: what-ifs are answered by the model that control uses."""

import functools
from dataclasses import replace

import pytest
from test_control_simulated import ORDERS, pair

from sojourn.control.controller import Record, shape_of
from sojourn.control.reading import with_readers
from sojourn.dashboard.board import Board
from sojourn.dashboard.shown import told
from sojourn.dashboard.whatif import Model, answered
from sojourn.ports import Part
from sojourn.simulator import SourceLoad
from sojourn.views.records import Follower, about_of, tick_of


@functools.cache
def followed(percentile: float | None = None) -> tuple[Board, list[Record]]:
    """Two minutes of a simulation, as the board sees them."""
    simulation = pair(
        ORDERS,
        {"check": 1, "price": 1},
        SourceLoad(((1.0, 60.0),)),
        max_sojourn_s=0.2,
        percentile=percentile,
    )
    simulation = replace(simulation, duration_s=120.0)
    shape = shape_of(simulation.topology)
    board = Board(about_of(shape, "run"))
    records: list[Record] = []
    simulation.run(listeners=[Follower(board, shape), records.append])
    return board, records


def test_ticks_tell_what_records_do() -> None:
    board, records = followed()
    last = records[-1]
    tick = board.tick
    assert tick is not None
    assert tick.number == last.number
    assert tick.decision.reason == last.decision.reason
    assert tick.target_s == 0.2
    assert tick.time_s == pytest.approx(last.time_s - records[0].time_s + 1.0)
    assert board.totals.changes == sum(record.applied for record in records)
    assert board.totals.intervals == sum(not record.pressures for record in records)
    shares = [vertex.share or 0.0 for vertex in tick.vertices.values()]
    assert sum(shares) == pytest.approx(1.0)
    assert {(e.sender, e.receiver) for e in board.about.edges} == {
        ("source", "check"),
        ("check", "price"),
        ("price", "out"),
    }


@pytest.mark.parametrize("percentile", [None, 95.0])
def test_the_model_of_a_what_if_is_that_of_control(percentile: float | None) -> None:
    board, records = followed(percentile)
    model = board.model()
    assert isinstance(model, Model)
    answer = answered(model)
    assert answer.present_s == pytest.approx(records[-1].estimate_s, rel=0.05)
    assert answer.expected_s is not None
    assert answer.expected_s <= 0.2


def test_readers_of_a_source_are_shown_once_control_knows_them() -> None:
    simulation = pair(ORDERS, {"check": 1, "price": 1}, SourceLoad(((1.0, 60.0),)))
    shape = shape_of(simulation.topology)
    follower = Follower(Board(about_of(shape, "run")), shape)
    seen = told(follower.board, None).seen
    follower.know(with_readers(shape, {"source": (1, 4)}))
    board = follower.board
    assert "source.readers" in board.names
    edges = {(edge.sender, edge.receiver) for edge in board.about.edges}
    assert {("source", "source.readers"), ("source.readers", "check")} <= edges
    assert told(board, seen).kind == "begin"  # a page that is there already is told


def test_a_source_is_as_far_behind_as_what_waits_in_its_splits() -> None:
    _, records = followed()
    samples = records[-1].samples
    source = samples.vertices["source"]
    late = replace(source, lag_s=0.0, backlog={"0": 300, "1": 300}, arrival_rate=60.0)
    vertices = {**samples.vertices, "source": late}
    record = replace(records[-1], samples=replace(samples, vertices=vertices))
    shown = tick_of(record, 0.0).vertices["source"]
    assert (shown.lag_s, shown.queue) == (10.0, source.queue + 600)


def test_machines_are_called_by_their_hosts() -> None:
    _, records = followed()
    machines = {"a:/tmp/driver": 2, "b:/data/1/7": 1, "b:/data/2/7": 1}
    samples = records[-1].samples
    check = replace(samples.vertices["check"], parts=(Part(0, 4, 10, 0.5, machines=machines),))
    record = replace(
        records[-1], samples=replace(samples, vertices={**samples.vertices, "check": check})
    )
    (part,) = tick_of(record, 0.0).vertices["check"].parts
    assert part.machines == {"a": 2, "b/7": 2}


def test_restarts_and_relocations_are_those_of_the_samples() -> None:
    _, records = followed()
    record = replace(records[-1], samples=replace(records[-1].samples, restarts=1, relocations=2))
    tick = tick_of(record, 0.0)
    assert (tick.restarts, tick.relocations) == (1, 2)


def test_a_profile_that_holds_no_more_is_noted() -> None:
    _, records = followed()
    stale = replace(records[-1], stale="it takes twice as long")
    assert tick_of(stale, 0.0).note == "the profile holds no more: it takes twice as long"
