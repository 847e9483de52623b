"""Tuples that could not be processed, where the operator says `on_error="dead-letter"`: one JSONL
file per batch under the checkpoint, published like a file sink's."""

import pickle
from pathlib import Path

from sojourn.engine import messages as m
from sojourn.sinks import Sink, jsonl


class DeadLetters:
    """Opened by the first letter of an executor, so that most leave no trace."""

    def __init__(self, checkpoint: Path, vertex: str, executor: int) -> None:
        self.directory = checkpoint / "sojourn" / "dead-letters" / vertex
        self.vertex, self.executor = vertex, executor
        self.sink: Sink | None = None
        self.now = (0, 0)

    def begin(self, batch: int, epoch: int) -> None:
        """A batch starts."""
        self.now = (batch, epoch)
        if self.sink is None and (self.directory / "_staging" / f"part-{self.executor}").is_dir():
            self._open()
        elif self.sink is not None:
            self.sink.begin(batch, epoch)

    def write(self, letter: m.DeadLetter) -> None:
        """Put one tuple aside."""
        if self.sink is None:
            self._open()
        assert self.sink is not None
        try:
            shown = repr(pickle.loads(letter.payload))
        except Exception as error:  # noqa: BLE001  # the payload itself may be what is broken
            shown = f"cannot be unpickled: {error}"
        record = {"operator": self.vertex, "value": shown, "error": letter.error}
        self.sink.write(record)

    def end(self) -> None:
        """The batch is complete."""
        if self.sink is not None:
            self.sink.end()

    def close(self, committed: int | None) -> None:
        """The topology stops."""
        if self.sink is not None and committed is not None:
            self.sink.close(committed)

    def _open(self) -> None:
        self.sink = jsonl(self.directory)
        self.sink.open(self.executor)
        self.sink.begin(*self.now)
