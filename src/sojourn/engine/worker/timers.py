"""Timers of a worker's keys, and keys that are forgotten when nothing comes for them. Both are kept
in a state of their own beside each shard's, under the shard's complement (`~shard`). So they are
saved, merged and moved like all state. Used by the operator's code.

A timer is an entry (key, payload) with the time at which it is due. An entry (key,) has the time at
which a tuple of the key was last seen. A heap tells what is due first. An entry in the heap counts
only if the state still has it."""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from sojourn.engine.worker.state import State
from sojourn.errors import InputError
from sojourn.units import parse_duration

_GRAINS = 8  # when a key was last seen is kept to an eighth of its time to live
_STALE = 1000
_FOREVER_S = 1e15  # beyond what can be due; also less than infinity
_NO_KEY: Any = object()


class Hand:
    """The current tuple, whose key is found when it is asked for; or the key of a timer."""

    def __init__(self, key_of: Callable[[Any], Any]) -> None:
        self.key_of = key_of
        self.value: Any = None
        self._key: Any = _NO_KEY

    def take(self, value: Any) -> None:
        """A tuple."""
        self.value, self._key = value, _NO_KEY

    @property
    def key(self) -> Any:
        """The key of the current tuple or timer."""
        if self._key is _NO_KEY:
            self._key = self.key_of(self.value)
        return self._key

    @key.setter
    def key(self, key: Any) -> None:
        self._key = key


