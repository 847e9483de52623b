"""The driver's part in a commit: has all executors cut, tells each which of its rows had come by
then, and when all have saved writes the record, publishes what sinks have staged, and removes what
no longer counts. Fed by the hub; used by the supervisor."""

import errno
from collections.abc import Callable
from pathlib import Path

from sojourn.engine.driver.hub import Hub
from sojourn.engine.driver.record import Record, drop, last_record, sweep, write_record
from sojourn.engine.wire import messages as m
from sojourn.errors import TopologyFailed
from sojourn.sinks import publish


class Committer:
    """The last commit's record, and how the next one is made. One at a time."""

    def __init__(self, checkpoint: Path, hub: Hub) -> None:
        self.checkpoint, self.hub = checkpoint, hub
        self.record = last_record(checkpoint)

    def begin(self) -> None:
        """Before a start: what the last commit has not finished is finished, and what was begun
        after it is removed."""
        publish(self.record.publish, again=True)
        sweep(self.checkpoint, self.record)

    def commit(
        self,
        epoch: int,
        cannot_go_on: Callable[[], bool],
        hold: bool,
        last: bool,
        timeout_s: float,
    ) -> bool:
        """Make one; whether it was made. With `hold` nothing goes on after it. A number is used
        once in a start: who is told that it was not made must end the start."""
        hub, number = self.hub, self.record.number + 1
        hub.send_all(m.Commit(number, hold, last))
        hub.wait(lambda: hub.cut_by_all(number) or cannot_go_on(), timeout_s)
        if not hub.cut_by_all(number):
            return False
        hub.confirm(number)
        hub.wait(lambda: hub.saved_by_all(number) is not None or cannot_go_on(), timeout_s)
        with hub.changed:
            parts = hub.saved_by_all(number)
        if parts is None:
            return False
        self._make_durable(Record(number, epoch, parts))
        if hold:
            hub.between_batches()
        hub.send_all(m.Committed(number))
        return True

    def _make_durable(self, record: Record) -> None:
        before = self.record.files
        try:
            write_record(self.checkpoint, record)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise TopologyFailed(
                f"checkpoint {self.checkpoint}: the disk is full; make room: "
                "nothing that was committed is lost"
            ) from error
        self.record = record
        publish(record.publish)
        drop(self.checkpoint, before - record.files)
