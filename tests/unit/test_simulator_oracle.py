"""The simulated engine against ciw, an independent simulator, where there is no exact theory: the
means of ten replications of each differ by no more than their 99 % interval of confidence (Welch),
which must be narrow enough to mean something. Equation 5's approximation of GI/G/k is compared with
what both say."""

import math
import statistics
from typing import Any

import ciw
import numpy as np
import pytest

import sojourn as sj
from sojourn.queueing import Station
from sojourn.settings import EngineSettings, SimulatorSettings
from sojourn.simulator import Distribution, OperatorLoad, SimulatedEngine, SourceLoad, Workload

REPLICATIONS = 10
T_99 = 2.88  # eighteen degrees of freedom
SERVICE_S = 0.1


def same(value: Any) -> list[Any]:
    return [value]


def simulated(rate: float, k: int, scvs: tuple[float, float], seconds: float, seed: int) -> float:
    t = sj.Topology("station")
    source = t.source("source", sj.sources.paced(lambda n: n, rate=rate))
    t.sink("out", sj.sinks.console(), t.operator("work", same, source, processors=k))
    engine = SimulatedEngine(
        t,
        Workload(
            {"work": OperatorLoad(Distribution.of_moments(SERVICE_S, scvs[1]))},
            {"source": SourceLoad(((1.0, rate),), Distribution.of_moments(1.0, scvs[0]))},
        ),
        SimulatorSettings(hop_s=0.0, sink_s=0.0, hand_over_s=0.0, stall_s=0.0),
        EngineSettings(batch_s=1e9),
        seed=seed,
    )
    engine.advance(0.1 * seconds)
    engine.sojourns = []
    engine.advance(seconds)
    return float(np.concatenate(engine.sojourns).mean())


def with_ciw(rate: float, k: int, scvs: tuple[float, float], seconds: float, seed: int) -> float:
    ciw.seed(seed)
    simulation = ciw.Simulation(
        ciw.create_network(
            arrival_distributions=[ciw.dists.Gamma(1 / scvs[0], scvs[0] / rate)],
            service_distributions=[ciw.dists.Gamma(1 / scvs[1], scvs[1] * SERVICE_S)],
            number_of_servers=[k],
        )
    )
    simulation.simulate_until_max_time(seconds)
    return statistics.fmean(
        r.exit_date - r.arrival_date
        for r in simulation.get_all_records()
        if r.arrival_date > 0.1 * seconds
    )


@pytest.mark.parametrize(
    ("k", "utilization", "scvs", "off"),
    [(4, 0.8, (2.0, 0.5), 0.1), (8, 0.7, (4.0, 3.0), 0.25)],
)
def test_gigk_stations_agree_with_ciw(
    k: int, utilization: float, scvs: tuple[float, float], off: float
) -> None:
    rate, seconds = utilization * k / SERVICE_S, 4_000 / k
    ours = [simulated(rate, k, scvs, seconds, seed) for seed in range(REPLICATIONS)]
    theirs = [with_ciw(rate, k, scvs, seconds, seed) for seed in range(REPLICATIONS)]
    centre = statistics.fmean(theirs)
    spread = math.sqrt((statistics.variance(ours) + statistics.variance(theirs)) / REPLICATIONS)
    assert T_99 * spread < 0.08 * centre
    assert abs(statistics.fmean(ours) - centre) <= T_99 * spread
    modelled = Station(rate, 1 / SERVICE_S, *scvs).mean_sojourn(k)
    assert abs(modelled / statistics.fmean(ours) - 1) < off
