"""Processors of different speed (DRS, ICDCS 2015, §III-A): a station served by a mix of them, and
which operator gets how many of each kind. Fed by a network whose service rates are those of a
processor of speed 1, and by the kinds there are; feeds `sojourn plan`.

A tuple goes to any idle processor, each as likely as the other. With exponential times this has an
exact solution (Gumbel 1960). If n of k processors are busy, which ones these are has probability
proportional to the product of their λ/μᵢ, and the probabilities p(n) follow from those with one
processor less by

    p'(n) = ((k - n) · p(n) + λ/μₖ · p(n - 1)) / k.

Only positive terms are added, so no digits cancel. Other distributions stretch the wait as in DRS
eq. 5."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

from sojourn.errors import InputError
from sojourn.queueing.exchange import Deal, Exchange
from sojourn.queueing.keyed import KeyedStation
from sojourn.queueing.network import Network
from sojourn.queueing.split import SplitStation
from sojourn.queueing.station import Station
from sojourn.queueing.walk import Limits

_HUGE = 1e200
_SATURATION = 1e-12


@dataclass(frozen=True, slots=True)
class Kind:
    """Some equal processors: how many there are, how fast one is, and what one costs."""

    count: int
    speed: float
    cost: float = 1.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"a kind of processor needs a count of at least 1; got {self.count}")
        for what, value in (("speed", self.speed), ("cost", self.cost)):
            if not 1e-6 <= value <= 1e6:
                raise InputError(
                    f"the {what} of a processor must lie between 1e-06 and 1e+06; got {value}"
                )


@dataclass(frozen=True, slots=True)
class Expected:
    """What the model expects of a station: its utilization, and a tuple's mean wait and mean time
    of service in seconds. The wait is infinite if the station is unstable."""

    utilization: float
    wait: float
    service: float

    @property
    def sojourn(self) -> float:
        """Mean wait plus mean service."""
        return self.wait + self.service


@dataclass(frozen=True)
class UnequalPlan:
    """How many processors of each kind each operator gets, and what the model expects of that; or,
    with `reason` set, why there is no plan. `cost` is that of all processors in use."""

    allocation: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    mean_sojourn: float = math.inf
    expected: Mapping[str, Expected] = field(default_factory=dict)
    cost: float = 0.0
    reason: str = ""

    @property
    def feasible(self) -> bool:
        """Whether there is an allocation."""
        return not self.reason

    @property
    def processors(self) -> int:
        """All processors of the allocation together."""
        return sum(sum(mix.values()) for mix in self.allocation.values())

    def used(self, kind: str) -> int:
        """How many processors of a kind are in use."""
        return sum(mix[kind] for mix in self.allocation.values())


def expected(station: Station, speeds: Mapping[float, int]) -> Expected:
    """What to expect of a station with so many processors of each speed. It is that of
    `Station` where all have the same speed."""
    mix = {speed: count for speed, count in speeds.items() if count}
    k = sum(mix.values())
    if k < 1:
        raise InputError("a station needs at least 1 processor; got 0")
    if len(mix) == 1:
        (speed,) = mix
        same = station.scaled(speed=speed)
        return Expected(same.utilization(k), same.mean_wait(k), 1 / same.service_rate)
    capacity = math.fsum(count * speed for speed, count in mix.items()) * station.service_rate
    load, rate = station.offered_load, station.arrival_rate
    busy_share = rate / capacity
    if load == 0:
        each = math.fsum(count / speed for speed, count in mix.items()) / k
        return Expected(0.0, 0.0, each / station.service_rate)
    if busy_share >= 1 - _SATURATION:
        return Expected(busy_share, math.inf, k / capacity)
    p = _busy(load, mix)
    all_busy = p[k] / (1 - busy_share)
    total = math.fsum(p[:k]) + all_busy
    delayed = all_busy / total
    busy = math.fsum(n * value for n, value in enumerate(p[:k])) / total + k * delayed
    wait = station.variability * delayed / (capacity - rate)
    return Expected(busy_share, wait, busy / rate)


def _busy(load: float, mix: Mapping[float, int]) -> list[float]:
    """How likely 0, 1, … k processors are busy and nothing waits, up to a common factor."""
    p = [1.0]
    for speed, count in sorted(mix.items(), reverse=True):
        each = load / speed
        for _ in range(count):
            k = len(p)
            p.append(0.0)
            p = [
                p[0],
                *(((k - n) * p[n] + each * p[n - 1]) / k for n in range(1, k + 1)),
            ]
            largest = max(p)
            if largest > _HUGE:
                p = [value / largest for value in p]
    return p


def assign_unequal(
    network: Network,
    kinds: Mapping[str, Kind],
    minimum: Limits | None = None,
    maximum: Limits | None = None,
) -> UnequalPlan:
    """Place the processors there are for the least E[T] (program 6). Those that would not lower
    it, because tuples on them would take too long, are left over.

    Processors are moved and exchanged between operators until that saves nothing more. This is not
    always the best there is; docs/model.md says how far off it was."""
    deals = _Deals(network, kinds, minimum, maximum)
    if deals.obstacle:
        return UnequalPlan(reason=deals.obstacle)
    best = deals.least()
    return deals.plan(best) if best.short <= 0 else UnequalPlan(reason=deals.not_found)


def cheapest_unequal(
    network: Network,
    kinds: Mapping[str, Kind],
    max_sojourn: float,
    minimum: Limits | None = None,
    maximum: Limits | None = None,
) -> UnequalPlan:
    """The processors with the least cost in all that keep E[T] ≤ `max_sojourn` seconds (program 8);
    the fewest, unless their costs differ. Among equals, those with the least E[T].

    From all processors on, one is given back, or exchanged for cheaper ones, as long as the target
    is kept. This is not always the least cost; docs/model.md says how far off it was."""
    if not max_sojourn > 0:
        raise InputError(f"max_sojourn must be above zero seconds; got {max_sojourn}")
    deals = _Deals(network, kinds, minimum, maximum)
    bound = network.lower_bound() / max(kind.speed for kind in kinds.values())
    if not deals.obstacle and bound > max_sojourn:
        deals.obstacle = (
            f"a mean sojourn of {max_sojourn:.4g} s is out of reach: serving a tuple takes "
            f"{bound:.4g} s even on the fastest processors and when it never waits"
        )
    if deals.obstacle:
        return UnequalPlan(reason=deals.obstacle)
    start = deals.least()
    if start.short > 0:
        return UnequalPlan(reason=deals.not_found)
    if start.total > max_sojourn:
        return UnequalPlan(
            reason=f"a mean sojourn of {max_sojourn:.4g} s is out of reach: the best placement "
            f"found of these processors brings it to {start.total:.4g} s"
        )
    found = [deals.cheaper(start, max_sojourn, per_speed) for per_speed in (False, True)]
    return deals.plan(min(found, key=lambda deal: (deals.cost(deal), deal.total)))


class _Deals:
    """Ways to give the processors there are to the operators of a network."""

    def __init__(
        self,
        network: Network,
        kinds: Mapping[str, Kind],
        minimum: Limits | None,
        maximum: Limits | None,
    ) -> None:
        if not kinds:
            raise InputError("there must be at least one kind of processor; got none")
        for name, station in network.stations.items():
            if isinstance(station, KeyedStation | SplitStation):
                raise InputError(
                    f"operator {name!r} has a key: its processors each have a queue, and which "
                    "speed suits which shard is not modelled"
                )
        self.network, self.kinds = network, kinds
        self.speeds = [kind.speed for kind in kinds.values()]
        self.costs = [kind.cost for kind in kinds.values()]
        self.names = list(network.stations)
        low, self.most = dict(minimum or {}), dict(maximum or {})
        self.low = {name: max(1, low.get(name, 1)) for name in self.names}
        self.known: dict[tuple[int, Sequence[int]], tuple[float, float]] = {}
        self.search = Exchange(self._cost, len(kinds))
        self.obstacle = self._obstacle()

    @property
    def not_found(self) -> str:
        """What is said if the search ends without an answer, although one may exist."""
        return (
            "no placement of these processors was found in which every operator keeps up; more or "
            "faster ones help"
        )

    def least(self) -> Deal:
        """The best placement found of all processors."""
        counts = [kind.count for kind in self.kinds.values()]
        nothing = [(0,) * len(counts)] * len(self.names)
        return self.search.least(self.search.deal(nothing, counts))

    def cheaper(self, deal: Deal, target: float, per_speed: bool) -> Deal:
        """Give back or exchange processors as long as the target is kept: first what saves most,
        or with `per_speed` first what is dearest for its speed."""
        kinds = range(len(self.costs))
        offers = [((gone,), ()) for gone in kinds] + [
            (gone, come)
            for size in ((1, 1), (2, 1), (1, 2))
            for gone in combinations_with_replacement(kinds, size[0])
            for come in combinations_with_replacement(kinds, size[1])
            if not set(gone) & set(come)
        ]

        def saving(offer: tuple[Sequence[int], Sequence[int]]) -> float:
            gone, come = offer
            return sum(self.costs[j] for j in gone) - sum(self.costs[j] for j in come)

        def worth(offer: tuple[Sequence[int], Sequence[int]]) -> float:
            return saving(offer) / (sum(self.speeds[j] for j in offer[0]) if per_speed else 1.0)

        offers = [offer for offer in offers if saving(offer) > 1e-12]
        while True:
            better: list[tuple[float, float, Deal]] = []
            for offer in sorted(offers, key=worth, reverse=True):
                if better and worth(offer) < better[0][0] * (1 - 1e-12):
                    break
                have = deal.used
                for kind in offer[0]:
                    have[kind] -= 1
                for kind in offer[1]:
                    have[kind] += 1
                limits = zip(have, self.kinds.values(), strict=True)
                if any(count < 0 or count > kind.count for count, kind in limits):
                    continue
                tried = self.search.settled(self.search.deal(deal.mixes, have))
                if tried.short <= 0 and tried.total <= target:
                    better.append((worth(offer), tried.total, tried))
            if not better:
                return deal
            deal = min(better, key=lambda found: found[1])[2]

    def cost(self, deal: Deal) -> float:
        """What the processors in use cost."""
        return math.fsum(n * cost for n, cost in zip(deal.used, self.costs, strict=True))

    def plan(self, deal: Deal) -> UnequalPlan:
        """What the model expects of it."""
        found = {
            name: expected(self.network.stations[name], self._by_speed(mix))
            for name, mix in zip(self.names, deal.mixes, strict=True)
        }
        return UnequalPlan(
            allocation={
                name: dict(zip(self.kinds, mix, strict=True))
                for name, mix in zip(self.names, deal.mixes, strict=True)
            },
            mean_sojourn=self.network.weighted({n: e.sojourn for n, e in found.items()}),
            expected=found,
            cost=self.cost(deal),
        )

    def _cost(self, site: int, mix: Sequence[int]) -> tuple[float, float] | None:
        """How much a site lacks, and its part of E[T]; None if it must not have so many. The last
        site is what is left over."""
        if site == len(self.names):
            return float(sum(max(0, -count) for count in mix)) * 1e3, 0.0
        if min(mix) < 0 or sum(mix) > self.most.get(self.names[site], math.inf):
            return None
        known = self.known.get((site, mix))
        if known is None:
            known = self.known[site, mix] = self._judged(self.names[site], mix)
        return known

    def _judged(self, name: str, mix: Sequence[int]) -> tuple[float, float]:
        station = self.network.stations[name]
        missing = float(max(0, self.low[name] - sum(mix)))
        capacity = math.fsum(n * speed for n, speed in zip(mix, self.speeds, strict=True))
        if not sum(mix) or station.offered_load >= capacity * (1 - _SATURATION):
            return missing + max(0.0, station.offered_load - capacity) + 1e-6, 0.0
        if not station.arrival_rate:
            return missing, 0.0
        sojourn = expected(station, self._by_speed(mix)).sojourn
        return missing, self.network.visits(name) * sojourn

    def _by_speed(self, mix: Sequence[int]) -> dict[float, int]:
        found: dict[float, int] = {}
        for speed, count in zip(self.speeds, mix, strict=True):
            found[speed] = found.get(speed, 0) + count
        return found

    def _obstacle(self) -> str:
        """Why no placement can exist, if that is plain to see."""
        count = sum(kind.count for kind in self.kinds.values())
        least = sum(self.low.values())
        if count < least:
            return f"{count} processors are too few: the operators must have at least {least}"
        fastest = sorted(
            (kind.speed for kind in self.kinds.values() for _ in range(kind.count)), reverse=True
        )
        for name, station in self.network.stations.items():
            most = self.most.get(name, count)
            if most < self.low[name]:
                return (
                    f"operator {name!r} has a minimum of {self.low[name]} processors above its "
                    f"maximum of {most}"
                )
            if station.offered_load >= math.fsum(fastest[:most]) * (1 - _SATURATION):
                return (
                    f"operator {name!r} cannot keep up: {station.arrival_rate:.4g}/s at "
                    f"{station.service_rate:.4g}/s need more than {station.offered_load:.4g} "
                    f"processors of speed 1; the fastest {most} are worth "
                    f"{math.fsum(fastest[:most]):.4g}"
                )
        load = math.fsum(s.offered_load for s in self.network.stations.values())
        if load >= math.fsum(fastest) * (1 - _SATURATION):
            return (
                f"the processors are too few or too slow: together they are worth "
                f"{math.fsum(fastest):.4g} of speed 1, and the topology needs more than {load:.4g}"
            )
        return ""
