"""Program 8 for a percentile: the fewest processors for which `Network.percentile` meets a target.
Fed by allocation.py, which checks that a solution can exist; walks the optimal path.

The percentile rises with E[T] and with Var[T]. A walk with some pair of weights arrives at a corner
of the convex hull of the (mean, variance) points of all allocations of K processors. Where the
percentile along an edge of the hull is never below that of both its ends, the best allocation is at
a corner, and the fewest processors are found exactly, although mean and variance pull different
ways. High percentiles can dip along an edge. There, an allocation above the edge can meet the
target while no corner does, and one processor more than needed may be given.
"""

from dataclasses import dataclass

from sojourn.queueing.network import Network
from sojourn.queueing.quantile import quantile
from sojourn.queueing.table import Path, Table, Weights
from sojourn.queueing.walk import Limits

_ROUNDING = 1e-9  # of what a table says
_PARTS = 16  # in which a line is looked at

Point = tuple[float, float]
"""A mean and a variance."""


def fewest_for_percentile(
    network: Network, target: float, p: float, start: Limits, maximum: Limits
) -> dict[str, int] | None:
    """The allocation from `start` up to `maximum` with the fewest processors, or none.

    Walks again and again, each time with the weights that the percentile has where the last walk
    ended, until that saves no more. Then searches all corners for one processor less, until none
    meets the target.
    """
    search = _Search(network, target, p, Table(network, start, maximum))
    best = search.first((1.0, 0.0))
    while best is not None and best.steps > 0:
        better = search.first(search.slopes(best.moments))
        if better is None or better.steps >= best.steps:
            better = search.corner(best.steps - 1)
            if better is None:
                break
            better = search.first(better.weights) or better
        best = better
    return None if best is None else best.allocation


@dataclass(frozen=True)
class _Corner:
    """Where a walk is after so many steps."""

    weights: Weights
    steps: int
    moments: Point
    allocation: dict[str, int]
    met: bool


class _Search:
    """Walks for one target."""

    def __init__(self, network: Network, target: float, p: float, table: Table) -> None:
        self.network, self.target, self.p, self.table = network, target, p, table

    def first(self, weights: Weights) -> _Corner | None:
        """The first point of a walk that meets the target; the last digits of a table may not
        decide."""
        path, steps = self.table.walk(weights, lambda path: path.first(self._within))
        if steps is None or not self._meets(path, steps):
            path, _ = self.table.walk(weights, lambda _path: None)
            steps = self._lowest(path, steps or 0, len(path.stations))
        elif steps and self._meets(path, steps - 1):
            steps = self._lowest(path, 0, steps - 1)
        return None if steps is None else self._at(weights, path, steps)

    def slopes(self, point: Point) -> Weights:
        """How fast the percentile rises with mean and variance."""
        mean, variance = point
        little = 1e-4
        here = quantile(mean, variance, self.p)
        by_mean = (quantile(mean * (1 + little), variance, self.p) - here) / (mean * little)
        if not variance:
            return 1.0, 0.0
        by_variance = (quantile(mean, variance * (1 + little), self.p) - here) / (variance * little)
        return (by_mean, by_variance) if by_mean > 0 or by_variance > 0 else (1.0, 0.0)

    def corner(self, steps: int) -> _Corner | None:
        """One that meets the target after so many steps, if there is any.

        Between two corners the hull lies above the lines on which the two walks are optimal. If all
        of these two lines up to their crossing misses the target, so does everything between the
        corners.
        """
        left, right = self._walked((1.0, 0.0), steps), self._walked((0.0, 1.0), steps)
        for end in (left, right):
            if end.met:
                return end
        edges = [(left, right)]
        while edges:
            left, right = edges.pop()
            (m1, v1), (m2, v2) = left.moments, right.moments
            if m1 >= m2 or v1 <= v2:
                continue
            crossing = _crossing(left, right)
            if not (self._passes(left.moments, crossing) or self._passes(crossing, right.moments)):
                continue
            new = self._walked((v1 - v2, m2 - m1), steps)
            if new.met:
                return new
            if _level(new.weights, new.moments) < _level(new.weights, left.moments) * (1 - 1e-12):
                edges += [(left, new), (new, right)]
        return None

    def _walked(self, weights: Weights, steps: int) -> _Corner:
        path, _ = self.table.walk(weights, lambda p: steps if steps <= len(p.stations) else None)
        return self._at(weights, path, min(steps, len(path.stations)))

    def _at(self, weights: Weights, path: Path, steps: int) -> _Corner:
        mean, variance = path.moments[steps].tolist()
        allocation = self.table.allocation(path, steps)
        return _Corner(weights, steps, (mean, variance), allocation, self._meets(path, steps))

    def _lowest(self, path: Path, low: int, high: int) -> int | None:
        if not self._meets(path, high):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._meets(path, middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _passes(self, one: Point, two: Point) -> bool:
        """Whether some point of a line is within the target, as far as can be seen."""
        parts = (i / _PARTS for i in range(_PARTS + 1))
        return any(
            self._within(*(a + part * (b - a) for a, b in zip(one, two, strict=True)))
            for part in parts
        )

    def _within(self, mean: float, variance: float) -> bool:
        return quantile(mean, variance, self.p) <= self.target

    def _meets(self, path: Path, steps: int) -> bool:
        """Whether a walk is within the target after so many steps. Where the digits of the table
        cannot tell, the network does."""
        mean, variance = path.moments[steps].tolist()
        found = quantile(mean, variance, self.p)
        if abs(found - self.target) > _ROUNDING * self.target:
            return found < self.target
        return self.network.percentile(self.table.allocation(path, steps), self.p) <= self.target


def _level(weights: Weights, point: Point) -> float:
    return weights[0] * point[0] + weights[1] * point[1]


def _crossing(one: _Corner, two: _Corner) -> Point:
    """Where the line through each point, normal to its own weights, meets the other's."""
    (a1, b1), (a2, b2) = one.weights, two.weights
    level1, level2 = _level(one.weights, one.moments), _level(two.weights, two.moments)
    area = a1 * b2 - a2 * b1
    if area <= 0:
        return min(one.moments[0], two.moments[0]), min(one.moments[1], two.moments[1])
    mean, variance = (level1 * b2 - level2 * b1) / area, (a1 * level2 - a2 * level1) / area
    return max(mean, 0.0), max(variance, 0.0)
