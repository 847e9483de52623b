"""What happens to tuples that cannot be processed. `on_error` says whether the topology fails, or
they are dropped, or they are written to JSONL files under the checkpoint. All are counted."""

import subprocess
import sys
from collections.abc import Callable

from sojourn import durable
from sojourn.engine.executor.meter import Meter
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.spec import ExecutorSpec
from sojourn.sinks import Sink, Staged, jsonl

_KILLED = "it killed its worker twice"
_SHOW_S = 10.0


class Fault(Exception):
    """The executor cannot go on."""

    def __init__(self, error: str, user: bool = False) -> None:
        super().__init__(error)
        self.error, self.user = error, user


class OnError:
    """The outcome of failures at one executor. The first dead letter opens the file, so most
    executors leave none."""

    def __init__(self, spec: ExecutorSpec, meter: Meter) -> None:
        self.spec, self.meter = spec, meter
        self.sink: Sink | None = None
        self.later: list[m.DeadLetter] = []
        self.made_cut: Callable[[], Staged] = Staged

    def cut(self) -> None:
        """Make the cut: all failures of the interval are known."""
        if self.sink is not None:
            self.made_cut = self.sink.cut()
        later, self.later = self.later, []
        self._write(later)

    def take_cut(self) -> Callable[[], Staged]:
        """A function that makes the interval's dead letters durable."""
        made, self.made_cut = self.made_cut, Staged
        return made

    def close(self) -> None:
        """Close the file: the topology stops."""
        if self.sink is not None:
            self.sink.close()

    def failed(self, letters: list[m.DeadLetter], after_cut: bool = False) -> None:
        """Handle tuples for which user code raised, and go on. They wait if they belong to the
        interval after a cut that is not complete yet."""
        self.meter.dropped += len(letters)
        if after_cut:
            self.later += letters
        else:
            self._write(letters)

    def give_up(self, payload: bytes) -> None:
        """Handle a tuple that kills its workers."""
        if self.spec.on_error == "fail":
            what = f"{self.spec.kind} {self.spec.place.vertex!r}"
            raise Fault(f"{what}: processing {_shown(payload)} killed its worker twice", True)
        self.failed([m.DeadLetter(_shown(payload), _KILLED)])

    def _write(self, letters: list[m.DeadLetter]) -> None:
        if self.spec.on_error != "dead-letter":
            return
        for letter in letters:
            if self.sink is None:
                self.sink = jsonl(durable.private_directory(self.spec.letters))
                self.sink.open(self.spec.place.executor, self.spec.epoch)
            operator = self.spec.place.vertex
            self.sink.write({"operator": operator, "value": letter.shown, "error": letter.error})


def _shown(payload: bytes) -> str:
    """A tuple as text. A process of its own finds it out, because the tuple may kill that too."""
    code = "import pickle, sys; print(repr(pickle.load(sys.stdin.buffer))[:200])"
    try:
        told = subprocess.run(
            [sys.executable, "-c", code],
            input=payload,
            capture_output=True,
            timeout=_SHOW_S,
            check=False,
        )
        if told.returncode == 0:
            return told.stdout.decode(errors="replace").strip()
    except subprocess.TimeoutExpired:
        pass
    return f"a tuple of {len(payload)} bytes that cannot be shown"
