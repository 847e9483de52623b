"""The emitter: tuples keep their order, their shards and their traces however they are bundled."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.engine.executor.emitter import Emitter, rests
from sojourn.engine.executor.meter import Meter
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import PREFIX, Bundle, Link, Seal, Trace
from sojourn.engine.wire.layout import Route

MANY = 10**9
Item = tuple[bytes, int | None, tuple[int, int] | None]


class Way(Link):
    """A way out that keeps what it is given: the partition and the row."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []

    def send(self, *parts: bytes) -> None:
        partition, row = parts
        self.sent.append((int.from_bytes(partition, "little"), row))


@dataclass
class Rig:
    """An emitter at level 1 of a topology with four levels, and what came out of it."""

    emitter: Emitter
    way: Way
    handed: list[bytes]

    def flush(self, rows: int = MANY) -> None:
        self.emitter.window = rows
        self.emitter.flush(self.way)

    def bundles(self) -> list[tuple[int, Bundle]]:
        """Everything sent, by partition of the next level."""
        return [(partition, opened(row)) for partition, row in self.way.sent]


LANES = (-1, 2, 4, -1)
SEAL = Seal(b"secret")


def route(
    receiver: str = "next", executors: int = 1, feedback: bool = False, first: int = 0
) -> Route:
    return Route(receiver, None, feedback, 1 if feedback else 2, first, executors, None, 0)


def rig(*routes: Route, max_bundle: int = 500) -> Rig:
    handed: list[bytes] = []
    emitter = Emitter(
        5, routes or (route(),), 1, LANES, max_bundle, Meter(0.0), SEAL, handed.append
    )
    return Rig(emitter, Way(), handed)


def opened(row: bytes) -> Bundle:
    found = SEAL.opened(row)
    assert found is not None
    return found.bundle


def address(row: bytes) -> tuple[int, int]:
    level, partition, *_ = PREFIX.unpack_from(row)
    return level, partition


def group(*payloads: bytes, to: int = 0, executor: int = 0) -> m.Group:
    return m.Group(to, executor, list(payloads), [], [])


def items(part: m.Group | Bundle) -> Iterator[Item]:
    """Each tuple with its shard and its trace."""
    traces = {trace.index: (trace.root, trace.id) for trace in part.traces}
    assert len(traces) == len(part.traces)
    assert all(0 <= index < len(part.payloads) for index in traces)
    for i, payload in enumerate(part.payloads):
        yield payload, part.shards[i] if part.shards else None, traces.get(i)


# bundling


@st.composite
def groups(draw: st.DrawFn) -> m.Group:
    """Output for one of three executors of a keyed route, of one without a key, or feedback."""
    number = draw(st.integers(0, 2))
    payloads = draw(st.lists(st.binary(max_size=3), min_size=1, max_size=9))
    traced = draw(st.sets(st.integers(0, len(payloads) - 1)))
    traces = [Trace(i, draw(st.integers(0, 99)), draw(st.integers(0, 99))) for i in sorted(traced)]
    shards = [draw(st.integers(0, 9)) for _ in payloads] if number == 0 else []
    executor = draw(st.integers(0, 2)) if number == 0 else 0
    return m.Group(number, executor, payloads, shards, traces)


@given(
    st.lists(st.one_of(groups(), st.integers(0, 3)), max_size=25),
    st.integers(1, 12),
)
def test_bundling_keeps_order_shards_and_traces(
    steps: list[m.Group | int], max_bundle: int
) -> None:
    routes = (route("keyed", 3), route("plain", 1, first=3), route("back", 1, feedback=True))
    made = rig(*routes, max_bundle=max_bundle)
    given_out: dict[tuple[int, int], list[Item]] = defaultdict(list)
    for step in steps:
        if isinstance(step, int):
            made.flush(rows=step)
            continue
        first = {0: 0, 1: 3, 2: 0}[step.route]
        level = 1 if step.route == 2 else 2
        given_out[level, first + step.executor] += items(step)
        made.emitter.add([step])
    made.flush()
    assert made.emitter.count == 0
    arrived: dict[tuple[int, int], list[Item]] = defaultdict(list)
    rows = [row for _, row in made.way.sent] + made.handed
    for row in rows:
        bundle = opened(row)
        assert 1 <= len(bundle.payloads) <= max_bundle
        arrived[address(row)] += items(bundle)
    assert arrived == given_out


def test_what_waits_for_one_receiver_grows_together() -> None:
    made = rig(max_bundle=3)
    for payload in (b"a", b"b", b"c", b"d"):
        made.emitter.add([group(payload)])
    assert made.emitter.count == 4
    made.flush()
    assert [bundle.payloads for _, bundle in made.bundles()] == [[b"a", b"b", b"c"], [b"d"]]


