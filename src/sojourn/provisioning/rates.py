"""What provisioning is told of a period, what it knows of those before, and what it says."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Rates:
    """A period. So many tuples came a second, and each machine that is there processed so many. One
    that was there all the time processed `machine`, if that is known. `noise` is how far the
    difference of the two may be off by chance (half of its 95 % interval). `shed` were dropped a
    second, by seconds with a standard deviation of `spread`. `waiting` tuples wait at its end, and
    that number grows by `growth` a second. `latency_s` and the share of time for which machines are
    `idle` are not always known. `latest` is what came a second at the period's end, where that is
    more than `input`, for sure. `input` may be less than what comes by `chance`, where that is
    known."""

    time_s: float
    input: float
    processed: tuple[float, ...]
    noise: float = 0.0
    shed: float = 0.0
    spread: float = 0.0
    waiting: float = 0.0
    growth: float = 0.0
    latency_s: float | None = None
    idle: float | None = None
    machine: float | None = None
    latest: float | None = None
    chance: float = 0.0

    @property
    def total(self) -> float:
        """What all machines processed."""
        return math.fsum(self.processed)

    @property
    def each(self) -> float:
        """What a machine that was there all the time processed on average."""
        if self.machine is not None:
            return self.machine
        return self.total / len(self.processed) if self.processed else 0.0

    @property
    def extra(self) -> float:
        """What came and was not processed."""
        return self.input - self.total

    @property
    def is_sound(self) -> bool:
        """Whether a decision can be based on it: counters that were set back, or machines that say
        nothing, give rates that cannot be."""
        numbers = (self.input, *self.processed, self.noise, self.shed, self.waiting, self.each)
        return bool(self.processed) and all(math.isfinite(n) and n >= 0 for n in numbers)


@dataclass(frozen=True)
class Known:
    """What is kept from period to period: the most that a machine processes a second, what came in
    the last periods and when, how long tuples take while nothing is short, and how many machines
    there should be. Where machines are of several kinds: how many of each there should be, and
    since when so many slots are needed. `begun_s` is when the first period began."""

    max_rate: float | None = None
    inputs: tuple[tuple[float, float], ...] = ()
    calm_s: float | None = None
    machines: int | None = None
    kinds: Mapping[str, int] = field(default_factory=dict)
    slots: tuple[int, float] | None = None
    begun_s: float | None = None

    def moved(self, seconds: float) -> "Known":
        """The same by a clock that was set back."""
        return replace(
            self,
            inputs=tuple((at_s + seconds, rate) for at_s, rate in self.inputs),
            slots=None if self.slots is None else (self.slots[0], self.slots[1] + seconds),
            begun_s=None if self.begun_s is None else self.begun_s + seconds,
        )


@dataclass(frozen=True)
class Proposal:
    """How many machines there should be, why, and what is known now. No number: no decision."""

    machines: int | None
    why: str
    known: Known
