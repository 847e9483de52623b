"""Program 8 for a percentile: the fewest processors for which `Network.percentile` meets a target.
Fed by allocation.py, which checks that a solution can exist; walks the optimal path.

The percentile is concave and increasing in (E[T], Var[T]). Such a function takes its least value
over all allocations of K processors at a corner of the convex hull of their (mean, variance)
points, and a corner is where a walk with some pair of weights arrives. So the fewest processors
are found exactly, although mean and variance pull different ways.
"""

import math
from itertools import islice

from sojourn.queueing.network import Network, spread
from sojourn.queueing.walk import Limits, Walk, first_meeting


def fewest_for_percentile(
    network: Network, target: float, p: float, start: Limits, maximum: Limits
) -> dict[str, int] | None:
    """The allocation from `start` up to `maximum` with the fewest processors, or none.

    Walks again and again, each time with the weights that the percentile has where the last walk
    ended, until that saves no more. Then searches all corners for one processor less, until none
    meets the target.
    """

    def meets(allocation: Limits) -> bool:
        return network.percentile(allocation, p) <= target

    best = first_meeting(network, start, maximum, meets)
    while best is not None and sum(best.values()) > sum(start.values()):
        slope = spread(0, 1, p) / (2 * math.sqrt(network.moments(best)[1]))
        fewer = first_meeting(network, start, maximum, meets, (1.0, slope))
        if fewer is None or sum(fewer.values()) >= sum(best.values()):
            one_less = sum(best.values()) - 1
            weights = _corner_below(network, target, p, start, maximum, one_less)
            if weights is None:
                break
            fewer = first_meeting(network, start, maximum, meets, weights)
        best = fewer
    return best


def _corner_below(
    network: Network, target: float, p: float, start: Limits, maximum: Limits, processors: int
) -> tuple[float, float] | None:
    """The weights of a walk that meets the target with that many processors, if there are any.

    Between two corners the hull lies above the lines on which the two walks are optimal, hence
    above their crossing. If even the crossing misses the target, so does everything between them.
    """

    def corner(mean_weight: float, variance_weight: float) -> tuple[float, float, float, float]:
        walk = Walk(network, start, maximum)
        for _ in islice(walk.additions(mean_weight, variance_weight), processors - walk.total):
            pass
        return *network.moments(walk.allocation), mean_weight, variance_weight

    left, right = corner(1.0, 0.0), corner(0.0, 1.0)
    edges = [(left, right)]
    for mean, variance, *weights in (left, right):
        if spread(mean, variance, p) <= target:
            return weights[0], weights[1]
    while edges:
        left, right = edges.pop()
        if left[0] >= right[0] or left[1] <= right[1]:
            continue
        if spread(*_crossing(left, right), p) > target:
            continue
        new = corner(left[1] - right[1], right[0] - left[0])
        if spread(new[0], new[1], p) <= target:
            return new[2], new[3]
        on_chord = new[2] * left[0] + new[3] * left[1]
        if new[2] * new[0] + new[3] * new[1] < on_chord * (1 - 1e-12):
            edges += [(left, new), (new, right)]
    return None


def _crossing(
    one: tuple[float, float, float, float], two: tuple[float, float, float, float]
) -> tuple[float, float]:
    """Where the line through each point, normal to its own weights, meets the other's."""
    m1, v1, a1, b1 = one
    m2, v2, a2, b2 = two
    level1, level2 = a1 * m1 + b1 * v1, a2 * m2 + b2 * v2
    area = a1 * b2 - a2 * b1
    if area <= 0:
        return min(m1, m2), min(v1, v2)
    mean, variance = (level1 * b2 - level2 * b1) / area, (a1 * level2 - a2 * level1) / area
    return max(mean, 0.0), max(variance, 0.0)
