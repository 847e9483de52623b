"""Which allocation: DRS's two programs, with the limits of operators and the learned bias, and what
to do where neither has an answer. Fed by a situation; feeds `decide`. Pure."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sojourn.control.measure import metric_of
from sojourn.control.situation import Situation
from sojourn.queueing.allocation import Plan, assign_processors, min_processors
from sojourn.queueing.keyed import useful
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
        seen_s = metric_of(s.smooth.sojourn, percentile)
        why = (
            f"{told(target_s)} is out of reach: tuples take {told(shortest_s)} without any waiting"
        )
        if seen_s is not None and seen_s < shortest_s:
            why = f"the model has {told(target_s)} out of reach, and {told(seen_s)} was measured"
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
    """Enough for every operator to keep up and to work off what waits, and no fewer than there are.
    If that is more than is allowed, those are placed where each has most to do."""
    enough = {n: max(k, s.current[n], s.draining[n]) for n, k in keeping_up(s).items()}
    return enough if s.most is None else filled(s, s.least, enough, s.most)


def filled(
    s: Situation, least: Mapping[str, int], enough: Mapping[str, int], most: int
) -> dict[str, int]:
    """From the least on towards enough, as far as is allowed; first where processors have most to
    do."""
    best = dict(least)
    load = {name: s.network.stations[name].offered_load for name in best}
    while sum(best.values()) < most and (short := [n for n in best if best[n] < enough[n]]):
        best[max(short, key=lambda n: load[n] / best[n])] += 1
    return best


def keeping_up(s: Situation) -> dict[str, int]:
    """The fewest processors with which each operator keeps up, or as many as help it."""
    found = {}
    for name, least in s.least.items():
        station = s.network.stations[name]
        most = min(s.limits.most(name), useful(station))
        found[name] = max(least, int(min(most, math.floor(station.offered_load) + 1)))
    return found


def operators_of(s: Situation, plan: Plan) -> dict[str, int]:
    """A plan's allocation without the processors of sinks."""
    return {name: plan.allocation[name] for name in s.wanted}


def busier(network: Network, factor: float) -> Network:
    """The same network with its load multiplied."""
    stations = {name: station.scaled(load=factor) for name, station in network.stations.items()}
    return replace(network, stations=stations, external_rate=factor * network.external_rate)


def _bounds(s: Situation, least: Mapping[str, int] | None) -> tuple[dict[str, int], dict[str, int]]:
    minimum = {n: max(k, least[n] if least else 1) for n, k in s.least.items()}
    return minimum | dict(s.limits.fixed), dict(s.limits.maximum) | dict(s.limits.fixed)
