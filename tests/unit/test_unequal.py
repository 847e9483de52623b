"""Processors of different speed: the station against an exact Markov chain and against simulation,
the two programs against exhaustive search, and the plan in the simulator."""

import heapq
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from documented import MODEL
from hypothesis import given
from hypothesis import strategies as st

import sojourn as sj
from sojourn.errors import InputError
from sojourn.queueing import (
    Kind,
    Network,
    Station,
    UnequalPlan,
    assign_processors,
    assign_unequal,
    cheapest_unequal,
    min_processors,
)
from sojourn.queueing.keyed import KeyedStation
from sojourn.queueing.unequal import expected
from sojourn.settings import EngineSettings, SimulatorSettings
from sojourn.simulator import Distribution, OperatorLoad, SimulatedEngine, SourceLoad, Workload

MIXES: list[dict[float, int]] = [
    {1.0: 1, 0.5: 1},
    {1.0: 2, 0.5: 2},
    {1.0: 1, 0.5: 3},
    {1.0: 4, 0.5: 4},
    {1.0: 2, 0.25: 2},
    {1.0: 2, 0.7: 2, 0.5: 2},
]
BUSY = (0.2, 0.4, 0.6, 0.8, 0.9)


def chain_mean(rate: float, mix: Mapping[float, int], order: str) -> float:
    """The exact mean sojourn for exponential times and a service rate of 1, from the Markov chain
    of how many processors of each speed are busy. What waits only lengthens the last state."""
    speeds, counts = list(mix), tuple(mix.values())
    states = list(product(*(range(count + 1) for count in counts)))
    number = {state: i for i, state in enumerate(states)}
    flow = np.zeros((len(states), len(states)))

    def changed(state: tuple[int, ...], kind: int, by: int) -> int:
        return number[tuple(n + by * (j == kind) for j, n in enumerate(state))]

    for state, i in number.items():
        idle = {j: counts[j] - n for j, n in enumerate(state) if n < counts[j]}
        if idle and order == "random":
            for kind, free in idle.items():
                flow[i, changed(state, kind, 1)] += rate * free / sum(idle.values())
        elif idle:
            pick = max if order == "fastest" else min
            flow[i, changed(state, pick(idle, key=lambda j: speeds[j]), 1)] += rate
        for kind, busy in enumerate(state):
            if busy:
                flow[i, changed(state, kind, -1)] += busy * speeds[kind]
    np.fill_diagonal(flow, -flow.sum(axis=1))
    equations = flow.T.copy()
    equations[-1] = 1
    p = np.linalg.solve(equations, np.eye(len(states))[-1])
    capacity = sum(speed * count for speed, count in mix.items())
    p[-1] /= 1 - rate / capacity
    p /= p.sum()
    busy = sum(sum(state) * p[i] for state, i in number.items())
    return float(busy / rate + p[-1] / (capacity - rate))


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("busy", BUSY)
def test_a_mix_is_exact_if_any_idle_processor_is_taken(mix: dict[float, int], busy: float) -> None:
    rate = busy * sum(speed * count for speed, count in mix.items())
    found = expected(Station(rate, 1.0), mix)
    assert found.utilization == pytest.approx(busy)
    assert found.sojourn == pytest.approx(chain_mean(rate, mix, "random"), rel=1e-9)


@given(st.floats(0.01, 0.999), st.integers(1, 60), st.floats(0.1, 4.0), st.floats(0, 3))
def test_equal_speeds_are_the_station_itself(busy: float, k: int, speed: float, scv: float) -> None:
    station = Station(busy * k * speed * 3, 3.0, scv, 1.0)
    same = replace(station, service_rate=3.0 * speed)
    assert expected(station, {speed: k}).sojourn == same.mean_sojourn(k)
    nearly = expected(station, {speed: k, speed * (1 + 1e-12): 1})
    assert nearly.sojourn == pytest.approx(same.mean_sojourn(k + 1), rel=1e-6)


def test_many_processors_do_not_overflow() -> None:
    found = expected(Station(1480.0, 1.0), {1.0: 1000, 0.5: 1000})
    assert 1 < found.service < 2
    assert found.sojourn < found.service * 1.5
    assert expected(Station(1500.0, 1.0), {1.0: 1000, 0.5: 1000}).wait == math.inf


def errors(order: str) -> dict[float, list[float]]:
    """By utilization: how far the model is off if the idle processors are taken in that order."""
    found: dict[float, list[float]] = {}
    for busy in BUSY:
        found[busy] = []
        for mix in MIXES:
            rate = busy * sum(speed * count for speed, count in mix.items())
            model = expected(Station(rate, 1.0), mix).sojourn
            if order == "unrelated":
                truth = (chain_mean(rate, mix, "fastest") + chain_mean(rate, mix, "slowest")) / 2
            else:
                truth = chain_mean(rate, mix, order)
            found[busy].append(model / truth - 1)
    return found


