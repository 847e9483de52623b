"""The second moments of how many tuples follow from one: from workers to the model."""

from typing import Any

import pytest

import sojourn as sj
from sojourn.control.measure import measured
from sojourn.engine.driver.merge import Change, merge
from sojourn.engine.executor.meter import Meter
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker.router import Router
from sojourn.operators import Output
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload
from sojourn.simulator.engine import SimulatedEngine


def route(receiver: str, output: str | None = None, key: Any = None) -> Route:
    return Route(receiver, output, False, 1, 0, 2, key, 8)


@pytest.mark.parametrize("key", [None, lambda value: value])
def test_a_router_counts_squares_and_products(key: Any) -> None:
    router = Router((route("b", key=key), route("c", "odd")), seed=1)
    for numbers, root in (([1], None), ([1], 7), ([], None), ([1, 2, 3], None)):
        router.send([*numbers, *(Output("odd", n) for n in numbers if n % 2)], root)
    router.send([5], None)
    found = {(one, other): product for one, other, product in router.together()}
    assert found == {(0, 0): 1 + 1 + 9 + 1, (0, 1): 1 + 1 + 6, (1, 0): 8, (1, 1): 1 + 1 + 4}
    router.collect()
    assert router.together() == []


def test_what_all_receivers_of_an_output_get_is_the_same() -> None:
    router = Router((route("b"), route("c")), seed=1)
    router.send([1, 2], None)
    assert sorted(router.together()) == [(0, 0, 4), (0, 1, 4), (1, 0, 4), (1, 1, 4)]


def reported(meter: Meter, executor: int) -> m.Report:
    return m.Report(
        "a", executor, 1, 1, 0, 0, 0, 0.0, 0.0, 0, 0, 0.0, 0.0, 0.0, {}, 0, 0, None, 0.0, 1.0, 0, 0,
        False, False, 0,
        together={edge: dict(others) for edge, others in meter.together.items()},
    )  # fmt: skip


def test_samples_have_the_sums_of_all_executors_since_the_last() -> None:
    meters = [Meter(0.0), Meter(0.0)]
    for meter in meters:
        meter.made_together("b", "c", 5)
    before = [reported(meter, i) for i, meter in enumerate(meters)]
    meters[0].made_together("b", "c", 3)
    meters[1].made_together("b", "b", 4)
    now = [reported(meter, i) for i, meter in enumerate(meters)]
    sample = merge(Change(n, b) for n, b in zip(now, before, strict=True))["a"]
    assert sample.together == {"b": {"b": 4, "c": 3}}


def test_the_simulator_and_the_measure_have_them_per_tuple() -> None:
    t = sj.Topology("numbers")
    source = t.source("in", sj.sources.paced(lambda n: n, rate=1.0))
    a = t.operator("a", lambda value: [value], source)
    b = t.operator("b", lambda value: [value], a)
    c = t.operator("c", lambda value: [value], a["odd"])
    t.sink("out", sj.sinks.console(), b, c)
    loads = {name: OperatorLoad(Distribution("constant", 1e-4)) for name in "bc"}
    loads["a"] = OperatorLoad(Distribution("constant", 1e-4), {"b": 2.5, "c[odd]": 0.5})
    engine = SimulatedEngine(
        t,
        Workload(loads, {"in": SourceLoad(((1.0, 500.0),))}),
        SimulatorSettings(),
        EngineSettings(),
    )
    engine.advance(60.0)
    samples = engine.samples()
    kinds = {"in": "source", "a": "operator", "b": "operator", "c": "operator", "out": "sink"}
    found = measured(samples, None, kinds, ControlSettings(max_sojourn_s=1.0, percentile=99.0))
    together = found.operators["a"].together  # type: ignore[union-attr]
    assert together["b"]["b"] == pytest.approx((4 + 9) / 2, rel=0.02)
    assert together["b"]["c"] == together["c"]["b"] == pytest.approx(2.5 * 0.5, rel=0.05)
    assert together["c"]["c"] == pytest.approx(0.5, rel=0.05)
