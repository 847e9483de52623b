"""What methods of profiling and platforms tell each other: what to try, and what was measured."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from sojourn.confidence import differ
from sojourn.ports import Parallelism


@dataclass(frozen=True)
class Proposal:
    """A trial that a method asks for, at which step, and why. With a `rate`, so many messages come
    a second; without one, as many as are taken."""

    step: str
    parallelism: Parallelism
    why: str
    rate: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What a method makes of its last trial."""

    kept: bool
    why: str


@dataclass(frozen=True)
class Seen:
    """An operator in a trial: its tasks, tuples that came and were processed a second, how long one
    is processed, waiting left out, how that varies (SCV), and the tuples on each edge for each one
    processed, with the mean of their squares. `capacity` is the share of their time for which its
    tasks process (eq. 2)."""

    tasks: int
    arrivals: float
    served: float
    service_s: float | None
    capacity: float
    emitted: Mapping[str, float] = field(default_factory=dict)
    squares: Mapping[str, float] = field(default_factory=dict)
    service_scv: float = 1.0


@dataclass(frozen=True)
class Measured:
    """What was measured in a trial: some readings of completed source tuples a second, how long one
    takes on average, and what each vertex did. `waiting` messages were in the queue at the end.
    Readings that are not `sound` hang together, are not normal, scatter too much, or were taken
    before it was steady."""

    readings: tuple[float, ...]
    latency_s: float
    seen: Mapping[str, Seen]
    waiting: float = 0.0
    sound: bool = True

    @property
    def throughput(self) -> float:
        """Completed source tuples a second."""
        return fmean(self.readings)

    def change(self, before: "Measured") -> int:
        """1 if more is carried than before, -1 if less, 0 if that cannot be told."""
        return differ(before.readings, self.readings)


@dataclass(frozen=True)
class Progress:
    """How far a trial is: whether it is steady yet, and how many of so many readings there are at
    least, each so long. The last one was of `throughput` source tuples a second."""

    steady: bool
    done: int
    of: int
    seconds: float
    throughput: float

    @property
    def left_s(self) -> float:
        """At least so many seconds are left."""
        return (self.of - self.done) * self.seconds


Method = Generator[Proposal | Verdict, Measured | None, Parallelism]
"""Gets what was measured for each proposal, and nothing for a verdict."""


def measured(given: Measured | None) -> Measured:
    """What a method got for its proposal."""
    assert given is not None
    return given


def enhanced(
    parallelism: Parallelism, more: Mapping[str, int], most: Mapping[str, int]
) -> Parallelism:
    """The same with more tasks of some operators, but no more than those can use."""
    processors = {n: k + more.get(n, 0) for n, k in parallelism.processors.items()}
    return replace(parallelism, processors=capped(processors, most))


def capped(processors: Mapping[str, int], most: Mapping[str, int]) -> dict[str, int]:
    """No more tasks than operators can use."""
    return {name: min(count, most.get(name, count)) for name, count in processors.items()}
