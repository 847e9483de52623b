"""The hub: what executors tell reaches whom it is for, whoever joins first."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import sojourn as sj
from sojourn.engine.driver.hub import Hub
from sojourn.engine.driver.outposts import Outposts
from sojourn.engine.driver.placing import Placing
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import layout
from sojourn.engine.wire.spec import OUTPOST, own_code


class Wire:
    """Keeps what is sent, by whom it is for."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Any]] = []

    def send(self, target: bytes, message: m.ToExecutor) -> None:
        self.sent.append((target, message))

    def to(self, target: bytes, kind: type) -> list[Any]:
        return [message for who, message in self.sent if who == target and type(message) is kind]


def topology() -> sj.Topology:
    t = sj.Topology("loop")
    numbers = t.source("numbers", sj.sources.iterable(lambda: [1]))
    rounds = t.operator("round", lambda n: [n], numbers)
    t.feedback(rounds, rounds)
    return t


@pytest.fixture
def hub() -> Iterator[tuple[Hub, Wire]]:
    made, wire = Hub("127.0.0.1", layout(topology())), Wire()
    channel, made.channel = made.channel, wire  # type: ignore[assignment]
    made.start_epoch(3)
    yield made, wire
    channel.close()


def join(hub: Hub, vertex: str) -> bytes:
    sender = f"{vertex}/0/x/3".encode()
    hub.handle(sender, m.Hello(vertex, 0, "host", 1, "boot", 0.0, code=own_code()))
    hub.handle(sender, m.Attached())
    return sender


def test_feedback_waits_until_the_first_source_has_joined(hub: tuple[Hub, Wire]) -> None:
    made, wire = hub
    rounds = join(made, "round")
    for row in (b"1", b"2"):
        made.handle(rounds, m.Feedback(row))
    numbers = join(made, "numbers")
    made.handle(rounds, m.Feedback(b"3"))
    assert [inject.row for inject in wire.to(numbers, m.Inject)] == [b"1", b"2", b"3"]


def test_sources_begin_when_everything_behind_them_is_there(hub: tuple[Hub, Wire]) -> None:
    made, wire = hub
    made.welcome = lambda _hello: m.Welcome(0)
    numbers = join(made, "numbers")
    rounds = b"round/0/x/3"
    made.handle(rounds, m.Hello("round", 0, "host", 1, "boot", 0.0, code=own_code()))
    assert len(wire.to(rounds, m.Welcome)) == 1
    assert not wire.to(numbers, m.Welcome)
    made.handle(rounds, m.Attached())
    assert len(wire.to(numbers, m.Welcome)) == 1
    made.between_batches()
    made.handle(rounds, m.Attached())
    made.handle(numbers, m.Attached())
    assert len(wire.to(numbers, m.Welcome)) == 1, "of a new batch it is not told again"


@pytest.mark.parametrize("code", ["other", ""], ids=["other", "too old to say"])
def test_another_version_is_refused(hub: tuple[Hub, Wire], code: str) -> None:
    made, wire = hub
    other = b"round/0/x/3"
    made.handle(other, m.Hello("round", 0, "far", 1, "boot", 0.0, code=code))
    (failed,) = made.failures
    assert failed.user
    assert "far has another version of sojourn" in failed.error
    outpost = f"{OUTPOST}far".encode()
    made.handle(outpost, m.Outpost("far", "1", 1, code))
    assert not made.outposts
    assert wire.to(outpost, m.Finish)
    made.handle(outpost, m.Outpost("far", "1", 1, own_code()))
    assert made.outposts


def test_an_outpost_that_was_told_to_end_has_not_failed(hub: tuple[Hub, Wire]) -> None:
    """As at every restart of the topology."""
    made, _ = hub
    supervisor: Any = SimpleNamespace(hub=made, stopping=threading.Event())
    outposts = Outposts(supervisor, Placing(made.layout, made, {}))
    outposts.processors = 4
    for _ in range(2):
        made.handle(f"{OUTPOST}far".encode(), m.Outpost("far", "1", 1, own_code()))
        made.dismiss("far")
        outposts._ended("1")
    assert not outposts.failures
    outposts._ended("1")
    assert outposts.failures == {"1": 1}


