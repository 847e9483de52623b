"""Everything that crosses between the data path and the control path. Engines, real and simulated,
produce samples and take allocations. Control knows nothing else about them."""

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from sojourn.paths import Critical

SEEN = 30  # tuples of a shard from which its share is known
Allocation = Mapping[str, int | Sequence[int]]
"""Processors by operator, or for each of its executors."""
QUANTILES = (*map(float, range(1, 100)), 99.5, 99.9)
_TENTHS = tuple(round(p * 10) for p in QUANTILES)


@dataclass(frozen=True)
class Part:
    """One executor's part of an operator over an interval: its processors, the tuples that came,
    how many processors they keep busy, and the bytes that came and went per second. `hottest` is
    the share of its busiest shard, as far as that stands out; None without a key. `state` has about
    so many bytes. So many shards moved between its workers, with `moved` bytes of state. On average
    it took `sync_s` until a shard was at rest, and `moving_s` until it was served again. `machines`
    says how many of its processors are on which, as far as that is known."""

    executor: int
    processors: int
    arrivals: int
    load: float
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    hottest: float | None = None
    state: int = 0
    moves: int = 0
    moved: int = 0
    sync_s: float = 0.0
    moving_s: float = 0.0
    used: bool = True  # whether it has something to do
    machines: Mapping[str, int] = field(default_factory=dict)

    @property
    def intensity(self) -> float:
        """Bytes in and out, per second and processor."""
        return (self.bytes_in + self.bytes_out) / max(1, self.processors)


@dataclass(frozen=True)
class Sample:
    """One operator (or source, or sink) over one interval, all its executors together.

    A source's arrivals are the intended ones, and `lag_s` says how many seconds it is behind them.
    Its rate is that of the intended arrivals, also while back-pressure slows it down. The rate is
    None if back-pressure kept it from reading any.

    An operator that is chained to others has no processors of its own: `head` names the operator
    whose processors it shares. The service time of the head is that of the whole chain, because
    that is what its processors are busy with. `shards` are the busiest ones of an operator with a
    key, with how many tuples came for each. `together` has the second moments of `emitted`: for
    each two edges, the sum over tuples of how many one made on the one times on the other. `parts`
    are those of its executors, if there are several or if they have state. `shed_by` says how many
    tuples each machine has shed: the one that the executor is on that would have had them wait.

    `backlog` says how many tuples wait in each split of a source, where it can tell. Its rate is
    then that at which they come, whether or not they are read."""

    name: str
    interval_s: float
    processors: int
    wanted: int
    queue: int
    arrivals: int
    served: int
    arrival_rate: float | None
    arrival_scv: float | None
    service_s: float | None
    service_scv: float | None
    busy: float
    emitted: Mapping[str, int] = field(default_factory=dict)
    dropped: int = 0
    shed: int = 0
    lag_s: float | None = None
    head: str | None = None
    shards: Mapping[int, int] | None = None
    together: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    shed_by: Mapping[str, int] = field(default_factory=dict)
    backlog: Mapping[str, int] | None = None

    @property
    def behind_s(self) -> float:
        """How far a source is behind: in its schedule, or in working off what waits."""
        waits_s = 0.0
        if self.backlog and self.arrival_rate:
            waits_s = sum(self.backlog.values()) / self.arrival_rate
        return max(self.lag_s or 0.0, waits_s)

    @property
    def service_rate(self) -> float | None:
        """Tuples per second of one processor; None if none was served."""
        return 1 / self.service_s if self.service_s else None


