"""Model: from measures to an open queueing network, and how things stand by it. Fed by `measure`;
feeds `decide`. Pure."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sojourn.control.measure import (
    Measure,
    NotReady,
    OperatorMeasure,
    is_rising,
    newest_of,
    smoothed,
)
from sojourn.control.situation import Blind, Limits, Memory, Situation
from sojourn.errors import InputError
from sojourn.queueing.network import Network, traffic
from sojourn.queueing.station import Station
from sojourn.settings import ControlSettings

_KEPT = 30  # measures
_IDLE_SERVICE_S = 1e-3  # service time of an operator that has had nothing to do yet
_LIKE_POISSON = (0.75, 1.33)
_MOST_SCV = 100.0  # higher measurements are not believed


def modelled(
    found: Measure | NotReady,
    now_s: float,
    limits: Limits,
    memory: Memory,
    settings: ControlSettings,
) -> Situation | Blind:
    """The situation, as far as the interval shows it."""
    if isinstance(found, NotReady):
        return Blind(now_s, None, memory.past, limits, memory, settings, found)
    past = (*memory.past, found)[-_KEPT:]
    smooth = smoothed(past, settings)
    latest = newest_of(found, smooth)
    network, newest = network_of(smooth, settings), network_of(latest, settings)
    if isinstance(network, NotReady):
        return Blind(now_s, found, past, limits, memory, settings, network)
    if isinstance(newest, NotReady):
        return Blind(now_s, found, past, limits, memory, settings, newest)
    excess = {n: _excess(latest.operators[n].queue, newest.stations[n]) for n in memory.wanted}
    return Situation(
        now_s=now_s,
        measure=found,
        past=past,
        limits=limits,
        memory=memory,
        settings=settings,
        latest=latest,
        smooth=smooth,
        network=network,
        newest=newest,
        excess=excess,
        draining=_draining(newest, excess, limits, settings.interval_s),
        rising=is_rising(past, settings.window),
    )


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
            stations[name] = _station(rate, operator, settings.model)
        return Network(stations, measure.external_rate)
    except InputError as error:
        return NotReady(str(error))


def _station(rate: float, operator: OperatorMeasure, model: str) -> Station:
    """M/M/k, or GI/G/k where the measured variability is far from Poisson's."""
    plain = Station(rate, 1 / (operator.service_s or _IDLE_SERVICE_S))
    arrival, service = operator.arrival_scv, operator.service_scv
    if model == "mmk" or arrival is None or service is None:
        return plain
    general = replace(
        plain, arrival_scv=min(arrival, _MOST_SCV), service_scv=min(service, _MOST_SCV)
    )
    low, high = _LIKE_POISSON
    return plain if model == "auto" and low <= general.variability <= high else general


def _excess(queue: int, station: Station) -> float:
    """Tuples that wait beyond the usual number, which is twice as many as are in service, plus
    ten."""
    return max(0.0, queue - 2 * station.offered_load - 10)


def _draining(
    newest: Network, excess: Mapping[str, float], limits: Limits, interval_s: float
) -> dict[str, int]:
    """Processors that work off what waits within an interval, as far as limits allow."""
    found = {}
    for name, waiting in excess.items():
        station = newest.stations[name]
        rate = station.arrival_rate + waiting / interval_s
        count = math.floor(rate / station.service_rate) + 1
        found[name] = int(min(count, limits.most(name))) if waiting else 1
    return found
