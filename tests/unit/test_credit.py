"""When a source is asked for more."""

from types import SimpleNamespace as Made
from typing import Any

import pytest

from sojourn.engine.executor.credit import Credit
from sojourn.engine.wire import messages as m


class Rig:
    """Credit with all that is around it made up."""

    def __init__(self) -> None:
        self.sent: list[m.ToWorker] = []
        self.worker: Any = _Worker(
            Made(send=lambda frame: self.sent.append(m.decode_to_worker(frame)))
        )
        emitter: Any = Made(is_free=False, has_room=True)
        self.emitter, self.credit = emitter, Credit(emitter)


class _Worker:
    def __init__(self, link: Any) -> None:
        self.link = link


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_source_that_has_sent_nothing_is_not_asked(rig: Rig) -> None:
    rig.emitter.is_free = True
    rig.credit.renew(full=False)
    assert (rig.sent, rig.credit.unasked) == ([], False)


def test_it_is_asked_once_when_the_way_out_is_free(rig: Rig) -> None:
    rig.credit.used(rig.worker, more=False)
    rig.credit.renew(full=False)
    assert (rig.sent, rig.credit.unasked) == ([], True), "somebody must look again"
    rig.emitter.is_free = True
    for _ in range(2):
        rig.credit.renew(full=False)
    assert (rig.sent, rig.credit.unasked) == ([m.More()], False)


def test_what_was_found_wanting_holds_though_the_way_comes_free_a_moment_later(rig: Rig) -> None:
    """Else nobody would look again."""
    rig.credit.used(rig.worker, more=False)
    rig.credit.renew(full=False)
    rig.emitter.is_free = True
    assert rig.credit.unasked


def test_one_that_has_more_is_asked_while_there_is_room_for_a_bundle(rig: Rig) -> None:
    rig.credit.used(rig.worker, more=True)
    rig.credit.renew(full=False)
    assert rig.sent == [m.More()]
    rig.emitter.has_room = False
    rig.credit.used(rig.worker, more=True)
    rig.credit.renew(full=False)
    assert (rig.sent, rig.credit.unasked) == ([m.More()], True)


def test_while_too_much_waits_it_is_not_asked_and_nobody_waits_for_the_clock(rig: Rig) -> None:
    rig.emitter.is_free = True
    rig.credit.used(rig.worker, more=True)
    rig.credit.renew(full=True)
    assert (rig.sent, rig.credit.unasked, len(rig.credit.waiting)) == ([], False, 1)


def test_a_reader_that_has_gone_is_not_asked(rig: Rig) -> None:
    rig.credit.used(rig.worker, more=True)
    rig.credit.keep([])
    rig.credit.renew(full=False)
    assert (rig.sent, rig.credit.unasked) == ([], False)