def test_while_the_way_is_free_every_group_goes_at_once() -> None:
    made = rig()
    for payload in (b"a", b"b"):
        made.emitter.add([group(payload)])
        made.flush()
    assert [bundle.payloads for _, bundle in made.bundles()] == [[b"a"], [b"b"]]


def test_a_bundle_that_is_sent_takes_no_more() -> None:
    made = rig()
    made.emitter.add([group(b"a")])
    made.flush(rows=1)
    made.emitter.add([group(b"b")])
    made.flush(rows=0)
    assert [bundle.payloads for _, bundle in made.bundles()] == [[b"a"]]
    assert made.emitter.count == 1
    assert not made.emitter.idle


def test_a_large_group_is_split_and_its_traces_counted_anew() -> None:
    made = rig(max_bundle=2)
    traces = [Trace(1, 10, 11), Trace(2, 20, 21), Trace(4, 40, 41)]
    made.emitter.add([m.Group(0, 0, [b"0", b"1", b"2", b"3", b"4"], [5, 6, 7, 8, 9], traces)])
    made.flush()
    assert [bundle for _, bundle in made.bundles()] == [
        Bundle([b"0", b"1"], [5, 6], [Trace(1, 10, 11)]),
        Bundle([b"2", b"3"], [7, 8], [Trace(0, 20, 21)]),
        Bundle([b"4"], [9], [Trace(0, 40, 41)]),
    ]


def test_bundles_of_one() -> None:
    made = rig(max_bundle=1)
    made.emitter.add([m.Group(0, 0, [b"a", b"b"], [], [Trace(1, 7, 8)]), group(b"c")])
    made.flush()
    assert [bundle for _, bundle in made.bundles()] == [
        Bundle([b"a"], [], []),
        Bundle([b"b"], [], [Trace(0, 7, 8)]),
        Bundle([b"c"], [], []),
    ]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_bundle_is_full_at_256_kib(at_once: bool) -> None:
    made = rig()
    payloads = [bytes([i]) * 120_000 for i in range(7)]
    if at_once:
        made.emitter.add([group(*payloads)])
    else:
        for payload in payloads:
            made.emitter.add([group(payload)])
    made.flush()
    bundles = [bundle.payloads for _, bundle in made.bundles()]
    assert [len(bundle) for bundle in bundles] == [3, 3, 1]
    assert [payload for bundle in bundles for payload in bundle] == payloads


def test_a_tuple_larger_than_a_bundle_goes_whole() -> None:
    made = rig()
    made.emitter.add([group(b"x" * 300_000, b"y")])
    made.flush()
    assert [list(map(len, bundle.payloads)) for _, bundle in made.bundles()] == [[300_000], [1]]


def test_every_receiver_gets_its_turn() -> None:
    made = rig(route("a"), route("b", first=1), max_bundle=1)
    made.emitter.add([group(b"a1", b"a2", b"a3"), group(b"b1", b"b2", to=1)])
    made.flush()
    assert [bundle.payloads[0] for _, bundle in made.bundles()] == [
        b"a1",
        b"b1",
        b"a2",
        b"b2",
        b"a3",
    ]


def test_without_a_key_executors_take_turns() -> None:
    made = rig(route(executors=3, first=2))
    for _ in range(6):
        made.emitter.add([group(b"x", executor=-1)])
        made.flush()
    assert [partition for partition, _ in made.way.sent] == [2, 3, 4, 2, 3, 4]


# the way out


def test_no_more_rows_are_sent_than_the_window_allows() -> None:
    made = rig(max_bundle=1)
    made.emitter.add([group(b"a", b"b", b"c")])
    made.flush(rows=2)
    assert (len(made.way.sent), made.emitter.window, made.emitter.count) == (2, 0, 1)
    made.emitter.pass_on(PREFIX.pack(3, 0, 0, 0, 1))
    made.flush(rows=0)
    assert len(made.way.sent) == 2
    made.flush(rows=2)
    assert len(made.way.sent) == 4
    assert made.emitter.idle


def test_without_a_task_nothing_is_sent() -> None:
    made = rig()
    made.emitter.window = MANY
    made.emitter.add([group(b"a")])
    made.emitter.pass_on(PREFIX.pack(3, 0, 0, 0, 1))
    made.emitter.flush(None)
    assert not made.emitter.idle
    made.flush()
    assert len(made.way.sent) == 2
    assert made.emitter.idle


@pytest.mark.parametrize("partition", range(8))
def test_a_row_for_a_later_level_takes_the_lane(partition: int) -> None:
    made = rig()
    row = PREFIX.pack(3, partition, 0, 0, 1) + b"unopened"
    made.emitter.pass_on(row)
    made.flush()
    assert made.way.sent == [(LANES[2], row)]


