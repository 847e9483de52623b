"""Which allocation: DRS's two programs, with the limits of operators and the learned bias, and what
to do where neither has an answer. Fed by a situation; feeds `decide`. Pure."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sojourn.control.situation import Situation
from sojourn.queueing.allocation import Plan, assign_processors, min_processors
from sojourn.queueing.keyed import KeyedStation
from sojourn.queueing.network import Network
from sojourn.queueing.walk import Walk
from sojourn.units import format_duration as told


def fewest(
    s: Situation,
    network: Network,
    target_s: float,
    least: Mapping[str, int] | None,
    exact: bool = False,
) -> tuple[Plan, str]:
    """The fewest processors for the target with headroom, or with `exact` without. If that is out
    of reach, the fewest for what can be reached, with a note that says so."""
    minimum, maximum = _bounds(s, least)
    bias, percentile = s.memory.bias, s.settings.percentile
    shares = ((1.0, ""),) if exact else ((1 - s.settings.headroom, ""), (1.0, "; without headroom"))
    bound = network.bound(percentile)
    for share, note in shares:
        inner = bias.estimate_for(share * target_s, bound)
        if inner > 0:
            plan = min_processors(network, inner, percentile, minimum, maximum)
            if plan.feasible:
                return plan, note
    shortest_s = bias.correct(bound, bound)
    why = f"{told(target_s)} is out of reach with as many processors as operators may have"
    if shortest_s >= target_s:
        why = (
            f"{told(target_s)} is out of reach: tuples take {told(shortest_s)} without any waiting"
        )
        plan = min_processors(network, 1.1 * bound, percentile, minimum, maximum)
        if plan.feasible:
            return plan, f"; {why}"
    return Plan(reason=Walk(network, minimum, maximum).obstacle or why), ""


def assigned(
    s: Situation, network: Network, processors: int, least: Mapping[str, int] | None = None
) -> Plan:
    """That many processors, and those of sinks, placed for the least sojourn."""
    minimum, maximum = _bounds(s, least)
    return assign_processors(network, processors + sum(s.limits.fixed.values()), minimum, maximum)


def within(s: Situation, most: int) -> tuple[dict[str, int], str]:
    """The best placement of the processors allowed. It works off what waits; if it cannot, it keeps
    up; if it cannot do that either, operators fall behind evenly."""
    for least in (s.draining, None):
        plan = assigned(s, s.network, most, least)
        if plan.feasible:
            return operators_of(s, plan), ""
    return evenly(s), "; that is too few to keep up"


def evenly(s: Situation) -> dict[str, int]:
    """All processors allowed, placed where each has most to do. Without a limit, enough for every
    operator to keep up, and no fewer than there are."""
    least = s.least
    load = {name: s.network.stations[name].offered_load for name in s.wanted}
    best = least if s.most is not None else {n: max(k, s.current[n]) for n, k in least.items()}
    while s.most is None or sum(best.values()) < s.most:
        open_to = [n for n in best if best[n] < min(s.limits.most(n), _useful(s.network, n))]
        if s.most is None:
            open_to = [n for n in open_to if max(load[n], s.draining[n] - 1) >= best[n]]
        if not open_to:
            break
        best[max(open_to, key=lambda n: load[n] / best[n])] += 1
    return best


def _useful(network: Network, name: str) -> float:
    """Processors that can help an operator, if it cannot keep up. One shard is never spread over
    several."""
    station = network.stations[name]
    useful = station.useful if isinstance(station, KeyedStation) else None
    return math.inf if useful is None else useful


def operators_of(s: Situation, plan: Plan) -> dict[str, int]:
    """A plan's allocation without the processors of sinks."""
    return {name: plan.allocation[name] for name in s.wanted}


def busier(network: Network, factor: float) -> Network:
    """The same network with its load multiplied."""
    stations = {
        name: replace(station, arrival_rate=factor * station.arrival_rate)
        for name, station in network.stations.items()
    }
    return replace(network, stations=stations, external_rate=factor * network.external_rate)


def _bounds(s: Situation, least: Mapping[str, int] | None) -> tuple[dict[str, int], dict[str, int]]:
    minimum = {n: max(k, least[n] if least else 1) for n, k in s.least.items()}
    return minimum | dict(s.limits.fixed), dict(s.limits.maximum) | dict(s.limits.fixed)