@dataclass(frozen=True)
class Sojourn:
    """Sojourns of the tracked trees that were completed in an interval, in seconds. `critical` says
    where they spent it, as far as is known."""

    count: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    quantiles: tuple[float, ...] = ()
    critical: Mapping[str, Critical] = field(default_factory=dict)

    @classmethod
    def of(cls, done: Sequence[float]) -> "Sojourn":
        """The figures for at least one tree. `done` holds the sojourns in ascending order."""

        count = len(done)
        # The smallest value that at least this share of the sojourns does not exceed.
        ranks = tuple(done[-(-tenths * count // 1000) - 1] for tenths in _TENTHS)
        by_percent = dict(zip(QUANTILES, ranks, strict=True))
        return cls(
            count,
            math.fsum(done) / count,
            by_percent[50.0],
            by_percent[95.0],
            by_percent[99.0],
            done[-1],
            ranks,
        )

    def percentile(self, p: float) -> float:
        """The sojourn that p percent of the trees did not exceed. If QUANTILES lacks p, the next
        higher percentile in it stands in."""
        if not self.quantiles:
            return self.p50_s if p <= 50 else self.p95_s if p <= 95 else self.p99_s
        place = bisect.bisect_left(QUANTILES, p)
        return self.quantiles[place] if place < len(QUANTILES) else self.max_s


@dataclass(frozen=True)
class Samples:
    """Everything measured over one interval. `starts` counts how often the topology has started:
    at first, after failures, and on other machines; `restarts` counts those after failures alone,
    and `relocations` those on other machines or with other task slots. `commits` grows with every
    commit, or in virtual time with every one that stalls tuples."""

    time_s: float
    vertices: Mapping[str, Sample]
    sojourn: Sojourn | None
    open_trees: int
    starts: int = 1
    commits: int = 0
    restarts: int = 0
    relocations: int = 0


def scv_of(count: int, total: float, squares: float) -> float | None:
    """Variance over squared mean of at least two values, from their sums."""
    if count < 2 or total <= 0:
        return None
    mean = total / count
    return max(0.0, squares / count - mean * mean) / (mean * mean)


@dataclass(frozen=True)
class Pressure:
    """What should not wait for the next tick. At a source: its rate has risen for sure, to `rate`,
    and has been so for `over_s`. At an operator: a tuple that comes now will wait for `wait_s`."""

    vertex: str
    rate: float | None = None
    over_s: float = 0.0
    wait_s: float = 0.0


class Engine(Protocol):
    """What the control path needs from an engine. It tells `on_pressure`, if that is set, what
    cannot wait; it may do so from a thread of its own."""

    on_pressure: Callable[[Pressure], None] | None

    def samples(self, peek: bool = False) -> Samples:
        """What happened since the last call. With `peek`, the next call counts it again, and there
        are no sojourns."""

    def allocation(self) -> dict[str, int]:
        """Processors each operator has now."""

    def resize(self, allocation: Allocation) -> None:
        """Change the processors of some operators; returns once it is under way."""


@dataclass(frozen=True)
class Parallelism:
    """How an application is run in a trial: tasks of its operators and sources, and how many source
    tuples may be under way at once; None: as many as its queues hold."""

    processors: Mapping[str, int]
    parts: Mapping[str, int]
    in_flight: int | None = None


class Trial(Protocol):
    """An application that runs to be measured."""

    def read(self, seconds: float) -> Samples:
        """Let so much time pass; what happened in it."""

    def completed(self, samples: Samples) -> float:
        """Source tuples of all sources that were completed a second, with all that came of them."""

    def waiting(self) -> float:
        """Messages in the queue before its sources."""


class Platform(Protocol):
    """Where trials are made: some machines with some cores each. With a `rate`, so many messages
    come a second; without one, as many as are taken."""

    machines: int
    cores: int

    @property
    def most_parts(self) -> int | None:
        """Parts of each source that there is room for."""

    def trial(self, parallelism: Parallelism, rate: float | None) -> AbstractContextManager[Trial]:
        """Run the application; it ends with the context."""

    def close(self) -> None:
        """End all that it started."""


def machines_within(asked: int, least: int, most: int | None) -> int:
    """How many machines there should be when some are asked for: at most as many as allowed, but
    never fewer than the topology needs."""
    return max(least, asked if most is None else min(asked, most))


class MachinePool(Protocol):
    """Where machines come from, and where they are given back. What may take long returns in words
    what happened."""

    @property
    def processors_per_machine(self) -> int | None:
        """How many processors a machine has room for. None: there is only this machine, and it
        takes any number."""

    @property
    def pause_s(self) -> float:
        """How long tuples wait when a machine comes into use, as far as is known."""

    def machines(self) -> list[str]:
        """The machines that the topology uses."""

    def spare(self) -> list[str]:
        """The machines that are up besides these."""

    def start(self, machines: int) -> str:
        """Have machines come up until there are that many in all, as far as possible. No tuple
        waits for that. May take long."""

    def use(self, machines: int) -> str:
        """Have the topology use that many of the machines that are up, and give back the others.
        May take long."""


class LocalPool:
    """This machine, which takes as many processors as it is given."""

    processors_per_machine: int | None = None
    pause_s = 0.0

    def machines(self) -> list[str]:
        """Always one."""
        return ["local"]

    def spare(self) -> list[str]:
        """None."""
        return []

    def start(self, machines: int) -> str:
        """Refuse: there is no other machine."""
        return f"refused: there is one machine; {machines} were asked for"

    def use(self, machines: int) -> str:
        """Refuse, as well."""
        return self.start(machines)
