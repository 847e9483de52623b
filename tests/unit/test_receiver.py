"""The way in: rows are counted by interval, and only those of ours are believed."""

import logging
from typing import Any

import pytest

from sojourn.engine.executor.receiver import Callbacks, Receiver
from sojourn.engine.wire.bundle import Bundle, Seal
from sojourn.engine.wire.spec import END

SEAL = Seal(b"secret")


class Rig:
    def __init__(self) -> None:
        self.arrived: list[tuple[list[bytes], bool]] = []
        self.ended = 0
        self.receiver = Receiver(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            b"secret",
            SEAL,
            Callbacks(
                lambda _batch: None,
                lambda bundle, late: self.arrived.append((bundle.payloads, late)),
                self._end,
                lambda _rows: None,
                lambda: None,
            ),
        )
        self.receiver.open = True

    def add(self, *_: Any) -> None:
        """As a loop."""

    def _end(self) -> None:
        self.ended += 1

    def row(self, interval: int, *payloads: bytes) -> bytes:
        return SEAL.row(1, 0, interval, Bundle(list(payloads), [], []))


def test_rows_are_late_ahead_or_in_time() -> None:
    rig = Rig()
    rig.receiver.cut(5)
    rig.receiver._rows([rig.row(5, b"in time"), rig.row(4, b"late"), rig.row(6, b"ahead")])
    assert rig.arrived == [([b"in time"], False), ([b"late"], True)]
    assert (rig.receiver.before, rig.receiver.since, rig.receiver.received) == (1, 1, 3)
    rig.receiver.cut(6)
    assert rig.receiver.before == 2
    rig.receiver.hand_on_early()
    assert rig.arrived[2:] == [([b"ahead"], False)]
    assert rig.receiver.received == 3


def test_rows_wait_until_they_can_be_handed_on() -> None:
    rig = Rig()
    rig.receiver.open = False
    rig.receiver._rows([rig.row(0, b"a"), END, rig.row(0, b"b")])
    assert rig.arrived == []
    assert rig.ended == 1
    rig.receiver.open = True
    rig.receiver.hand_on_early()
    assert [payloads for payloads, _ in rig.arrived] == [[b"a"], [b"b"]]


def test_a_row_of_a_stranger_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    forged = Seal(b"guessed").row(1, 0, 0, Bundle([b"evil"], [], []))
    with caplog.at_level(logging.WARNING, "sojourn"):
        rig.receiver._rows([forged, b"\x01\x00\x00", rig.row(0, b"good")])
    assert [payloads for payloads, _ in rig.arrived] == [[b"good"]]
    assert rig.receiver.received == 1
    assert len(caplog.records) == 2
