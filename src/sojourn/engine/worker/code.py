"""The user's code as a worker runs it: an operator with its shards' state, or a sink. Driven by the
worker's loop."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sojourn.chains import Chain
from sojourn.engine.wire import messages as m
from sojourn.engine.worker import store
from sojourn.engine.worker.chain import ChainCode
from sojourn.engine.worker.columns import as_columns, from_columns
from sojourn.engine.worker.results import results_of
from sojourn.engine.worker.state import State
from sojourn.sinks import Sink, Staged
from sojourn.topology import Operator, takes_bundles

SLICE_S = 0.001  # for saving between two helpings of tuples
_PIECE_BYTES = 1 << 30


class Code(Protocol):
    """The user's code, whatever its form."""

    def process(self, value: Any, shard: int) -> Sequence[Any]: ...
    def process_bundle(self, values: list[Any], shard: int) -> list[Iterable[Any]]: ...
    def undo(self) -> None: ...
    def load(self, load: m.Load) -> None: ...
    def cut(self, save: m.Save) -> None: ...
    def save_some(self) -> Callable[[], m.Saved] | None: ...
    def take(self, shard: int) -> list[bytes] | None: ...
    def give(self, shard: int, state: list[bytes] | None) -> None: ...
    def stages(self) -> list[tuple[int, float, float]]: ...
    def close(self) -> None: ...


@dataclass
class Shared:
    """State by shard, shared by the threads of a host or owned by one process."""

    states: dict[int, State] = field(default_factory=dict)
    in_threads: bool = False


class OperatorCode:
    """A function or an operator object, with its shards' state. With `keep_going` a tuple that
    fails changes nothing."""

    bundled = False
    chain: ChainCode | None = None

    def __init__(self, code: Any, name: str, shared: Shared, keep_going: bool = False) -> None:
        self.name = name
        self.shared = shared
        self.keep_going = keep_going
        self.own: set[int] = set()
        self.in_hand: State | None = None
        self.unsaved: list[int] = []
        self.changes: dict[int, list[Any]] = {}
        self.saving: m.Save | None = None
        self.slice_s = SLICE_S
        self.operator: Operator | None = None
        if isinstance(code, type):
            self.operator = code()
            if hasattr(self.operator, "open"):
                self.operator.open()
            self.bundled = takes_bundles(code)
            self.function: Any = None if self.bundled else self.operator.process
        elif isinstance(code, Chain):
            self.chain = ChainCode(code)
            self.function = self.chain.process
        else:
            self.function = code

    def process(self, value: Any, shard: int) -> Sequence[Any]:
        if shard >= 0:
            self._take_state(shard)
        found = results_of(self.name, self.function(value))
        # One that fails half-way leaves no results, so they are gathered first.
        return found if type(found) is tuple or type(found) is list else list(found)

    def process_bundle(self, values: list[Any], shard: int) -> list[Iterable[Any]]:
        if shard >= 0:
            self._take_state(shard)
        operator = self.operator
        assert operator is not None
        found = operator.process_bundle(as_columns(values, getattr(operator, "columns", None)))
        made = from_columns(found)
        if made is not None:
            results: list[Iterable[Any]] = [(value,) for value in made]
        elif isinstance(found, list | tuple):
            results = [results_of(self.name, item) for item in found]
        else:
            raise TypeError(
                f"operator {self.name!r}: process_bundle returned {type(found).__name__}; return "
                "an array or a table with a result for each value, or a list of what process "
                "would return for each"
            )
        if len(results) != len(values):
            raise ValueError(
                f"operator {self.name!r}: process_bundle was given {len(values)} values and "
                f"returned {len(results)}; return one item for each"
            )
        return results

    def _take_state(self, shard: int) -> None:
        state = self.shared.states.get(shard)
        if state is None:
            state = self.shared.states[shard] = State()
            self.own.add(shard)
        if self.keep_going or self.bundled:
            self._settle()
            state.remember()
            self.in_hand = state
        if self.operator is not None:
            self.operator.state = state

    def undo(self) -> None:
        if self.in_hand is not None:
            self.in_hand.roll_back()
            self.in_hand = None

    def _settle(self) -> None:
        """What the last tuple did holds."""
        if self.in_hand is not None:
            self.in_hand.forget()
            self.in_hand = None

    def load(self, load: m.Load) -> None:
        wanted = set(load.shards)
        for saved in load.saved:

            def theirs(shard: int, saved: m.SavedFiles = saved) -> bool:
                return shard in wanted and shard % saved.executors == saved.executor

            found = store.read([Path(path) for path in saved.files], theirs)
            for shard, state in found.items():
                if load.anew:
                    state.mark_all()
                self.shared.states[shard] = state
                self.own.add(shard)

    def cut(self, save: m.Save) -> None:
        self._settle()
        self.saving = save
        self.changes = {}
        self.unsaved = [shard for shard in self.own if self.shared.states[shard].cut()]

    def save_some(self) -> Callable[[], m.Saved] | None:
        """Pickle for a moment what changed; once all is, what is to be done in a thread."""
        deadline = time.perf_counter() + self.slice_s
        while self.unsaved:
            if not self._save_shard(self.unsaved[-1], lambda: time.perf_counter() >= deadline):
                return None
            self.unsaved.pop()
        save, changes = self.saving, self.changes
        assert save is not None
        self.saving = None
        path = Path(save.path)
        return lambda: m.Saved(save.commit, store.write(path, changes) if changes else 0)

    def _save_shard(self, shard: int, until: Callable[[], bool]) -> bool:
        state = self.shared.states[shard]
        if not state.drain(until):
            return False
        self.changes[shard] = state.take_changes()
        return True

    def take(self, shard: int) -> list[bytes] | None:
        self._settle()
        self.own.discard(shard)
        if shard in self.unsaved:
            self._save_shard(shard, lambda: False)
            self.unsaved.remove(shard)
        if self.shared.in_threads:
            return None
        state = self.shared.states.pop(shard, None)
        return [] if state is None else _pieces(state.packed())

    def give(self, shard: int, state: list[bytes] | None) -> None:
        if state:
            packed = state[0] if len(state) == 1 else b"".join(state)
            self.shared.states[shard] = State.unpacked(packed)
        if shard in self.shared.states:
            self.own.add(shard)

    def stages(self) -> list[tuple[int, float, float]]:
        return [] if self.chain is None else self.chain.take()

    def close(self) -> None:
        if self.chain is not None:
            self.chain.close()
        if self.operator is not None and hasattr(self.operator, "close"):
            self.operator.close()


