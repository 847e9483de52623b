"""What was learned from measured against estimated sojourn, and what that makes of an estimate. Fed
by `remember`; read wherever something is expected. Pure."""

import math
import statistics
from dataclasses import dataclass

_RATHER_WAITING = 20.0  # intervals that the offset's prior is worth where all is waiting
_PAIRS = 50


@dataclass(frozen=True)
class Bias:
    """What measured sojourn makes of the estimated: bare + a + b·waiting, where the bare part is
    what tuples take without any waiting; by a regression that leans towards a = 0 and b = 1 while
    it has seen little (DRS §V-C, on figure 7, has a + b·estimate). Under load it is the waiting
    that the model errs about: a factor on all would expect less than the bare part where there is
    little waiting. But where less than the bare part is measured, branches run beside one another,
    which the model adds up, and there is a factor on all: `bare_share` is 0 then.

    Estimates waver with the rates they are made from, and a regression over single intervals would
    take that for a small slope. So it goes over means, one for each allocation, of the middle half
    of its intervals."""

    pairs: tuple[tuple[float, float, float, float], ...] = ()
    offset_s: float = 0.0
    slope: float = 1.0
    bare_share: float = 1.0

    def correct(self, estimate_s: float, bare_s: float) -> float:
        """What will be measured where the model expects this."""
        if not math.isfinite(estimate_s):
            return estimate_s
        bare_s *= self.bare_share
        return max(0.1 * estimate_s, bare_s + self.offset_s + self.slope * (estimate_s - bare_s))

    def estimate_for(self, measured_s: float, bare_s: float) -> float:
        """What the model must expect for this to be measured; may be out of reach."""
        bare_s *= self.bare_share
        return bare_s + (measured_s - bare_s - self.offset_s) / self.slope

    def learn(
        self, estimate_s: float, bare_s: float, measured_s: float, group: float = 0.0
    ) -> "Bias":
        """Take one more interval into account; `group` tells one allocation from another."""
        if not (math.isfinite(estimate_s) and estimate_s > 0 and measured_s > 0):
            return self
        pairs = (*self.pairs, (estimate_s, bare_s, measured_s, group))[-_PAIRS:]
        return Bias(pairs, *_regression(pairs))


def _regression(
    pairs: tuple[tuple[float, float, float, float], ...],
) -> tuple[float, float, float]:
    """Least squares of relative errors of the groups' means, each worth its intervals, with a prior
    worth one on each coefficient. What takes longer than expected may do so for any reason; what
    takes less waited less, as far as waiting was expected, so that the offset has a stronger prior
    then. Offset, slope and share of the bare part."""
    groups: dict[float, list[tuple[float, float, float]]] = {}
    for *values, group in pairs:
        groups.setdefault(group, []).append((values[0], values[1], values[2]))
    expected, bare, scale = (statistics.fmean(pair[i] for pair in pairs) for i in range(3))
    share = 1.0 if scale >= bare else 0.0
    # Unknowns: offset/scale and slope - 1. Rows: (scale/m, (e - bare)/m) · (x, y) = (m - e)/m.
    less = share and scale < expected
    xx = 1.0 + _RATHER_WAITING * (1 - bare / expected) if less else 1.0
    yy = 1.0
    xy = xr = yr = 0.0
    for members in groups.values():
        weight = len(members)
        e, bare, m = (_middle(list(values)) for values in zip(*members, strict=True))
        p, q, r = scale / m, (e - share * bare) / m, (m - e) / m
        xx += weight * p * p
        yy += weight * q * q
        xy += weight * p * q
        xr += weight * p * r
        yr += weight * q * r
    slope = 1 + (yr * xx - xr * xy) / (xx * yy - xy * xy)
    slope = min(10.0, max(0.1, slope))
    return (xr - xy * (slope - 1)) / xx * scale, slope, share


def _middle(values: list[float]) -> float:
    """The mean of the middle half."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    return statistics.fmean(ordered[cut : len(ordered) - cut])
