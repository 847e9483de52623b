"""An operator with several elastic executors as one queueing station. Each executor has its share
of the tuples and processors of its own, so it is a station of its own. Fed by the executors'
measured shares; feeds networks and the two programs as any station does.

Its processors are divided so that tuples wait least: the next one always goes to the executor where
it saves most. That is the walk of both programs, among the executors of one operator. So a walk
over such operators is the walk over all their executors."""

import functools
import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sojourn.errors import InputError
from sojourn.queueing.keyed import NEVER, bound, exceeding, useful
from sojourn.queueing.station import Station, check_percentile, counted
from sojourn.shards import shares_by_load


@dataclass(frozen=True, slots=True)
class SplitStation(Station):
    """A station made of others, which have its tuples between them."""

    executors: tuple[Station, ...] = ()

    def __post_init__(self) -> None:
        Station.__post_init__(self)
        total = sum(one.arrival_rate for one in self.executors)
        if not math.isclose(total, self.arrival_rate, rel_tol=1e-6, abs_tol=1e-12):
            raise InputError(
                f"executors must have all tuples between them, {self.arrival_rate:.6g}/s; "
                f"got {total:.6g}/s"
            )

    def scaled(self, load: float = 1.0, speed: float = 1.0) -> "SplitStation":
        """All executors alike."""
        return replace(
            self,
            arrival_rate=load * self.arrival_rate,
            service_rate=speed * self.service_rate,
            executors=tuple(one.scaled(load, speed) for one in self.executors),
        )

    @property
    def min_processors(self) -> int:
        """The fewest processors with which no executor's queue grows for ever."""
        return min(NEVER, sum(one.min_processors for one in self.executors))

    def split(self, k: int) -> tuple[int, ...]:
        """How many of k processors each executor has; one at least."""
        return _split(self.executors, counted(k))

    def utilization(self, k: int) -> float:
        """Of the busiest executor."""
        return max(one.utilization(n) for one, n in executors_of(self, k))

    def is_stable(self, k: int) -> bool:
        """Whether every executor keeps up."""
        return all(one.is_stable(n) for one, n in executors_of(self, k))

    def wait_moments(self, k: int) -> tuple[float, float]:
        """Mean and variance of the wait, over the tuples of all executors."""
        return self._pooled([one.wait_moments(n) for one, n in executors_of(self, k)])

    def wait_percentile(self, k: int, p: float) -> float:
        """The wait that p per cent of tuples do not exceed."""
        check_percentile(p)
        found = executors_of(self, k)
        if not self.is_stable(k):
            return math.inf
        low, high = 0.0, max(one.wait_percentile(n, p) for one, n in found)
        for _ in range(60):
            middle = (low + high) / 2
            above = sum(self._share(one) * exceeding(one, n, middle) for one, n in found)
            low, high = (middle, high) if above > 1 - p / 100 else (low, middle)
        return high

    def delay_probability(self, k: int) -> float:
        """How likely a tuple finds all processors of its executor busy; 1 if unstable."""
        if not self.is_stable(k):
            return 1.0
        return sum(self._share(one) * one.delay_probability(n) for one, n in executors_of(self, k))

    def waits(self, k: int) -> Iterator[tuple[float, float]]:
        """As of any station."""
        for counts in _path(self.executors, k):
            both = zip(self.executors, counts, strict=True)
            yield self._pooled([one.wait_moments(n) for one, n in both])

    def mean_waits(self, k: int, weight: float) -> Iterator[float]:
        """As of any station."""
        return (weight * mean for mean, _ in self.waits(k))

    @property
    def useful(self) -> float:
        """Processors beyond which none helps."""
        return sum(useful(one) for one in self.executors)

    @property
    def bound(self) -> str:
        """What the busiest shard of all brings, in words."""
        return bound(max(self.executors, key=_hottest))

    def _share(self, one: Station) -> float:
        return one.arrival_rate / self.arrival_rate if self.arrival_rate else 0.0

    def _pooled(self, moments: Sequence[tuple[float, float]]) -> tuple[float, float]:
        mean = square = 0.0
        for one, (wait, variance) in zip(self.executors, moments, strict=True):
            share = self._share(one)
            if share and not math.isfinite(wait):
                return math.inf, math.inf
            if share:
                mean += share * wait
                square += share * (variance + wait * wait)
        return mean, max(0.0, square - mean * mean)


def executors_of(station: Station, k: int) -> list[tuple[Station, int]]:
    """The stations that one with k processors is made of, with the processors of each."""
    if not isinstance(station, SplitStation):
        return [(station, k)]
    return list(zip(station.executors, station.split(k), strict=True))


def _hottest(one: Station) -> float:
    """Tuples a second of its busiest shard."""
    hot: tuple[float, ...] = getattr(one, "hot", ())
    return hot[0] * one.arrival_rate if hot else 0.0


@functools.lru_cache(maxsize=4096)
def _split(executors: tuple[Station, ...], k: int) -> tuple[int, ...]:
    return tuple(divided(executors, k))


def divided(executors: Sequence[Station], k: int, most: int | None = None) -> list[int]:
    """How many of k processors each executor has; one at least and `most` at most. Where no split
    keeps up, they follow the loads."""
    least = [one.min_processors for one in executors]
    if sum(least) > k or (most is not None and max(least) > most):
        loads = [one.offered_load for one in executors]
        return shares_by_load(max(k, len(executors)), loads, most)
    return next(_path(executors, k, most))


def _path(executors: Sequence[Station], k: int, most: int | None = None) -> Iterator[list[int]]:
    """How k processors are divided, then k + 1, and so on. Where nothing more can be saved, they
    follow the loads."""
    counts = [one.min_processors for one in executors]
    loads = [one.offered_load for one in executors]
    series = [one.mean_waits(n, one.arrival_rate) for one, n in zip(executors, counts, strict=True)]
    ahead = []
    heap = []
    for i, waits in enumerate(series):
        now, then = next(waits), next(waits)
        ahead.append(then)
        if most is None or counts[i] < most:
            heap.append((then - now, -loads[i] / counts[i], i))
    heapq.heapify(heap)
    total = sum(counts)
    while True:
        if total >= k or not heap:
            yield counts
        i = heap[0][2]
        counts[i] += 1
        total += 1
        if counts[i] == most:
            heapq.heappop(heap)
            continue
        then = next(series[i])
        heapq.heapreplace(heap, (then - ahead[i], -loads[i] / counts[i], i))
        ahead[i] = then