def test_a_row_for_the_next_level_goes_to_its_very_partition() -> None:
    made = rig()
    row = PREFIX.pack(2, 4, 0, 0, 1) + b"unopened"
    made.emitter.pass_on(row)
    made.flush()
    assert made.way.sent == [(4, row)]


def test_an_emitter_may_skip_a_level() -> None:
    made = rig(Route("far", None, False, 3, 5, 3, None, 0))
    made.emitter.add([group(b"x", executor=2)])
    made.flush()
    ((partition, row),) = made.way.sent
    assert address(row) == (3, 7)
    assert partition == LANES[2]


def test_what_is_emitted_is_counted_by_edge() -> None:
    made = rig(route("a"), route("b", feedback=True))
    made.emitter.add([group(b"x", b"y"), group(b"z", to=1), group(b"w")])
    assert made.emitter.meter.emitted == {"a": 3, "b": 1}


def test_rows_carry_the_interval_they_are_sent_in_and_are_counted_by_receiver() -> None:
    made = rig(route("a", executors=2), route("b", feedback=True), max_bundle=1)
    made.emitter.interval = 7
    made.emitter.add([group(b"x", executor=1), group(b"y", to=1)])
    made.emitter.interval = 8
    made.emitter.add([group(b"z", executor=1)])
    made.flush()
    rows = [row for _, row in made.way.sent] + made.handed
    assert [PREFIX.unpack_from(row)[2] for row in rows] == [8, 8, 8]
    assert [PREFIX.unpack_from(row)[3:] for row in rows] == [(5, 1), (5, 2), (5 | 1 << 15, 1)]
    assert made.emitter.sent == {("a", 1, False): 2, ("b", 0, True): 1}


def test_a_row_is_kept_until_it_is_confirmed() -> None:
    made = rig(max_bundle=1)
    made.emitter.add([group(b"a", b"b", b"c")])
    made.flush()
    to = ("next", 0, False)

    def kept() -> list[bytes]:
        return [sent.bundle.payloads[0] for _, sent in made.emitter.unconfirmed[to]]

    assert kept() == [b"a", b"b", b"c"]
    made.emitter.confirmed(to, 2)
    made.emitter.confirmed(to, 1)  # of before
    assert kept() == [b"c"]
    made.emitter.confirmed(("other", 0, False), 9)
    assert kept() == [b"c"]
    assert made.emitter.unconfirmed_bytes == 1


def test_what_waits_can_be_told_in_order() -> None:
    made = rig(route("a"), route("b", feedback=True), max_bundle=2)
    made.emitter.add([group(b"1", b"2", b"3"), group(b"4", to=1)])
    found = [(receiver, bundle.payloads) for receiver, bundle in made.emitter.pending()]
    assert found == [("a", [b"1", b"2"]), ("a", [b"3"]), ("b", [b"4"])]
    assert (made.emitter.count, made.emitter.bytes) == (4, 4)
    made.flush()
    assert (made.emitter.count, made.emitter.bytes) == (0, 0)
    assert not list(made.emitter.pending())


def test_while_all_is_held_only_what_is_under_way_already_is_sent() -> None:
    made = rig(route("a"), route("b", feedback=True))
    made.emitter.hold = True
    made.emitter.add([group(b"1"), group(b"2", to=1)])
    made.emitter.pass_on(PREFIX.pack(2, 0, 0, 0, 1))
    made.flush()
    assert len(made.way.sent) == 1
    assert not made.handed
    assert made.emitter.count == 2


# feedback


def test_feedback_is_handed_over_also_when_the_way_is_blocked() -> None:
    made = rig(route("back", 2, feedback=True), max_bundle=1)
    made.emitter.add([group(b"a", b"b", executor=1)])
    made.flush(rows=0)
    assert not made.way.sent
    assert [(address(row), opened(row).payloads) for row in made.handed] == [
        ((1, 1), [b"a"]),
        ((1, 1), [b"b"]),
    ]
    assert made.emitter.idle


# Resting


