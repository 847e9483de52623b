"""The optimal path: processors given out one at a time, each where it saves most.
Fed by a network and limits; both programs follow it."""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from sojourn.errors import InputError
from sojourn.queueing.keyed import NEVER, bound
from sojourn.queueing.network import Network

Limits = Mapping[str, int]


class Walk:
    """The optimal path under way: an allocation that grows by one processor at a time.

    It holds one pending saving per station, so memory is linear in the number of stations."""

    def __init__(self, network: Network, minimum: Limits | None, maximum: Limits | None) -> None:
        self.network = network
        self.maximum = _checked(network, maximum, "maximum")
        low = _checked(network, minimum, "minimum")
        fewest = {name: station.min_processors for name, station in network.stations.items()}
        self.allocation = {name: max(count, low.get(name, 1)) for name, count in fewest.items()}
        self.total = sum(self.allocation.values())
        self.last: str | None = None
        self.obstacle = self._stability_obstacle(low, fewest)

    def additions(self) -> Iterator[float]:
        """Give out one processor after the other, each where it lowers λ₀·E[T] most; yield by how
        much. Ends when nothing more can be saved."""
        allocation, maximum = self.allocation, self.maximum
        names = list(self.network.stations)
        series, ahead, pending = [], [], []
        for index, (name, station) in enumerate(self.network.stations.items()):
            rate = self.network.visits(name) * self.network.external_rate
            waits = station.mean_waits(allocation[name], rate)
            before, after = next(waits), next(waits)
            series.append(waits)
            ahead.append(after)
            if allocation[name] < maximum.get(name, math.inf):
                pending.append((after - before, index))
        heapq.heapify(pending)
        while pending and pending[0][0] < 0:
            loss, index = pending[0]
            name = names[index]
            allocation[name] += 1
            self.total += 1
            self.last = name
            if maximum and allocation[name] >= maximum.get(name, math.inf):
                heapq.heappop(pending)
            else:
                after = next(series[index])
                heapq.heapreplace(pending, (after - ahead[index], index))
                ahead[index] = after
            yield -loss

    def means(self) -> Iterator[float]:
        """E[T] before the first addition and after each. Each addition subtracts what it saves. The
        value is computed afresh whenever it has fallen far enough for rounding to matter, so its
        relative error stays below 1e-9 for millions of additions."""
        fresh = running = self.network.mean_sojourn(self.allocation)
        yield running
        for saved in self.additions():
            running -= saved / self.network.external_rate
            if running < fresh / 4:
                fresh = running = self.network.mean_sojourn(self.allocation)
            yield running

    def _stability_obstacle(self, low: Limits, fewest: Limits) -> str:
        for name, most in self.maximum.items():
            if low.get(name, 1) > most:
                return (
                    f"operator {name!r} has a minimum of {low[name]} processors above its "
                    f"maximum of {most}"
                )
        for name, count in fewest.items():
            if count >= NEVER:
                what = f"operator {name!r} cannot keep up with any number of processors"
                return f"{what}: {bound(self.network.stations[name])}"
        short = [
            f"operator {name!r} is unstable: {station.arrival_rate:.4g}/s at "
            f"{station.service_rate:.4g}/s per processor needs at least "
            f"{fewest[name]} processors; its maximum is {self.maximum[name]}"
            for name, station in self.network.stations.items()
            if name in self.maximum and fewest[name] > self.maximum[name]
        ]
        return "; ".join(short)


def _checked(network: Network, limits: Limits | None, what: str) -> dict[str, int]:
    for name, value in (limits or {}).items():
        if name not in network.stations:
            raise InputError(f"{what} names operator {name!r}, which the network does not have")
        if value < 1:
            raise InputError(f"{what} of operator {name!r} must be at least 1; got {value}")
    return dict(limits or {})


def first_meeting(
    network: Network,
    start: Limits,
    maximum: Limits,
    meets: Callable[[Limits], bool],
) -> dict[str, int] | None:
    """The first point of a walk from `start` that meets a condition; None if no point does. Once
    met, the condition must stay met. Doubling and then halving strides find the point with few
    evaluations."""
    walk = Walk(network, start, maximum)
    below = dict(walk.allocation)
    additions = walk.additions()
    stride = 1
    while not meets(walk.allocation):
        below = dict(walk.allocation)
        if not sum(1 for _ in islice(additions, stride)):
            return None
        stride *= 2
    found = walk.allocation
    while (gap := sum(found.values()) - sum(below.values())) > 1:
        middle = Walk(network, below, maximum)
        for _ in islice(middle.additions(), gap // 2):
            pass
        if meets(middle.allocation):
            found = middle.allocation
        else:
            below = middle.allocation
    return found
