"""The percentile of a time from its moments."""

import math
from itertools import pairwise

import mpmath
import pytest

from sojourn.errors import InputError
from sojourn.queueing.quantile import quantile, unit_gamma

SCVS = [10 ** (i / 20) for i in range(-120, 41)]


@pytest.mark.parametrize("p", [51, 63, 75, 90, 95, 99, 99.9, 99.99])
def test_the_gamma_distribution_is_inverted(p: float) -> None:
    """At the found point, as much exceeds it as should, by a computation to thirty digits."""
    for shape in (1.0, 1.3, 2.0, 7.7, 30.0, 250.0, 999.0, 1001.0, 5e4):
        with mpmath.workdps(30):
            x = mpmath.mpf(unit_gamma(shape, p)) * shape
            above = mpmath.gammainc(shape, x, mpmath.inf, regularized=True)
            density = mpmath.exp((shape - 1) * mpmath.log(x) - x - mpmath.loggamma(shape))
            off = (above - (1 - mpmath.mpf(p) / 100)) / density / x
        assert abs(off) < 1e-7, (shape, p, float(off))


@pytest.mark.parametrize("p", [10, 50, 55, 64, 70, 75, 80, 90, 95, 99, 99.9, 99.99])
def test_percentiles_rise_with_mean_and_variance(p: float) -> None:
    by_variance = [quantile(1.0, scv, p) for scv in SCVS]
    assert all(a <= b * (1 + 1e-7) for a, b in pairwise(by_variance))
    by_mean = [quantile(1 / math.sqrt(scv), 1.0, p) for scv in SCVS]
    assert all(a * (1 + 1e-7) >= b for a, b in pairwise(by_mean))
    assert min(by_variance) >= 1.0


@pytest.mark.parametrize("p", [75, 90, 99, 99.9])
def test_an_exponential_time_has_its_exact_percentile(p: float) -> None:
    assert quantile(3.0, 9.0, p) == pytest.approx(-3 * math.log1p(-p / 100))


def test_what_takes_no_or_endless_time() -> None:
    assert quantile(2.0, 0.0, 99) == 2.0
    assert quantile(0.0, 0.0, 99) == 0.0
    assert quantile(math.inf, math.inf, 99) == math.inf
    with pytest.raises(InputError, match="percentile must lie between 0 and 100"):
        quantile(1.0, 1.0, 100)


@pytest.mark.parametrize(
    ("p", "least", "most"), [(64, 0.07, 0.08), (75, 0, 1e-9), (95, 0, 1e-9), (99.9, 0.06, 0.07)]
)
def test_what_keeps_it_from_falling_adds_as_much_as_the_docs_say(
    p: float, least: float, most: float
) -> None:
    found = max(quantile(1.0, scv, p) / unit_gamma(1 / scv, p) - 1 for scv in SCVS if scv <= 1)
    assert least <= found <= most
