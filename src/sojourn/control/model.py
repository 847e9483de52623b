"""Model: from measures to an open queueing network, and what it expects of an allocation, set right
by what was learned from measured against estimated. Fed by `measure`; feeds `decide`. Pure."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from sojourn.control.measure import Measure, NotReady
from sojourn.errors import InputError
from sojourn.ports import Sojourn
from sojourn.queueing.network import Network, traffic
from sojourn.queueing.station import Station
from sojourn.settings import ControlSettings

_IDLE_SERVICE_S = 1e-3  # of an operator that has had nothing to do yet
_RATHER_WAITING = 20.0  # intervals that the offset's prior is worth where all is waiting
_PAIRS = 50
_LIKE_POISSON = (0.75, 1.33)


def network_of(measure: Measure, settings: ControlSettings) -> Network | NotReady:
    """The topology as a network."""
    external = {name: measure.entering.get(name, 0.0) for name in measure.operators}
    gains = {
        (sender, receiver): gain
        for sender, operator in measure.operators.items()
        for receiver, gain in operator.gains.items()
    }
    if not measure.external_rate > 0:
        return NotReady("nothing arrives")
    try:
        rates = traffic(external, gains)
        stations = {}
        for name, operator in measure.operators.items():
            rate = rates[name]
            if operator.service_s is None and rate > 0:
                return NotReady(f"no service times for {name!r} yet")
            stations[name] = _station(
                rate,
                operator.service_s or _IDLE_SERVICE_S,
                operator.arrival_scv,
                operator.service_scv,
                settings.model,
            )
        return Network(stations, measure.external_rate)
    except InputError as error:
        return NotReady(str(error))


def excess_of(queue: int, station: Station) -> float:
    """Tuples that wait beyond what is usual: as many as are in service, and again."""
    return max(0.0, queue - 2 * station.offered_load - 10)


def _station(
    rate: float, service_s: float, arrival_scv: float | None, service_scv: float | None, model: str
) -> Station:
    arrival, service = arrival_scv, service_scv
    if model == "mmk" or arrival is None or service is None:
        return Station(rate, 1 / service_s)
    low, high = _LIKE_POISSON
    if model == "auto" and low <= (arrival + service) / 2 <= high:
        return Station(rate, 1 / service_s)
    return Station(rate, 1 / service_s, min(arrival, 100.0), min(service, 100.0))


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


def metric_of(sojourn: Sojourn | None, percentile: float | None) -> float | None:
    """The measured figure that a target is for."""
    if sojourn is None:
        return None
    return sojourn.mean_s if percentile is None else sojourn.percentile(percentile)


def estimate_of(network: Network, allocation: Mapping[str, int], percentile: float | None) -> float:
    """The same figure as the model expects it, uncorrected; infinite if a station is unstable."""
    if percentile is None:
        return network.mean_sojourn(allocation)
    return network.percentile(allocation, percentile)


def bare_of(network: Network, percentile: float | None) -> float:
    """The same figure without any waiting."""
    return network.lower_bound() if percentile is None else network.percentile_bound(percentile)
