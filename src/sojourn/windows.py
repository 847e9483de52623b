"""Windows over a stream: operators that gather the values of a key by time or by number and emit
one result for each window. They use only `self.state` and `self.timers`, and show how to write your
own.

    per_minute = t.operator(
        "per minute",
        windows.tumbling("1min", lambda key, window, values: (key, window.start, len(values))),
        clicks,
        key=lambda click: click.page,
    )

`time=` finds the time in a value. Without it, a value's time is its arrival. Each key has a clock,
which shows the latest time of its values. While none comes, it follows the wall clock, so an idle
stream still closes its windows. It stands still while the topology is down. A window closes once
the clock is `lateness` past the window's end. A value that comes later goes to the output "late".

A window gathers a list of values. With `initial` and `add` it gathers something else: `initial()`
makes it, and `add(gathered, value)` returns it with one more value."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypedDict, Unpack

from sojourn.errors import InputError, check_options
from sojourn.operators import Operator, Output
from sojourn.typed import Out
from sojourn.units import parse_duration

_ROUNDING_S = 1e-3
Duration = float | str


class Window(NamedTuple):
    """From `start` up to but not including `end`, in seconds as `time.time` counts them."""

    start: float
    end: float


Result: TypeAlias = Callable[[Any, Window, Any], Out]
"""A function from the key, the window and what it gathered to the value that is emitted."""


class Gathering(TypedDict, total=False):
    """What a window gathers its values in, and how one is added."""

    initial: Callable[[], Any]
    add: Callable[[Any, Any], Any]


class Timing(Gathering, total=False):
    """Where a value's time is found, and how long a window waits for late ones."""

    time: Callable[[Any], float] | None
    lateness: Duration


_TIMING = tuple(Timing.__annotations__)


def _check_functions(what: str, **given: object) -> None:
    for name, function in given.items():
        if not callable(function):
            raise InputError(f"{what}: {name} must be a function; got {function!r:.80}")


def _append(gathered: list[Any], value: Any) -> list[Any]:
    gathered.append(value)
    return gathered


def _joined(one: Any, other: Any) -> Any:
    return one + other


def tumbling(size: Duration, result: Result[Out], **options: Unpack[Timing]) -> "TimeWindows[Out]":
    """Windows of one size, one after the other. Options: `time`, `lateness`, `initial`, `add`."""
    check_options("windows.tumbling", options, _TIMING)
    return TimeWindows("windows.tumbling", size, size, result, **options)


def sliding(
    size: Duration, every: Duration, result: Result[Out], **options: Unpack[Timing]
) -> "TimeWindows[Out]":
    """Windows of one size. A new one begins after each `every`, so windows overlap, and a value is
    in all that hold its time. Options as for `tumbling`."""
    check_options("windows.sliding", options, _TIMING)
    return TimeWindows("windows.sliding", size, every, result, **options)


def session(
    gap: Duration,
    result: Result[Out],
    *,
    merge: Callable[[Any, Any], Any] = _joined,
    **options: Unpack[Timing],
) -> "SessionWindows[Out]":
    """Windows of values of a key that follow one another with gaps shorter than `gap`. A value
    between two windows merges them: `merge(one, other)` joins what they gathered, by default as
    `one + other`. Other options as for `tumbling`."""
    check_options("windows.session", options, ("merge", *_TIMING))
    return SessionWindows(gap, result, merge, **options)


def count(
    size: int, result: Callable[[Any, Any], Out], **options: Unpack[Gathering]
) -> "CountWindows[Out]":
    """Windows of that many values of a key. `result(key, gathered)` returns the value that is
    emitted. Options: `initial`, `add`."""
    check_options("windows.count", options, Gathering.__annotations__)
    return CountWindows(size, result, **options)


class _Clocked(Operator, ABC, Generic[Out]):
    """What windows over time share: the key's clock, and a timer for each open window."""

    _gathers = True

    def __init__(
        self,
        what: str,
        result: Result[Out],
        time: Callable[[Any], float] | None = None,
        lateness: Duration = 0.0,
        initial: Callable[[], Any] = list,
        add: Callable[[Any, Any], Any] = _append,
    ) -> None:
        _check_functions(what, result=result, initial=initial, add=add)
        if time is not None:
            _check_functions(what, time=time)
        self.result, self.time = result, time
        self.lateness_s = parse_duration(lateness, f"{what}: lateness")
        if self.lateness_s < 0:
            raise InputError(f"{what}: lateness must not be below zero; got {lateness!r}")
        self.initial, self.add = initial, add

    def process(self, value: Any) -> list[Out] | None:
        now = self.timers.now
        at = now if self.time is None else float(self.time(value))
        if not math.isfinite(at):
            raise ValueError(f"the time of {value!r:.100} must be a number of seconds; got {at}")
        shown, seen, windows = self.state.get(self.key, (-math.inf, 0.0, {}))
        clock = self._clock(shown, seen)
        if clock > at and not self._fits(windows, at, clock - self.lateness_s):
            return [Output("late", value)]
        self._put(windows, at, value, clock - self.lateness_s)
        clock = max(clock, at)
        self.state[self.key] = clock, self.timers.ran, windows
        for start in windows:
            self._set_timer(windows, start, clock)
        return None

    def on_timer(self, key: Any, start: Any) -> list[Out] | None:
        shown, seen, windows = self.state[key]
        clock = self._clock(shown, seen)
        end = self._end(windows, start)
        if clock + _ROUNDING_S < end + self.lateness_s:  # the clock stood still while it was down
            self._set_timer(windows, start, clock)
            return None
        gathered = self._taken(windows, start)
        if windows or self.time is not None:  # without the clock a late value would open one again
            self.state[key] = shown, seen, windows
        else:
            del self.state[key]
        return [self.result(key, Window(start, end), gathered)]

    def _clock(self, shown: float, seen: float) -> float:
        """What a key's clock shows now. It showed `shown` when the topology had run for `seen`
        seconds, and stands still while the topology is down."""
        if self.time is None:
            return self.timers.now
        return shown + max(0.0, self.timers.ran - seen)

    def _set_timer(self, windows: dict[float, Any], start: float, clock: float) -> None:
        left_s = self._end(windows, start) + self.lateness_s - clock
        self.timers.at(self.timers.now + left_s, start)

    @abstractmethod
    def _fits(self, windows: dict[float, Any], at: float, closed_s: float) -> bool:
        """Whether a window that is not closed holds that time."""

    @abstractmethod
    def _put(self, windows: dict[float, Any], at: float, value: Any, closed_s: float) -> None:
        """Gather a value in the windows that hold its time and are not closed."""

    @abstractmethod
    def _end(self, windows: dict[float, Any], start: float) -> float:
        """When a window ends."""

    @abstractmethod
    def _taken(self, windows: dict[float, Any], start: float) -> Any:
        """Close a window and return what it gathered."""