def _pieces(packed: bytes) -> list[bytes]:
    if len(packed) <= _PIECE_BYTES:
        return [packed]
    return [packed[at : at + _PIECE_BYTES] for at in range(0, len(packed), _PIECE_BYTES)]


class SinkCode:
    """A sink, which emits nothing but perhaps text for the driver's console."""

    bundled = False

    def __init__(self, sink: Sink, part: int, run: str, epoch: int, held: Iterable[str]) -> None:
        self.sink = sink
        self.saving: m.Save | None = None
        self.staged: Callable[[], Staged] = Staged
        self.slice_s = SLICE_S
        sink.run = run
        sink.open(part, epoch, tuple(held))

    def process(self, value: Any, shard: int) -> Sequence[Any]:  # noqa: ARG002
        text = self.sink.write(value)
        return () if text is None else (text,)

    def process_bundle(self, values: list[Any], shard: int) -> list[Iterable[Any]]:
        raise AssertionError(f"a sink takes one value at a time, not {values} of {shard}")

    def undo(self) -> None:
        pass  # a sink takes a value or raises

    def load(self, load: m.Load) -> None:
        raise AssertionError(f"a sink has no shards {load.shards}")

    def cut(self, save: m.Save) -> None:
        self.saving = save
        self.staged = self.sink.cut(save.last)

    def save_some(self) -> Callable[[], m.Saved] | None:
        save, cut = self.saving, self.staged
        assert save is not None
        self.saving = None

        def stage() -> m.Saved:
            staged = cut()
            return m.Saved(save.commit, publish=list(staged.publish), held=list(staged.held))

        return stage

    def take(self, shard: int) -> list[bytes] | None:
        raise AssertionError(f"a sink has no shard {shard}")

    def give(self, shard: int, state: list[bytes] | None) -> None:
        raise AssertionError(f"a sink has no shard {shard} {state!r}")

    def stages(self) -> list[tuple[int, float, float]]:
        return []

    def close(self) -> None:
        self.sink.close()
