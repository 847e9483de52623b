"""All that crosses between the data path and the control path. Engines, the real one and the
simulated one, produce samples and take allocations; control knows nothing else of them."""

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Allocation = Mapping[str, int]
QUANTILES = (*map(float, range(1, 100)), 99.5, 99.9)
_TENTHS = tuple(round(p * 10) for p in QUANTILES)


@dataclass(frozen=True)
class Sample:
    """One operator (or source, or sink) over one interval, all its executors together.

    A source's arrivals are those intended, and `lag_s` says how many seconds it is behind them;
    its rate is that of the intended arrivals, also while pressure from behind slows it down, and
    None if that kept it from reading any.

    An operator that is chained to others has no processors of its own: `head` names the operator
    whose it shares. The service time of the head is that of the whole chain, as that is what its
    processors are busy with."""

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

    @property
    def service_rate(self) -> float | None:
        """Tuples per second of one processor; None if none was served."""
        return 1 / self.service_s if self.service_s else None


@dataclass(frozen=True)
class Sojourn:
    """Total sojourn of the tracked trees that were completed in an interval, in seconds."""

    count: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    quantiles: tuple[float, ...] = ()

    @classmethod
    def of(cls, done: Sequence[float]) -> "Sojourn":
        """Of some trees, at least one, whose sojourns are given in order."""

        count = len(done)
        # The least value that at least that share lies at or below.
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
        """The sojourn that p percent of the trees stayed at or below, or the next percentile of
        QUANTILES up."""
        if not self.quantiles:
            return self.p50_s if p <= 50 else self.p95_s if p <= 95 else self.p99_s
        place = bisect.bisect_left(QUANTILES, p)
        return self.quantiles[place] if place < len(QUANTILES) else self.max_s


@dataclass(frozen=True)
class Samples:
    """Everything measured over one interval."""

    time_s: float
    vertices: Mapping[str, Sample]
    sojourn: Sojourn | None
    open_trees: int


def scv_of(count: int, total: float, squares: float) -> float | None:
    """Variance over squared mean of at least two values, from their sums."""
    if count < 2 or total <= 0:
        return None
    mean = total / count
    return max(0.0, squares / count - mean * mean) / (mean * mean)


class Engine(Protocol):
    """What the control path needs of an engine."""

    def samples(self) -> Samples:
        """What happened since the last call."""

    def allocation(self) -> dict[str, int]:
        """Processors each operator has now."""

    def resize(self, allocation: Allocation) -> None:
        """Change the processors of some operators; returns once it is under way."""


def machines_within(asked: int, least: int, most: int | None) -> int:
    """How many machines there should be when some are asked for: no more than may be had, but never
    fewer than the topology cannot do without."""
    return max(least, asked if most is None else min(asked, most))


class MachinePool(Protocol):
    """Machines that can be had and given back."""

    @property
    def processors_per_machine(self) -> int | None:
        """How many processors a machine has room for; None: there is but this one, and it takes
        as many as it is given."""

    def machines(self) -> list[str]:
        """The machines there are now."""

    def change(self, machines: int) -> str:
        """Get or give back machines until there are so many, as far as possible; returns what
        became of it in words. May take long."""


class LocalPool:
    """This machine, which takes as many processors as it is given."""

    processors_per_machine: int | None = None

    def machines(self) -> list[str]:
        """Always one."""
        return ["local"]

    def change(self, machines: int) -> str:
        """There is no other."""
        return f"refused: there is one machine; {machines} were asked for"
