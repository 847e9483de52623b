"""Several allocations under the same chance, and how sure the difference is. In the simulator each
has a run of its own with the same seed, so the same tuples come at the same times and take as long.
On Spark the traffic has several turns, which differ, and then begins anew. Each allocation has each
turn once, in random order, as the machine's speed wavers.

What is compared falls into parts, the same of all allocations: turns, or equal times of a simulated
run. Any figure made of the sums of all
parts is known as well as it differs when one part is left out (jackknife); so are the differences
and ratios of two allocations, in which what chance did to both is gone."""

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lab import INTERVAL_S, Lab, square_mean, work_off
from shapes import Shape

from sojourn.confidence import student
from sojourn.errors import TopologyFailed
from sojourn.ports import Samples
from sojourn.queueing import Network, Station
from sojourn.settings import EngineSettings, SimulatorSettings
from sojourn.simulator import SimulatedEngine

SURE = 0.05
PARTS = 20  # of a simulated run
SIMULATED_S = 1200.0  # twenty minutes an allocation
_QUICK_S = 300.0
_SETTLE = 0.1  # of a run, before it counts
_DRAIN_S = 3.0  # in which what waits is worked off, before the next turn
TURNS, QUICK_TURNS = 10, 3
TURN_S, QUICK_TURN_S = 12.0, 4.0  # that count
_MOST_TIMES = 3  # as many turns as are needed, before it is given up
_LEAST_TREES = 5  # of all parts but one
Part = tuple[int, float, float]  # trees, the sum of their sojourns, and that of the squares
# Seconds, arrivals, tuples served, seconds of service; and how variable arrivals and service were,
# each times the number of tuples.
Seen = tuple[float, float, float, float, float, float]


@dataclass(frozen=True)
class Series:
    """What was measured of an allocation, in parts."""

    allocation: Mapping[str, int]
    parts: tuple[Part, ...]
    seen: Mapping[str, Seen] = field(default_factory=dict)  # of its stations

    @property
    def label(self) -> str:
        return ":".join(map(str, self.allocation.values()))

    @property
    def mean_s(self) -> float:
        return mean(self.total)

    @property
    def deviation_s(self) -> float:
        return deviation(self.total)

    @property
    def total(self) -> Part:
        return _sum(self.parts)


@dataclass(frozen=True)
class Estimate:
    """A figure, its standard error, and the degrees of freedom of that."""

    value: float
    error: float
    freedom: int

    @property
    def half(self) -> float:
        """Of the interval of 95 % confidence."""
        return student(self.freedom) * self.error

    def above(self, bound: float) -> float:
        """The probability of a figure so high if the true one were the bound, or lower."""
        return self._tail(self.value - bound)

    def below(self, bound: float) -> float:
        """The same the other way round."""
        return self._tail(bound - self.value)

    def __format__(self, spec: str) -> str:
        return f"{self.value:{spec}} ± {self.half:{spec}}"

    def _tail(self, distance: float) -> float:
        if math.isnan(self.error) or self.freedom < 1:
            return 1.0
        if not self.error:
            return 0.0 if distance > 0 else 1.0
        both = both_tails(abs(distance) / self.error, self.freedom)
        return both / 2 if distance > 0 else 1 - both / 2


def mean(total: Part) -> float:
    """Of all trees."""
    return total[1] / total[0]


def deviation(total: Part) -> float:
    """The standard deviation of all trees."""
    return math.sqrt(max(0.0, total[2] / total[0] - mean(total) ** 2))


def estimate_of(values: Sequence[float]) -> Estimate:
    """The mean of some that have nothing to do with one another."""
    if not values:
        return Estimate(math.nan, math.nan, 0)
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Estimate(statistics.fmean(values), error, len(values) - 1)


def jackknife(of: Callable[[list[Part]], float], series: Sequence[Series]) -> Estimate:
    """A figure made of the totals of some allocations."""
    count = min(len(one.parts) for one in series)
    value = of([one.total for one in series])
    if count < 2:
        return Estimate(value, math.nan, 0)
    without = [
        of([_sum([*one.parts[:left], *one.parts[left + 1 :]]) for one in series])
        for left in range(count)
    ]
    pseudo = [count * value - (count - 1) * one for one in without]
    return Estimate(value, statistics.stdev(pseudo) / math.sqrt(count), count - 1)