class TimeWindows(_Clocked[Out]):
    """Windows of one size, by their start."""

    def __init__(
        self,
        what: str,
        size: Duration,
        every: Duration,
        result: Result[Out],
        **options: Unpack[Timing],
    ) -> None:
        super().__init__(what, result, **options)
        self.size_s = parse_duration(size, f"{what}: size")
        self.every_s = parse_duration(every, f"{what}: every")
        if not 0 < self.every_s <= self.size_s:
            raise InputError(
                f"{what}: size must be above zero, and every above zero and at most size; got size "
                f"{size!r}, every {every!r}"
            )

    def _starts(self, at: float) -> list[float]:
        last = math.floor(at / self.every_s)
        first = math.floor((at - self.size_s) / self.every_s) + 1
        return [number * self.every_s for number in range(first, last + 1)]

    def _fits(self, windows: dict[float, Any], at: float, closed_s: float) -> bool:  # noqa: ARG002
        return any(start + self.size_s > closed_s for start in self._starts(at))

    def _put(self, windows: dict[float, Any], at: float, value: Any, closed_s: float) -> None:
        for start in self._starts(at):
            if start + self.size_s > closed_s:
                gathered = windows[start] if start in windows else self.initial()
                windows[start] = self.add(gathered, value)

    def _end(self, windows: dict[float, Any], start: float) -> float:  # noqa: ARG002
        return start + self.size_s

    def _taken(self, windows: dict[float, Any], start: float) -> Any:
        return windows.pop(start)


class SessionWindows(_Clocked[Out]):
    """Windows that grow, by their start, each with the time of its last value."""

    def __init__(
        self,
        gap: Duration,
        result: Result[Out],
        merge: Callable[[Any, Any], Any] = _joined,
        **options: Unpack[Timing],
    ) -> None:
        super().__init__("windows.session", result, **options)
        self.gap_s = parse_duration(gap, "windows.session: gap")
        if not self.gap_s > 0:
            raise InputError(f"windows.session: the gap must be above zero; got {gap!r}")
        _check_functions("windows.session", merge=merge)
        self.merge = merge

    def _near(self, windows: dict[float, Any], at: float) -> list[float]:
        """The windows that a value of that time belongs to, in order."""
        return sorted(
            start
            for start, (last, _) in windows.items()
            if start - self.gap_s < at < last + self.gap_s
        )

    def _fits(self, windows: dict[float, Any], at: float, closed_s: float) -> bool:
        return at + self.gap_s > closed_s or bool(self._near(windows, at))

    def _put(self, windows: dict[float, Any], at: float, value: Any, closed_s: float) -> None:  # noqa: ARG002
        near = self._near(windows, at)
        if not near:
            windows[at] = (at, self.add(self.initial(), value))
            return
        first, *others = near
        last, gathered = windows.pop(first)
        for start in others:
            later, more = windows.pop(start)
            last, gathered = max(last, later), self.merge(gathered, more)
        for start in near:
            self.timers.cancel(start)
        windows[min(first, at)] = (max(last, at), self.add(gathered, value))

    def _end(self, windows: dict[float, Any], start: float) -> float:
        return float(windows[start][0]) + self.gap_s

    def _taken(self, windows: dict[float, Any], start: float) -> Any:
        return windows.pop(start)[1]


class CountWindows(Operator, Generic[Out]):
    """Windows of a number of values."""

    _gathers = True

    def __init__(
        self,
        size: int,
        result: Callable[[Any, Any], Out],
        initial: Callable[[], Any] = list,
        add: Callable[[Any, Any], Any] = _append,
    ) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"windows.count: size must be a whole number above zero; got {size!r}")
        _check_functions("windows.count", result=result, initial=initial, add=add)
        self.size, self.result, self.initial, self.add = size, result, initial, add

    def process(self, value: Any) -> list[Out] | None:
        number, gathered = self.state.get(self.key, (0, None))
        gathered = self.add(gathered if number else self.initial(), value)
        if number + 1 < self.size:
            self.state[self.key] = (number + 1, gathered)
            return None
        self.state.pop(self.key, None)
        return [self.result(self.key, gathered)]
