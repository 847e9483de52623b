"""A worker's loop: it answers a cut at once, saves what changed, undoes what failed, and tells a
full disk from a bad tuple."""

import errno
import mmap
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sojourn as sj
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FrameReader, Trace, send_frame
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import moving, store, values
from sojourn.engine.worker.code import OperatorCode, Shared, SinkCode
from sojourn.engine.worker.state import Packed
from sojourn.engine.worker.worker import serve


@contextmanager
def serving(
    code: OperatorCode | SinkCode,
    keep_going: bool = False,
    routes: tuple[Route, ...] = (),
    timed_every: int = 0,
    memory: mmap.mmap | None = None,
) -> Iterator[Any]:
    """A worker in a thread; yields what tells it something and what reads its next answer."""
    ours, theirs = socket.socketpair()
    reader = FrameReader(ours)
    arguments = (theirs, FrameReader(theirs), code, routes, 1, keep_going, timed_every, memory)
    thread = threading.Thread(target=serve, args=arguments)
    thread.start()

    def tell(message: m.ToWorker) -> None:
        send_frame(ours, m.encode(message))

    def answer() -> m.FromWorker:
        message: m.FromWorker = m.decode_from_worker(reader.read() or b"")
        return message

    try:
        yield tell, answer
    finally:
        ours.close()
        thread.join()
        theirs.close()


class Count(sj.Operator):
    def process(self, word: str) -> None:
        self.state.setdefault(word, []).append(1)
        if word == "bad":
            raise ValueError(word)


def work(*words: str, shard: int = 3) -> m.Work:
    return m.Work([values.dumps(word) for word in words], [shard] * len(words), [])


def saved_state(*paths: Path) -> dict[str, int]:
    found = store.read(list(paths), lambda _shard: True)
    return {word: len(ones) for state in found.values() for word, ones in state.items()}


def test_a_cut_is_answered_at_once_and_what_changed_is_saved(tmp_path: Path) -> None:
    with serving(OperatorCode(Count, "count", Shared())) as (tell, answer):
        tell(work("a", "b", "a"))
        tell(m.Save(1, str(tmp_path / "1"), False, False))
        tell(work("a"))
        assert isinstance(answer(), m.Done)
        assert answer() == m.Cut(1)
        rest = [answer(), answer()]
        assert {type(message) for message in rest} == {m.Done, m.Saved}
        (saved,) = (message for message in rest if isinstance(message, m.Saved))
        assert saved.size == (tmp_path / "1").stat().st_size
        assert saved_state(tmp_path / "1") == {"a": 2, "b": 1}
        tell(m.Save(2, str(tmp_path / "2"), False, False))
        assert answer() == m.Cut(2)
        assert isinstance(answer(), m.Saved)
        assert saved_state(tmp_path / "2") == {"a": 3}, "only what changed"
        tell(m.Save(3, str(tmp_path / "3"), False, False))
        assert [answer(), answer()] == [m.Cut(3), m.Saved(3)]
        assert not (tmp_path / "3").exists()


def test_a_shard_that_leaves_right_after_a_cut_is_saved_as_it_was(tmp_path: Path) -> None:
    code = OperatorCode(Count, "count", Shared())
    with serving(code) as (tell, answer):
        tell(work("a", "b"))
        tell(m.Save(1, str(tmp_path / "1"), False, False))
        tell(m.TakeShard(3))
        found = [answer() for _ in range(4)]
        (given,) = (message for message in found if isinstance(message, m.GiveShard))
        assert saved_state(tmp_path / "1") == {"a": 1, "b": 1}
        tell(m.GiveShard(3, given.state))
        tell(work("b"))
        assert [type(answer()), type(answer())] == [m.Timers, m.Done]
        tell(m.Save(2, str(tmp_path / "2"), False, False))
        assert [type(answer()), type(answer())] == [m.Cut, m.Saved]
        assert saved_state(tmp_path / "2") == {"b": 2}


def test_a_loaded_state_is_only_that_of_the_shards_asked_for(tmp_path: Path) -> None:
    with serving(OperatorCode(Count, "count", Shared())) as (tell, answer):
        tell(work("a", shard=3))
        tell(work("b", shard=4))
        tell(m.Save(1, str(tmp_path / "1"), False, False))
        assert [type(answer()) for _ in range(4)] == [m.Done, m.Done, m.Cut, m.Saved]
    for anew, expected in ((False, {}), (True, {"a": 1})):
        code = OperatorCode(Count, "count", Shared())
        code.load(m.Load([m.SavedFiles([str(tmp_path / "1")], 1, 2)], [3, 4], anew))
        assert set(code.shared.states) == {3}, "4 was another executor's"
        code.cut(m.Save(2, str(tmp_path / f"2{anew}"), False, False))
        save = code.save_some()
        assert save is not None
        saved = save()
        found = saved_state(tmp_path / f"2{anew}") if saved.size else {}
        assert found == expected