def test_what_was_heard_of_an_earlier_start_does_not_count(hub: tuple[Hub, Wire]) -> None:
    made, wire = hub
    rounds = join(made, "round")
    made.handle(rounds, m.Feedback(b"old"))
    made.start_epoch(4)
    assert made.starts == 2
    made.handle(rounds, m.Failed("round", "of the old start", False))
    assert not made.is_broken
    assert not made.feedback
    made.handle(rounds, m.Hello("round", 0, "host", 1, "boot", 0.0, code=own_code()))
    assert wire.to(rounds, m.Finish) == [m.Finish()]


def test_senders_are_told_what_has_come(hub: tuple[Hub, Wire]) -> None:
    made, wire = hub
    rounds, numbers = join(made, "round"), join(made, "numbers")
    made.handle(rounds, m.Got([(0, False, 7), (1, True, 3)]))
    assert wire.to(numbers, m.Confirm) == [m.Confirm(0, [("round", 0, False, 7)])]
    assert wire.to(rounds, m.Confirm) == [m.Confirm(0, [("round", 0, True, 3)])]


def test_a_commit_is_cut_and_saved_when_all_have(hub: tuple[Hub, Wire]) -> None:
    made, _ = hub
    rounds, numbers = join(made, "round"), join(made, "numbers")
    assert made.complete()
    made.handle(rounds, m.HasCut(5, []))
    made.handle(numbers, m.HasCut(4, []))
    found = [made.cut_by_all(5)]
    made.handle(numbers, m.HasCut(5, []))
    assert [*found, made.cut_by_all(5)] == [False, True]
    for sender, vertex in ((rounds, "round"), (numbers, "numbers")):
        assert made.saved_by_all(5) is None
        made.handle(sender, m.HasSaved(5, m.Part(vertex, 0)))
    assert [part.vertex for part in made.saved_by_all(5) or []] == ["round", "numbers"]


def test_an_executor_that_comes_to_a_taken_place_was_moved(hub: tuple[Hub, Wire]) -> None:
    """In the middle of a batch that is a failure; while all is held, the query starts anew."""
    made, wire = hub
    for held in (True, False):
        made.start_epoch(3)
        join(made, "round")
        join(made, "numbers")
        if held:
            made.between_batches()
        newcomer = b"round/0/other/3"
        made.handle(newcomer, m.Hello("round", 0, "elsewhere", 1, "boot", 0.0, code=own_code()))
        assert made.is_broken == (not held)
        assert not wire.to(newcomer, m.Welcome), "it must not begin"
        assert not made.go_on()


def test_all_go_on_when_the_next_batch_has_begun_for_everyone(hub: tuple[Hub, Wire]) -> None:
    made, _ = hub
    rounds, numbers = join(made, "round"), join(made, "numbers")
    made.handle(numbers, m.BatchEnded(0))
    ended = [made.batch_ended]
    made.between_batches()
    ended.append(made.batch_ended)
    made.handle(numbers, m.BatchEnded(0))  # of another source, later
    assert [*ended, made.batch_ended] == [True, False, False]
    for sender in (rounds, numbers):
        made.handle(sender, m.Attached())
    assert made.go_on()
    assert not made.is_broken


def test_a_batch_that_does_not_begin_is_a_failure(hub: tuple[Hub, Wire]) -> None:
    made, _ = hub
    join(made, "round")
    numbers = join(made, "numbers")
    made.between_batches()
    made.handle(numbers, m.Attached())
    assert made.go_on()
    assert made.is_broken


def test_the_rate_of_one_executor_of_a_source_counts_with_those_of_the_others(
    hub: tuple[Hub, Wire],
) -> None:
    made, _ = hub
    sender, told = join(made, "numbers"), list[Any]()
    made.on_pressure = told.append
    made.rates = {("numbers", 0): 10.0, ("numbers", 1): 20.0, ("round", 1): 40.0}
    made.handle(sender, m.Pressed(100.0, 0.5, 0.0))
    made.handle(sender, m.Pressed(None, 0.0, 2.0))
    assert [(p.vertex, p.rate, p.wait_s) for p in told] == [
        ("numbers", 120.0, 0.0),
        ("numbers", None, 2.0),
    ]