class Clock:
    """A steady clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("sojourn.engine.executor.emitter.time.monotonic", lambda: self.now)


def one(route: int = 0) -> list[m.Group]:
    return [m.Group(route, -1, [b"x"], [], [])]


def test_the_way_out_rests_after_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = Clock(monkeypatch), rig()
    made.emitter.open()
    made.emitter.took_s = 0.0002
    made.emitter.add(one())
    made.emitter.flush(made.way)
    assert len(made.way.sent) == 1, "after a quiet spell a tuple goes at once"
    assert made.emitter.due(False, False) is None
    for _ in range(3):
        made.emitter.add(one())
        made.emitter.flush(made.way)
    assert len(made.way.sent) == 1
    assert made.emitter.due(False, False) == pytest.approx(100.0028)
    clock.now = 100.003
    made.emitter.flush(made.way)
    assert len(made.way.sent) == 2, "what came meanwhile has become one bundle"


def test_the_rest_follows_what_a_row_takes_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = Clock(monkeypatch), rig()
    made.emitter.open()
    made.emitter.add(one())
    made.emitter.flush(made.way)
    clock.now += 0.01
    made.emitter.taken(1)
    assert made.emitter.took_s == pytest.approx(0.0005)
    clock.now += 1.0
    made.emitter.took_s = 0.002
    made.emitter.add(one())
    made.emitter.flush(made.way)
    assert made.emitter.free_at == pytest.approx(clock.now + 0.012)


def test_rows_leave_some_of_the_machine() -> None:
    assert rests(3, 2) == 14
    assert rests(3, 64) < 1, "on a large machine rows go as they come"
    assert rests(30, 2) == 140


def test_feedback_rests_too_so_that_bundles_form(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    made = rig(route(), route(feedback=True))
    made.emitter.free_at = 101.0
    for _ in range(3):
        made.emitter.add(one(1))
        made.emitter.flush(None)
    assert (made.handed, made.emitter.due(False, False)) == ([], 101.0)
    clock.now = 101.0
    made.emitter.flush(None)  # it goes by the driver, with or without a task
    (row,) = made.handed
    assert len(opened(row).payloads) == 3


def test_a_full_bundle_goes_without_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    made = rig(max_bundle=2)
    made.emitter.open()
    made.emitter.took_s = 0.001
    made.emitter.add([m.Group(0, -1, [b"x"] * 5, [], [])])
    made.emitter.flush(made.way)
    assert len(made.way.sent) == 3
    made.emitter.add([m.Group(0, -1, [b"x"] * 2, [], [])])
    made.emitter.flush(made.way)
    assert len(made.way.sent) == 4, "though the way out rests after the one that was not full"
    assert made.emitter.free_at == pytest.approx(100.011)


def test_many_receivers_rest_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    made = rig(*(route(f"r{i}", first=i) for i in range(3)))
    made.emitter.open()
    made.emitter.took_s = 0.001
    for number in range(3):
        made.emitter.add(one(number))
    made.emitter.flush(made.way)
    assert made.emitter.free_at == pytest.approx(100.013), "10 ms, and what three rows take"


def test_what_is_passed_on_has_rested_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    other = rig(route(feedback=True))
    other.emitter.add(one())
    other.emitter.flush(None)
    made = rig()
    made.emitter.open()
    made.emitter.free_at = 101.0
    made.emitter.pass_on(other.handed[0])
    made.emitter.flush(made.way)
    assert len(made.way.sent) == 1
    assert made.emitter.free_at == 101.0


def test_what_is_asked_for_can_go_once_the_way_has_rested(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = Clock(monkeypatch), rig()
    made.emitter.open()
    made.emitter.took_s = 0.0002
    found = [(made.emitter.is_free, made.emitter.due(True, False))]
    made.emitter.add(one())
    made.emitter.flush(made.way)
    found.append((made.emitter.is_free, made.emitter.due(True, False)))
    clock.now = 100.003
    found.append((made.emitter.is_free, made.emitter.due(True, False)))
    made.emitter.shut()
    found.append((made.emitter.is_free, made.emitter.due(True, False)))
    rested = pytest.approx(100.0028)
    assert found == [(True, 0.0), (False, rested), (True, rested), (False, None)]


def test_answers_that_come_soon_are_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = Clock(monkeypatch), rig()
    made.emitter.open()
    made.emitter.add(one())
    made.emitter.flush(made.way, more_soon=True)
    assert not made.way.sent
    assert made.emitter.due(False, True) == pytest.approx(100.01)
    clock.now = 100.0005
    made.emitter.add(one())
    made.emitter.flush(made.way, more_soon=False)
    assert len(made.way.sent) == 1, "both together, as no more is to come"
    made.emitter.add(one())
    made.emitter.flush(made.way, more_soon=True)
    clock.now = 100.0106
    made.emitter.flush(made.way, more_soon=True)
    assert len(made.way.sent) == 2, "it has waited long enough"


def test_less_than_a_full_bundle_leaves_room() -> None:
    made = rig(max_bundle=2)
    found = [made.emitter.has_room]
    for payload in (b"a", b"b"):
        made.emitter.add([group(payload)])
        found.append(made.emitter.has_room)
    large = rig()
    large.emitter.add([group(b"x" * 300_000)])
    assert (found, large.emitter.has_room) == ([True, True, False], False)


def test_nothing_is_due_while_all_is_held_or_spark_takes_nothing() -> None:
    made = rig()
    made.emitter.add(one())
    found = [made.emitter.due(False, False)]
    made.emitter.open()
    found.append(made.emitter.due(False, False))
    made.emitter.hold = True
    found.append(made.emitter.due(False, False))
    assert found == [None, 0.0, None]