def ratio(one: Series, other: Series) -> Estimate:
    """Of the means of two."""
    return jackknife(lambda totals: mean(totals[0]) / mean(totals[1]), [one, other])


def both_tails(t: float, freedom: int) -> float:
    """The probability of Student's t that far from 0, or further, by its finite sums."""
    angle = math.atan(t / math.sqrt(freedom))
    cos, sin = math.cos(angle), math.sin(angle)
    term, total = (cos, 0.0) if freedom % 2 else (1.0, 0.0)
    for number in range(2 if freedom % 2 == 0 else 3, freedom + 1, 2):
        total += term
        term *= cos * cos * (number - 1) / number
    inside = (angle + sin * total) * 2 / math.pi if freedom % 2 else sin * total
    return max(0.0, 1 - inside)


def rejected(chances: Sequence[float]) -> int:
    """How many of some hypotheses fall, by Holm's correction: with 95 % confidence, no true one
    does."""
    for number, chance in enumerate(sorted(chances)):
        if chance > SURE / (len(chances) - number):
            return number
    return len(chances)


def every(figures: Sequence[Estimate], above: float) -> bool | None:
    """Whether all figures are above a bound: yes if each is, with 95 % confidence; no if one is
    below it, by Holm's correction; else it cannot be told."""
    if figures and all(one.above(above) <= SURE for one in figures):
        return True
    return False if rejected([one.below(above) for one in figures]) else None


def between(figure: Estimate, low: float, high: float) -> bool | None:
    """Whether it lies between two bounds: yes if its whole interval of 95 % does, no if all of it
    is outside."""
    least, most = figure.value - figure.half, figure.value + figure.half
    if math.isnan(figure.half):
        return None
    return False if most < low or least > high else True if low <= least and most <= high else None


def measure(lab: Lab, shape: Shape, allocations: Sequence[Mapping[str, int]]) -> list[Series]:
    """Each allocation under the same traffic."""
    if lab.engine == "spark":
        return in_turns(lab, shape, allocations)
    seconds = _QUICK_S if lab.quick else SIMULATED_S
    return [simulated(shape, allocation, seconds, lab.seed) for allocation in allocations]


def simulated(shape: Shape, allocation: Mapping[str, int], seconds: float, seed: int) -> Series:
    """A run of its own, in which chance depends on the shape and the seed only."""
    engine = SimulatedEngine(
        shape.topology(allocation, sleep=False),
        shape.workload(),
        SimulatorSettings(),
        EngineSettings(batch_s=3600.0),
        seed=shape.seed + seed,
    )
    engine.advance(_SETTLE * seconds)
    engine.samples()
    some = []
    for number in range(1, PARTS + 1):
        engine.advance(seconds * (_SETTLE + number / PARTS))
        some.append(engine.samples())
    return series(allocation, [part_of([one]) for one in some], seen_in(some, allocation))


def in_turns(
    lab: Lab,
    shape: Any,
    allocations: Sequence[Mapping[str, int]],
    seen: Callable[[Samples], object] = lambda _: None,
) -> list[Series]:
    """On Spark; `seen` is told of every interval that counts. Which turn it is follows from the
    time; it goes to one of the allocations that have not had it yet."""
    turns = QUICK_TURNS if lab.quick else TURNS
    counts_s = QUICK_TURN_S if lab.quick else TURN_S
    turn_s = (1 + _SETTLE) * counts_s + _DRAIN_S
    order = random.Random(lab.seed_of(shape.name))
    ample = {name: 2 * k for name, k in allocations[0].items()}
    found: list[list[list[Samples] | None]] = [[None] * turns for _ in allocations]
    with lab.running(replace(shape, turn_s=turns * turn_s), ample) as (engine, let_pass):
        began_s = time.monotonic()
        for _ in range(_MOST_TIMES * turns * len(allocations)):
            work_off(engine, let_pass)  # nobody inherits what waits
            left_s = turn_s - (time.monotonic() - began_s) % turn_s
            number = round((time.monotonic() + left_s - began_s) / turn_s) % turns
            let_pass(left_s)
            lack = [place for place, some in enumerate(found) if some[number] is None]
            if lack:
                place = order.choice(lack)
                found[place][number] = _turn(engine, let_pass, allocations[place], counts_s)
                engine.resize(ample)
            if all(some is not None for one in found for some in one):
                break
    done = [[some for some in one if some is not None] for one in found]
    lacking = turns * len(allocations) - sum(map(len, done))
    if lacking:
        raise TopologyFailed(
            f"{shape.name}: {lacking} of {turns * len(allocations)} turns were not measured, as "
            "processors did not come in time; run it again with less beside it"
        )
    for one in itertools.chain.from_iterable(itertools.chain.from_iterable(done)):
        seen(one)
    return [
        series(
            allocation,
            [part_of(some) for some in one],
            seen_in(list(itertools.chain.from_iterable(one)), allocation),
        )
        for allocation, one in zip(allocations, done, strict=True)
    ]


