"""The percentile of a sojourn from its mean and variance: that of the gamma distribution which has
them. Fed by networks; the programs rely on it never falling where mean or variance rise.

The exponential and the sum of several like it are gamma distributions. One of more variance than an
exponential would have most of its weight near zero, and percentiles that fall as variance rises;
there it is the mean and as many standard deviations as the exponential's percentile lies above its
mean, which is the same where the two meet."""

import math
from functools import lru_cache
from statistics import NormalDist

from sojourn.queueing.station import check_percentile

_REGULAR = 1000.0  # from this shape on, an expansion around the normal distribution is exact enough
_ROUNDS = 60


def quantile(mean: float, variance: float, p: float) -> float:
    """The p-th percentile of a time with this mean and variance. Never less than the mean, and it
    rises with both."""
    check_percentile(p)
    if p <= 50 or variance <= 0 or math.isinf(mean):
        return mean
    deviation, exponential = math.sqrt(variance), -math.log1p(-p / 100)
    scv = variance / (mean * mean)
    gamma = mean * unit_gamma(max(1.0, 1 / min(scv, _turning(p))), p)
    if scv <= 1:
        return max(mean, gamma, exponential * deviation)
    return max(gamma, mean + (exponential - 1) * deviation)


@lru_cache(maxsize=4096)
def unit_gamma(shape: float, p: float) -> float:
    """The p-th percentile of the gamma distribution with mean one and this shape, one or more."""
    z = _normal(p)
    if shape > _REGULAR:
        root = math.sqrt(shape)
        return (
            1
            + z / root
            + (z**2 - 1) / (3 * shape)
            + (z**3 - 7 * z) / (36 * shape * root)
            - (3 * z**4 + 7 * z**2 - 16) / (810 * shape**2)
        )
    # Newton's steps from the approximation of Wilson and Hilferty, on the logarithm of what exceeds
    x = shape * max(0.05, 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3
    for _ in range(_ROUNDS):
        above, density = _exceeding(shape, x)
        step = above * math.log(above / (1 - p / 100)) / density
        x = max(x / 2, x + step)
        if abs(step) < 1e-12 * x:
            break
    return x / shape


def _exceeding(shape: float, x: float) -> tuple[float, float]:
    """How likely the gamma distribution of scale one exceeds x, and its density there."""
    density = math.exp((shape - 1) * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        n = shape
        while term > 1e-17 * total:
            n += 1
            term *= x / n
            total += term
        return 1 - density * x * total, density
    # The continued fraction, by Lentz's method
    b = x + 1 - shape
    c, d = 1e300, 1 / b
    fraction = d
    for i in range(1, 10_000):
        a = -i * (i - shape)
        b += 2
        d = 1 / (a * d + b)
        c = b + a / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return density * x * fraction, density


@lru_cache(maxsize=64)
def _normal(p: float) -> float:
    return NormalDist().inv_cdf(p / 100)


@lru_cache(maxsize=64)
def _turning(p: float) -> float:
    """The squared coefficient of variation, at most 1, above which this percentile of the gamma
    distribution falls: it is 1 from p = 75 on."""
    low, high = 1e-9, 1.0
    for _ in range(_ROUNDS):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if unit_gamma(1 / left, p) < unit_gamma(1 / right, p):
            low = left
        else:
            high = right
    return high