def test_a_failed_tuple_changes_nothing(tmp_path: Path) -> None:
    code = OperatorCode(Count, "count", Shared(), keep_going=True)
    with serving(code, keep_going=True) as (tell, answer):
        tell(work("a", "bad", "a"))
        done = answer()
        assert isinstance(done, m.Done)
        assert [letter.shown for letter in done.failed] == ["'bad'"]
        tell(m.Save(1, str(tmp_path / "1"), False, False))
        assert [type(answer()), type(answer())] == [m.Cut, m.Saved]
        assert saved_state(tmp_path / "1") == {"a": 2}


class FullSink(sj.Sink):
    """A disk that is full, when writing or when cutting."""

    def __init__(self, when: str) -> None:
        self.when = when

    def _fail(self, when: str) -> None:
        if self.when == when:
            raise OSError(errno.ENOSPC, "No space left on device", "/full")

    def write(self, value: Any) -> None:  # noqa: ARG002
        self._fail("write")

    def cut(self, last: bool = False) -> Any:  # noqa: ARG002
        self._fail("cut")
        return lambda: self._fail("save")


def test_a_full_disk_is_no_fault_of_the_tuple_and_is_told_as_what_it_is(tmp_path: Path) -> None:
    for when in ("write", "cut", "save"):
        code = SinkCode(FullSink(when), 0, "run", 1, [])
        with serving(code, keep_going=True) as (tell, answer):
            tell(work("a"))
            tell(m.Save(1, str(tmp_path / "1"), False, False))
            message = answer()
            while not isinstance(message, m.Fatal):
                message = answer()
            assert not message.user
            assert "the disk is full (/full); make room" in message.error


