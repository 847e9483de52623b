"""What a simulation must be told that a topology does not say: how long operators take, how much
they emit, how keys are spread, and when tuples arrive. Fed by a file or a journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NoReturn

from sojourn.errors import InputError
from sojourn.simulator.draws import Distribution
from sojourn.sources import Pace
from sojourn.topology import Topology

_GAPS = {
    "constant": Distribution("constant", 1.0),
    "poisson": Distribution("exponential", 1.0),
    "uniform": Distribution("uniform", 1.0),
}


@dataclass(frozen=True)
class SourceLoad:
    """When tuples arrive: steps of (seconds, rate), of which the last goes on unless `ends`, and
    the distribution of the gaps, of mean one. With `count`, no more than that many come."""

    steps: tuple[tuple[float, float], ...]
    gap: Distribution = _GAPS["poisson"]
    count: int | None = None
    ends: bool = False

    @classmethod
    def of(cls, pace: Pace) -> "SourceLoad":
        """As a source's own pace says."""
        return cls(tuple(pace.steps), _GAPS[pace.arrivals])

    def at_rate(self, factor: float) -> "SourceLoad":
        """With all rates higher by a factor."""
        steps = tuple((seconds, rate * factor) for seconds, rate in self.steps)
        return SourceLoad(steps, self.gap, self.count, self.ends)


@dataclass(frozen=True)
class OperatorLoad:
    """Service time, tuples emitted per tuple to each receiver (one unless said), and with a key:
    how skewed the shards' popularity is (Zipf's exponent), and how often it shifts."""

    service: Distribution
    gains: Mapping[str, float] = field(default_factory=dict)
    zipf: float = 0.0
    shift_s: float | None = None


@dataclass(frozen=True)
class Workload:
    """All of it. Sources left out go by their own pace; sinks left out take no time."""

    operators: Mapping[str, OperatorLoad]
    sources: Mapping[str, SourceLoad] = field(default_factory=dict)

    def checked(self, topology: Topology) -> "Workload":
        """The same with all sources, or a word about what is missing or too much."""
        for name, load in self.operators.items():
            if name not in topology.operators and name not in topology.sinks:
                _unknown("operator", name, [*topology.operators, *topology.sinks])
            receivers = {edge.receiver for edge in topology.edges if edge.sender == name}
            for receiver in load.gains:
                if receiver not in receivers:
                    _unknown(f"operator {name!r}: receiver", receiver, list(receivers))
        for name in self.sources:
            if name not in topology.sources:
                _unknown("source", name, list(topology.sources))
        for name in topology.operators:
            if name not in self.operators:
                raise InputError(
                    f"operator {name!r}: its service time is not known; add it to the service "
                    "file, or take a journal of a run"
                )
        sources = {}
        for name, spec in topology.sources.items():
            if name in self.sources:
                sources[name] = self.sources[name]
            elif spec.source.pace is not None:
                sources[name] = SourceLoad.of(spec.source.pace)
            else:
                raise InputError(
                    f"source {name!r}: has no pace, so its arrivals are not known; add a rate to "
                    "the service file, or give --trace"
                )
        return Workload(self.operators, sources)


def _unknown(what: str, name: str, known: list[str]) -> NoReturn:
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known) or 'none'}"
    raise InputError(f"{what} {name!r} is not in the topology; {hint}")
