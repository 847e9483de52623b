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


def is_above(gain: float, squares: Sequence[float], counts: Sequence[int]) -> bool:
    """Whether one mean is above another with 95 % confidence, by Welch's test, as the variances
    need not be equal: from the difference, and the square of the standard error and the number of
    values of each."""
    if min(counts) < 2:
        return False
    if not sum(squares):
        return gain > 0
    parts = (square**2 / (count - 1) for square, count in zip(squares, counts, strict=True))
    freedom = math.floor(sum(squares) ** 2 / sum(parts) + 1e-9)
    return gain > student(freedom) * math.sqrt(sum(squares))


def differ(before: Sequence[float], after: Sequence[float]) -> int:
    """1 if the mean has risen, -1 if it has fallen, 0 if that cannot be told."""
    counts = len(before), len(after)
    if min(counts) < 2:
        return 0
    squares = [statistics.variance(of) / len(of) for of in (before, after)]
    gain = statistics.fmean(after) - statistics.fmean(before)
    return is_above(gain, squares, counts) - is_above(-gain, squares, counts)
