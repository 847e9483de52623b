"""How an executor stands with Spark's batches."""

from types import SimpleNamespace as Made
from typing import Any

import pytest

from sojourn.engine.executor.batch import Batches, Phase
from sojourn.engine.executor.emitter import Emitter
from sojourn.engine.executor.meter import Meter
from sojourn.engine.executor.on_error import Fault
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import Seal
from sojourn.engine.wire.spec import END, WINDOW


class Rig:
    """Batches with all that is around them made up."""

    def __init__(self, first_level: bool = False) -> None:
        self.told: list[Any] = []
        self.sent: list[bytes] = []
        self.attached = 0
        task = Made(send=self.sent.append)
        self.receiver = Made(task=task, callbacks=None, detach=lambda: self.sent.append(b"gone"))
        self.workers = Made(hold=False)
        self.emitter = Emitter(0, (), 0, (), 1, Meter(0.0), Seal(b""), self.sent.append)
        self.commits = Made(cut=None)
        around: list[Any] = [Made(send=self.told.append), self.receiver, self.workers]
        around += [self.emitter, self.commits, self._attached]
        self.batches = Batches(first_level, *around)
        self.tell = self.receiver.callbacks

    def _attached(self) -> None:
        self.attached += 1


def test_rows_can_be_sent_while_a_batch_runs() -> None:
    rig = Rig()
    rig.tell.begun(3)
    assert (rig.attached, rig.emitter.window) == (1, WINDOW)
    rig.tell.taken(2)
    assert rig.emitter.window == WINDOW + 2


def test_a_batch_ends_once_all_is_held_and_committed() -> None:
    rig = Rig()
    rig.tell.begun(3)
    rig.tell.ended()
    rig.batches.let_end()
    assert rig.sent == []
    rig.workers.hold, rig.commits.cut = True, object()
    rig.batches.let_end()
    assert rig.sent == []
    rig.commits.cut = None
    rig.batches.let_end()
    assert rig.sent == [END]
    assert rig.emitter.window == 0
    rig.tell.taken(2)  # of rows of the batch that is over
    assert rig.emitter.window == 0
    rig.tell.begun(4)
    assert rig.emitter.window == WINDOW


@pytest.mark.parametrize("first_level", [True, False])
def test_the_driver_hears_of_an_end_from_sources_alone(first_level: bool) -> None:
    rig = Rig(first_level)
    rig.tell.begun(3)
    rig.tell.ended()
    assert rig.told == ([m.BatchEnded(3)] if first_level else [])


def test_a_batch_that_was_over_before_the_executor_began_has_been_there() -> None:
    """Workers start as soon as there was a task, though its batch may be over by then."""
    rig = Rig()
    rig.tell.begun(0)
    rig.tell.ended()
    assert rig.batches.number == 0
    assert rig.batches.phase is Phase.ENDING


def test_a_task_may_go_only_when_all_is_held() -> None:
    rig = Rig()
    rig.tell.begun(3)
    with pytest.raises(Fault, match="task is gone"):
        rig.tell.gone()
    rig.workers.hold = True
    rig.tell.gone()
    assert rig.sent == [b"gone"]
    assert rig.emitter.window == 0


def test_one_task_at_a_time() -> None:
    rig = Rig()
    rig.tell.begun(3)
    with pytest.raises(Fault, match="batch 4 while 3 was running"):
        rig.tell.begun(4)
