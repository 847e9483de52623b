"""A source's loop: it reads ahead no further than there is room, in values and in bytes, and takes
up a schedule where it was."""

import socket
import threading
import time
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


def told(message: m.FromWorker) -> list[Any]:
    if not isinstance(message, m.Fed):
        return []
    return [values.loads(payload) for group in message.groups for payload in group.payloads]


class Lanes(sj.Source):
    """Splits of numbers, read in turn; a position is how many were read."""

    def __init__(self, length: int, pace: Any = None) -> None:
        self.length, self.pace = length, pace
        self.closed = threading.Event()

    def splits(self) -> list[str]:
        return ["a", "b", "c"]

    def read_splits(self, positions: Any) -> Iterator[Any]:
        try:
            yield None
            for number in range(self.length):
                for split, position in positions.items():
                    if number >= (position or 0):
                        yield f"{split}{number}", split, number + 1
            while "c" in positions:
                yield None
        finally:
            self.closed.set()


class Far:
    """A feeder in a thread, and its executor's end of the socket."""

    def __init__(self, made: Feeder) -> None:
        self.made = made
        self.ours, self.theirs = socket.socketpair()
        self.reader = FrameReader(self.ours)
        run = (self.theirs, FrameReader(self.theirs))
        self.thread = threading.Thread(target=made.run, args=run)
        self.thread.start()
        self.got: list[Any] = []

    def send(self, message: m.ToWorker) -> None:
        send_frame(self.ours, m.encode(message))

    def hear(self, kind: Any) -> Any:
        """All until a message of that kind; values are kept."""
        while True:
            message = m.decode_from_worker(self.reader.read() or b"")
            if isinstance(message, m.Fed):
                self.got += told(message)
                self.send(m.More())
            if isinstance(message, kind):
                return message

    def close(self) -> None:
        self.send(m.Close())
        self.thread.join()
        self.made.reader.close()  # a process would end; here it would look for more for ever
        self.made.reader.join()
        self.ours.close()
        self.theirs.close()


def share(number: int = 0, readers: int = 1, schedule: Any = (0, 0.0, 0.0), **at: Any) -> m.Share:
    positions = {k: b"" if v is None else values.dumps(v) for k, v in at.items()}
    return m.Share(positions, number, readers, schedule)


def test_a_reader_of_splits_saves_those_that_have_moved_on() -> None:
    mine = share(a=None, b=2)
    far = Far(Feeder(Lanes(3), (ROUTE,), b"", 0.0, 1 << 20, mine))
    far.hear(m.Exhausted)
    far.send(m.Save(1, "", False, False))
    saved = far.hear(m.Saved)
    far.send(m.Save(2, "", False, False))
    again = far.hear(m.Saved)
    far.close()
    assert far.got == ["a0", "a1", "a2", "b2"]
    assert {k: values.loads(v) for k, v in saved.splits.items()} == {"a": 3, "b": 3}
    assert (saved.position, again.splits) == (b"", {})


def test_a_position_may_move_on_without_a_value() -> None:
    class Marked(Lanes):
        def read_splits(self, positions: Any) -> Iterator[Any]:
            assert list(positions) == ["a", "b"]
            yield "a", 1
            yield "a1", "a", 2
            yield "b0", "b", 1
            yield "b", 7

    for pace in (None, sj.sources.paced(str, rate=1000.0).pace):
        far = Far(Feeder(Marked(0, pace), (ROUTE,), b"", 0.0, 1 << 20, share(a=None, b=None)))
        far.hear(m.Exhausted)
        far.send(m.Save(1, "", False, False))
        saved = far.hear(m.Saved)
        far.close()
        assert far.got == ["a1", "b0"]
        assert {k: values.loads(v) for k, v in saved.splits.items()} == {"a": 2, "b": 7}
        assert saved.schedule[0] == 2  # of what was sent


def test_a_reader_that_is_given_other_splits_stops_those_it_had() -> None:
    source = Lanes(2)
    far = Far(Feeder(source, (ROUTE,), b"", 0.0, 1 << 20, share(a=None, c=None)))
    while len(far.got) < 4:
        far.hear(m.Fed)
    far.send(m.Save(1, "", True, False))
    far.hear(m.Saved)
    far.send(m.Read(share(a=2, b=1)))
    far.hear(m.Exhausted)
    far.send(m.Save(2, "", False, False))
    saved = far.hear(m.Saved)
    far.close()
    assert far.got == ["a0", "c0", "a1", "c1", "b1"]
    assert list(saved.splits) == ["b"], "a was read to its end before"
    assert source.closed.wait(30)


