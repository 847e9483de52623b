"""The whole method (Liu 2017, §3): first what the application is like, then what the platform
carries, then single operators. Pure; proposes trials and is told what was measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sojourn.errors import InputError, TopologyFailed
from sojourn.ports import Parallelism
from sojourn.profiler.capability import Best, Limits, capability
from sojourn.profiler.capacity import capacity
from sojourn.profiler.features import Feature, Kind, Ratios, kind_of, ratios
from sojourn.profiler.trial import Measured, Method, Proposal, Seen, Verdict, capped, measured
from sojourn.topology import Topology
from sojourn.units import format_rate

STEP = "application"
_KEEPS_UP = 0.9  # of a small load
_BUSY = 0.3  # of its time, for the busiest operator: nothing waits for long, and all is warm
_TIMES = 2.0, 100.0  # times the small load, at least and at most


@dataclass(frozen=True)
class Shape:
    """What methods know of a topology beforehand: its sources and operators, who sends to whom,
    which operators can have one task only, the most tasks that others can use, and kinds that were
    declared."""

    sources: tuple[str, ...]
    operators: tuple[str, ...]
    senders: Mapping[str, tuple[str, ...]]
    receivers: Mapping[str, tuple[str, ...]]
    single: frozenset[str] = frozenset()
    most: Mapping[str, int] = field(default_factory=dict)
    declared: Mapping[str, Kind] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Topology, declared: Mapping[str, Kind] | None = None) -> "Shape":
        """Of a topology without chains."""
        flowing = topology.without_broadcasts()
        senders: dict[str, list[str]] = {name: [] for name in flowing.vertices}
        receivers: dict[str, list[str]] = {name: [] for name in flowing.vertices}
        for edge in flowing.edges:
            senders[edge.receiver].append(edge.sender)
            receivers[edge.sender].append(edge.receiver)
        for name in declared or {}:
            if name not in flowing.operators:
                raise InputError(
                    f"operator {name!r} is not in the topology, so it has no kind; known: "
                    f"{', '.join(flowing.operators)}"
                )
        return cls(
            tuple(flowing.sources),
            tuple(flowing.operators),
            {name: tuple(of) for name, of in senders.items()},
            {name: tuple(of) for name, of in receivers.items()},
            frozenset(n for n, spec in flowing.operators.items() if spec.most_processors == 1),
            {n: k for n, s in flowing.operators.items() if (k := s.most_processors) is not None},
            dict(declared or {}),
        )

    def ones(self) -> Parallelism:
        """One task each."""
        return Parallelism(dict.fromkeys(self.operators, 1), dict.fromkeys(self.sources, 1))


@dataclass
class Found:
    """What the method has found so far."""

    features: dict[str, Feature] = field(default_factory=dict)
    ratios: Ratios | None = None
    steady: dict[str, int] = field(default_factory=dict)  # tasks of what does not grow with a load
    best: list[Best] = field(default_factory=list)


def stepwise(shape: Shape, limits: Limits, small: float, found: Found) -> Method:
    """All three steps. `small` is the load of the first, in messages a second."""
    start = yield from featured(shape, limits, small, found)
    assert found.ratios is not None
    yield from capability(start, found.ratios.scaled, limits, found.best)
    scalable = tuple(name for name in shape.operators if name not in shape.single)
    yield from capacity(found.best[-1], found.features, scalable, limits, found.best)
    return found.best[-1].parallelism


def featured(shape: Shape, limits: Limits, small: float, found: Found) -> Method:
    """The first step. Returns what it starts the second with. A load that is not small is made
    smaller; none is tried that operators may not keep up with."""
    ones = shape.ones()
    for last in (False, False, True):
        why = f"{format_rate(small)} messages a second, so that nothing waits"
        first = measured((yield Proposal(STEP, ones, why, small)))
        if first.throughput < _KEEPS_UP * small:
            raise TopologyFailed(
                f"it does not keep up even with {format_rate(small)} messages a second: it carries "
                f"{format_rate(first.throughput)}; give a smaller load"
            )
        busiest = max(of.capacity for name, of in first.seen.items() if name in shape.operators)
        is_small = busiest <= _BUSY / _TIMES[0]
        told = "how long operators take, and what they pass on"
        late = f"an operator is busy for {busiest:.0%} of its time, so this is not small"
        yield Verdict(is_small, told if is_small else late)
        if is_small:
            break
        if last:
            raise TopologyFailed(
                f"an operator is busy for {busiest:.0%} of its time with {format_rate(small)} "
                "messages a second; give a smaller load"
            )
        small *= _BUSY / _TIMES[0] / 2 / busiest
    times = min(_TIMES[1], max(_TIMES[0], _BUSY / max(busiest, 1e-6)))
    why = f"{times:.3g} times as many, to see on what outputs depend, and what is quicker then"
    second = measured((yield Proposal(STEP, ones, why, times * small)))
    found.features = features_of(shape, first, second, small)
    found.ratios = ratios(found.features, shape.senders, limits.slice, limits.cores)
    found.steady = {n: k for n, k in found.ratios.fixed.items() if found.features[n].parallel}
    yield Verdict(True, _told(found.features))
    return Parallelism(capped(found.ratios.start, limits.most), ones.parts)


def features_of(
    shape: Shape, first: Measured, second: Measured, small: float
) -> dict[str, Feature]:
    """From what was measured with a small load, and with a larger one."""
    found = {}
    for name in shape.operators:
        one, two = first.seen[name], second.seen[name]
        if one.service_s is None or not one.arrivals:
            raise InputError(
                f"operator {name!r}: no tuple came to it in the first trial, at "
                f"{format_rate(small)} messages a second; give a sample with tuples for it, a "
                "larger load, or longer readings"
            )
        out = [sum(of.emitted.values()) * of.served for of in (one, two)]
        kind = shape.declared.get(name)
        if kind is None and shape.receivers[name] and two.arrivals > 1.2 * one.arrivals:
            kind = kind_of(one.arrivals, out[0], two.arrivals, out[1], _scv(one))
        times = [of.service_s for of in (one, two) if of.service_s is not None]
        found[name] = Feature(
            min(times), one.arrivals / small, kind or "proportional", name not in shape.single
        )
    return found


def _scv(of: Seen) -> float:
    """How much the number of tuples varies that one makes, over its edges."""
    spreads = [
        of.squares.get(edge, 0.0) / mean**2 - 1 for edge, mean in of.emitted.items() if mean > 0
    ]
    return max(spreads, default=0.0)


def _told(features: Mapping[str, Feature]) -> str:
    words = (
        f"{n} {f.least_s * 1e3:.3g} ms × {f.visits:.3g}, {f.kind}" for n, f in features.items()
    )
    return "; ".join(words)
