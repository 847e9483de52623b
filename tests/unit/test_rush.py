"""The rush after tuples were held up."""

import numpy as np
import pytest

from sojourn.engine.executor.meter import Meter
from sojourn.rush import Rush
from sojourn.simulator.draws import Distribution
from sojourn.simulator.lane import Seat
from sojourn.simulator.station import Station
from sojourn.simulator.workload import OperatorLoad


def test_a_rush_lasts_twice_as_long_as_nothing_came() -> None:
    rush = Rush()
    assert rush.gap_s(1.0) is None  # there is none before the first
    assert rush.gap_s(1.5) == 0.5
    rush.hold_up()
    assert rush.gap_s(2.5) is None  # how long tuples were held up
    assert rush.gap_s(4.0) is None
    assert rush.gap_s(4.5) == 0.5
    assert rush.gap_s(5.5) == 1.0


def test_what_is_held_up_before_anything_came_makes_no_rush() -> None:
    rush = Rush()
    rush.hold_up()
    assert rush.gap_s(1.0) is None
    assert rush.gap_s(1.5) == 0.5


@pytest.mark.parametrize("seed", range(5))
def test_an_elastic_executor_and_a_simulated_station_measure_alike(seed: int) -> None:
    draw = np.random.default_rng(seed)
    load = OperatorLoad(Distribution("constant", 0.001))
    meter, station = Meter(0.0), Station("work", load, False, 1, 1, draw)
    station.seat([[Seat()]], 0.0, 0.0, 0.0)
    for window in range(40):
        times = np.sort(window + draw.random(draw.integers(0, 8)))
        if draw.random() < 0.3:
            meter.begin()
            station.rush.hold_up()
        for time_s in times.tolist():
            meter.arrived(1, time_s)
        station.advance(window + 1.0, times, np.arange(len(times)))
    counts = station.counts
    assert 0 < counts.gaps < counts.arrivals - 1
    assert (counts.arrivals, counts.gaps) == (meter.arrivals, meter.gaps)
    assert counts.gap_s == pytest.approx(meter.gap_s)
    assert counts.gap_s2 == pytest.approx(meter.gap_s2)
