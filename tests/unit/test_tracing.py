"""What an executor tells of trees is in the driver's time, whatever its own clock shows."""

from typing import Any

import pytest

from sojourn.engine.executor import tracing as module
from sojourn.engine.executor.tracing import Tracing
from sojourn.engine.wire import messages as m


class Clock:
    """A steady clock that the test turns; the other one must not be looked at."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Channel:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: m.ToDriver) -> None:
        self.sent.append(message)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def made() -> tuple[Tracing, Channel]:
    channel = Channel()
    return Tracing(channel), channel  # type: ignore[arg-type]


def test_nothing_is_told_before_the_drivers_time_is_known(clock: Clock) -> None:
    tracing, channel = made()
    tracing.note([m.Root(1, 2, 99.0)], [])
    clock.now += 10
    tracing.send()
    assert channel.sent == []
    assert tracing.next_s is None


def test_on_the_drivers_machine_times_are_as_they_are(clock: Clock) -> None:
    tracing, channel = made()
    tracing.learn(m.Time(100.0, 555.0, True))
    tracing.note([m.Root(1, 2, 99.0)], [m.Ack(1, 2, 99.5)])
    clock.now += 1
    tracing.send()
    assert channel.sent == [m.Traces([m.Root(1, 2, 99.0)], [m.Ack(1, 2, 99.5)])]
    assert tracing.next_s is None


def test_on_another_machine_times_are_made_the_drivers(clock: Clock) -> None:
    tracing, channel = made()
    clock.now = 100.2  # the answer took 0.2 s, so the driver showed 5000.0 at 100.1 here
    tracing.learn(m.Time(100.0, 5000.0, False))
    tracing.note([m.Root(1, 2, 100.1)], [m.Ack(1, 2, 100.6)])
    clock.now = 101.0
    tracing.send()
    (sent,) = channel.sent
    assert sent.roots[0].arrival_s == pytest.approx(5000.0)
    assert sent.acks[0].at_s == pytest.approx(5000.5)


def test_the_quickest_answer_counts_and_is_asked_for_again(clock: Clock) -> None:
    tracing, channel = made()
    clock.now = 100.01
    tracing.learn(m.Time(100.0, 5000.0, False))
    known = tracing.ahead_s
    clock.now = 103.0
    tracing.learn(m.Time(100.02, 5001.0, False))  # took three seconds: says little
    assert tracing.ahead_s == known
    assert tracing.next_s == pytest.approx(133.0)
    clock.now = 134.0
    tracing.send()
    assert channel.sent == [m.AskTime(134.0)]


def test_what_is_not_due_yet_goes_when_somebody_looks(clock: Clock) -> None:
    tracing, channel = made()
    tracing.learn(m.Time(clock.now, 0.0, True))
    tracing.note([m.Root(1, 2, 99.0)], [])
    tracing.send()
    assert channel.sent == []
    tracing.flush()
    assert channel.sent == [m.Traces([m.Root(1, 2, 99.0)], [])]
    tracing.flush()
    assert len(channel.sent) == 1