@pytest.mark.parametrize("order", ["fastest", "slowest", "unrelated"])
def test_the_docs_state_the_error_where_the_order_is_another(order: str) -> None:
    (line,) = [t for t in MODEL.read_text().splitlines() if t.startswith(f"| {order}")]
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    told = [
        f"{min(found):+.0%} to {max(found):+.0%}".replace("-", "−")
        .replace("%", " %")
        .replace(" % to", " to")
        for found in errors(order).values()
    ]
    assert cells == told


def simulated(
    station: Station, mix: Mapping[float, int], shape: float, seed: int, tuples: int = 200_000
) -> float:
    """Mean sojourn with gamma service times and Poisson arrivals, any idle processor taken."""
    rng = random.Random(seed)
    idle = [speed for speed, count in mix.items() for _ in range(count)]
    serving: list[tuple[float, float]] = []
    now = total = 0.0
    for _ in range(tuples):
        now += rng.expovariate(station.arrival_rate)
        while serving and serving[0][0] <= now:
            idle.append(heapq.heappop(serving)[1])
        start = now
        if idle:
            speed = idle.pop(rng.randrange(len(idle)))
        else:
            start, speed = heapq.heappop(serving)
        took = rng.gammavariate(shape, 1 / shape) / station.service_rate / speed
        heapq.heappush(serving, (start + took, speed))
        total += start + took - now
    return total / tuples


@pytest.mark.parametrize(("scv", "bound"), [(1.0, 0.03), (0.25, 0.05), (4.0, 0.10)])
def test_other_service_times_stretch_the_wait(scv: float, bound: float) -> None:
    for mix in ({1.0: 2, 0.5: 2}, {1.0: 2, 0.25: 2}):
        for busy in (0.5, 0.8):
            rate = busy * sum(speed * count for speed, count in mix.items())
            station = Station(rate, 1.0, 1.0, scv)
            truth = simulated(station, mix, 1 / scv, seed=1)
            assert expected(station, mix).sojourn == pytest.approx(truth, rel=bound)


# the two programs


def a_case(rng: random.Random) -> tuple[Network, dict[str, Kind]]:
    stations = rng.randint(2, 3)
    many = rng.randint(2, 5 - stations)
    kinds = {
        f"k{j}": Kind(
            rng.randint(1, 5 if many == 2 else 3),
            rng.choice([0.25, 0.5, 0.8, 1.0, 2.0, rng.uniform(0.2, 2)]),
            rng.choice([1.0, 1.0, rng.uniform(0.3, 3)]),
        )
        for j in range(many)
    }
    capacity = sum(kind.count * kind.speed for kind in kinds.values())
    parts = [rng.random() + 0.05 for _ in range(stations)]
    busy = rng.uniform(0.15, 0.9)
    made = {}
    for i, part in enumerate(parts):
        rate = rng.uniform(0.5, 5)
        load = busy * capacity * part / sum(parts)
        made[f"s{i}"] = Station(load * rate, rate, rng.choice([1, 0.5, 2]), rng.choice([1, 0.3, 3]))
    return Network(made, rng.uniform(0.5, 3)), kinds


def everything(network: Network, kinds: Mapping[str, Kind]) -> Iterator[tuple[float, float]]:
    """E[T] and cost of every stable allocation."""
    names = list(network.stations)
    known: dict[tuple[str, tuple[int, ...]], float] = {}

    def part(name: str, mix: tuple[int, ...]) -> float:
        if (name, mix) not in known:
            speeds: dict[float, int] = {}
            for kind, count in zip(kinds.values(), mix, strict=True):
                speeds[kind.speed] = speeds.get(kind.speed, 0) + count
            sojourn = expected(network.stations[name], speeds).sojourn if any(mix) else math.inf
            known[name, mix] = network.visits(name) * sojourn
        return known[name, mix]

    splits = [
        [s for s in product(range(kind.count + 1), repeat=len(names)) if sum(s) <= kind.count]
        for kind in kinds.values()
    ]
    costs = [kind.cost for kind in kinds.values()]
    for choice in product(*splits):
        mean = sum(part(name, tuple(s[i] for s in choice)) for i, name in enumerate(names))
        if mean < math.inf:
            cost = sum(sum(s) * each for s, each in zip(choice, costs, strict=True))
            yield mean, cost


