"""How many processors each operator gets: DRS program 6 (the least E[T] with at most K_max) and
program 8 (the fewest processors with E[T] at most T_max). Fed by a network; feeds every decision.

Both walk the same path: start from the fewest processors that keep each station stable, and give
the next one to the station where it saves most. E[T] is convex in each kᵢ, so every point of the
path is optimal for its number of processors (DRS theorem 1), and one walk answers both programs.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from sojourn.errors import InputError
from sojourn.queueing.network import Network, what_of
from sojourn.queueing.tail import fewest_for_percentile
from sojourn.queueing.walk import Limits, Walk, first_meeting


@dataclass(frozen=True)
class Plan:
    """An allocation with what the model expects of it, or, with `reason` set, why there is none."""

    allocation: Mapping[str, int] = field(default_factory=dict)
    network: Network | None = None
    reason: str = ""

    @cached_property
    def sojourn(self) -> dict[str, float]:
        """Of a visit to each station."""
        stations = {} if self.network is None else self.network.stations
        return {n: s.mean_sojourn(self.allocation[n]) for n, s in stations.items()}

    @cached_property
    def mean_sojourn(self) -> float:
        """E[T]."""
        return math.inf if self.network is None else self.network.weighted(self.sojourn)

    @cached_property
    def utilization(self) -> dict[str, float]:
        """How busy the processors of each station are."""
        stations = {} if self.network is None else self.network.stations
        return {n: s.utilization(self.allocation[n]) for n, s in stations.items()}

    @property
    def feasible(self) -> bool:
        """Whether there is an allocation."""
        return not self.reason

    @property
    def processors(self) -> int:
        """All processors of the allocation together."""
        return sum(self.allocation.values())

    @staticmethod
    def of(network: Network, allocation: Mapping[str, int]) -> "Plan":
        """What the model expects of a given allocation, stable or not."""
        return Plan(dict(allocation), network)


@dataclass(frozen=True, slots=True)
class Step:
    """A point of the optimal path: this many processors, the last given to `added`."""

    processors: int
    added: str | None
    mean_sojourn: float


def assign_processors(
    network: Network,
    max_processors: int,
    minimum: Limits | None = None,
    maximum: Limits | None = None,
) -> Plan:
    """The allocation with the least E[T] among those of at most `max_processors` (program 6).

    Processors that would save nothing measurable are left over. Among equals, the station that
    comes first in the network gets the processor.
    """
    walk = Walk(network, minimum, maximum)
    if not walk.obstacle and walk.total > max_processors:
        walk.obstacle = (
            f"{max_processors} processors are too few: the topology needs at least {walk.total} "
            f"({_needs(network, walk.allocation)})"
        )
    if walk.obstacle:
        return Plan(reason=walk.obstacle)
    for _ in islice(walk.additions(), min(max_processors - walk.total, sys.maxsize)):
        pass
    return Plan.of(network, walk.allocation)


def min_processors(
    network: Network,
    max_sojourn: float,
    percentile: float | None = None,
    minimum: Limits | None = None,
    maximum: Limits | None = None,
) -> Plan:
    """The fewest processors with E[T] ≤ `max_sojourn` seconds, placed for the least E[T]
    (program 8); with `percentile`, the fewest for which `Network.percentile` is at or below it."""
    if not max_sojourn > 0:
        raise InputError(f"max_sojourn must be above zero seconds; got {max_sojourn}")
    walk = Walk(network, minimum, maximum)
    what = what_of(percentile)
    bound = network.bound(percentile)
    if not walk.obstacle and bound > max_sojourn:
        walk.obstacle = _below_bound(what, max_sojourn, bound)
    if walk.obstacle:
        return Plan(reason=walk.obstacle)
    if percentile is not None:
        found = fewest_for_percentile(
            network, max_sojourn, percentile, walk.allocation, walk.maximum
        )
    else:
        found = _fewest_for_mean(network, max_sojourn, walk)
    if found is not None:
        return Plan.of(network, found)
    for _ in walk.additions():
        pass
    reached = network.sojourn(walk.allocation, percentile)
    return Plan(reason=_at_limits(what, max_sojourn, reached, walk))


def _fewest_for_mean(network: Network, target: float, walk: Walk) -> dict[str, int] | None:
    """The first point of the walk with E[T] at or below the target. The walk's running value is off
    by up to one part in 10⁹, so near the target the exact value decides."""
    for running in walk.means():
        if running <= target * (1 - 1e-9):
            return walk.allocation
        if running <= target * (1 + 1e-9):
            break
    return first_meeting(
        network, walk.allocation, walk.maximum, lambda a: network.mean_sojourn(a) <= target
    )


def sweep(
    network: Network, minimum: Limits | None = None, maximum: Limits | None = None
) -> Iterator[Step]:
    """Every point of the optimal path, from the fewest stable processors on, until another
    processor saves nothing."""
    walk = Walk(network, minimum, maximum)
    if walk.obstacle:
        return
    for mean in walk.means():
        yield Step(walk.total, walk.last, mean)


def _needs(network: Network, allocation: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name!r} {allocation[name]} for {station.arrival_rate:.4g}/s at "
        f"{station.service_rate:.4g}/s each"
        for name, station in network.stations.items()
    )


def _below_bound(what: str, target: float, bound: float) -> str:
    return (
        f"a {what} of {target:.4g} s is out of reach: serving a tuple takes {bound:.4g} s "
        "even when it never waits; only faster operators help"
    )


def _at_limits(what: str, target: float, reached: float, walk: Walk) -> str:
    full = [n for n, most in walk.maximum.items() if walk.allocation[n] >= most]
    because = (
        f"with {', '.join(map(repr, full))} at the maximum" if full else "with all that can help"
    )
    return (
        f"a {what} of {target:.4g} s is out of reach: {because}, {walk.total} processors "
        f"bring it to {reached:.4g} s"
    )
