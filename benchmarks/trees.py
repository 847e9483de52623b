"""Which way to estimate the sojourn of trees whose tuples are processed side by side is best?

    python benchmarks/trees.py

Simulates topologies that split tuples, with all allocations of so many processors that keep up, and
compares what they take with four estimates of E[T]:

- sum: all visits one after the other (DRS eq. 4)
- weights: for as many visits as critical paths have, measured at one of the allocations only, which
  has as many processors for every unit of load
- harmonic: the last of n like tuples takes H_n = 1 + 1/2 + … + 1/n times as long as one, and the
  last of several stations as long as the largest of exponential times
- batch: n tuples that come at once wait as long as a stream with an arrival SCV of n has it wait,
  and are then served side by side, the last of them for H_n times as long

"error" is the mean of |estimate/truth - 1|, "pairs" how many pairs of allocations are ordered as in
truth, of those that differ by 3 % or more, and "regret" how much longer the allocation that the
estimate ranks first takes than the best one.
"""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sojourn as sj
from sojourn.control.measure import Measure, NotReady, measured
from sojourn.control.model import network_of
from sojourn.queueing import Network, Station
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload
from sojourn.simulator.engine import SimulatedEngine

RATE = 20.0
SECONDS = 1500.0
DIFFERENT = 0.03
_SETTINGS = ControlSettings(max_sojourn_s=1.0, percentile=99.0)


@dataclass(frozen=True)
class Tree:
    """A topology that splits tuples: seconds of service, and receivers with how many tuples each
    gets of one. `processors` are those of all operators together."""

    name: str
    service_s: Mapping[str, float]
    edges: Mapping[str, Mapping[str, int]]
    processors: int

    def simulated(self, allocation: Mapping[str, int]) -> tuple[Any, Measure]:
        """What trees took, and what control measures."""
        t = sj.Topology("trees")
        made: dict[str, Any] = {"in": t.source("in", sj.sources.paced(_same, rate=1.0))}
        for name in self.service_s:
            inputs = [made[sender][name] for sender, to in self.edges.items() if name in to]
            made[name] = t.operator(
                name, _same, *(inputs or [made["in"]]), processors=allocation[name]
            )
        last = [made[name] for name in self.service_s if name not in self.edges]
        t.sink("out", sj.sinks.call(_same), *last)
        loads = {
            name: OperatorLoad(
                Distribution("exponential", mean_s),
                {f"{to}[{to}]": float(n) for to, n in self.edges.get(name, {}).items()},
            )
            for name, mean_s in self.service_s.items()
        }
        workload = Workload(loads, {"in": SourceLoad(((1.0, RATE),))})
        engine = SimulatedEngine(t, workload, SimulatorSettings(), EngineSettings(), seed=1)
        engine.advance(20.0)
        engine.samples()
        engine.advance(20.0 + SECONDS)
        samples = engine.samples()
        kinds = dict.fromkeys(samples.vertices, "operator") | {"in": "source", "out": "sink"}
        found = measured(samples, None, kinds, _SETTINGS)
        assert isinstance(found, Measure), found
        return samples.sojourn, found

    def allocations(self) -> Iterator[dict[str, int]]:
        """All of that many processors that keep up well enough for a short run to show it."""
        visits = self.visits()
        names = list(self.service_s)
        least = [math.floor(RATE * visits[n] * self.service_s[n] / 0.9) + 1 for n in names]
        spare = self.processors - sum(least)
        for more in itertools.product(range(spare + 1), repeat=len(names)):
            if sum(more) == spare:
                yield {n: k + m for n, k, m in zip(names, least, more, strict=True)}

    def visits(self) -> dict[str, float]:
        found = dict.fromkeys(self.service_s, 0.0)
        found[next(iter(found))] = 1.0
        for name in self.service_s:
            for to, count in self.edges.get(name, {}).items():
                found[to] += found[name] * count
        return found


def _same(value: Any) -> Any:
    return value


def network(measure: Measure) -> Network:
    """As control sees it."""
    found = network_of(measure, _SETTINGS)
    assert not isinstance(found, NotReady), found
    return found


TREES = (
    Tree("4 at one station", {"a": 0.03, "b": 0.03}, {"a": {"b": 4}}, 7),
    Tree("8 at one station", {"a": 0.03, "b": 0.03}, {"a": {"b": 8}}, 12),
    Tree(
        "8 at one station, then one",
        {"a": 0.03, "b": 0.03, "c": 0.004},
        {"a": {"b": 8}, "b": {"c": 1}},
        14,
    ),
    Tree(
        "to 3 stations",
        {"a": 0.02, "b": 0.03, "c": 0.06, "d": 0.1},
        {"a": {"b": 1, "c": 1, "d": 1}},
        10,
    ),
    Tree(
        "fork and join",
        {"a": 0.03, "b": 0.04, "c": 0.07, "d": 0.02},
        {"a": {"b": 1, "c": 1}, "b": {"d": 1}, "c": {"d": 1}},
        9,
    ),
    Tree(
        "to 2 stations, 3 each",
        {"a": 0.03, "b": 0.02, "c": 0.04},
        {"a": {"b": 3, "c": 3}},
        10,
    ),
)
# Drawn at random and not looked at while the rule for weights was made, unlike those above.
UNSEEN = 12


