"""What the model expects of trees whose tuples are processed side by side, held against the
simulator, which knows nothing of formulas."""

from collections.abc import Mapping
from typing import Any

import pytest
from documented import stated
from trees import Tree
from trees import network as seen_by_control

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.control.measure import Measure, NotReady
from sojourn.control.model import network_of
from sojourn.control.programs import busier
from sojourn.control.smoothing import smoothed
from sojourn.queueing.network import Network
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload


def same(value: Any) -> list[Any]:
    return [value]


def found(
    service_s: Mapping[str, float], edges: Mapping[str, list[str]], processors: Mapping[str, int]
) -> tuple[float, Network]:
    """The measured mean sojourn, and the network that control makes of the samples. An edge "10 b"
    carries ten tuples for each."""
    t = sj.Topology("trees")
    made: dict[str, Any] = {"in": t.source("in", sj.sources.paced(lambda n: n, rate=1.0))}
    gains: dict[str, dict[str, float]] = {}
    for name in service_s:
        inputs = [made[sender] for sender, to in edges.items() for e in to if e.split()[-1] == name]
        made[name] = t.operator(name, same, *inputs, processors=processors[name])
    for sender, to in edges.items():
        for edge in to:
            count, _, receiver = edge.rpartition(" ")
            if count:
                gains.setdefault(sender, {})[receiver] = float(count)
    last = [made[name] for name in service_s if name not in edges]
    t.sink("out", sj.sinks.console(), *last)
    loads = {
        name: OperatorLoad(Distribution("exponential", mean), gains.get(name, {}))
        for name, mean in service_s.items()
    }
    settings = ControlSettings(max_sojourn_s=1.0, policy="static")
    records: list[Record] = []
    Simulation(
        t,
        Workload(loads, {"in": SourceLoad(((1.0, 20.0),))}),
        (EngineSettings(), settings, SimulatorSettings()),
        300.0,
    ).run(listeners=(records.append,))
    measures: list[Measure] = [r.measure for r in records[30:] if r.measure is not None]
    whole = smoothed(measures, ControlSettings(window_s=3600.0))
    network = network_of(whole, settings)
    assert not isinstance(network, NotReady)
    assert whole.sojourn is not None
    return whole.sojourn.mean_s, network


FORK = ({"a": 0.010, "b": 0.030, "c": 0.050}, {"in": ["a"], "a": ["b", "c"]})
FAN = ({"a": 0.020, "b": 0.010}, {"in": ["a"], "a": ["10 b"]})


@pytest.mark.parametrize(
    ("shape", "processors", "within"),
    [
        (FORK, {"a": 1, "b": 2, "c": 2}, 0.05),
        (FORK, {"a": 1, "b": 1, "c": 3}, 0.05),
        (FAN, {"a": 1, "b": 3}, 0.05),
        (FAN, {"a": 1, "b": 6}, 0.07),
    ],
)
def test_estimates_are_those_of_the_slowest_branch(
    shape: tuple[Any, Any], processors: Mapping[str, int], within: float
) -> None:
    measured, network = found(*shape, processors)
    whole = {**processors, "out": 1}
    assert network.mean_sojourn(whole) == pytest.approx(measured, rel=within)
    added_up = Network(network.stations, network.external_rate)
    assert added_up.mean_sojourn(whole) > 1.15 * measured


def test_a_chain_has_no_weights() -> None:
    _, network = found({"a": 0.01, "b": 0.02}, {"in": ["a"], "a": ["b"]}, {"a": 1, "b": 1})
    assert network.weights == {}


def test_a_busier_network_counts_branches_alike() -> None:
    _, network = found(*FORK, {"a": 1, "b": 2, "c": 2})
    assert network.weights
    assert busier(network, 1.2).weights == network.weights


def at_one_station(n: int) -> tuple[Tree, list[int]]:
    return Tree(f"{n}", {"a": 0.01, "b": 0.03}, {"a": {"b": n}}, 0), [2 * n, round(0.75 * n + 0.5)]


def at_their_own(n: int) -> tuple[Tree, list[int]]:
    names = [f"b{i}" for i in range(n)]
    tree = Tree(
        f"{n}", {"a": 0.01, **dict.fromkeys(names, 0.03)}, {"a": dict.fromkeys(names, 1)}, 0
    )
    return tree, [2, 1]


FORK_JOIN = Tree(
    "fork and join",
    {"a": 0.01, "b": 0.03, "c": 0.05, "d": 0.01},
    {"a": {"b": 1, "c": 1}, "b": {"d": 1}, "c": {"d": 1}},
    0,
)


@pytest.mark.parametrize(
    ("row", "cases"),
    [
        ("2, 4 and 8 siblings at one station", [at_one_station(n) for n in (2, 4, 8)]),
        ("2, 4 and 8 siblings at a station each", [at_their_own(n) for n in (2, 4, 8)]),
        ("a fork to two stations", [(FORK_JOIN, [2, 3])]),
    ],
)
def test_percentiles_of_siblings_err_as_the_docs_say(
    row: str, cases: list[tuple[Tree, list[int]]]
) -> None:
    errors: dict[int, list[float]] = {90: [], 95: [], 99: []}
    for tree, sizes in cases:
        for size in sizes:
            allocation = {name: 1 if name in "ad" else size for name in tree.service_s}
            sojourn, measure = tree.simulated(allocation)
            network = seen_by_control(measure)
            for p, found in errors.items():
                estimate = network.percentile({**allocation, "out": 1}, p)
                found.append(estimate / sojourn.percentile(p) - 1)
    for p, found in errors.items():
        stated(row, p, found)
