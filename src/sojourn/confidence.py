"""Whether measured means differ, and how sure that is."""

import math
import statistics
from collections.abc import Sequence


def student(freedom: int) -> float:
    """The 97.5 % point of Student's t, within 1 %: from tables for few degrees of freedom, else by
    Cornish and Fisher's expansion."""
    if freedom < 1:
        return math.nan
    table = (12.706, 4.303, 3.182, 2.776, 2.571)
    if freedom <= len(table):
        return table[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of a mean."""
    if len(values) < 2:
        return math.inf
    return student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def differ(before: Sequence[float], after: Sequence[float]) -> int:
    """1 if the mean has risen, -1 if it has fallen, 0 if that cannot be told, by a two-sample
    t-test at 5 % (Welch's, as the variances need not be equal)."""
    if min(len(before), len(after)) < 2:
        return 0
    squares = [statistics.variance(of) / len(of) for of in (before, after)]
    gain = statistics.fmean(after) - statistics.fmean(before)
    if not sum(squares):
        return (gain > 0) - (gain < 0)
    parts = (s * s / (len(of) - 1) for s, of in zip(squares, (before, after), strict=True))
    freedom = math.floor(sum(squares) ** 2 / sum(parts) + 1e-9)
    sure = abs(gain) > student(freedom) * math.sqrt(sum(squares))
    return ((gain > 0) - (gain < 0)) if sure else 0
