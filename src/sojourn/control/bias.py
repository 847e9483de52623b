"""How measured sojourns differ from estimates, and how that corrects an estimate. Fed by
`remember`; read wherever a sojourn is expected. Pure."""

import math
import statistics
from dataclasses import dataclass

_RATHER_WAITING = 20.0  # weight of the offset's prior, in intervals, if all sojourn is waiting
_PAIRS = 50


@dataclass(frozen=True)
class Bias:
    """The correction from estimated to measured sojourn: bare + a + b·waiting, where the bare part
    is what tuples take without any waiting. A regression finds a and b; it leans towards a = 0 and
    b = 1 while it has seen little. (DRS §V-C, on figure 7, has a + b·estimate.)

    Under load the model errs about the waiting. A factor on the whole estimate would expect less
    than the bare part where there is little waiting. But where less than the bare part is measured,
    branches run in parallel, and the model adds them up. The factor then applies to the whole
    estimate: `bare_share` is 0.

    Estimates vary with the rates they are made from, and a regression over single intervals would
    mistake that for a small slope. So it uses means, one for each allocation, of the middle half of
    its intervals."""

    pairs: tuple[tuple[float, float, float, float], ...] = ()
    offset_s: float = 0.0
    slope: float = 1.0
    bare_share: float = 1.0

    def correct(self, estimate_s: float, bare_s: float) -> float:
        """The sojourn that will be measured if the model expects `estimate_s`."""
        if not math.isfinite(estimate_s):
            return estimate_s
        bare_s *= self.bare_share
        return max(0.1 * estimate_s, bare_s + self.offset_s + self.slope * (estimate_s - bare_s))

    def estimate_for(self, measured_s: float, bare_s: float) -> float:
        """The estimate of the model for which `measured_s` would be measured; it may be out of
        reach."""
        bare_s *= self.bare_share
        return bare_s + (measured_s - bare_s - self.offset_s) / self.slope

    def learn(
        self, estimate_s: float, bare_s: float, measured_s: float, group: float = 0.0
    ) -> "Bias":
        """Take one more interval into account. `group` tells allocations apart."""
        if not (math.isfinite(estimate_s) and estimate_s > 0 and measured_s > 0):
            return self
        pairs = (*self.pairs, (estimate_s, bare_s, measured_s, group))[-_PAIRS:]
        return Bias(pairs, *_regression(pairs))


def _regression(
    pairs: tuple[tuple[float, float, float, float], ...],
) -> tuple[float, float, float]:
    """Offset, slope and share of the bare part, by least squares of the relative errors of the
    groups' means. Each group weighs as much as it has intervals; the prior on each coefficient
    weighs one. Tuples that take longer than expected may do so for any reason. Tuples that take
    less time have waited less, as far as waiting was expected; the offset then has a stronger
    prior."""
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
