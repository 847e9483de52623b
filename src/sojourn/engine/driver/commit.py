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

_FOREVER_S = 10 * 365 * 86_400.0


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
        hold: bool = False,
        last: bool = False,
        timeout_s: float = _FOREVER_S,
    ) -> bool:
        """Make one; whether it was made. With `hold` nothing goes on after it."""
        hub, number = self.hub, self.record.number + 1
        hub.send_all(m.Commit(number, hold, last))

        def found(look: Callable[[int], list[m.HasCut] | list[m.Part] | None]) -> bool:
            hub.wait(lambda: look(number) is not None or cannot_go_on(), timeout_s)
            return look(number) is not None

        if not found(hub.cut_by_all):
            return False
        hub.confirm(number)
        if not found(hub.saved_by_all):
            return False
        self._make_durable(Record(number, epoch, hub.saved_by_all(number) or []))
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