@pytest.mark.parametrize("memory", [None, moving.shared_memory()])
@pytest.mark.parametrize("size", [0, 1 << 15, 1 << 16, 5 << 20])
def test_a_large_shard_moves_in_pieces_while_others_are_served(
    memory: mmap.mmap | None, size: int
) -> None:
    old, new = (OperatorCode(Count, "count", Shared()) for _ in range(2))
    kept = {"bytes": random.Random(1).randbytes(size), "list": list(range(size // 16))}
    old.give(3, (Packed(dict(kept), {}), None))
    pieces = 0
    with serving(old, memory=memory) as (tell, answer), serving(new, memory=memory) as (put, heard):
        tell(m.TakeShard(3))
        given = answer()
        assert isinstance(given, m.GiveShard)
        put(given)
        while given.more:
            assert heard() == m.Took(3)
            tell(work("b", shard=4))
            assert isinstance(answer(), m.Done)
            put(work("b", shard=5))
            assert isinstance(heard(), m.Done)
            tell(m.TakeMore(3, -1 if memory is None else 2))
            given = answer()
            assert isinstance(given, m.GiveShard)
            assert (given.slot == 2) == (memory is not None)
            put(given)
            pieces += 1
        if pieces:
            assert heard() == m.Took(3)
            put(m.Settle(3))
        assert heard() == m.Timers(None, 0, loaded=True)
        assert (pieces > 3) == (size == 5 << 20)
    assert dict(new.shared.states[3]) == kept
    assert 3 not in old.shared.states


def test_state_that_cannot_be_pickled_is_told() -> None:
    code = OperatorCode(Count, "count", Shared())
    code.give(3, (Packed({"a": threading.Lock()}, {}), None))
    with serving(code) as (tell, answer):
        tell(m.TakeShard(3))
        told = answer()
        assert isinstance(told, m.Fatal)
        assert "the state of a shard cannot be moved" in told.error
        assert "lock" in told.error


class Doubled(sj.Operator):
    """Takes bundles, refuses the word "bad", and counts what it was given at once."""

    def process_bundle(self, words: list[str]) -> list[Any]:
        for word in words:
            self.state[word] = self.state.get(word, 0) + 1
        if "bad" in words:
            raise ValueError("bad")
        return [[word, word] for word in words]


def bundle_of(*words: str, shards: list[int]) -> m.Work:
    traces = [Trace(index, 100 + index, 1000 + index) for index in range(len(words))]
    return m.Work([values.dumps(word) for word in words], shards, traces)


TO_ALL = Route("next", None, False, 1, 0, 1, None, 0)


def test_a_bundle_is_processed_at_once_and_each_tuple_is_traced() -> None:
    code = OperatorCode(Doubled, "double", Shared())
    with serving(code, routes=(TO_ALL,)) as (tell, answer):
        tell(bundle_of("a", "b", "c", shards=[3, 4, 3]))
        done = answer()
        assert isinstance(done, m.Done)
        assert done.served == 3
        (group,) = done.groups
        assert sorted(values.loads(p) for p in group.payloads) == ["a", "a", "b", "b", "c", "c"]
        made = {100: 0, 101: 0, 102: 0}
        for trace in group.traces:
            made[trace.root] ^= trace.id
        assert {a.root: a.value for a in done.acks} == {
            root: made[root] ^ (root + 900) for root in made
        }
        assert dict(code.shared.states[3]) == {"a": 1, "c": 1}


def test_one_that_fails_in_a_bundle_fails_alone_and_changes_nothing() -> None:
    code = OperatorCode(Doubled, "double", Shared(), keep_going=True)
    with serving(code, keep_going=True, routes=(TO_ALL,)) as (tell, answer):
        tell(bundle_of("a", "bad", "c", shards=[3, 3, 3]))
        done = answer()
        assert isinstance(done, m.Done)
        assert [letter.shown for letter in done.failed] == ["'bad'"]
        assert [values.loads(p) for p in done.groups[0].payloads] == ["a", "a", "c", "c"]
        assert len(done.acks) == 3
        assert dict(code.shared.states[3]) == {"a": 1, "c": 1}


def test_a_bundle_that_fails_ends_the_topology_naming_the_tuple() -> None:
    with serving(OperatorCode(Doubled, "double", Shared())) as (tell, answer):
        tell(bundle_of("a", "bad", "c", shards=[3, 3, 3]))
        told = answer()
        assert isinstance(told, m.Fatal)
        assert "processing 'bad' raised" in told.error


class Short(sj.Operator):
    def process_bundle(self, words: list[str]) -> list[Any]:
        return [[]] * (len(words) - 1)


def test_a_bundle_needs_an_item_for_each_value() -> None:
    with serving(OperatorCode(Short, "short", Shared())) as (tell, answer):
        tell(bundle_of("a", shards=[]))
        told = answer()
        assert isinstance(told, m.Fatal)
        assert "got 1 values but returned 0; return one item for each" in told.error


class Roots(sj.Operator):
    columns = "numpy"

    def process_bundle(self, numbers: Any) -> Any:
        return numbers**0.5


class Names(sj.Operator):
    columns = "arrow"

    def process_bundle(self, table: Any) -> Any:
        return table.select(["name"])


def test_bundles_as_columns() -> None:
    roots = OperatorCode(Roots, "roots", Shared())
    assert roots.process_bundle([4, 9], -1) == [(2.0,), (3.0,)]
    names = OperatorCode(Names, "names", Shared())
    people = [{"name": "Ada", "age": 36}, {"name": "Alan", "age": 41}]
    assert names.process_bundle(people, -1) == [({"name": "Ada"},), ({"name": "Alan"},)]


class Unreadable:
    """A value that pickles and cannot be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_cannot_be_unpickled_leaves_the_tuple_before_it_alone() -> None:
    for kind in (Count, Doubled):
        code = OperatorCode(kind, "count", Shared(), keep_going=True)
        with serving(code, keep_going=True, routes=(TO_ALL,)) as (tell, answer):
            tell(m.Work([values.dumps("a"), values.dumps(Unreadable())], [3, 3], []))
            done = answer()
            assert isinstance(done, m.Done)
            assert len(done.failed) == 1
            tell(m.Work([values.dumps(Unreadable())], [3], []))
            assert len(answer().failed) == 1
        assert list(code.shared.states[3]) == ["a"]


class Plain:
    """Takes bundles, and derives from nothing."""

    def process_bundle(self, words: list[str]) -> list[Any]:
        return [[word] for word in words]


def test_a_class_that_takes_bundles_need_not_derive_from_operator() -> None:
    assert OperatorCode(Plain, "plain", Shared()).process_bundle(["a"], -1) == [["a"]]


class Columns(sj.Operator):
    columns = "arrow"

    def process_bundle(self, table: Any) -> Any:
        return [[sorted(table.column_names)]] * len(table)


def test_a_table_has_the_columns_of_all_records() -> None:
    code = OperatorCode(Columns, "columns", Shared())
    found = code.process_bundle([{"name": "Ada"}, {"name": "Alan", "age": 41}], -1)
    assert found == [[["age", "name"]]] * 2


def test_values_of_several_kinds_are_no_array() -> None:
    code = OperatorCode(Roots, "roots", Shared())
    with pytest.raises(TypeError, match="a numpy array cannot hold values of several kinds"):
        code.process_bundle([4, "nine"], -1)


def test_the_service_time_of_a_bundle_counts_for_each_tuple() -> None:
    code = OperatorCode(Plain, "plain", Shared())
    with serving(code, routes=(TO_ALL,), timed_every=1) as (tell, answer):
        tell(bundle_of("a", "b", "c", "d", shards=[]))
        done = answer()
    assert isinstance(done, m.Done)
    assert done.timed == done.served == 4
    assert done.service_s == pytest.approx(done.elapsed_s)
    assert done.service_s2 == pytest.approx(done.elapsed_s**2 / 4)
