"""Model: from measures to an open queueing network, and how things stand by it. Fed by `measure`;
feeds `decide`. Pure."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sojourn.control.forecast import Outlook, foreseen
from sojourn.control.measure import Measure, NotReady, OperatorMeasure, recent, smoothed
from sojourn.control.situation import Blind, Limits, Memory, Situation
from sojourn.errors import InputError
from sojourn.queueing.keyed import KeyedStation
from sojourn.queueing.network import Network, traffic
from sojourn.queueing.station import Station
from sojourn.settings import ControlSettings

_KEPT = 120  # measures
_ALL = 0.95  # of the visits to a station that critical paths have: then they have all
_HOT = 16  # shards that may stand out
_SEEN = 30  # tuples of a shard from which its share is known
_DRAIN_S = 2.0  # in which what waits should be worked off
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
        outlook = _idled(memory, now_s, settings) if found.idle else memory.outlook
        return Blind(now_s, None, memory.past, limits, memory, settings, outlook, found)
    past = (*memory.past, found)[-_KEPT:]
    smooth = smoothed(past, settings)
    latest = replace(smooth, interval_s=found.interval_s, sojourn=recent(past, settings))
    network = network_of(smooth, settings)
    outlook = memory.outlook.with_interval(now_s, found.external_rate, found.interval_s, settings)
    if isinstance(network, NotReady):
        return Blind(now_s, found, past, limits, memory, settings, outlook, network)
    outlook, forecast = foreseen(outlook, past, smooth, settings, limits.capacity)
    excess = {n: _excess(latest.operators[n].queue, network.stations[n]) for n in memory.wanted}
    drain_s = max(_DRAIN_S, settings.interval_s)
    return Situation(
        now_s=now_s,
        measure=found,
        past=past,
        limits=limits,
        memory=memory,
        settings=settings,
        outlook=outlook,
        latest=latest,
        smooth=smooth,
        network=network,
        excess=excess,
        draining=_draining(network, _to_come(latest, excess), limits, drain_s),
        forecast=forecast,
    )


def _idled(memory: Memory, now_s: float, settings: ControlSettings) -> Outlook:
    """The outlook after an interval without any load."""
    if memory.before_s is None:
        return memory.outlook
    return memory.outlook.with_interval(now_s, 0.0, now_s - memory.before_s, settings)


def network_of(measure: Measure, settings: ControlSettings) -> Network | NotReady:
    """The topology as a network."""
    external = {name: measure.entering.get(name, 0.0) for name in measure.operators}
    if not measure.external_rate > 0:
        return NotReady("nothing arrives")
    try:
        rates = traffic(external, _gains(measure))
        stations = {}
        for name, operator in measure.operators.items():
            rate = rates[name]
            if operator.service_s is None and rate > 0:
                return NotReady(f"no service times for {name!r} yet")
            stations[name] = _station(rate, operator, settings.model)
        return Network(stations, measure.external_rate, _weights(measure, stations))
    except InputError as error:
        return NotReady(str(error))


def _station(rate: float, operator: OperatorMeasure, model: str) -> Station:
    """M/M/k, or GI/G/k where the measured variability is far from Poisson's. With a key, every
    processor has a queue of its own."""
    service_rate = 1 / (operator.service_s or _IDLE_SERVICE_S)
    plain = Station(rate, service_rate)
    if operator.shards is not None:
        plain = KeyedStation(rate, service_rate, hot=_hot(operator))
    arrival, service = operator.arrival_scv, operator.service_scv
    if model == "mmk" or arrival is None or service is None:
        return plain
    general = replace(
        plain, arrival_scv=min(arrival, _MOST_SCV), service_scv=min(service, _MOST_SCV)
    )
    low, high = _LIKE_POISSON
    return plain if model == "auto" and low <= general.variability <= high else general


def _weights(measure: Measure, stations: Mapping[str, Station]) -> dict[str, float]:
    """For how many visits to each station the end of a tree waits: as many as its critical path
    has, and more where the last of several tuples side by side waited for the others; by how long
    critical paths took there. Never more than there are."""
    critical = {} if measure.sojourn is None else measure.sojourn.critical
    found = {}
    for name, part in critical.items():
        station = stations.get(name)
        if station is None or not station.arrival_rate > 0:
            continue
        visits = station.arrival_rate / measure.external_rate
        each_s = station.mean_sojourn(max(1, measure.operators[name].processors))
        if part.visits < _ALL * visits and math.isfinite(each_s):
            found[name] = min(visits, max(part.visits, part.seconds / each_s))
    return found


def _hot(operator: OperatorMeasure) -> tuple[float, ...]:
    """The shares of the busiest shards, the largest first, as far as they are more than chance."""
    counts = sorted((operator.shards or {}).values(), reverse=True)
    total = max(operator.arrivals, sum(counts), 1)
    return tuple(count / total for count in counts if count >= _SEEN)[:_HOT]


def _excess(queue: int, station: Station) -> float:
    """Tuples that wait beyond the usual number, which is twice as many as are in service, plus
    ten."""
    return max(0.0, queue - 2 * station.offered_load - 10)


def _gains(measure: Measure) -> dict[tuple[str, str], float]:
    return {
        (sender, receiver): gain
        for sender, operator in measure.operators.items()
        for receiver, gain in operator.gains.items()
    }


def _to_come(measure: Measure, excess: Mapping[str, float]) -> dict[str, float]:
    """Tuples that each operator has to work off: what waits at it, at sources, and what follows
    from what waits before it, which comes as soon as it is worked off there (DRS §I)."""
    waiting = {name: excess.get(name, 0.0) for name in measure.operators}
    for name, rate in measure.entering.items():
        waiting[name] = waiting.get(name, 0.0) + rate * measure.backlog_s
    return {
        name: count for name, count in traffic(waiting, _gains(measure)).items() if name in excess
    }


def _draining(
    network: Network, to_come: Mapping[str, float], limits: Limits, seconds: float
) -> dict[str, int]:
    """Processors that work off what waits within so many seconds, as far as may be."""
    found = {}
    for name, waiting in to_come.items():
        station = network.stations[name]
        rate = station.arrival_rate + waiting / seconds
        count = math.floor(rate / station.service_rate) + 1
        found[name] = int(min(count, limits.most(name))) if waiting else 1
    return found
