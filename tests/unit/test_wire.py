"""What crosses between processes: frames, messages, shards of keys, and who owns what."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn import sinks, sources
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import (
    MAX_SENDER,
    Bundle,
    FrameReader,
    Link,
    Row,
    Seal,
    Trace,
    Way,
    decode_bundle,
    encode,
    send_frame,
)
from sojourn.engine.wire.layout import Place, layout, next_partition
from sojourn.engine.worker.keys import key_hash
from sojourn.topology import Topology

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def received(link: Link, count: int) -> list[bytes]:
    """Frames as they are there; all of them must be."""
    frames: list[bytes] = []
    while len(frames) < count:
        more = link.receive()
        assert more, "a frame is missing"
        frames += more
    return frames


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


# frames


def test_frames_arrive_whole_and_in_order(pair: Pair) -> None:
    here, there = map(Link, pair)
    here.send(b"one")
    here.send(b"")
    here.send(b"in ", b"", b"parts")
    assert received(there, 3) == [b"one", b"", b"in parts"]
    assert here.unsent_bytes == 0
    assert there.receive() == []


def test_a_frame_is_given_out_when_its_last_byte_is_there(pair: Pair) -> None:
    link = Link(pair[1])
    stream = framed(b"first") + framed(b"") + framed(b"second")
    arrived = []
    for i in range(len(stream)):
        pair[0].sendall(stream[i : i + 1])
        frames = link.receive()
        assert frames is not None
        arrived += [(i + 1, frame) for frame in frames]
    assert arrived == [(13, b"first"), (21, b""), (35, b"second")]


def test_what_the_socket_does_not_take_waits_in_order(pair: Pair) -> None:
    here, there = map(Link, pair)
    frames = [bytes([i]) * 300_000 for i in range(10)]
    for frame in frames:
        here.send(frame)
    assert 0 < here.unsent_bytes <= 10 * 300_008
    assert here.unsent_bytes == sum(map(len, here.unsent))
    arrived: list[bytes] = []
    while len(arrived) < len(frames):
        arrived += there.receive() or []
        here.flush()
    assert arrived == frames
    assert here.unsent_bytes == 0
    assert not here.unsent


def test_a_closed_peer_shows_when_reading(pair: Pair) -> None:
    here, there = map(Link, pair)
    there.send(b"last words")
    there.close()
    here.send(b"to nobody")
    assert here.unsent_bytes == 0
    assert here.receive() == [b"last words"]
    assert here.receive() is None


def test_what_is_sent_after_closing_is_dropped(pair: Pair) -> None:
    """As to a worker that is known to be dead."""
    here, _ = map(Link, pair)
    here.close()
    here.send(b"to nobody")
    assert here.unsent_bytes == 0


def test_a_peer_that_leaves_unread_frames_shows_when_reading(pair: Pair) -> None:
    here, there = map(Link, pair)
    here.send(b"unread")
    there.close()
    assert here.receive() is None


def has_frame(reader: FrameReader) -> bool:
    return reader.has_frame


def test_a_reader_tells_which_frames_it_has_already(pair: Pair) -> None:
    reader = FrameReader(pair[1])
    assert not has_frame(reader)
    pair[0].sendall(framed(b"one") + framed(b"") + framed(b"three")[:10])
    assert reader.read() == b"one"
    assert has_frame(reader)
    assert reader.read() == b""
    assert not has_frame(reader)
    pair[0].sendall(framed(b"three")[10:])
    assert reader.read() == b"three"
    assert not has_frame(reader)


def test_a_reader_has_no_frame_when_only_its_length_is_there(pair: Pair) -> None:
    reader = FrameReader(pair[1])
    pair[0].sendall(framed(b"a") + framed(b"bc")[:3])
    assert reader.read() == b"a"
    assert not reader.has_frame


@pytest.mark.parametrize("cut", [b"", framed(b"cut")[:2], framed(b"cut")[:-1]])
def test_a_reader_ends_with_the_stream(pair: Pair, cut: bytes) -> None:
    pair[0].sendall(framed(b"whole") + cut)
    pair[0].close()
    reader = FrameReader(pair[1])
    assert reader.read() == b"whole"
    assert reader.read() is None


def test_a_reader_waits_for_a_large_frame(pair: Pair) -> None:
    data = os.urandom(3_000_000)
    sender = threading.Thread(target=send_frame, args=(pair[0], data[:7], data[7:]))
    sender.start()
    assert FrameReader(pair[1]).read() == data
    sender.join()


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_do_not_depend_on_how_the_stream_is_cut(
    frames: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(map(framed, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    ours, theirs = socket.socketpair()
    with ours, closing(Link(theirs)) as link:
        arrived: list[bytes] = []
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            ours.sendall(stream[start:end])
            arrived += link.receive() or []
    assert arrived == frames


# messages


def test_a_bundle_comes_back_as_it_was() -> None:
    bundle = Bundle([b"a", b""], [3, 65_535], [Trace(1, 2**63 - 1, 7)])
    assert decode_bundle(encode(bundle)) == bundle


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        (m.decode_to_worker, m.Work([b"a"], [1], [Trace(0, 1, 2)])),
        (m.decode_to_worker, m.GiveShard(3, None)),
        (m.decode_to_worker, m.GiveShard(3, b"")),
        (m.decode_to_worker, m.GiveShard(3, b"", True, 2, 100)),
        (m.decode_to_worker, m.TakeMore(3, -1)),
        (m.decode_to_worker, m.Settle(3)),
        (m.decode_from_worker, m.Took(3)),
        (m.decode_to_worker, m.Save(7, "path", False, True)),
        (m.decode_to_worker, m.Load([m.SavedFiles(["file"], 1, 2)], [3], True)),
        (m.decode_from_worker, m.Saved(7, 5, b"position", [("staged", "seen")], ["held"])),
        (m.decode_from_worker, m.Done([], [m.Ack(1, 2, 3.0)], 1, 0.1, 1, 0.1, 0.01, [], [])),
        (m.decode_to_driver, m.Feedback(b"row")),
        (m.decode_to_driver, m.HasCut(7, [(1, False, 99)])),
        (m.decode_to_executor, m.Confirm(7, [("count", 1, True, 99)])),
        (m.decode_to_driver, m.HasSaved(7, m.Part("count", 1, [("file", 9)]))),
        (m.decode_to_executor, m.Inject(b"row")),
        (m.decode_to_executor, m.Commit(7, True, False)),
    ],
)
def test_a_message_comes_back_as_it_was(decode: Callable[[bytes], Any], message: Any) -> None:
    assert decode(m.encode(message)) == message


DECODERS = [
    m.decode_to_worker,
    m.decode_from_worker,
    m.decode_to_driver,
    m.decode_to_executor,
    decode_bundle,
]


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"E",
        b"\xc1",
        b"\x93",
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode(["stranger", 1]),
        msgspec.msgpack.encode(["work", "no list", [], []]),
        msgspec.msgpack.encode(["resize", "many"]),
        msgspec.msgpack.encode(["give", 1]),
        msgspec.msgpack.encode([[1], [], []]),
        msgspec.msgpack.encode([[b"a"], [], []]) + b"more",
    ],
)
def test_what_is_no_message_is_refused(decode: Callable[[bytes], Any], data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(data)


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        (m.decode_to_worker, m.Ready(1)),
        (m.decode_from_worker, m.Stop()),
        (m.decode_to_driver, m.Resize(1)),
        (m.decode_to_executor, m.Bye()),
    ],
)
def test_a_message_of_another_way_is_refused(decode: Callable[[bytes], Any], message: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(m.encode(message))


# keys

KEYS = [
    "",
    "word",
    "zwölf ☃",
    "\ud800",
    b"bytes",
    0,
    -1,
    2**70,
    1.5,
    float("inf"),
    True,
    None,
    (),
    ("a", 1, (None, 2.5)),
    1 + 2j,
]


def test_a_key_has_the_same_hash_in_every_process() -> None:
    code = (
        "import sys; from sojourn.engine.worker.keys import key_hash;"
        "print(hash('word'), *map(key_hash, eval(sys.argv[1])))"
    )
    source = repr(KEYS).replace("inf", "float('inf')")
    answers = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code, source],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=Path.home(),
        )
        answers.append(run.stdout.split())
    assert answers[0][0] != answers[1][0], "Python's own hash should differ here"
    assert answers[0][1:] == answers[1][1:] == [str(key_hash(key)) for key in KEYS]


def test_hashes_stay_as_they_were() -> None:
    # A change here sends keys to other shards than those that saved checkpoints have them in.
    known = {"word": 3287381265, b"word": 3287381265, 7: 1877464688, None: 0, ("a", 1): 2693780683}
    assert {key: key_hash(key) for key in known} == known


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, 1 + 0j),
        (0, 0.0, -0.0, False),
        (2**60, 2.0**60),
        (("a", 1), ("a", 1.0), ("a", True)),
        (((1,), None), ((True,), None)),
    ],
)
def test_keys_that_are_one_in_a_dict_have_one_hash(equal: tuple[Any, ...]) -> None:
    assert len(dict.fromkeys(equal)) == 1
    assert len({key_hash(key) for key in equal}) == 1


def test_tuples_differ_by_order_and_nesting() -> None:
    keys = [("a", "b"), ("b", "a"), ("ab",), (("a",), "b"), ("a", ("b",)), (("a", "b"),), (None,)]
    assert len({key_hash(key) for key in keys}) == len(keys)


@given(st.recursive(st.text() | st.integers() | st.none(), st.tuples))
def test_a_hash_is_of_32_bits(key: Any) -> None:
    assert 0 <= key_hash(key) < 2**32


@pytest.mark.parametrize("make", [str, int, lambda i: ("user", i), lambda i: f"k{i}".encode()])
def test_keys_spread_over_shards(make: Callable[[int], Any]) -> None:
    counts = [0] * 16
    for i in range(16_000):
        counts[key_hash(make(i)) % 16] += 1
    assert min(counts) > 800
    assert max(counts) < 1200


# layout


def word(value: Any) -> Any:
    return value


def topology() -> Topology:
    t = Topology("t")
    lines = t.source("lines", sources.iterable(list))
    more = t.source("more", sources.iterable(list))
    split = t.operator("split", word, lines, executors=2, processors=5)
    check = t.operator("check", word, lines, executors=3)
    count = t.operator("count", word, split, check["good"], key=word, shards=64, executors=2)
    t.sink("out", sinks.console(), count, more)
    t.feedback(count["again"], split)
    t.check()
    return t


def test_every_executor_owns_a_partition_of_its_level() -> None:
    assert layout(topology()).places == (
        Place("lines", 0, 0, 0),
        Place("more", 0, 0, 1),
        Place("split", 0, 1, 0),
        Place("split", 1, 1, 1),
        Place("check", 0, 1, 2),
        Place("check", 1, 1, 3),
        Place("check", 2, 1, 4),
        Place("count", 0, 2, 0),
        Place("count", 1, 2, 1),
        Place("out", 0, 3, 0),
    )


def test_partitions_and_slots_are_counted() -> None:
    found = layout(topology())
    assert found.partitions == [2, 6, 3, 1]  # with a lane at the two levels that `more` passes
    assert found.lanes == (-1, 5, 2, -1)
    assert found.slots == 13
    assert [place.partition for place in found.of("check")] == [2, 3, 4]


def test_a_route_says_where_its_receiver_is() -> None:
    routes = layout(topology()).routes
    shown = {
        name: [(r.edge, r.feedback, r.level, r.first_partition, r.executors) for r in found]
        for name, found in routes.items()
    }
    assert shown == {
        "lines": [("split", False, 1, 0, 2), ("check", False, 1, 2, 3)],
        "more": [("out", False, 3, 0, 1)],
        "split": [("count", False, 2, 0, 2)],
        "check": [("count[good]", False, 2, 0, 2)],
        "count": [("out", False, 3, 0, 1), ("split[again]", True, 1, 0, 2)],
        "out": [],
    }


def test_only_a_route_to_a_keyed_operator_has_shards() -> None:
    routes = layout(topology()).routes
    assert [(r.key, r.shards) for r in routes["lines"]] == [(None, 0), (None, 0)]
    assert [(r.key, r.shards) for r in routes["split"]] == [(word, 64)]
    assert [(r.key, r.shards) for r in routes["more"]] == [(None, 0)]


def test_several_processes_of_a_sink_share_values_by_its_key() -> None:
    t = Topology("t")
    keyed, plain = sinks.console(), sinks.console()
    keyed.key = word
    lines = t.source("lines", sources.iterable(list))
    t.sink("keyed", keyed, lines, executors=2)
    t.sink("plain", plain, lines, executors=3)
    t.sink("one", keyed, lines)
    found = [(r.executors, r.key, r.shards > 0) for r in layout(t).routes["lines"]]
    assert found == [(2, word, True), (3, None, False), (1, None, False)]


def test_a_level_without_a_vertex_does_not_exist() -> None:
    found = layout(topology())
    assert {place.level for place in found.places} == set(range(len(found.partitions)))
    for level, count in enumerate(found.partitions):
        executors = [p.partition for p in found.places if p.level == level]
        lane = [found.lanes[level]] if found.lanes[level] >= 0 else []
        assert executors + lane == list(range(count))


def test_what_goes_further_takes_the_lane_and_all_else_its_own_partition() -> None:
    lanes = layout(topology()).lanes
    assert [next_partition(lanes, level, 3, 0) for level in (0, 1, 2)] == [5, 2, 0]


def test_a_level_that_nothing_passes_has_no_lane() -> None:
    t = Topology("t")
    lines = t.source("lines", sources.iterable(list))
    t.sink("out", sinks.console(), t.operator("split", word, lines))
    assert layout(t).lanes == (-1, -1, -1)


def test_feedback_passes_the_levels_between_the_sources_and_its_receiver() -> None:
    t = Topology("t")
    first = t.operator("first", word, t.source("lines", sources.iterable(list)))
    second = t.operator("second", word, first)
    third = t.operator("third", word, second)
    t.feedback(third, second)
    assert layout(t).lanes == (-1, 1, -1, -1)


# rows


def test_a_row_comes_back_as_it_was() -> None:
    seal = Seal(b"secret")
    bundle = Bundle([b"a", b""], [3, 65_535], [Trace(1, 2**63 - 1, 7)])
    for way in (Way(0, False), Way(MAX_SENDER, True)):
        row = Row(2**31, way, 2**60, bundle)
        assert seal.opened(seal.row(3, 65_535, row)) == row


@pytest.mark.parametrize("at", [0, 1, 3, 7, 9, 20, -1])
def test_a_row_that_was_changed_or_made_without_the_secret_is_not_believed(at: int) -> None:
    seal = Seal(b"secret")
    sent = Row(5, Way(6, False), 7, Bundle([b"payload"], [], []))
    row = bytearray(seal.row(3, 4, sent))
    assert Seal(b"another").opened(bytes(row)) is None
    row[at] ^= 1
    assert seal.opened(bytes(row)) is None


@pytest.mark.parametrize("row", [b"", b"short", bytes(33)])
def test_what_is_no_row_is_not_believed(row: bytes) -> None:
    assert Seal(b"secret").opened(row) is None
