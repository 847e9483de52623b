"""Which process of a source reads which of its splits, from where, and when that changes."""

import itertools
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import sojourn as sj
from sojourn.engine.driver.readers import Readers
from sojourn.engine.driver.record import Record
from sojourn.engine.wire import messages as m
from sojourn.engine.worker import values
from sojourn.errors import InputError
from sojourn.topology import SourceSpec


class Parts(sj.Source):
    """Splits as the test says."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def splits(self) -> Sequence[str] | Mapping[str, Any] | None:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found  # type: ignore[no-any-return]


class Rig:
    def __init__(self, found: Any, executors: int = 1, record: Record | None = None) -> None:
        self.source = Parts(found)
        self.record = Record() if record is None else record
        self.heard = threading.Event()
        spec = SourceSpec("in", self.source, executors)
        self.readers = Readers({"in": spec}, self.record, self.heard.set)
        self.settle()

    def settle(self, names: list[str] | None = None) -> None:
        self.readers.settle(self.record, names)

    def read(self) -> list[list[list[str]]]:
        """The splits of each executor's processes."""
        shares = self.readers.shares("in", self.record)
        assert shares is not None
        return [[list(share.positions) for share in executor] for executor in shares]

    def shares(self) -> list[m.Share]:
        shares = self.readers.shares("in", self.record)
        assert shares is not None
        return [share for executor in shares for share in executor]

    def look(self) -> None:
        self.readers.look()
        asking = self.readers.sources["in"].asking
        assert asking is not None
        asking.join()


def part(executor: int = 0, **more: Any) -> m.Part:
    return m.Part("in", executor, **more)


def test_a_source_without_splits_has_no_shares() -> None:
    rig = Rig(None)
    assert rig.readers.shares("in", rig.record) is None
    assert (rig.readers.due, rig.record.splits) == ([], {})


def test_splits_go_to_processes_by_their_place_in_the_order_of_names() -> None:
    rig = Rig(["d", "a", "e", "c", "b"], executors=2)
    assert rig.read() == [[["a", "c", "e"]], [["b", "d"]]]
    assert [(share.number, share.readers) for share in rig.shares()] == [(0, 2), (1, 2)]


def test_where_processes_are_more_than_splits_some_have_none_and_no_share_of_the_pace() -> None:
    rig = Rig(["a"], executors=3)
    assert rig.read() == [[["a"]], [[]], [[]]]
    assert {share.readers for share in rig.shares()} == {1}


def test_each_split_goes_on_from_its_own_position_whoever_read_it() -> None:
    record = Record(3, 1, [part(0), part(1)], splits={"in": {"a": b"7", "gone": b"9"}})
    rig = Rig(["a", "b"], record=record)
    assert rig.shares()[0].positions == {"a": b"7", "b": b""}
    assert record.splits["in"]["gone"] == b"9", "it may come back"


def test_the_schedule_goes_on_from_the_reader_that_was_farthest() -> None:
    record = Record(3, 1, [part(0, schedule=(8, 0.8, 8.0)), part(1, schedule=(9, 0.9, 9.0))])
    assert {share.schedule for share in Rig(["a"], record=record).shares()} == {(9, 0.9, 9.0)}


def test_where_splits_begin_counts_at_the_very_first_start_only() -> None:
    rig = Rig({"a": 5, "b": None})
    assert rig.shares()[0].positions == {"a": values.dumps(5), "b": b""}
    saved = rig.record.read_on([part(splits={"b": b"1"})])
    assert saved["in"] == {"a": values.dumps(5), "b": b"1"}, "kept though nothing came of it"
    again = Rig({"a": 6, "b": 6, "c": 6}, record=Record(1, 0, [part()], splits=saved))
    assert again.shares()[0].positions == {"a": values.dumps(5), "b": b"1", "c": b""}


def test_what_parts_tell_is_kept_in_one_place() -> None:
    record = Record(1, 0, [], splits={"in": {"a": b"1", "b": b"1"}})
    parts = [part(0, splits={"a": b"2"}), part(1, splits={"c": b"1"})]
    assert record.read_on(parts) == {"in": {"a": b"2", "b": b"1", "c": b"1"}}
    assert record.splits == {"in": {"a": b"1", "b": b"1"}}, "the commit is not made yet"
    assert all(not part.splits for part in parts)


