"""The way in: rows are counted by the way they come, and only those of ours are believed."""

import logging
from collections import Counter
from typing import Any

import pytest

from sojourn.engine.executor.on_error import Fault
from sojourn.engine.executor.receiver import Callbacks, Receiver
from sojourn.engine.wire.bundle import Bundle, Row, Seal, Way
from sojourn.engine.wire.spec import END

SEAL = Seal(b"secret")
WAY = Way(7, False)


class Rig:
    def __init__(self) -> None:
        self.arrived: list[list[bytes]] = []
        self.numbers: Counter[Way] = Counter()
        self.ended = 0
        self.receiver = Receiver(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            b"secret",
            SEAL,
            lambda bundle: self.arrived.append(bundle.payloads),
        )
        self.receiver.callbacks = Callbacks(
            lambda _batch: None, self._end, lambda _rows: None, lambda: None
        )
        self.receiver.open = True

    def add(self, *_: Any) -> None:
        """As a loop."""

    def _end(self) -> None:
        self.ended += 1

    def row(self, interval: int, *payloads: bytes, way: Way = WAY) -> bytes:
        self.numbers[way] += 1
        row = Row(interval, way, self.numbers[way], Bundle(list(payloads), [], []))
        return SEAL.row(1, 0, row)


def test_a_row_whose_sender_is_a_cut_ahead_waits() -> None:
    rig = Rig()
    rig.receiver.interval = 5
    rig.receiver.take([rig.row(4, b"late"), rig.row(5, b"in time"), rig.row(6, b"ahead")])
    assert rig.arrived == [[b"late"], [b"in time"]]
    assert rig.receiver.told() == [(7, False, 2)]
    assert rig.receiver.received == 3
    rig.receiver.interval = 6
    rig.receiver.hand_on_early()
    assert rig.arrived[2:] == [[b"ahead"]]
    assert rig.receiver.told() == [(7, False, 3)]


def test_every_way_is_counted_by_itself() -> None:
    rig = Rig()
    for way in (Way(1, False), Way(1, True), Way(2, False), Way(1, False)):
        rig.receiver.take([rig.row(0, b"x", way=way)])
    assert sorted(rig.receiver.told()) == [(1, False, 2), (1, True, 1), (2, False, 1)]


@pytest.mark.parametrize("numbers", [[1, 3], [1, 2, 2], [2]])
def test_a_row_that_is_missing_or_comes_twice_is_noticed(numbers: list[int]) -> None:
    rig = Rig()
    rows = [SEAL.row(1, 0, Row(0, Way(7, False), n, Bundle([b"x"], [], []))) for n in numbers]
    with pytest.raises(Fault, match=r"row \d of sender 7 came after \d"):
        rig.receiver.take(rows)


def test_senders_are_told_after_so_many_bytes() -> None:
    rig = Rig()
    rig.receiver.take([rig.row(0, bytes(1000))])
    assert rig.receiver.untold_bytes > 1000
    rig.receiver.told()
    assert rig.receiver.untold_bytes == 0


def test_rows_wait_until_they_can_be_handed_on() -> None:
    rig = Rig()
    rig.receiver.open = False
    rig.receiver.take([rig.row(0, b"a"), END, rig.row(0, b"b")])
    assert rig.arrived == []
    assert rig.ended == 1
    rig.receiver.open = True
    rig.receiver.hand_on_early()
    assert rig.arrived == [[b"a"], [b"b"]]


def test_a_row_of_a_stranger_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    forged = Seal(b"guessed").row(1, 0, Row(0, Way(7, False), 1, Bundle([b"evil"], [], [])))
    with caplog.at_level(logging.WARNING, "sojourn"):
        rig.receiver.take([forged, b"\x01\x00\x00", rig.row(0, b"good")])
    assert rig.arrived == [[b"good"]]
    assert rig.receiver.received == 1
    assert len(caplog.records) == 2
