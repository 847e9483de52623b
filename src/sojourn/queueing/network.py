"""An open network of stations: the traffic equations, E[T] of DRS eq. 4 and its tail.
Fed by stations and gains; feeds the two programs in allocation.py."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from sojourn.errors import InputError
from sojourn.graph import groups, is_loop
from sojourn.queueing.quantile import quantile
from sojourn.queueing.station import Station


class Spread(NamedTuple):
    """How often Var[T] counts the variance of the time at a station, and how often the square of
    its mean: the mean and the variance of the visits, if these are independent."""

    times: float
    visits: float


@dataclass(frozen=True)
class Network:
    """Stations by name, and the rate λ₀ at which tuples enter the topology from outside.
    The order of the stations breaks ties, so it is part of the value. A tree of tuples that are
    processed side by side is done when its last one is: `weights` say how many visits to a station
    its end waits for, where that differs from how many there are, `served` for how many times of
    service, where these are others, and `spreads` how much all this varies, where it is known."""

    stations: Mapping[str, Station]
    external_rate: float
    weights: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    served: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stations", MappingProxyType(dict(self.stations)))
        if not self.stations:
            raise InputError("a network needs at least one station; got none")
        if not (math.isfinite(self.external_rate) and self.external_rate > 0):
            raise InputError(
                f"external_rate must be above zero and finite; got {self.external_rate}"
            )

    def visits(self, name: str) -> float:
        """How often the sojourn of a tuple from outside counts a visit to this station, on average:
        λᵢ/λ₀, or its weight where that is known to be less."""
        return self.weights.get(name, self.stations[name].arrival_rate / self.external_rate)

    def mean_sojourn(self, allocation: Mapping[str, int]) -> float:
        """E[T] of DRS eq. 4: the mean over all tuples of time waited and served at all visits."""
        self._check(allocation)
        return self.weighted({n: s.mean_sojourn(allocation[n]) for n, s in self.stations.items()})

    def weighted(self, sojourn: Mapping[str, float]) -> float:
        """The sum over all stations of what they add to E[T]."""
        return math.fsum(
            self.counted(name, sojourn[name])
            for name, station in self.stations.items()
            if station.arrival_rate > 0
        )

    def counted(self, name: str, sojourn: float) -> float:
        """What a station adds to E[T] if a visit takes that long."""
        visits, service = self.visits(name), 1 / self.stations[name].service_rate
        return visits * sojourn + (self.served.get(name, visits) - visits) * service

    def lower_bound(self) -> float:
        """E[T] without any waiting, which no allocation goes below: (1/λ₀)·Σ λᵢ/μᵢ."""
        return self._lower_bound

    @cached_property
    def _lower_bound(self) -> float:
        return self.weighted({n: 1 / s.service_rate for n, s in self.stations.items()})

    def bound_moments(self) -> tuple[float, float]:
        """E[T] and Var[T] without any waiting."""
        return self._total(lambda _name: (0.0, 0.0))

    def moments(self, allocation: Mapping[str, int]) -> tuple[float, float]:
        """E[T] and Var[T]; see `spread`."""
        self._check(allocation)
        return self._total(lambda name: self.stations[name].wait_moments(allocation[name]))

    def spread(self, name: str) -> Spread:
        """How much the time at a station varies over all visits of a tuple. If nothing is known, a
        station that a tuple visits less than once on average is visited once or not at all, and one
        visited more often is revisited with the same chance each time, as in a loop."""
        found = self.spreads.get(name)
        if found is not None:
            return found
        visits = self.visits(name)
        return Spread(visits, visits * abs(1 - visits))

    def percentile(self, allocation: Mapping[str, int], p: float) -> float:
        """The sojourn that about p per cent of tuples do not exceed: the percentile of the gamma
        distribution with its moments, as far as `quantile` says. docs/model.md gives its error."""
        return quantile(*self.moments(allocation), p)

    def percentile_bound(self, p: float) -> float:
        """The percentile without any waiting, which no allocation goes below."""
        return quantile(*self.bound_moments(), p)

    def sojourn(self, allocation: Mapping[str, int], p: float | None = None) -> float:
        """What a target applies to: E[T], or with `p` that percentile. Infinite if a station is
        unstable."""
        return self.mean_sojourn(allocation) if p is None else self.percentile(allocation, p)

    def bound(self, p: float | None = None) -> float:
        """The same without any waiting, which no allocation goes below."""
        return self.lower_bound() if p is None else self.percentile_bound(p)

    def _total(self, wait_moments: Callable[[str], tuple[float, float]]) -> tuple[float, float]:
        """Mean and variance of the whole sojourn, given those of the wait at each station."""
        means, variances = [], []
        for name, station in self.stations.items():
            if station.arrival_rate == 0:
                continue
            wait, wait_variance = wait_moments(name)
            if math.isinf(wait):
                return math.inf, math.inf
            service = 1 / station.service_rate
            means.append(self.counted(name, wait + service))
            spread = self.spread(name)
            variances.append(
                spread.times * (wait_variance + station.service_scv * service**2)
                + spread.visits * (wait + service) ** 2
            )
        return math.fsum(means), math.fsum(variances)

    def _check(self, allocation: Mapping[str, int]) -> None:
        for name in self.stations:
            if name not in allocation:
                raise InputError(f"the allocation lacks operator {name!r}; got {dict(allocation)}")
        for name in allocation:
            if name not in self.stations:
                raise InputError(f"the allocation names {name!r}, which the network does not have")


def what_of(p: float | None) -> str:
    """What a target applies to, in words."""
    return "mean sojourn" if p is None else f"p{p:.10g} sojourn"


def traffic(
    external: Mapping[str, float], gains: Mapping[tuple[str, str], float]
) -> dict[str, float]:
    """Every vertex's arrival rate by the traffic equations λᵥ = external[v] + Σ λᵤ·gains[u, v].

    Splits, joins and loops are allowed; a loop that sends back as much as it gets is refused.
    """
    for vertex, rate in external.items():
        if not (math.isfinite(rate) and rate >= 0):
            raise InputError(f"external rate of {vertex!r} must be zero or more; got {rate}")
    onward: dict[str, dict[str, float]] = {vertex: {} for vertex in external}
    for (sender, receiver), gain in gains.items():
        if not (math.isfinite(gain) and gain >= 0):
            raise InputError(f"gain of {sender!r} → {receiver!r} must be zero or more; got {gain}")
        onward.setdefault(sender, {})
        onward.setdefault(receiver, {})
        if gain > 0:
            onward[sender][receiver] = gain
    rates = {vertex: float(external.get(vertex, 0.0)) for vertex in onward}
    for group in _groups(tuple((sender, tuple(to)) for sender, to in onward.items())):
        if is_loop(group, onward):
            _solve_loop(group, onward, rates)
        members = set(group)
        for sender in group:
            for receiver, gain in onward[sender].items():
                if receiver not in members:
                    rates[receiver] += rates[sender] * gain
    for vertex, rate in rates.items():
        if not math.isfinite(rate):
            raise InputError(f"the gains before {vertex!r} multiply to a number that is too large")
    return rates


@functools.lru_cache(maxsize=16)
def _groups(onward: tuple[tuple[str, tuple[str, ...]], ...]) -> list[list[str]]:
    """Of the same graph at every tick."""
    return groups(dict(onward))


def _solve_loop(
    group: list[str], onward: Mapping[str, Mapping[str, float]], rates: dict[str, float]
) -> None:
    """Replace what enters a group of mutually reachable vertices by what flows in it.

    Vertices are eliminated one by one: paths through v become edges around it, and what returns
    to v itself counts 1/(1 - gain back to v) times. This is the only subtraction, so a loop
    diverges exactly where a gain back reaches 1, and its path is known."""
    members = set(group)
    gains = {u: {w: g for w, g in onward[u].items() if w in members} for u in group}
    paths: dict[tuple[str, str], tuple[str, ...]]
    paths = {(u, w): (u, w) for u in group for w in gains[u]}
    stages: list[tuple[str, dict[str, float], dict[str, float], float]] = []
    for v in group:
        back = gains[v].pop(v, 0.0)
        if back >= 1 - 1e-12:
            loop = " → ".join(paths[v, v])
            raise InputError(
                f"the loop {loop} diverges: every tuple that passes {v!r} comes back "
                f"{back:.4g} times on average; lower a gain so that it is less than once"
            )
        times = 1 / (1 - back)
        out = gains.pop(v)
        senders = {u: gains[u].pop(v) for u in gains if v in gains[u]}
        for w, gain in out.items():
            rates[w] += rates[v] * times * gain
        for u, into in senders.items():
            for w, gain in out.items():
                around = into * times * gain
                if around > gains[u].get(w, 0.0):
                    paths[u, w] = (*paths[u, v], *paths[v, w][1:])
                gains[u][w] = gains[u].get(w, 0.0) + around
        stages.append((v, senders, out, times))
    for v, senders, _, times in reversed(stages):
        # The flow of vertices eliminated after v is known now; each sends v its part.
        rates[v] = (rates[v] + math.fsum(rates[u] * g for u, g in senders.items())) * times