def test_the_docs_state_how_far_the_programs_are_off() -> None:
    rng = random.Random(7)
    sojourn, cost = [], []
    for _ in range(300):
        network, kinds = a_case(rng)
        found = list(everything(network, kinds))
        plan = assign_unequal(network, kinds)
        assert plan.feasible == bool(found), plan.reason
        if not found:
            continue
        best = min(mean for mean, _ in found)
        sojourn.append(plan.mean_sojourn / best - 1)
        target = max(plan.mean_sojourn, best * rng.uniform(1.0, 1.5))
        least = min(c for mean, c in found if mean <= target)
        cheap = cheapest_unequal(network, kinds, target)
        assert cheap.mean_sojourn <= target
        cost.append(cheap.cost / least - 1)
    told = [
        f"| {what} | {sum(gap > 1e-9 for gap in gaps)} of {len(gaps)} | {max(gaps):.1%} |".replace(
            "%", " %"
        )
        for what, gaps in (("6: E[T]", sojourn), ("8: cost", cost))
    ]
    page = MODEL.read_text()
    assert min(*sojourn, *cost) >= -1e-9
    for line in told:
        assert line in page, told


def test_equal_kinds_give_what_the_programs_for_equal_processors_give() -> None:
    network = Network({"a": Station(10, 4), "b": Station(5, 3), "c": Station(9, 1)}, 10)
    for count in range(15, 24):
        plan = assign_unequal(network, {"only": Kind(count, 1.0)})
        assert plan.mean_sojourn == assign_processors(network, count).mean_sojourn
    target = network.lower_bound() * 1.2
    plan = cheapest_unequal(network, {"only": Kind(40, 1.0)}, target)
    assert plan.processors == min_processors(network, target).processors


def test_a_slow_processor_that_would_only_delay_tuples_is_left_over() -> None:
    network = Network({"a": Station(0.1, 1.0)}, 0.1)
    plan = assign_unequal(network, {"fast": Kind(2, 1.0), "slow": Kind(3, 0.1)})
    assert plan.allocation == {"a": {"fast": 2, "slow": 0}}
    assert plan.used("slow") == 0


def test_limits_of_operators_hold() -> None:
    network = Network({"a": Station(2, 1), "b": Station(0, 1), "c": Station(1, 2)}, 2)
    kinds = {"fast": Kind(6, 1.0), "slow": Kind(6, 0.5)}
    plan = assign_unequal(network, kinds, {"c": 3}, {"a": 3})
    counts = {name: sum(mix.values()) for name, mix in plan.allocation.items()}
    assert counts["a"] <= 3
    assert counts["c"] >= 3
    assert counts["b"] == 1
    cheap = cheapest_unequal(network, kinds, 3.0, {"c": 3}, {"a": 3})
    assert sum(cheap.allocation["c"].values()) >= 3


def test_the_cheapest_depends_on_the_costs() -> None:
    network = Network({"a": Station(3, 1)}, 3)
    even = {"fast": Kind(8, 1.0), "slow": Kind(16, 0.5)}
    assert cheapest_unequal(network, even, 2.5).used("slow") == 0
    dear = {"fast": Kind(8, 1.0, 5.0), "slow": Kind(16, 0.5, 1.0)}
    assert cheapest_unequal(network, dear, 2.5).used("fast") == 0


@pytest.mark.parametrize(
    ("kinds", "target", "limits", "reason"),
    [
        (
            {"k": Kind(1, 9.0)},
            None,
            {},
            "1 processors are too few: the operators must have at least 2",
        ),
        (
            {"k": Kind(8, 0.5)},
            None,
            {},
            "together they are worth 4 of speed 1, and the topology needs more than 4.167",
        ),
        (
            {"k": Kind(8, 0.5), "l": Kind(2, 1.0)},
            None,
            {"a": 3},
            "operator 'a' cannot keep up: 10/s at 4/s need more than 2.5 processors of speed 1; "
            "the fastest 3 are worth 2.5",
        ),
        (
            {"k": Kind(3, 1.5)},
            None,
            {},
            "no placement of these processors was found in which every operator keeps up",
        ),
        (
            {"k": Kind(8, 2.0)},
            0.2,
            {},
            "serving a tuple takes 0.2083 s even on the fastest processors and when it never waits",
        ),
        (
            {"k": Kind(5, 1.2)},
            0.5,
            {},
            "the best placement found of these processors brings it to",
        ),
    ],
)
def test_no_plan_is_explained(
    kinds: dict[str, Kind], target: float | None, limits: dict[str, int], reason: str
) -> None:
    network = Network({"a": Station(10, 4), "b": Station(5, 3)}, 10)
    plan: UnequalPlan
    if target is None:
        plan = assign_unequal(network, kinds, maximum=limits)
    else:
        plan = cheapest_unequal(network, kinds, target)
    assert not plan.feasible
    assert reason in plan.reason