class Timers:
    """What operators have as `self.timers`: sets timers for the key of the current tuple."""

    def __init__(
        self,
        states: dict[int, State],
        own: set[int],
        hand: Hand,
        ttl_s: float | None = None,
        clock: Callable[[], float] = time.time,
        zero_s: float = 0.0,
    ) -> None:
        self._zero_s = zero_s
        self._states, self._own, self._clock = states, own, clock
        self._hand, self._ttl_s = hand, ttl_s
        self._heap: list[tuple[float, int, int, tuple[Any, ...]]] = []
        self._pushed = 0
        self._counts: dict[int, Counter[Any]] = {}  # by shard, the timers of each key
        self._shard = -1
        self._long = _STALE  # if the heap has more entries, those that do not count are dropped

    # what operators call

    @property
    def now(self) -> float:
        """The time, in seconds as `time.time` counts them; in a test, the time of its clock."""
        return self._clock()

    @property
    def ran(self) -> float:
        """Seconds that the topology has run, over all its starts."""
        return self._clock() - self._zero_s

    def after(self, seconds: float | str, payload: Any = None) -> None:
        """Call `on_timer(key, payload)` after that many seconds, or after a time such as "5min". A
        timer of the key with the same payload is replaced."""
        self.at(self._clock() + parse_duration(seconds, "timers.after"), payload)

    def at(self, when: float, payload: Any = None) -> None:
        """Call `on_timer(key, payload)` at that time, in seconds as `time.time` counts them."""
        number = isinstance(when, int | float) and not isinstance(when, bool)
        if not number or not abs(when) < _FOREVER_S:
            raise InputError(
                f"timers.at: must be seconds as time.time() counts them; got {when!r:.80}"
            )
        state, entry = self._in_hand(payload)
        if entry not in state:
            self._counts.setdefault(self._shard, Counter())[entry[0]] += 1
        state[entry] = float(when)
        self._push(float(when), self._shard, entry)

    def cancel(self, payload: Any = None) -> bool:
        """Remove the key's timer with this payload. Returns whether there was one."""
        state, entry = self._in_hand(payload)
        if entry not in state:
            return False
        self._drop(self._shard, state, entry)
        return True

    # what its worker calls

    @property
    def due_s(self) -> float | None:
        """When to fire next. By then, perhaps nothing is due any more."""
        return self._heap[0][0] if self._heap else None

    @property
    def pending(self) -> int:
        """Timers that will fire."""
        return sum(counts.total() for counts in self._counts.values())

    @property
    def kept(self) -> int:
        """Entries that take room, including those of timers that were replaced or cancelled."""
        return len(self._heap)

    def enter(self, shard: int, is_tuple: bool) -> None:
        """Begin a tuple or a timer of this shard."""
        self._shard = shard
        if len(self._heap) > self._long:
            self._compact()
        if is_tuple and self._ttl_s is not None:
            self._see(shard, self._hand.key)

    def take_up(self, shard: int) -> None:
        """Begin to own a shard, with the timers beside its state."""
        counts = self._counts[shard] = Counter()
        for entry, when in list(self._states.get(~shard, State()).items()):
            if len(entry) > 1:
                counts[entry[0]] += 1
                self._push(when, shard, entry)
            elif self._ttl_s is not None:
                self._push(self._forgotten_s(when), shard, entry)

    def let_go(self, shard: int) -> None:
        """Give up a shard that another worker will own."""
        self._counts.pop(shard, None)

    def beside(self, shard: int) -> State:
        """The state that holds the timers of a shard."""
        state = self._states.get(~shard)
        if state is None:
            state = self._states[~shard] = State()
        return state

    def count_anew(self) -> None:
        """Count timers again after a roll-back."""
        timers = (entry[0] for entry in self._states.get(~self._shard, ()) if len(entry) > 1)
        self._counts[self._shard] = Counter(timers)

    def fire(self, most: int) -> Iterator[tuple[int, Any, Any]]:
        """The shard, key and payload of each timer that is due, which is then no longer pending.
        Also forgets keys for which nothing came for long."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now and most > 0:
            when, _, shard, entry = heapq.heappop(self._heap)
            state = self._states.get(~shard)
            if shard not in self._own or state is None:
                continue
            if len(entry) == 1:
                self._forget(shard, state, entry[0], when)
            elif state.get(entry) == when:
                self._drop(shard, state, entry)
                most -= 1
                yield shard, *entry

    def _in_hand(self, payload: Any) -> tuple[State, tuple[Any, Any]]:
        if self._shard < 0:
            raise InputError("timers belong to the key of a tuple; set them in process or on_timer")
        try:
            hash(payload)
        except TypeError:
            raise InputError(
                f"timers: a payload must be hashable, because it tells a key's timers apart; got "
                f"{payload!r:.100}"
            ) from None
        return self.beside(self._shard), (self._hand.key, payload)

    def _drop(self, shard: int, state: State, entry: tuple[Any, ...]) -> None:
        del state[entry]
        counts = self._counts[shard]
        counts[entry[0]] -= 1
        if not counts[entry[0]]:
            del counts[entry[0]]

    def _see(self, shard: int, key: Any) -> None:
        """Note when a key was last seen, to an eighth of its time to live."""
        assert self._ttl_s is not None
        grain_s = self._ttl_s / _GRAINS
        state, seen_s = self.beside(shard), self._clock() // grain_s * grain_s
        if state.get((key,)) != seen_s:
            state[(key,)] = seen_s
            self._push(self._forgotten_s(seen_s), shard, (key,))

    def _forgotten_s(self, seen_s: float) -> float:
        assert self._ttl_s is not None
        return seen_s + self._ttl_s * (1 + 1 / _GRAINS)

    def _forget(self, shard: int, state: State, key: Any, when: float) -> None:
        seen_s = state.get((key,))
        if seen_s is None or self._ttl_s is None or self._forgotten_s(seen_s) != when:
            return
        if self._counts.get(shard, {}).get(key):
            self._see(shard, key)  # a key with timers is kept
            return
        del state[(key,)]
        self._states.get(shard, State()).pop(key, None)

    def _push(self, when: float, shard: int, entry: tuple[Any, ...]) -> None:
        self._pushed += 1  # so that entries themselves are never compared
        heapq.heappush(self._heap, (when, self._pushed, shard, entry))

    def _compact(self) -> None:
        """Drop entries that no longer count. Only between tuples, because a tuple that fails brings
        back what it has replaced."""
        self._heap = []
        for shard in self._own:
            self.take_up(shard)
        self._long = 2 * len(self._heap) + _STALE
