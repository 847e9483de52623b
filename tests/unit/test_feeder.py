"""A source's loop: it reads ahead no further than there is room, in values and in bytes, and takes
up a schedule where it was."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import sojourn as sj
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FrameReader, send_frame
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import feeder as module
from sojourn.engine.worker import values
from sojourn.engine.worker.feeder import Feeder

ROUTE = Route("next", None, False, 1, 0, 1, None, 0)


class Large(sj.Source):
    """Values of a megabyte, and how many were read."""

    def __init__(self) -> None:
        self.read_on = threading.Condition()
        self.count_read = 0

    def read(self, position: Any) -> Iterator[tuple[bytes, int]]:
        for number in range(position or 0, 10_000):
            with self.read_on:
                self.count_read += 1
                self.read_on.notify_all()
            yield bytes(1 << 20), number + 1


def test_before_sizes_are_known_few_values_are_read_ahead() -> None:
    source = Large()
    made = Feeder(source, (ROUTE,), b"", 0.0, 4 << 20)
    made.reader.start()
    with source.read_on:  # one more than there is room for is in hand
        assert source.read_on.wait_for(lambda: source.count_read == 17, 30)
        assert not source.read_on.wait_for(lambda: source.count_read > 17, 0.1)


def test_large_values_are_read_ahead_as_bytes_allow() -> None:
    source = Large()
    made = Feeder(source, (ROUTE,), b"", 0.0, 4 << 20)
    reader = made.reader
    reader.start()

    def read(most: int) -> None:
        """That many have been read in all, the one in hand included, and no more are."""
        with source.read_on:
            assert source.read_on.wait_for(lambda: source.count_read == most, 30)
            assert not source.read_on.wait_for(lambda: source.count_read > most, 0.1)

    read(17)
    reader.learn(1 << 20)
    assert reader.allowed == 4

    def take(count: int) -> None:
        for _ in range(count):
            reader.ahead.popleft()
            reader.taken()

    take(12)  # what was read before it was known how large values are goes first
    read(17)
    take(2)  # half of what is allowed is left, so the reader goes on
    read(19)
    reader.learn(1 << 19)
    assert reader.allowed == 8
    read(23)


def test_small_values_are_read_far_ahead() -> None:
    made = Feeder(sj.sources.iterable(lambda: range(10)), (ROUTE,), b"", 0.0, 4 << 20)
    made.reader.learn(10.0)
    assert made.reader.allowed == module.READ_AHEAD
    made.reader.learn(1e9)
    assert made.reader.allowed == 1


@pytest.mark.parametrize("arrivals", ["constant", "poisson"])
def test_a_source_goes_on_where_it_was_cut(arrivals: Any) -> None:
    """Position and schedule of the second part are those of an uninterrupted run."""
    source = sj.sources.paced(lambda n: n, rate=1000, arrivals=arrivals, count=60)
    expected = source.pace
    assert expected is not None
    times = expected.times()
    whole = [next(times)[0] for _ in range(60)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Feeder(source, (ROUTE,), b"", 0.0, 1 << 20)
        thread = threading.Thread(target=made.run, args=(theirs, FrameReader(theirs)))
        thread.start()
        reader = FrameReader(ours)
        numbers: list[int] = []
        while len(numbers) < 20:
            numbers += told(m.decode_from_worker(reader.read() or b""))
            send_frame(ours, m.encode(m.More()))
        send_frame(ours, m.encode(m.Save(1, "", True, False)))
        message = m.decode_from_worker(reader.read() or b"")
        while not isinstance(message, m.Saved):
            numbers += told(message)
            message = m.decode_from_worker(reader.read() or b"")
        send_frame(ours, m.encode(m.Close()))
        thread.join()
    assert numbers == list(range(len(numbers)))
    again = Feeder(source, (ROUTE,), message.position, 0.0, 1 << 20)
    assert (again.position, again.count) == (len(numbers), len(numbers))
    assert again.times is not None
    if len(numbers) < 60:
        assert next(again.times)[0] == pytest.approx(whole[len(numbers)])


def test_what_comes_due_before_more_is_asked_for_is_sent_together() -> None:
    first_sent = threading.Event()

    def numbers() -> Iterator[int]:
        yield 0
        first_sent.wait()
        yield from range(1, 10)

    made = Feeder(sj.sources.iterable(numbers), (ROUTE,), b"", 0.0, 1 << 20)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=made.run, args=(theirs, FrameReader(theirs)))
        thread.start()
        reader = FrameReader(ours)
        assert told(m.decode_from_worker(reader.read() or b"")) == [0]
        first_sent.set()
        made.reader.join()  # all is read
        send_frame(ours, m.encode(m.Save(1, "", False, False)))
        answers = [m.decode_from_worker(reader.read() or b"") for _ in range(2)]
        assert [type(answer) for answer in answers] == [m.Cut, m.Saved], "nothing is sent"
        send_frame(ours, m.encode(m.More()))
        assert told(m.decode_from_worker(reader.read() or b"")) == list(range(1, 10))
        send_frame(ours, m.encode(m.Close()))
        thread.join()


def test_it_is_told_when_more_is_due_than_a_message_takes() -> None:
    most = module.MAX_AT_ONCE
    made = Feeder(sj.sources.iterable(lambda: range(most + 1)), (ROUTE,), b"", 0.0, 1 << 20)
    made.reader.learn(10.0)
    made.reader.start()
    made.reader.join()
    sent = [made.send_due(0.0), made.send_due(0.0)]
    assert [(fed.read, fed.more) for fed in sent if fed is not None] == [(most, True), (1, False)]


def told(message: m.FromWorker) -> list[int]:
    if not isinstance(message, m.Fed):
        return []
    return [values.loads(payload) for group in message.groups for payload in group.payloads]
