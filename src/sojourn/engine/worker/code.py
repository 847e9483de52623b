"""The user's code as a worker runs it: an operator with its shards' state, or a sink. Driven by the
worker's loop."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from sojourn.chains import Chain
from sojourn.engine.wire import messages as m
from sojourn.engine.worker import store, values
from sojourn.engine.worker.chain import ChainCode
from sojourn.engine.worker.columns import as_columns, from_columns
from sojourn.engine.worker.keys import key_of
from sojourn.engine.worker.results import READERS
from sojourn.engine.worker.state import Packed, State
from sojourn.engine.worker.timers import Hand, Timers
from sojourn.operators import (
    Emits,
    Operator,
    has_timers,
    hears_broadcasts,
    is_async,
    made,
    operator_class,
    takes_bundles,
)
from sojourn.sinks import Sink, Staged

if TYPE_CHECKING:
    from sojourn.engine.worker.waiting import EventLoop

SLICE_S = 0.001  # time for saving between two helpings of tuples


Parts = tuple[Packed | None, Packed | None]
"""What a shard's code keeps, and its timers."""


class Code(Protocol):
    """The user's code, whatever its form."""

    @property
    def timers(self) -> Timers | None: ...

    def process(self, value: Any, shard: int) -> Sequence[Any]: ...
    def process_bundle(self, given: list[Any], shard: int) -> list[Iterable[Any]]: ...
    def undo(self) -> None: ...
    def load(self, load: m.Load) -> None: ...
    def cut(self, save: m.Save) -> None: ...
    def save_some(self) -> Callable[[], m.Saved] | None: ...
    def save_first(self, shard: int) -> None: ...
    def is_saved(self, shard: int) -> bool: ...
    def take(self, shard: int) -> "Parts | None": ...
    def give(self, shard: int, state: "Parts | None", anew: bool = False) -> None: ...
    def stages(self) -> list[tuple[int, float, float]]: ...
    def close(self) -> None: ...


@dataclass
class Shared:
    """State by shard, shared by the threads of a host or owned by one process."""

    states: dict[int, State] = field(default_factory=dict)
    in_threads: bool = False


