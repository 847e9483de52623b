"""Model: from measures to an open queueing network, and how things stand by it. Fed by `measure`;
feeds `decide`. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sojourn.control.forecast import Outlook, foreseen
from sojourn.control.measure import Measure, NotReady, OperatorMeasure
from sojourn.control.situation import Blind, Limits, Memory, Situation
from sojourn.control.smoothing import recent, smoothed
from sojourn.errors import InputError
from sojourn.ports import SEEN, Pressure
from sojourn.queueing.branching import OUTSIDE, along, spreads, visit_variances
from sojourn.queueing.keyed import KeyedStation, useful
from sojourn.queueing.network import Network, Spread, traffic
from sojourn.queueing.split import SplitStation
from sojourn.queueing.station import Station
from sojourn.settings import ControlSettings

_KEPT = 120  # measures, or those of a period of the policy `provision`, if they are more
_ALL = 0.95  # of the visits to a station that critical paths have: then they have all
_HOT = 16  # shards that may stand out
_IDLE_SERVICE_S = 1e-3  # service time of an operator that has had nothing to do yet
_LIKE_POISSON = (0.75, 1.33)
_MOST_SCV = 100.0  # higher measurements are not believed


def _kept(settings: ControlSettings) -> int:
    """Measures that are remembered."""
    if settings.policy != "provision":
        return _KEPT
    return max(_KEPT, math.ceil(settings.provision_s / settings.interval_s) + 2)


def modelled(
    found: Measure | NotReady,
    now_s: float,
    limits: Limits,
    memory: Memory,
    settings: ControlSettings,
    pressures: tuple[Pressure, ...] = (),
    commits: int = 0,
) -> Situation | Blind:
    """The situation, as far as the interval shows it."""
    if isinstance(found, NotReady):
        outlook = _idled(memory, now_s, settings) if found.idle else memory.outlook
        return Blind(now_s, None, memory.past, limits, memory, settings, outlook, pressures, found)
    past = (*memory.past, found)[-_kept(settings) :]
    told_s = [now_s - p.over_s for p in pressures if p.rate is not None]
    smooth = smoothed(past, settings, max(told_s, default=memory.risen_s))
    latest = replace(smooth, interval_s=found.interval_s, sojourn=recent(past, settings))
    network = network_of(smooth, settings)
    outlook = memory.outlook.with_interval(now_s, found.external_rate, found.interval_s, settings)
    if isinstance(network, NotReady):
        return Blind(now_s, found, past, limits, memory, settings, outlook, pressures, network)
    outlook, forecast = foreseen(outlook, past, smooth, settings, limits.capacity)
    excess = {n: _excess(latest.operators[n].queue, network.stations[n]) for n in memory.wanted}
    to_come = _to_come(latest, excess)
    drain_s = settings.drain_s
    return Situation(
        now_s=now_s,
        measure=found,
        past=past,
        limits=limits,
        memory=memory,
        settings=settings,
        outlook=outlook,
        pressures=pressures,
        latest=latest,
        smooth=smooth,
        network=network,
        excess=excess,
        to_come=to_come,
        draining=_draining(network, to_come, limits, drain_s),
        commits=commits,
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
        network = _weighed(Network(stations, measure.external_rate), measure)
        return network if settings.percentile is None else spread_out(network, measure)
    except InputError as error:
        return NotReady(str(error))


def _station(rate: float, operator: OperatorMeasure, model: str) -> Station:
    """M/M/k, or GI/G/k where the measured variability is far from Poisson's. With a key, every
    processor has a queue of its own. With several executors, each is a station of its own."""
    plain = Station(rate, 1 / (operator.service_s or _IDLE_SERVICE_S))
    arrival, service = operator.arrival_scv, operator.service_scv
    if model != "mmk" and arrival is not None and service is not None:
        scvs = min(arrival, _MOST_SCV), min(service, _MOST_SCV)
        low, high = _LIKE_POISSON
        if model != "auto" or not low <= sum(scvs) / 2 <= high:
            plain = Station(plain.arrival_rate, plain.service_rate, *scvs)
    counts = operator.executors or {}
    total = sum(counts.values())
    if not total:
        return _executor(plain, operator, 1.0, 0, 1)
    parts = [_executor(plain, operator, n / total, e, len(counts)) for e, n in counts.items()]
    return SplitStation(
        sum(part.arrival_rate for part in parts),
        plain.service_rate,
        plain.arrival_scv,
        plain.service_scv,
        tuple(parts),
    )


def _executor(
    station: Station, operator: OperatorMeasure, share: float, executor: int, executors: int
) -> Station:
    """One of an operator's executors. Without a key they take tuples in turns, so each gets a more
    regular stream. What a key takes from a stream is the more like a Poisson stream the less it
    is."""
    rate, scv = share * station.arrival_rate, station.arrival_scv
    if operator.shards is None:
        return Station(rate, station.service_rate, scv / executors, station.service_scv)
    if share < 1:
        scv = 1 + share * (scv - 1)
    if executors == 1:
        hot = _hot(operator.shards.values(), operator.arrivals)
    else:
        hot = (operator.hottest[executor],) if executor in operator.hottest else ()
    return KeyedStation(rate, station.service_rate, scv, station.service_scv, hot)


def _weighed(network: Network, measure: Measure) -> Network:
    """The same with how many visits to each station the end of a tree waits for: as many as its
    critical path has, and more where the last of several tuples side by side waited for the others;
    by how long critical paths took there. Never more than there are. Tuples that come at once make
    the stream irregular, and the model has them all wait for that; there it is only the time of
    service that counts more often."""
    critical = {} if measure.sojourn is None else measure.sojourn.critical
    weights, served = {}, {}
    for name, part in critical.items():
        station = network.stations.get(name)
        if station is None or not station.arrival_rate > 0:
            continue
        visits = network.visits(name)
        wait_s = station.mean_wait(max(1, measure.operators[name].processors))
        each_s = wait_s + 1 / station.service_rate
        if part.visits >= _ALL * visits or not math.isfinite(each_s):
            continue
        if station.arrival_scv > 1:
            weights[name] = part.visits
            times = (part.seconds - part.visits * wait_s) * station.service_rate
            served[name] = min(visits, max(part.visits, times))
        else:
            weights[name] = min(visits, max(part.visits, part.seconds / each_s))
    return replace(network, weights=weights, served=served)


def spread_out(network: Network, measure: Measure) -> Network:
    """The same with how much visits vary, as percentiles need it: by the measured second moments of
    how many tuples follow from one, or by critical paths where the end of a tree waits for these
    only."""
    rates = {n: s.arrival_rate for n, s in network.stations.items()}
    entering = {to: rate / network.external_rate for to, rate in measure.entering.items()}
    gains = {n: dict(o.gains) for n, o in measure.operators.items()} | {OUTSIDE: entering}
    times = {}
    for name, station in network.stations.items():
        each_s = station.mean_sojourn(max(1, measure.operators[name].processors))
        times[name] = each_s if math.isfinite(each_s) else 1 / station.service_rate
    if not network.weights or measure.sojourn is None:
        together = {n: o.together for n, o in measure.operators.items() if o.together}
        sources = {OUTSIDE: network.external_rate}
        return replace(network, spreads=spreads(network, sources, gains, together, times))
    # Where a critical path goes next: to one of the receivers, by how often it passes each.
    critical = measure.sojourn.critical
    passes = {
        name: critical[name].visits if name in network.weights else network.visits(name)
        for name in rates
    }
    whole = {n: rate / network.external_rate for n, rate in rates.items()} | {OUTSIDE: 1.0}
    path: dict[str, dict[str, float]] = {}
    for sender, onward in gains.items():
        passed = passes.get(sender, 1.0)
        chances = {
            to: passes[to] * whole[sender] * gain / (whole[to] * passed)
            for to, gain in onward.items()
            if gain > 0 and passed > 0
        }
        most = max(1.0, sum(chances.values()))
        path[sender] = {to: chance / most for to, chance in chances.items()}
    stretched = {
        name: network.counted(name, time) / passes[name] if passes[name] else time
        for name, time in times.items()
    }
    found = visit_variances(path, {n: along(onward) for n, onward in path.items()}, stretched)
    return replace(
        network,
        spreads={
            name: Spread(
                _steps(network, measure, name), found[name] * (stretched[name] / times[name]) ** 2
            )
            for name in rates
        },
    )


def _steps(network: Network, measure: Measure, name: str) -> float:
    """How often the variance of critical paths counts that of the time at a station. That of the
    last of several tuples side by side is measured, as it depends on how they get into each other's
    way."""
    part = measure.sojourn.critical.get(name) if measure.sojourn is not None else None
    if name not in network.weights or part is None or not (part.squares and part.visits):
        return network.visits(name)
    station = network.stations[name]
    _, waiting = station.wait_moments(max(1, measure.operators[name].processors))
    each = waiting + station.service_scv / station.service_rate**2
    seen = part.squares - part.seconds**2 / part.visits
    return seen / each if 0 < each < math.inf else network.visits(name)


def _hot(shards: Iterable[int], arrivals: float) -> tuple[float, ...]:
    """The shares of the busiest shards, the largest first, as far as they are more than chance."""
    counts = sorted(shards, reverse=True)
    total = max(arrivals, sum(counts), 1)
    return tuple(count / total for count in counts if count >= SEEN)[:_HOT]


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
    for name, count in measure.late.items():
        waiting[name] = waiting.get(name, 0.0) + count
    if not any(waiting.values()):
        return dict.fromkeys(excess, 0.0)
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
        most = min(limits.most(name), useful(station))
        found[name] = int(min(count, most)) if waiting else 1
    return found
