"""An operator with a key as a queueing station: not one queue for all processors but one for each,
as every key belongs to one of them. Fed by the measured shares of the busiest shards; feeds
networks and the two programs as any station does.

Shards are spread as evenly as they can be: one that is busier than an even share has a processor to
itself, and all others share the remaining ones evenly. So a single shard bounds the operator: more
processors than `useful` change nothing for it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sojourn.errors import InputError
from sojourn.queueing.station import Station, check_percentile, counted

NEVER = 2**31
"""Processors that would be needed where no number of them keeps up."""


@dataclass(frozen=True, slots=True)
class KeyedStation(Station):
    """A station whose tuples are bound to processors by their shard. `hot` are the shares of all
    tuples that go to the busiest shards, the largest first; the rest is spread over many."""

    hot: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        Station.__post_init__(self)
        total = sum(self.hot)
        if any(share <= 0 for share in self.hot) or total > 1 + 1e-9:
            raise InputError(f"shares of shards must be above zero, one in all; got {self.hot}")
        if list(self.hot) != sorted(self.hot, reverse=True):
            raise InputError(f"shares of shards must come largest first; got {self.hot}")

    @property
    def min_processors(self) -> int:
        """The fewest processors with which no queue grows for ever; NEVER if a single shard brings
        more than a processor does."""
        if self.hot and not Station(self.hot[0] * self.arrival_rate, self.service_rate).is_stable(
            1
        ):
            return NEVER
        k = Station.min_processors.fget(self)  # type: ignore[attr-defined]
        while not self.is_stable(k):
            k += 1
        return int(k)

    @property
    def useful(self) -> int | None:
        """Processors beyond which the busiest shard is as busy as before; None if no shard stands
        out."""
        return math.ceil(1 / self.hot[0] - 1e-9) if self.hot else None

    def spread(self, k: int) -> list[tuple[float, int]]:
        """Shares of the tuples, and how many of k processors have each."""
        left, alone = 1.0, 0
        for share in self.hot[: counted(k) - 1]:
            if share * (k - alone) <= left:
                break
            left -= share
            alone += 1
        return [(share, 1) for share in self.hot[:alone]] + [
            (max(0.0, left) / (k - alone), k - alone)
        ]

    def utilization(self, k: int) -> float:
        """Of the busiest processor, at or above 1 where the station is unstable."""
        return max(share for share, _ in self.spread(k)) * self.offered_load

    def wait_moments(self, k: int) -> tuple[float, float]:
        """Mean and variance of the wait, over the tuples of all processors."""
        if not self.is_stable(k):
            return math.inf, math.inf
        mean = square = 0.0
        for share, count in self.spread(k):
            wait, variance = self.queue_of(share).wait_moments(1)
            mean += count * share * wait
            square += count * share * (variance + wait * wait)
        return mean, max(0.0, square - mean * mean)

    def wait_percentile(self, k: int, p: float) -> float:
        """The wait that p per cent of tuples do not exceed."""
        check_percentile(p)
        if not self.is_stable(k):
            return math.inf
        queues = [(count * share, self.queue_of(share)) for share, count in self.spread(k)]
        if sum(part * queue.delay_probability(1) for part, queue in queues) <= 1 - p / 100:
            return 0.0
        high = max(queue.wait_percentile(1, p) for _, queue in queues)
        low = 0.0
        for _ in range(60):
            middle = (low + high) / 2
            above = sum(part * exceeding(queue, 1, middle) for part, queue in queues)
            low, high = (middle, high) if above > 1 - p / 100 else (low, middle)
        return high

    def delay_probability(self, k: int) -> float:
        """How likely a tuple finds its processor busy; 1 if unstable."""
        if not self.is_stable(k):
            return 1.0
        return sum(n * share * self.queue_of(share).utilization(1) for share, n in self.spread(k))

    def waits(self, k: int) -> Iterator[tuple[float, float]]:
        """As of any station."""
        while True:
            yield self.wait_moments(k)
            k += 1

    def mean_waits(self, k: int, weight: float) -> Iterator[float]:
        """As of any station."""
        return (weight * mean for mean, _ in self.waits(k))

    def queue_of(self, share: float) -> Station:
        """The queue of one processor. What is taken from a stream at random is the more like a
        Poisson stream the less is taken."""
        return Station(
            share * self.arrival_rate,
            self.service_rate,
            1 + share * (self.arrival_scv - 1),
            self.service_scv,
        )


def useful(station: Station) -> float:
    """Processors that can help a station that cannot keep up. One shard is never spread over
    several."""
    most: float | None = getattr(station, "useful", None)
    return math.inf if most is None else most


def bound(station: Station) -> str:
    """What its busiest shard brings and a processor does, in words; nothing if a processor can do
    that."""
    if not isinstance(station, KeyedStation):
        return getattr(station, "bound", "")
    if not station.hot or station.queue_of(station.hot[0]).is_stable(1):
        return ""
    return (
        f"one shard brings {station.hot[0] * station.arrival_rate:.4g}/s, and a processor does "
        f"{station.service_rate:.4g}/s; split that shard's key"
    )


def exceeding(station: Station, k: int, seconds: float) -> float:
    """How likely a tuple waits for longer at a station that keeps up."""
    if isinstance(station, KeyedStation):
        return sum(
            count * share * exceeding(station.queue_of(share), 1, seconds)
            for share, count in station.spread(k)
        )
    if not station.variability:
        return 0.0
    spare = k * station.service_rate - station.arrival_rate
    return station.delay_probability(k) * math.exp(-seconds * spare / station.variability)