def _turn(
    engine: Any,
    let_pass: Callable[[float], object],
    allocation: Mapping[str, int],
    seconds: float,
) -> list[Samples] | None:
    """What an allocation does in a turn; None if it did not come in time."""
    engine.resize(allocation)
    let_pass(_SETTLE * seconds)
    engine.samples()
    intervals = max(1, round(seconds / INTERVAL_S))
    some = []
    for _ in range(intervals):
        let_pass(seconds / intervals)
        some.append(engine.samples())
    came = all(one.vertices[n].processors == k for one in some for n, k in allocation.items())
    return some if came else None


def seen_in(samples: Sequence[Samples], names: Iterable[str]) -> dict[str, Seen]:
    """What stations have seen in some intervals."""
    found = {}
    for name in names:
        some = [one.vertices[name] for one in samples]
        found[name] = (
            math.fsum(v.interval_s for v in some),
            float(sum(v.arrivals for v in some)),
            float(sum(v.served for v in some)),
            math.fsum(v.served * (v.service_s or 0.0) for v in some),
            math.fsum(v.arrivals * (1.0 if v.arrival_scv is None else v.arrival_scv) for v in some),
            math.fsum(v.served * (1.0 if v.service_scv is None else v.service_scv) for v in some),
        )
    return found


def measured_network(
    network: Network, external: str, some: Sequence[Series], model: str = "mmk"
) -> Network:
    """The same with the rates and times that were measured over all allocations, as they have the
    same traffic, and for GI/G/k with how variable both were. What comes from outside grows as what
    comes to the `external` station does."""
    sums = {
        name: tuple(map(math.fsum, zip(*(one.seen[name] for one in some), strict=True)))
        for name in network.stations
    }
    stations = {}
    for name, (seconds, arrivals, served, service_s, of_arrivals, of_service) in sums.items():
        scvs = (of_arrivals / arrivals, of_service / served) if model == "gigk" else (1.0, 1.0)
        stations[name] = Station(arrivals / seconds, served / service_s, *scvs)
    share = stations[external].arrival_rate / network.stations[external].arrival_rate
    return replace(network, stations=stations, external_rate=share * network.external_rate)


def part_of(samples: Sequence[Samples]) -> Part:
    """Of some intervals together."""
    some = [one.sojourn for one in samples if one.sojourn is not None]
    return (
        sum(s.count for s in some),
        math.fsum(s.mean_s * s.count for s in some),
        math.fsum(square_mean(s) * s.count for s in some),
    )


def series(
    allocation: Mapping[str, int], parts: Sequence[Part], seen: Mapping[str, Seen] | None = None
) -> Series:
    """Parts in which enough was done, also if one is left out."""
    trees = [part[0] for part in parts]
    if sum(trees) - max(trees) < _LEAST_TREES:
        raise TopologyFailed(
            f"{dict(allocation)}: fewer than {_LEAST_TREES} tuples were done in all parts of the "
            f"run but one ({sum(trees)} in all); let it be longer"
        )
    return Series(dict(allocation), tuple(parts), seen or {})


def _sum(parts: Sequence[Part]) -> Part:
    return (
        sum(part[0] for part in parts),
        math.fsum(part[1] for part in parts),
        math.fsum(part[2] for part in parts),
    )
