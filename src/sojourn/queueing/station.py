"""One operator as a queueing station: M/M/k by the Erlang-B recursion, GI/G/k by DRS eq. 5.
Fed by measured or given rates; feeds networks and the two programs.

Everything rests on the inverse blocking probability 1/B(k), which obeys

    1/B(0) = 1,    1/B(k) = 1 + (k/a) · 1/B(k-1),    a = arrival rate / service rate.

Only positive terms are added, so no digits cancel, and it grows where B itself would underflow.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from sojourn.errors import InputError

# A utilization this close to 1 is 1: rates such as 0.3/s at 0.1/s fill three processors exactly,
# although their nearest binary fractions do not.
_SATURATION = 1e-12

# No real stream goes beyond these, and squares and sums would leave the range of numbers.
_MAX_LOAD = 1e9
_MAX_RATE = 1e15
_MAX_SCV = 1e6


def _outside(name: str, value: float, least: float, most: float) -> InputError:
    return InputError(f"{name} must lie between {least:g} and {most:g}; got {value}")


@dataclass(frozen=True, slots=True)
class Station:
    """An operator's rates per second and the squared coefficients of variation of its
    inter-arrival and service times. `service_rate` is that of one processor."""

    arrival_rate: float
    service_rate: float
    arrival_scv: float = 1.0
    service_scv: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.arrival_rate <= _MAX_RATE:
            raise _outside("arrival_rate", self.arrival_rate, 0, _MAX_RATE)
        if not 0 <= self.arrival_scv <= _MAX_SCV:
            raise _outside("arrival_scv", self.arrival_scv, 0, _MAX_SCV)
        if not 0 <= self.service_scv <= _MAX_SCV:
            raise _outside("service_scv", self.service_scv, 0, _MAX_SCV)
        if not 1 / _MAX_RATE <= self.service_rate <= _MAX_RATE:
            raise _outside("service_rate", self.service_rate, 1 / _MAX_RATE, _MAX_RATE)
        if self.offered_load > _MAX_LOAD:
            raise InputError(
                f"{self.arrival_rate:.4g}/s at {self.service_rate:.4g}/s each would need "
                f"{self.offered_load:.4g} processors; the model takes up to {_MAX_LOAD:g}"
            )

    @property
    def offered_load(self) -> float:
        """a = λ/μ: the processors that would be busy on average if there were enough."""
        return self.arrival_rate / self.service_rate

    @property
    def min_processors(self) -> int:
        """The fewest processors with which the queue does not grow forever."""
        k = max(1, math.floor(self.offered_load / (1 - _SATURATION)))
        return k if self.is_stable(k) else k + 1

    @property
    def variability(self) -> float:
        """(a + s)/2: how far waiting exceeds that of an M/M/k station (DRS eq. 5)."""
        return (self.arrival_scv + self.service_scv) / 2

    def scaled(self, load: float = 1.0, speed: float = 1.0) -> Self:
        """The same station with another load, or with processors of another speed."""
        rates = load * self.arrival_rate, speed * self.service_rate
        if type(self) is Station:  # `replace` takes three times as long
            return type(self)(*rates, self.arrival_scv, self.service_scv)
        return replace(self, arrival_rate=rates[0], service_rate=rates[1])

    def utilization(self, k: int) -> float:
        """λ/(kμ), at or above 1 where the station is unstable."""
        return self.arrival_rate / (counted(k) * self.service_rate)

    def is_stable(self, k: int) -> bool:
        """Whether k processors keep up. A utilization that rounds to 1 counts as falling behind."""
        return self.utilization(k) < 1 - _SATURATION

    def mean_wait(self, k: int) -> float:
        """E[Q]: seconds a tuple waits for a processor on average; infinite if unstable."""
        return self.wait_moments(k)[0]

    def mean_sojourn(self, k: int) -> float:
        """E[T] = E[Q] + 1/μ (DRS eq. 1 and 5)."""
        return self.mean_wait(k) + 1 / self.service_rate

    def wait_moments(self, k: int) -> tuple[float, float]:
        """Mean and variance of the wait. It is zero with probability 1-C, else exponential, which
        is exact for M/M/k. The variability stretches its mean (DRS eq. 5)."""
        if not self.is_stable(k):
            return math.inf, math.inf
        spare = self._spare_rate(k)
        delayed = self._delayed(k, spare)
        stretched = self.variability / spare
        return delayed * stretched, delayed * (2 - delayed) * stretched**2

    def wait_percentile(self, k: int, p: float) -> float:
        """The wait that p per cent of tuples do not exceed (exact for M/M/k)."""
        check_percentile(p)
        if not self.is_stable(k):
            return math.inf
        exceeding = self.delay_probability(k) / (1 - p / 100)
        if exceeding <= 1:
            return 0.0
        return math.log(exceeding) * self.variability / self._spare_rate(k)

    def delay_probability(self, k: int) -> float:
        """Erlang's C: how likely a tuple finds all k processors busy; 1 if unstable."""
        return self._delayed(k, self._spare_rate(k)) if self.is_stable(k) else 1.0

    def _delayed(self, k: int, spare: float) -> float:
        load = self.offered_load
        if load == 0:
            return 0.0
        return k / (load + spare / self.service_rate * inverse_blocking(k, load))

    def waits(self, k: int) -> Iterator[tuple[float, float]]:
        """Mean and variance of the wait with k, k+1, k+2, … processors (k stable), without end.
        Each is one step of the recursion, not a fresh sum."""
        load, rate = self.offered_load, self.service_rate
        if load == 0 or self.variability == 0:
            while True:
                yield 0.0, 0.0
        scale = self.variability / rate
        inverse = inverse_blocking(k, load)
        idle = self._spare_rate(k) / rate
        while True:
            delayed = k / (load + idle * inverse)
            stretched = scale / idle
            yield delayed * stretched, delayed * (2 - delayed) * stretched * stretched
            k += 1
            inverse = 1 + k / load * inverse
            idle = k - load

    def mean_waits(self, k: int, weight: float) -> Iterator[float]:
        """The means of these alone, times a weight: walks take hundreds of thousands."""
        load = self.offered_load
        if load == 0 or self.variability == 0:
            while True:
                yield 0.0
        scale = weight * self.variability / self.service_rate
        inverse = inverse_blocking(k, load)
        idle = self._spare_rate(k) / self.service_rate
        while True:
            yield scale * k / ((load + idle * inverse) * idle)
            k += 1
            inverse = 1 + k / load * inverse
            idle = k - load

    def _spare_rate(self, k: int) -> float:
        """kμ - λ, computed exactly where the two are so close that digits would cancel."""
        spare = k * self.service_rate - self.arrival_rate
        if spare > 1e-3 * self.arrival_rate:
            return spare
        return float(k * Fraction(self.service_rate) - Fraction(self.arrival_rate))


def inverse_blocking(k: int, load: float) -> float:
    """1/B(k) for a given offered load > 0: the recursion unrolled from the top,
    1 + k/a (1 + (k-1)/a (1 + …)), and cut off where the rest cannot change the result."""
    total = term = 1.0
    for j in range(k, 0, -1):
        ratio = j / load
        term *= ratio
        total += term
        if ratio < 1 and term * ratio < 1e-17 * total * (1 - ratio):
            break
        if total == math.inf:
            break
    return total


def check_percentile(p: float) -> None:
    """Percentiles are percentages, as in numpy: 99, not 0.99."""
    if not 0 < p < 100:
        raise InputError(f"percentile must lie between 0 and 100, as in 99; got {p}")


def counted(k: int) -> int:
    """A number of processors, if it is one."""
    if k < 1:
        raise InputError(f"a station needs at least 1 processor; got {k}")
    return k