def test_bad_input_is_told() -> None:
    network = Network({"a": Station(1, 4)}, 1)
    with pytest.raises(InputError, match="speed of a processor must lie between"):
        Kind(1, 0.0)
    with pytest.raises(InputError, match="count of at least 1; got 0"):
        Kind(0, 1.0)
    with pytest.raises(InputError, match="at least one kind"):
        assign_unequal(network, {})
    with pytest.raises(InputError, match="operator 'a' has a key"):
        assign_unequal(Network({"a": KeyedStation(1, 4)}, 1), {"k": Kind(2, 1.0)})
    with pytest.raises(InputError, match="max_sojourn must be above zero"):
        cheapest_unequal(network, {"k": Kind(2, 1.0)}, 0.0)


# in the simulator


def two_operators(speeds: tuple[float, ...], **processors: int) -> SimulatedEngine:
    """source → first → second, 8 tuples a second, on machines with one core each."""
    t = sj.Topology("two")
    source = t.source("source", sj.sources.paced(lambda n: n, rate=8.0))
    first = t.map("first", abs, source, processors=processors["first"])
    t.sink("out", sj.sinks.console(), t.map("second", abs, first, processors=processors["second"]))
    loads = {
        "first": OperatorLoad(Distribution("exponential", 0.1)),
        "second": OperatorLoad(Distribution("exponential", 0.4)),
    }
    settings = SimulatorSettings(
        hop_s=0.0,
        sink_s=0.0,
        hand_over_s=0.0,
        stall_s=0.0,
        resize_s=0.0,
        network_delay_s=0.0,
        tuple_bytes=0,
        machine_speeds=speeds,
    )
    source_load = {"source": SourceLoad(((1.0, 8.0),))}
    return SimulatedEngine(
        t,
        Workload(loads, source_load),
        settings,
        EngineSettings(batch_s=1e9),
        seed=3,
        machines=len(speeds),
        machine_processors=1,
    )


def mean_sojourn(engine: SimulatedEngine) -> float:
    found: list[Any] = []
    for second in range(0, 4000, 50):
        engine.advance(second + 50.0)
        found += engine.sojourns
        engine.sojourns = []
    return float(np.concatenate(found).mean())


def placed(engine: SimulatedEngine, where: dict[str, list[int]]) -> SimulatedEngine:
    """The engine with workers on these machines."""
    engine.cluster.where = {(name, 0): machines for name, machines in where.items()}
    engine.resize({name: len(machines) for name, machines in where.items()})
    return engine


def test_a_plan_that_knows_speeds_beats_one_that_takes_all_for_equal() -> None:
    """However the machines fall to the operators of the plan that does not know them."""
    network = Network({"first": Station(8, 10), "second": Station(8, 2.5)}, 8)
    speeds = (0.5,) * 4 + (1.0,) * 4
    kinds = {"slow": Kind(4, 0.5), "fast": Kind(4, 1.0)}
    mean = sum(speeds) / len(speeds)
    as_if_equal = Network(
        {n: replace(s, service_rate=mean * s.service_rate) for n, s in network.stations.items()}, 8
    )
    equal = assign_processors(as_if_equal, 8).allocation
    assert equal == {"first": 2, "second": 6}
    blind_s = []
    for first in ([0, 1], [0, 4], [4, 5]):
        where = {"first": first, "second": [m for m in range(8) if m not in first]}
        blind_s.append(mean_sojourn(placed(two_operators(speeds, **equal), where)))
    plan = assign_unequal(network, kinds)
    machines = {"slow": [0, 1, 2, 3], "fast": [4, 5, 6, 7]}
    where = {
        name: [machines[kind].pop() for kind in ("fast", "slow") for _ in range(mix[kind])]
        for name, mix in plan.allocation.items()
    }
    aware_s = mean_sojourn(placed(two_operators(speeds, first=1, second=1), where))
    by_chance_s = (6 * blind_s[0] + 16 * blind_s[1] + 6 * blind_s[2]) / 28
    assert aware_s < min(blind_s)
    assert aware_s < 0.92 * by_chance_s
    assert plan.mean_sojourn == pytest.approx(aware_s, rel=0.05)


def test_a_worker_on_a_slow_machine_takes_longer() -> None:
    engine = two_operators((0.5,), first=1, second=1)
    engine.advance(50.0)
    assert engine.samples().vertices["first"].service_s == pytest.approx(2 * 2 * 0.1, rel=0.1)
    single = placed(two_operators((0.5, 2.0), first=1, second=1), {"first": [1], "second": [0]})
    single.advance(50.0)
    found = single.samples().vertices
    assert found["first"].service_s == pytest.approx(0.1 / 2, rel=0.1)
    assert found["second"].service_s == pytest.approx(0.4 * 2, rel=0.2)
