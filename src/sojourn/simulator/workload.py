"""What a simulation must know and a topology does not say: how long operators take, how much they
emit, how keys are spread, and when tuples arrive. Fed by a file or a journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import NoReturn

from sojourn.errors import InputError
from sojourn.queueing.network import traffic
from sojourn.simulator.draws import Distribution
from sojourn.sources import Source
from sojourn.topology import Edge, Topology

MOST_PER_S = 1e7
MOST_GAIN = 1e4
_GAPS = {
    "constant": Distribution("constant", 1.0),
    "poisson": Distribution("exponential", 1.0),
    "uniform": Distribution("uniform", 1.0),
}


@dataclass(frozen=True)
class SourceLoad:
    """When tuples arrive: steps of (seconds, rate), and the distribution of the gaps, of mean one.
    The last step goes on unless `ends`. With `count`, at most that many come."""

    steps: tuple[tuple[float, float], ...]
    gap: Distribution = _GAPS["poisson"]
    count: int | None = None
    ends: bool = False

    def __post_init__(self) -> None:
        most = max((rate for _, rate in self.steps), default=0.0)
        if most > MOST_PER_S:
            raise InputError(f"a rate must be at most {MOST_PER_S:g}/s; got {most:g}")

    @classmethod
    def of(cls, source: Source) -> "SourceLoad | None":
        """The load that a source's own pace gives, if it has one."""
        pace = source.pace
        return None if pace is None else cls(tuple(pace.steps), _GAPS[pace.arrivals], source.count)

    def at_rate(self, factor: float) -> "SourceLoad":
        """The same with all rates multiplied by a factor."""
        steps = tuple((seconds, rate * factor) for seconds, rate in self.steps)
        return replace(self, steps=steps)


@dataclass(frozen=True)
class OperatorLoad:
    """Service time, and tuples emitted per tuple to each receiver: one by default;
    `match[rejected]` is the receiver of a named output. With a key, also how skewed the shards'
    popularity is (Zipf's exponent), and how often it shifts. `cpu` is the share of the service time
    in which it computes; otherwise it waits. That matters only where machines are full. With
    `every_s`, a timer emits so many tuples that often, whatever comes."""

    service: Distribution
    gains: Mapping[str, float] = field(default_factory=dict)
    zipf: float = 0.0
    shift_s: float | None = None
    cpu: float = 1.0
    every_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.cpu <= 1:
            raise InputError(f"the share of CPU time must be from 0 to 1; got {self.cpu:g}")
        for receiver, gain in self.gains.items():
            if not 0 <= gain <= MOST_GAIN:
                raise InputError(
                    f"the gain to {receiver!r} must be from 0 to {MOST_GAIN:g}; got {gain:g}"
                )
        for what, often_s in (
            ("keys must shift", self.shift_s),
            ("timers must emit", self.every_s),
        ):
            if often_s is not None and often_s < 0.001:
                raise InputError(f"{what} no more often than every 1ms; got {often_s:g} s")

    def gain(self, edge: Edge) -> float:
        """Tuples over an edge per tuple processed."""
        return self._given(edge) if self.every_s is None else 0.0

    def ticks(self, edge: Edge) -> float:
        """Tuples over an edge each time that its timer is due."""
        return 0.0 if self.every_s is None else self._given(edge)

    def _given(self, edge: Edge) -> float:
        return self.gains.get(edge.name, self.gains.get(edge.receiver, 1.0))


@dataclass(frozen=True)
class Workload:
    """The workload of a whole topology. Sources left out use their own pace; sinks left out take no
    time."""

    operators: Mapping[str, OperatorLoad]
    sources: Mapping[str, SourceLoad] = field(default_factory=dict)

    def checked(self, topology: Topology) -> "Workload":
        """The same with all sources. Refuses a workload that lacks something or names something
        unknown."""
        self.check_operators(topology)
        flowing = topology.without_broadcasts()
        for name in self.sources:
            if name not in topology.sources:
                _unknown("source", name, list(topology.sources))
        sources = {}
        for name, source in flowing.sources.items():
            found = self.sources.get(name) or SourceLoad.of(source.source)
            if found is None:
                raise InputError(
                    f"source {name!r}: has no pace, so its arrivals are not known; add a rate to "
                    "the service file, or give --trace"
                )
            sources[name] = found
        return Workload(self.operators, sources)

    def check_operators(self, topology: Topology) -> None:
        """Refuse a workload that does not know all operators, or knows others."""
        flowing = topology.without_broadcasts()
        for name, load in self.operators.items():
            if name not in topology.operators and name not in topology.sinks:
                _unknown("operator", name, [*topology.operators, *topology.sinks])
            edges = [edge for edge in flowing.edges if edge.sender == name]
            known = dict.fromkeys(n for edge in edges for n in (edge.name, edge.receiver))
            for receiver in load.gains:
                if receiver not in known:
                    _unknown(f"operator {name!r}: receiver", receiver, list(known))
            _check_outputs(name, load, edges)
            spec = topology.operators.get(name)
            if (load.zipf or load.shift_s) and (spec is None or spec.key is None):
                raise InputError(f"operator {name!r}: has no key, so its keys cannot be skewed")
        for name in topology.operators:
            if name not in self.operators:
                raise InputError(
                    f"operator {name!r}: its service time is not known; add it to the service "
                    "file, or use the journal of a run"
                )
        gains = {
            (edge.sender, edge.receiver): self.operators[edge.sender].gain(edge)
            for edge in flowing.edges
            if edge.sender in self.operators
        }
        traffic(dict.fromkeys(topology.operators, 0.0), gains)  # refuses loops that never end


def _check_outputs(name: str, load: OperatorLoad, edges: list[Edge]) -> None:
    """Refuse different gains for one output: all its receivers get each of its tuples. Measured
    gains may differ a little."""
    by_output: dict[str | None, dict[str, float]] = {}
    for edge in edges:
        gain = load.gain(edge) or load.ticks(edge)
        by_output.setdefault(edge.output, {})[edge.receiver] = gain
    for gains in by_output.values():
        low, high = min(gains.values()), max(gains.values())
        if high - low > 0.05 * high:
            told = ", ".join(f"{receiver!r} {gain:g}" for receiver, gain in gains.items())
            raise InputError(
                f"operator {name!r}: all receivers of an output get each of its tuples, so their "
                f"gains must be the same; got {told}"
            )


def _unknown(what: str, name: str, known: list[str]) -> NoReturn:
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
    raise InputError(f"{what} {name!r} is not in the topology; {hint}")