class OperatorCode:
    """A function or an operator object, with its shards' state. With `keep_going`, a tuple that
    fails changes nothing."""

    bundled = False
    chain: ChainCode | None = None
    hand: Hand | None = None
    timers: Timers | None = None
    events: "EventLoop | None" = None  # of an async operator

    def __init__(
        self,
        code: Any,
        name: str,
        shared: Shared,
        keep_going: bool = False,
        emits: Emits = "many",
        key: Callable[[Any], Any] | None = None,
        ttl_s: float | None = None,
        clock: Callable[[], float] = time.time,
        broadcast: bool = False,
        zero_s: float = 0.0,
    ) -> None:
        self.name = name
        self.emits, self.read = emits, READERS[emits]
        self.shared = shared
        self.keep_going = keep_going
        self.own: set[int] = set()
        self.in_hand: list[State] = []
        self.unsaved: list[int] = []
        self.changes: dict[int, list[Any]] = {}
        self.saving: m.Save | None = None
        self.slice_s = SLICE_S
        self.operator: Operator | None = None
        self.table: dict[Any, Any] = {}
        if operator_class(code) is not None:
            self.operator = made(code, shared.in_threads)
            if key is not None:
                self.hand = self.operator.hand = Hand(key)
            if self.hand is not None and (has_timers(code) or ttl_s is not None):
                self.timers = Timers(shared.states, self.own, self.hand, ttl_s, clock, zero_s)
                self.operator.timers = self.timers
            if broadcast:
                self.operator.broadcast = MappingProxyType(self.table)
            self.events = _event_loop() if is_async(code) else None
            if hasattr(self.operator, "open"):
                self._done(self.operator.open())
            self.bundled = takes_bundles(code)
            self.function: Any = None if self.bundled else self.operator.process
        elif isinstance(code, Chain):
            self.chain = ChainCode(code, shared.in_threads)
            self.function = self.chain.process
        else:
            self.events = _event_loop() if is_async(code) else None
            self.function = code

    def process(self, value: Any, shard: int) -> Sequence[Any]:
        if shard >= 0:
            self._take_state(shard)
            if self.hand is not None:
                self.hand.take(value)
            if self.timers is not None:
                self.timers.enter(shard, is_tuple=True)
        returned = self.function(value)
        if self.events is not None:
            returned = self.events.result(returned)
        return self.read(self.name, returned, value)

    def _done(self, returned: Any) -> Any:
        return returned if self.events is None else self.events.result(returned)

    def on_timer(self, shard: int, key: Any, payload: Any) -> Sequence[Any]:
        """Fire a timer. Returns what the operator emits."""
        assert self.operator is not None
        assert self.timers is not None
        assert self.hand is not None
        self._take_state(shard)
        self.hand.key = key
        self.timers.enter(shard, is_tuple=False)
        return READERS["many"](self.name, self.operator.on_timer(key, payload), None)

    def tell(self, changes: Iterable[m.Change]) -> None:
        """Take up what was broadcast. An async operator goes on with its tuples."""
        for change in changes:
            key = key_of(*change[:2])
            try:
                if self.events is None:
                    self._tell(key, change[2])
                else:
                    self.events.call(partial(self._tell, key, change[2]))
            except Exception as error:
                raise RuntimeError(f"the broadcast of key {key!r:.100} raised") from error

    def _tell(self, key: Any, value: bytes | None) -> Any:
        held = None if value is None else values.loads(value)
        if held is None:
            self.table.pop(key, None)
        else:
            self.table[key] = held
        if self.operator is not None and hears_broadcasts(type(self.operator)):
            return self.operator.on_broadcast(key, held)
        return None

    def process_bundle(self, given: list[Any], shard: int) -> list[Iterable[Any]]:
        if shard >= 0:
            self._take_state(shard)
        operator = self.operator
        assert operator is not None
        found = operator.process_bundle(as_columns(given, getattr(operator, "columns", None)))
        items = from_columns(found)
        read = READERS["one"] if items is not None and self.emits == "many" else self.read
        if items is None and isinstance(found, list | tuple):
            items = list(found)
        if items is None:
            raise TypeError(
                f"operator {self.name!r}: process_bundle returned {type(found).__name__}; return "
                "an array or a table with one result per value, or a list that holds, for each "
                "value, what process would return"
            )
        if len(items) != len(given):
            raise ValueError(
                f"operator {self.name!r}: process_bundle got {len(given)} values but returned "
                f"{len(items)}; return one item for each"
            )
        return [read(self.name, item, value) for item, value in zip(items, given, strict=True)]

    def _take_state(self, shard: int) -> None:
        state = self.shared.states.get(shard)
        if state is None:
            state = self.shared.states[shard] = State()
            self.own.add(shard)
        if self.keep_going or self.bundled:
            self._settle()
            self.in_hand = [state] if self.timers is None else [state, self.timers.beside(shard)]
            for one in self.in_hand:
                one.remember()
        if self.operator is not None:
            self.operator.state = state

    def undo(self) -> None:
        for state in self.in_hand:
            state.roll_back()
        self.in_hand = []
        if self.timers is not None:
            self.timers.count_anew()

    def _settle(self) -> None:
        """Keep what the last tuple changed."""
        for state in self.in_hand:
            state.forget()
        self.in_hand = []

    def load(self, load: m.Load) -> None:
        wanted = set(load.shards)
        for saved in load.saved:

            def theirs(part: int, saved: m.SavedFiles = saved) -> bool:
                shard = max(part, ~part)
                return shard in wanted and saved.count_for(shard)

            found = store.read([Path(path) for path in saved.files], theirs)
            for part, state in found.items():
                if load.anew:
                    state.mark_all()
                self.shared.states[part] = state
            shards = {max(part, ~part) for part in found}
            self.own |= shards
            for shard in shards:
                self._begin(shard)

    def cut(self, save: m.Save) -> None:
        self._settle()
        self.saving = save
        self.changes = {}
        states = self.shared.states
        parts = [part for shard in self.own for part in (shard, ~shard) if part in states]
        self.unsaved = [part for part in parts if states[part].cut()]

    def save_some(self) -> Callable[[], m.Saved] | None:
        """Pickle changed keys for a moment. Once all are pickled, returns what to do in a
        thread."""
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

    def save_first(self, shard: int) -> None:
        """Save a shard before all others, because it is to leave."""
        for part in (shard, ~shard):
            if part in self.unsaved:
                self.unsaved.remove(part)
                self.unsaved.append(part)

    def is_saved(self, shard: int) -> bool:
        """Whether the commit under way needs nothing more of a shard."""
        return shard not in self.unsaved and ~shard not in self.unsaved

    def take(self, shard: int) -> Parts | None:
        """Give a shard up. None where workers share it."""
        self._settle()
        if self.timers is not None:
            self.timers.let_go(shard)
        self.own.discard(shard)
        if self.shared.in_threads:
            return None
        return self._packed(shard), self._packed(~shard)

    def _packed(self, part: int) -> Packed | None:
        state = self.shared.states.pop(part, None)
        return None if state is None else state.packed()

    def give(self, shard: int, state: Parts | None, anew: bool = False) -> None:
        """Take a shard up, with what another worker packed. With `anew`, what was saved here before
        no longer counts."""
        for part, packed in zip((shard, ~shard), state or (), strict=False):
            if packed is not None:
                self.shared.states[part] = State.unpacked(packed)
        if anew:
            for part in (shard,) if self.timers is None else (shard, ~shard):
                self.shared.states.setdefault(part, State()).renew()
        if shard in self.shared.states or ~shard in self.shared.states:
            self.own.add(shard)
            self._begin(shard)

    def _begin(self, shard: int) -> None:
        """Begin to own a shard."""
        self.shared.states.setdefault(shard, State())
        if self.timers is not None:
            self.timers.take_up(shard)

    def stages(self) -> list[tuple[int, float, float]]:
        return [] if self.chain is None else self.chain.take()

    def close(self) -> None:
        if self.chain is not None:
            self.chain.close()
        if self.operator is not None and hasattr(self.operator, "close"):
            self._done(self.operator.close())
        if self.events is not None:
            self.events.close()