def test_a_split_that_comes_later_is_shared_out_at_the_next_commit() -> None:
    rig = Rig(["b", "c"], executors=2)
    rig.source.found = ["a", "c"]  # and one is gone, which its reader will notice
    rig.look()
    assert rig.heard.is_set()
    assert rig.readers.due == ["in"]
    assert rig.read() == [[["b"]], [["c"]]], "nothing changes before the commit"
    rig.settle(["in"])
    assert rig.readers.due == []
    assert rig.read() == [[["a", "b"]], [["c"]]], "each stays with its executor"


def test_a_split_stays_with_its_executor_however_many_processes_read() -> None:
    """Rows of two executors could overtake one another."""
    rig = Rig(["a", "b", "c", "d", "e"], executors=2)
    rig.source.elastic = True
    first = [sorted(itertools.chain(*executor)) for executor in rig.read()]
    assert first == [["a", "c", "e"], ["b", "d"]]
    for count in (3, 4, 5, 2):
        rig.readers.resize("in", count)
        rig.settle(["in"])
        assert [sorted(itertools.chain(*executor)) for executor in rig.read()] == first
        assert sum(len(executor) for executor in rig.read()) == count
        assert sorted(share.number for share in rig.shares()) == list(range(count))
        assert {share.readers for share in rig.shares()} == {count}
    rig.source.found = ["0", "a", "b", "c", "d", "e"]
    rig.look()
    rig.settle(["in"])
    assert [sorted(itertools.chain(*executor)) for executor in rig.read()] == [
        ["a", "c", "e"],
        ["0", "b", "d"],
    ]
    saved = rig.record.read_on([])
    again = Rig(["0", "a", "b", "c", "d", "e"], 2, Record(1, 0, [part()], splits=saved))
    assert again.read() == rig.read(), "also after a restart"


def test_the_pace_is_shared_by_those_that_have_splits() -> None:
    record = Record(1, 0, [part()], splits={"in": {"a": b"", "gone": b"", "c": b"", "d": b""}})
    rig = Rig(["a", "c", "d"], executors=2, record=record)
    rig.readers.resize("in", 4)
    rig.settle()
    assert rig.read() == [[["a"], ["c"]], [["d"], []]]
    paced = [share for share in rig.shares() if share.positions]
    assert sorted(share.number for share in paced) == [0, 1, 2]
    assert {share.readers for share in paced} == {3}


def test_nothing_new_is_no_reason_to_stop_anybody() -> None:
    rig = Rig(["a", "b"])
    rig.source.found = ["b", "a"]
    rig.look()
    assert not rig.heard.is_set()
    assert rig.readers.due == []


def test_a_source_that_cannot_list_its_splits_goes_on_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(["a"])
    rig.source.found = OSError("no route")
    with caplog.at_level(logging.WARNING, logger="sojourn"):
        rig.look()
        rig.look()
    assert [r.message for r in caplog.records] == [
        "source 'in' cannot list its splits (no route); it goes on"
    ]
    assert rig.read() == [[["a"]]]
    rig.source.found = ["a", "b"]
    rig.look()
    assert rig.readers.due == ["in"]


@pytest.mark.parametrize("found", [["a", "a"], ["a", ""], ["a", 1]])
def test_odd_names_are_refused(found: Any) -> None:
    with pytest.raises(InputError, match=r"source 'in': the names of its splits must be different"):
        Rig(found)


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(InputError, match=r"has no splits, so one process reads it; leave out"):
        Rig(None, executors=2)


def test_a_position_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"had no splits when the checkpoint was made, and has so"):
        Rig(["a"], record=Record(1, 0, [part(position=b"here")]))
    with pytest.raises(InputError, match=r"had splits when the checkpoint was made, and has none"):
        Rig(None, record=Record(1, 0, [part()], splits={"in": {"a": b""}}))


def test_the_number_of_processes_changes_at_a_commit() -> None:
    rig = Rig(["a", "b", "c"])
    assert rig.readers.bounds("in") is None, "it does not say that it may change"
    rig.source.elastic = True
    assert rig.readers.bounds("in") == (1, 3)
    rig.readers.resize("in", 2)
    assert rig.readers.due == ["in"]
    assert rig.read() == [[["a", "b", "c"]]]
    rig.settle(["in"])
    assert rig.read() == [[["a", "c"], ["b"]]]
    rig.settle()
    assert rig.read() == [[["a", "c"], ["b"]]], "a restart keeps it"