def drawn(seed: int) -> Tree:
    """Three or four operators; every one but the first gets one to six tuples of one before it."""
    draw = random.Random(seed)
    names = "abcd"[: draw.choice((3, 4))]
    edges: dict[str, dict[str, int]] = {}
    for number, name in enumerate(names[1:], 1):
        edges.setdefault(draw.choice(names[:number]), {})[name] = draw.choice((1, 1, 2, 3, 6))
    visits = Tree("", dict.fromkeys(names, 1.0), edges, 0).visits()
    service_s = {n: draw.uniform(0.5, 2.5) / (RATE * visits[n]) for n in names}
    least = sum(math.floor(RATE * visits[n] * service_s[n] / 0.9) + 1 for n in names)
    return Tree(f"random {seed}", service_s, edges, least + 3)


Estimate = Callable[[Mapping[str, int]], float]


def largest(times: Mapping[str, tuple[float, int]]) -> float:
    """The mean of the largest of independent exponential times, by their means and how many there
    are of each: the integral of how likely it is that one of them still lasts."""
    end = 40 * max(mean for mean, _ in times.values())
    steps = 4000
    total = 0.0
    for step in range(steps):
        at = (step + 0.5) * end / steps
        over = math.prod((1 - math.exp(-at / mean)) ** n for mean, n in times.values())
        total += (1 - over) * end / steps
    return total


def by_shape(tree: Tree, batch: bool) -> Estimate:
    """Harmonic numbers, or batches."""
    visits = tree.visits()

    def estimate(allocation: Mapping[str, int]) -> float:
        def whole(name: str, at_once: int) -> float:
            """Until the last of so many at a station, and all that follows from it, are done."""
            scv = float(at_once) if batch else 1.0
            service_s = tree.service_s[name]
            station = Station(RATE * visits[name], 1 / service_s, scv)
            wait_s = station.mean_wait(allocation[name])
            times = {to: (whole(to, n), 1) for to, n in tree.edges.get(name, {}).items()}
            last = math.fsum(1 / i for i in range(1, at_once + 1))
            here = wait_s + last * service_s if batch else last * (wait_s + service_s)
            return here + (largest(times) if len(times) > 1 else sum(t for t, _ in times.values()))

        return whole(next(iter(tree.service_s)), 1)

    return estimate


def compared(tree: Tree) -> list[tuple[str, float, float, float]]:
    """Error, pairs and regret of every estimate."""
    choices = list(tree.allocations())
    truth, measures = [], []
    for choice in choices:
        sojourn, measure = tree.simulated(choice)
        truth.append(sojourn.mean_s)
        measures.append(measure)
    spare = [
        max(n.stations[name].utilization(k) for name, k in choice.items())
        for choice, n in zip(choices, map(network, measures), strict=True)
    ]
    at = network(measures[spare.index(min(spare))])
    plain = Network(at.stations, at.external_rate)
    estimates: dict[str, Estimate] = {
        "sum": lambda choice: plain.mean_sojourn({**choice, "out": 1}),
        "weights": lambda choice: at.mean_sojourn({**choice, "out": 1}),
        "harmonic": by_shape(tree, batch=False),
        "batch": by_shape(tree, batch=True),
    }
    rows = []
    for name, estimate in estimates.items():
        found = [estimate(choice) for choice in choices]
        error = statistics.fmean(abs(f / t - 1) for f, t in zip(found, truth, strict=True))
        pairs = [
            (found[i] < found[j]) == (truth[i] < truth[j])
            for i, j in itertools.combinations(range(len(choices)), 2)
            if abs(truth[i] / truth[j] - 1) >= DIFFERENT
        ]
        regret = truth[found.index(min(found))] / min(truth) - 1
        rows.append((name, error, statistics.fmean(pairs), regret))
    return rows


def main() -> None:
    """Print the table, tree by tree and over all, for the trees of either kind."""
    print(line("tree", "allocations", "estimate", ["error", "pairs", "regret"]))
    for kind, trees in (("all six", TREES), ("all random", [drawn(n) for n in range(UNSEEN)])):
        sums: dict[str, list[list[float]]] = {}
        total = 0
        for tree in trees:
            count = sum(1 for _ in tree.allocations())
            total += count
            for name, *figures in compared(tree):
                sums.setdefault(name, []).append(figures)
                print(line(tree.name, str(count), name, percents(figures)))
        for name, rows in sums.items():
            means = [statistics.fmean(part) for part in zip(*rows, strict=True)]
            print(line(kind, str(total), name, percents(means)))


def percents(figures: list[float]) -> list[str]:
    """For people."""
    return [f"{100 * figure:.0f} %" for figure in figures]


def line(tree: str, count: str, name: str, figures: list[str]) -> str:
    """One row."""
    error, pairs, regret = figures
    return f"{tree:<28} {count:>11} {name:<9} {error:>6} {pairs:>6} {regret:>7}"


if __name__ == "__main__":
    main()
