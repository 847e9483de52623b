"""What becomes of tuples that cannot be processed: `on_error` says whether the topology fails, they
are dropped, or put aside in one JSONL file per batch under the checkpoint. All are counted."""

import subprocess
import sys
import zlib

from sojourn.engine.executor.meter import Meter
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import Bundle, Trace
from sojourn.engine.wire.spec import ExecutorSpec
from sojourn.sinks import Sink, jsonl

_KILLED = "it killed its worker twice"
_SHOW_S = 10.0


class Fault(Exception):
    """The executor cannot go on."""

    def __init__(self, error: str, user: bool = False) -> None:
        super().__init__(error)
        self.error, self.user = error, user


class OnError:
    """The outcome of failures at one executor. Files are opened by the first dead letter, so that
    most executors leave none."""

    def __init__(self, spec: ExecutorSpec, meter: Meter) -> None:
        self.spec, self.meter = spec, meter
        self.directory = spec.checkpoint / "sojourn" / "dead-letters" / spec.place.vertex
        self.sink: Sink | None = None
        self.now = (0, 0)

    def begin(self, batch: int, epoch: int) -> None:
        """A batch starts."""
        self.now = (batch, epoch)
        staged = self.directory / "_staging" / f"part-{self.spec.place.executor}"
        if self.sink is None and staged.is_dir():
            self._open()
        elif self.sink is not None:
            self.sink.begin(batch, epoch)

    def end(self) -> None:
        """The batch is complete."""
        if self.sink is not None:
            self.sink.end()

    def close(self, committed: int | None) -> None:
        """The topology stops."""
        if self.sink is not None and committed is not None:
            self.sink.close(committed)

    def failed(self, letters: list[m.DeadLetter]) -> None:
        """User code raised for these, and is to go on."""
        self.meter.dropped += len(letters)
        if self.spec.on_error != "dead-letter":
            return
        for letter in letters:
            if self.sink is None:
                self._open()
            assert self.sink is not None
            operator = self.spec.place.vertex
            self.sink.write({"operator": operator, "value": letter.shown, "error": letter.error})

    def give_up(self, payload: bytes) -> None:
        """A tuple kills its workers."""
        if self.spec.on_error == "fail":
            what = f"{self.spec.kind} {self.spec.place.vertex!r}"
            raise Fault(f"{what}: processing {_shown(payload)} killed its worker twice", True)
        self.failed([m.DeadLetter(_shown(payload), _KILLED)])

    def without_guilty(self, bundle: Bundle) -> tuple[Bundle, list[Trace]]:
        """A bundle without the tuples that have killed their worker before every restart, and the
        traces of those."""
        traces = {trace.index: trace for trace in bundle.traces}
        kept = Bundle([], [], [])
        ended = []
        for i, payload in enumerate(bundle.payloads):
            trace = traces.get(i)
            if zlib.crc32(payload) in self.spec.guilty:
                self.give_up(payload)
                if trace is not None:
                    ended.append(trace)
                continue
            if trace is not None:
                kept.traces.append(Trace(len(kept.payloads), trace.root, trace.id))
            kept.payloads.append(payload)
            if bundle.shards:
                kept.shards.append(bundle.shards[i])
        return kept, ended

    def _open(self) -> None:
        self.sink = jsonl(self.directory)
        self.sink.open(self.spec.place.executor)
        self.sink.begin(*self.now)


def _shown(payload: bytes) -> str:
    """What a tuple is, found out by a process of its own, as it may kill that too."""
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
