"""The model against ciw, an independent simulator: a station, a tandem and a network with a loop.

Each case runs replications from fixed seeds and asks that the model lies within the 99 %
confidence interval of their mean (Student's t, nine degrees of freedom), and that the interval is
narrow enough to mean something.
"""

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace

import ciw
import pytest
from documented import stated

from sojourn.queueing import Network, Station, spreads, traffic

REPLICATIONS = 10
T_99 = 3.250


@dataclass(frozen=True)
class Case:
    """A Jackson network as both the model and the simulator take it."""

    external: dict[str, float]
    routing: dict[tuple[str, str], float]
    service: dict[str, float]
    processors: dict[str, int]
    horizon_s: float

    def network(self) -> Network:
        rates = traffic(self.external, self.routing)
        stations = {name: Station(rates[name], rate) for name, rate in self.service.items()}
        network = Network(stations, sum(self.external.values()))
        onward: dict[str, dict[str, float]] = {}
        for (sender, receiver), gain in self.routing.items():
            onward.setdefault(sender, {})[receiver] = gain
        onward |= {f"to {name}": {name: 1.0} for name in self.external}
        sources = {f"to {name}": rate for name, rate in self.external.items()}
        return replace(network, spreads=spreads(network, sources, onward))

    def simulate(self, seed: int) -> list[float]:
        """Sojourns of the customers that came after the first tenth of the time."""
        names = list(self.service)
        ciw.seed(seed)
        simulation = ciw.Simulation(
            ciw.create_network(
                arrival_distributions=[
                    ciw.dists.Exponential(self.external[n]) if n in self.external else None
                    for n in names
                ],
                service_distributions=[ciw.dists.Exponential(self.service[n]) for n in names],
                routing=[[self.routing.get((u, v), 0.0) for v in names] for u in names],
                number_of_servers=[self.processors[n] for n in names],
            )
        )
        simulation.simulate_until_max_time(self.horizon_s)
        visits = defaultdict(list)
        for record in simulation.get_all_records():
            visits[record.id_number].append(record)
        return [
            sum(r.exit_date - r.arrival_date for r in records)
            for records in visits.values()
            if 0.1 * self.horizon_s < min(r.arrival_date for r in records) < 0.9 * self.horizon_s
        ]


STATION = Case({"a": 10.0}, {}, {"a": 4.0}, {"a": 3}, 2000)
TANDEM = Case(
    {"a": 10.0},
    {("a", "b"): 1.0, ("b", "c"): 1.0},
    {"a": 4.0, "b": 3.0, "c": 13.0},
    {"a": 4, "b": 4, "c": 1},
    600,
)
LOOP = Case(
    {"a": 8.0, "b": 2.0},
    {("a", "b"): 0.5, ("a", "c"): 0.5, ("b", "c"): 1.0, ("c", "a"): 0.25},
    {"a": 5.0, "b": 4.0, "c": 7.0},
    {"a": 3, "b": 3, "c": 3},
    600,
)


@pytest.mark.parametrize(
    ("case", "row"),
    [(STATION, "one station"), (TANDEM, "three stations in tandem"), (LOOP, "a split and a loop")],
    ids=["station", "tandem", "loop"],
)
def test_the_model_agrees_with_ciw(case: Case, row: str) -> None:
    runs = [case.simulate(seed) for seed in range(REPLICATIONS)]
    means = [statistics.fmean(run) for run in runs]
    centre = statistics.fmean(means)
    half_width = T_99 * statistics.stdev(means) / math.sqrt(REPLICATIONS)
    network = case.network()
    modelled = network.mean_sojourn(case.processors)
    assert half_width < 0.08 * centre
    assert abs(modelled - centre) <= half_width, f"{modelled=} {centre=} {half_width=}"
    together = statistics.quantiles([sojourn for run in runs for sojourn in run], n=100)
    for p in (90, 95, 99):
        stated(row, p, [network.percentile(case.processors, p) / together[p - 1] - 1])
