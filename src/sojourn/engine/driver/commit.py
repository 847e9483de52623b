"""The driver's part in a commit: it has all executors cut, and tells each which of its rows had
come by then. When all have saved, it writes the record, publishes what sinks have staged, and
removes what no longer counts. Fed by the hub; used by the supervisor."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sojourn import durable
from sojourn.engine.driver.hub import Hub
from sojourn.engine.driver.record import (
    Record,
    drop,
    last_published,
    last_record,
    sweep,
    write_published,
    write_record,
)
from sojourn.engine.wire import messages as m
from sojourn.errors import TopologyFailed
from sojourn.sinks import Sink, publish

_log = logging.getLogger("sojourn")


class Committer:
    """The last commit's record, and how the next one is made. One at a time."""

    def __init__(self, checkpoint: Path, hub: Hub, sinks: Mapping[str, Sink] | None = None) -> None:
        self.checkpoint, self.hub = checkpoint, hub
        self.sinks = dict(sinks or {})
        self.record = last_record(checkpoint)
        self.zero_s = 0.0  # when the topology would have begun, had it never been down
        self.published = last_published(checkpoint)

    def begin(self) -> None:
        """Prepare a start: note where sources with splits begin, finish what the last commit left
        unfinished, and remove what was begun after it."""
        if self.record.splits and self.record != last_record(self.checkpoint):
            self._write(self.record)  # a later start must not ask again where the end is
        if self.published != self.record.number:
            self._publish(again=True)
        sweep(self.checkpoint, self.record)
        self.zero_s = time.time() - self.record.ran_s

    def commit(
        self,
        epoch: int,
        wait: Callable[[Callable[[], bool], float], None],
        hold: bool,
        last: bool,
        timeout_s: float,
        anew: Sequence[str] = (),
    ) -> bool:
        """Make a commit. Returns whether it was made; if not, the caller must end the start,
        because a number is used only once in a start. `wait` gives up when the start cannot go on.
        With `hold`, nothing goes on after the commit, and without it no source in `anew`."""
        hub, number = self.hub, self.record.number + 1
        hub.send_all(m.Commit(number, hold, last, [*anew]))
        wait(lambda: hub.cut_by_all(number), timeout_s)
        if not hub.cut_by_all(number):
            return False
        hub.confirm(number)
        wait(lambda: hub.saved_by_all(number) is not None, timeout_s)
        with hub.changed:
            parts = hub.saved_by_all(number)
        if parts is None:
            return False
        splits = self.record.read_on(parts)
        self._make_durable(Record(number, epoch, parts, time.time() - self.zero_s, splits))
        if hold:  # the topology may be stopped, and its sinks close
            try:
                write_published(self.checkpoint, number)
            except OSError as error:  # at worst, results that were taken away will be missed
                _log.warning("checkpoint %s: %s", self.checkpoint, error)
        if hold:
            hub.between_batches()
        hub.send_all(m.Committed(number))
        return True

    def close(self) -> None:
        """Nothing is published any more."""
        for sink in self.sinks.values():
            sink.retire()

    def _write(self, record: Record) -> None:
        try:
            write_record(self.checkpoint, record)
        except OSError as error:
            full = durable.full_disk(error)
            if full is None:
                raise
            raise TopologyFailed(f"checkpoint {self.checkpoint}: {full}") from error

    def _make_durable(self, record: Record) -> None:
        before = self.record.files
        self._write(record)
        self.record = record
        self._publish()
        drop(self.checkpoint, before - record.files)

    def _publish(self, again: bool = False) -> None:
        """Have sinks show what they have staged for the last commit."""
        record = self.record
        others = [part for part in record.parts if part.vertex not in self.sinks]
        publish([pair for part in others for pair in part.publish], again)
        for name, sink in self.sinks.items():
            staged = [pair for part in record.of(name) for pair in part.publish]
            sink.publish(staged, record.number, again)
        self.published = record.number
