"""What control relies on in every engine, checked on a chain source → work → out of 50 tuples a
second that take 10 ms each, with two processors to begin with."""

import time
from collections.abc import Callable
from typing import Any

import pytest

import sojourn as sj
from sojourn.ports import Engine, Pressure

SERVICE_S = 0.01


def work(value: Any) -> list[Any]:
    time.sleep(SERVICE_S)
    return [value]


def chain() -> sj.Topology:
    t = sj.Topology("contract")
    source = t.source("source", sj.sources.paced(lambda n: n, rate=50.0))
    t.sink("out", sj.sinks.call(lambda _: None), t.operator("work", work, source, processors=2))
    return t


def comes(engine: Engine, let_pass: Callable[[float], object], wanted: int) -> bool:
    """Whether the operator gets so many processors, however busy the machine is."""
    for _ in range(30):
        if engine.allocation() == {"work": wanted}:
            return True
        let_pass(1.0)
    return False


def check(engine: Engine, let_pass: Callable[[float], object], virtual: bool = False) -> None:
    """`let_pass` lets so many seconds pass for the engine. How tuples that are due at random come
    to an operator depends on the machine, but in virtual time."""
    assert comes(engine, let_pass, 2)
    let_pass(2.0)
    first = engine.samples()
    let_pass(6.0)
    samples = engine.samples()
    assert samples.time_s > first.time_s
    assert set(samples.vertices) == {"source", "work", "out"}
    source, found, out = (samples.vertices[name] for name in ("source", "work", "out"))
    assert source.arrival_rate == pytest.approx(50.0, rel=0.3)
    assert source.lag_s is not None
    assert (found.processors, found.wanted) == (2, 2)
    assert found.interval_s == pytest.approx(samples.time_s - first.time_s, rel=0.2)
    assert found.served == pytest.approx(found.arrivals, abs=20)
    assert found.served == pytest.approx(50 * found.interval_s, rel=0.3)
    assert found.service_s == pytest.approx(SERVICE_S, rel=0.5)
    assert found.service_scv is not None
    assert found.arrival_scv is not None
    assert found.arrival_scv >= 0
    assert found.arrival_scv == pytest.approx(1.0, abs=0.6) or not virtual
    assert found.busy == pytest.approx(found.served * SERVICE_S / 2 / found.interval_s, rel=0.5)
    assert found.emitted == {"out": pytest.approx(found.served, abs=20)}
    assert out.emitted == {}
    assert samples.sojourn is not None
    assert SERVICE_S <= samples.sojourn.p50_s <= samples.sojourn.p99_s <= samples.sojourn.max_s
    assert engine.allocation() == {"work": 2}
    engine.resize({"work": 5})
    let_pass(2.0)
    assert comes(engine, let_pass, 5)
    peeked = engine.samples(peek=True)
    assert peeked.sojourn is None
    let_pass(1.0)
    later = engine.samples()
    assert later.vertices["work"].wanted == 5
    assert later.vertices["work"].served >= peeked.vertices["work"].served > 50  # it counts again
    told: list[Pressure] = []
    engine.on_pressure = told.append
    engine.resize({"work": 2})
    let_pass(1.0)
    assert told == []
