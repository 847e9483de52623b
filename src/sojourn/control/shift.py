"""When something measured has changed: the newest intervals that belong together, no older ones.
Used by `measure`, so that a change counts at once where there is enough evidence for it, and chance
does not where there is not. Pure."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_SURE = 4.0  # standard errors; there are as many comparisons as intervals
_CHANGED = 1.1  # times; what changed by less may as well be averaged


class Reading(NamedTuple):
    """A mean over an interval, how much it weighs (seconds for a rate, tuples for a service time),
    and how variable a single gap or service time is: its variance over its squared mean."""

    mean: float
    weight: float
    scv: float


def since(readings: Sequence[Reading], rates: bool = False) -> int:
    """The first of the readings, of which the newest comes last, that belongs with the newest: 0,
    or where those from it on differ most from those before, if they differ for sure."""
    weights = sum(reading.weight for reading in readings)
    total = sum(reading.mean * reading.weight for reading in readings)
    if total <= 0:
        return 0
    scv = sum(reading.scv * reading.weight for reading in readings) / weights
    newer_weight = newer = 0.0
    best, most = 0, _SURE
    for place in range(len(readings) - 1, 0, -1):
        mean, weight, _ = readings[place]
        newer_weight += weight
        newer += mean * weight
        older_weight = weights - newer_weight
        if newer_weight <= 0 or older_weight <= 0:
            continue
        now, then = newer / newer_weight, max(0.0, total - newer) / older_weight
        if max(now, then) < _CHANGED * min(now, then):
            continue
        # The number that comes in a second has its mean as variance; a service time, its square.
        # A few that happen to be low would look sure of that; so they vary as all do.
        high = max(now, total / weights)
        spread = (high, then) if rates else (high * high, then * then)
        error = math.sqrt(scv * (spread[0] / newer_weight + spread[1] / older_weight))
        apart = abs(now - then) / error if error > 0 else math.inf
        if apart > most:
            best, most = place, apart
    return best


def since_each(
    means: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], scvs: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """The same for many series at once, one in each column. They are of service times."""
    total = (means * weights).sum(axis=0)
    whole = weights.sum(axis=0)
    scv = (scvs * weights).sum(axis=0) / np.where(whole > 0, whole, 1.0)
    newer_weight = np.cumsum(weights[::-1], axis=0)[::-1]
    newer = np.cumsum((means * weights)[::-1], axis=0)[::-1]
    older_weight = np.maximum(0.0, whole - newer_weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        now = newer / newer_weight
        then = np.maximum(0.0, total - newer) / older_weight
        high = np.maximum(now, total / np.where(whole > 0, whole, 1.0))
        error = np.sqrt(scv * (high * high / newer_weight + then * then / older_weight))
        apart = np.where(error > 0, np.abs(now - then) / error, np.inf)
        changed = np.maximum(now, then) >= _CHANGED * np.minimum(now, then)
    counts = (newer_weight > 0) & (older_weight > 0) & changed & (total > 0)
    counts[0] = False
    apart = np.where(counts, apart, 0.0)
    # Of equals the newest, as above.
    best = len(means) - 1 - np.argmax(apart[::-1], axis=0)
    return np.where(apart.max(axis=0) > _SURE, best, 0)