def _event_loop() -> "EventLoop":
    from sojourn.engine.worker.waiting import EventLoop  # few need it, and it loads slowly

    return EventLoop()


class SinkCode:
    """A sink. It emits nothing, or text for the driver's console."""

    bundled = False
    timers = None
    events = None

    def __init__(
        self,
        sink: Sink,
        part: int,
        run: str,
        epoch: int,
        held: Iterable[str],
        room: Path = Path(),
    ) -> None:
        self.sink = sink
        self.saving: m.Save | None = None
        self.staged: Callable[[], Staged] = Staged
        self.slice_s = SLICE_S
        sink.run, sink.room = run, room
        sink.open(part, epoch, tuple(held))

    def process(self, value: Any, shard: int) -> Sequence[Any]:  # noqa: ARG002
        text = self.sink.write(value)
        return () if text is None else (text,)

    def process_bundle(self, given: list[Any], shard: int) -> list[Iterable[Any]]:
        raise AssertionError(f"a sink takes one value at a time, not {given} of {shard}")

    def undo(self) -> None:
        pass  # a sink takes a value, or raises and leaves no trace of it

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

    def save_first(self, shard: int) -> None:
        raise AssertionError(f"a sink has no shard {shard}")

    def is_saved(self, shard: int) -> bool:
        raise AssertionError(f"a sink has no shard {shard}")

    def take(self, shard: int) -> Parts | None:
        raise AssertionError(f"a sink has no shard {shard}")

    def give(self, shard: int, state: Parts | None, anew: bool = False) -> None:
        raise AssertionError(f"a sink has no shard {shard}, {state}, {anew}")

    def stages(self) -> list[tuple[int, float, float]]:
        return []

    def close(self) -> None:
        self.sink.close()