def test_a_reader_that_keeps_its_splits_reads_on() -> None:
    source = Lanes(2)
    far = Far(Feeder(source, (ROUTE,), b"", 0.0, 1 << 20, share(a=None, c=None)))
    reader = far.made.reader
    far.send(m.Save(1, "", True, False))
    saved = far.hear(m.Saved)
    at = {"a": None, "c": None} | {k: values.loads(v) for k, v in saved.splits.items()}
    far.send(m.Read(share(readers=2, **at)))
    while len(far.got) < 4:
        far.hear(m.Fed)
    assert far.made.reader is reader
    far.close()
    assert sorted(far.got) == ["a0", "a1", "c0", "c1"]


@pytest.mark.parametrize("readers", [2, 3])
def test_readers_together_keep_the_schedule(readers: int) -> None:
    """Also when they take it up with others than there were before."""
    pace = sj.sources.Pace(1000, "poisson")
    times = pace.times()
    whole = [next(times) for _ in range(60)]
    schedule = (20, *whole[19])
    made = [
        Feeder(Lanes(9, pace), (ROUTE,), b"", 0.0, 1 << 20, share(n, readers, schedule, a=None))
        for n in range(readers)
    ]
    found = sorted(next(one.times)[0] for one in made for _ in range(40 // readers) if one.times)
    assert found == pytest.approx([at for at, _ in whole[20:]][: len(found)])


def test_how_far_readers_are_in_the_schedule() -> None:
    one = Feeder(Lanes(3, sj.sources.Pace(1000)), (ROUTE,), b"", 0.0, 1 << 20, share(1, 2, a=None))
    one.reader.start()
    one.reader.join()
    one.send_due(1e9)
    assert one.saved(1).schedule == (6, 0.006, 6.0), "it has taken the second, fourth and sixth"


def test_a_source_says_when_values_were_meant_to_arrive() -> None:
    class Late(Lanes):
        def read_splits(self, positions: Any) -> Iterator[Any]:  # noqa: ARG002
            yield "late", "a", 1, time.time() - 5
            yield "early", "a", 2, time.time() + 5

    made = Feeder(Late(1), (ROUTE,), b"", 1e9, 1 << 20, share(a=None))
    made.reader.start()
    made.reader.join()
    now = time.monotonic()
    fed = made.send_due(now)
    assert fed is not None
    late, early = (now - root.arrival_s for root in fed.roots)
    assert 5 <= late < 35
    assert 0 <= early < 30, "not before it is there"


@pytest.mark.parametrize("keep_going", [False, True])
def test_what_a_source_cannot_read_is_told(keep_going: bool) -> None:
    class Odd(Lanes):
        def read_splits(self, positions: Any) -> Iterator[Any]:  # noqa: ARG002
            yield sj.sources.Unreadable("line 7 of a", "no JSON"), "a", 1
            yield "good", "a", 2

    made = Feeder(Odd(1), (ROUTE,), b"", 0.0, 1 << 20, share(a=None), keep_going)
    made.reader.start()
    made.reader.join()
    if not keep_going:
        with pytest.raises(sj.InputError, match="line 7 of a cannot be read: no JSON"):
            made.send_due(0.0)
        return
    fed = made.send_due(0.0)
    assert fed is not None
    assert (told(fed), fed.failed) == (["good"], [m.DeadLetter("line 7 of a", "no JSON")])
    assert list(made.saved(1).splits) == ["a"]


def test_what_waits_in_splits_is_told_with_what_is_read_and_not_sent() -> None:
    class Waiting(Lanes):
        def backlog(self) -> dict[str, int]:
            return {"a": 100, "b": 0}

        def read_splits(self, positions: Any) -> Iterator[Any]:  # noqa: ARG002
            yield "one", "a", 1
            yield None

    ours, theirs = socket.socketpair()
    made = Feeder(Waiting(1), (ROUTE,), b"", 0.0, 1 << 20, share(a=None, b=None))
    made.asked = False  # it may not send, and tells all the same
    thread = threading.Thread(target=made.run, args=(theirs, FrameReader(theirs)))
    thread.start()
    message = m.decode_from_worker(FrameReader(ours).read() or b"")
    send_frame(ours, m.encode(m.Close()))
    thread.join()
    assert message == m.Waits({"a": 101, "b": 0})
    ours.close()
    theirs.close()


def test_a_reader_that_is_closing_does_not_ask_for_the_backlog() -> None:
    """The source may speak of the splits that another reader has begun to read."""
    asked: list[bool] = []

    class Splits(sj.Source[int]):
        def backlog(self) -> dict[str, int]:
            asked.append(reader.closing)
            return {"a": 1}

    reader = Feeder(Splits(), (ROUTE,), b"", 0.0, 1 << 20).reader
    reader._look(None, 0.0)
    reader.close()
    reader._look(None, 2.0)
    assert asked == [False]
