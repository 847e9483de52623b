"""What the model says of another target, another load or another number of processors. Asked by the
page; answered by queueing functions, at once, and changes nothing."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sojourn.queueing.allocation import Plan, assign_processors, min_processors
from sojourn.queueing.network import Network

MOST_LOAD = 100.0  # times the present one


@dataclass(frozen=True)
class Model:
    """The network by the newest measures, with the limits of operators; `fixed` are sinks.
    `correct` makes of an estimate what will be measured, `estimate_for` the other way round; both
    also take what tuples take without waiting. `headroom` is the share of a target that a change
    leaves unused."""

    network: Network
    minimum: Mapping[str, int]
    maximum: Mapping[str, int]
    fixed: Mapping[str, int]
    present: Mapping[str, int]
    percentile: float | None = None
    target_s: float | None = None
    headroom: float = 0.0
    correct: Callable[[float, float], float] = lambda estimate_s, _bare_s: estimate_s
    estimate_for: Callable[[float, float], float] = lambda measured_s, _bare_s: measured_s


@dataclass(frozen=True)
class Answer:
    """Processors by operator, in all, and the sojourn expected with them; or why there is none.
    `present_s` is what the processors there are would show, None if they could not keep up."""

    target_s: float | None
    load: float
    processors: Mapping[str, int]
    total: int
    expected_s: float | None
    busy: Mapping[str, float]
    present: Mapping[str, int]
    present_s: float | None
    shortest_s: float
    reason: str = ""


def answered(
    model: Model, target_s: float | None = None, load: float = 1.0, processors: int | None = None
) -> Answer:
    """The fewest processors for that target at so many times the present load; or, with
    `processors`, the best places for that many."""
    network, percentile = model.network, model.percentile
    if load != 1.0:
        network = replace(
            network,
            stations={name: one.scaled(load=load) for name, one in network.stations.items()},
            external_rate=load * network.external_rate,
        )
    bare_s = network.bound(percentile)
    minimum = {**model.minimum, **model.fixed}
    maximum = {**model.maximum, **model.fixed}
    target_s = model.target_s if target_s is None else target_s
    if processors is not None:
        whole = processors + sum(model.fixed.values())
        plan = assign_processors(network, whole, minimum, maximum)
    elif target_s is None:
        plan = Plan(reason="there is no target")
    else:
        inner_s = model.estimate_for((1 - model.headroom) * target_s, bare_s)
        if inner_s > bare_s:
            plan = min_processors(network, inner_s, percentile, minimum, maximum)
        else:
            plan = Plan(reason="tuples take longer than that without any waiting")
    found = {name: plan.allocation[name] for name in model.present} if plan.feasible else {}
    return Answer(
        target_s=target_s,
        load=load,
        processors=found,
        total=sum(found.values()),
        expected_s=_known(model, network, plan.allocation, bare_s) if found else None,
        busy={name: network.stations[name].utilization(k) for name, k in found.items()},
        present=model.present,
        present_s=_known(model, network, {**model.present, **model.fixed}, bare_s),
        shortest_s=model.correct(bare_s, bare_s),
        reason=plan.reason,
    )


def _known(
    model: Model, network: Network, allocation: Mapping[str, int], bare_s: float
) -> float | None:
    estimate_s = model.correct(network.sojourn(allocation, model.percentile), bare_s)
    return estimate_s if math.isfinite(estimate_s) else None
