"""The file that `sojourn plan` reads: sources, operators, edges, limits and processors in YAML,
checked line by line. Fed by the command; feeds it a network."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sojourn.cli.section import Section, read_section
from sojourn.errors import InputError
from sojourn.graph import cycle_in, groups, is_loop
from sojourn.queueing import Kind, Network, Station, spreads, traffic
from sojourn.units import parse_duration, parse_number, parse_rate


@dataclass(frozen=True)
class OperatorEntry:
    """One operator as the file gives it."""

    service_rate: float
    arrival_scv: float
    service_scv: float
    min_processors: int | None
    max_processors: int | None
    cpu: float = 1.0  # share of the service time in which it computes; for `sojourn profile`


@dataclass(frozen=True)
class Edge:
    """`gain` tuples go to `receiver` for each one that reaches `sender`."""

    sender: str
    receiver: str
    gain: float
    feedback: bool


@dataclass(frozen=True)
class PlanFile:
    """A whole file, checked."""

    name: str
    sources: Mapping[str, float]
    operators: Mapping[str, OperatorEntry]
    edges: tuple[Edge, ...]
    max_processors: int | None
    max_sojourn: float | None
    percentile: float | None
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    def network(self, model: str) -> Network:
        """The queueing network; the model `mmk` sets every SCV to 1."""
        external = dict.fromkeys(self.operators, 0.0)
        gains: dict[tuple[str, str], float] = {}
        for edge in self.edges:
            if edge.sender in self.sources:
                external[edge.receiver] += self.sources[edge.sender] * edge.gain
            else:
                gains[edge.sender, edge.receiver] = edge.gain
        rates = traffic(external, gains)
        exponential = model == "mmk"
        stations = {}
        for name, entry in self.operators.items():
            scvs = (1.0, 1.0) if exponential else (entry.arrival_scv, entry.service_scv)
            try:
                stations[name] = Station(rates[name], entry.service_rate, *scvs)
            except InputError as error:
                raise InputError(f"operator {name!r}: {error}") from error
        network = Network(stations, sum(self.sources.values()))
        onward: dict[str, dict[str, float]] = {}
        for edge in self.edges:
            onward.setdefault(edge.sender, {})[edge.receiver] = edge.gain
        return replace(network, spreads=spreads(network, self.sources, onward))

    @property
    def minimum(self) -> dict[str, int]:
        """The operators' own lower limits."""
        return {n: o.min_processors for n, o in self.operators.items() if o.min_processors}

    @property
    def maximum(self) -> dict[str, int]:
        """The operators' own upper limits."""
        return {n: o.max_processors for n, o in self.operators.items() if o.max_processors}


def read_plan_file(path: Path) -> PlanFile:
    """Read and check a file, or say which line is wrong and how."""
    top = read_section(path)
    top.check_keys("name", "sources", "operators", "edges", "limits", "processors", "profile")
    sources = {
        name: entry.number("rate", parse_rate, above=0.0)
        for name, entry in top.entries("sources", "rate")
    }
    operators = {
        name: _operator(entry)
        for name, entry in top.entries(
            "operators",
            "service_time",
            "service_rate",
            "arrival_scv",
            "service_scv",
            "min_processors",
            "max_processors",
            "cpu",
        )
    }
    for name in operators:
        if name in sources:
            top.fail(f"{name!r} is both a source and an operator; rename one", "operators", name)
    edges = _edges(top, sources, operators)
    limits = top.section("limits") if "limits" in top.value else None
    if limits:
        limits.check_keys("max_processors", "max_sojourn", "percentile")
    kinds = _kinds(top) if "processors" in top.value else {}
    plan = PlanFile(
        name=top.text("name", path.stem),
        sources=sources,
        operators=operators,
        edges=edges,
        max_processors=limits.whole("max_processors") if limits else None,
        max_sojourn=limits.optional("max_sojourn", parse_duration, above=0.0) if limits else None,
        percentile=limits.optional("percentile", parse_number, above=0.0) if limits else None,
        kinds=kinds,
    )
    if limits and plan.percentile and plan.percentile >= 100:
        limits.fail(f"must lie below 100, such as 99; got {plan.percentile:g}", "percentile")
    if plan.max_processors and plan.max_sojourn:
        top.fail("give max_processors or max_sojourn, not both", "limits")
    return plan


def _operator(entry: Section) -> OperatorEntry:
    if ("service_time" in entry.value) == ("service_rate" in entry.value):
        entry.fail("needs either service_time or service_rate")
    if "service_time" in entry.value:
        service_rate = 1 / entry.number("service_time", parse_duration, above=0.0)
    else:
        service_rate = entry.number("service_rate", parse_rate, above=0.0)
    low, high = entry.whole("min_processors"), entry.whole("max_processors")
    if low and high and low > high:
        entry.fail(f"min_processors {low} is above max_processors {high}")
    return OperatorEntry(
        service_rate=service_rate,
        arrival_scv=entry.number("arrival_scv", parse_number, default=1.0),
        service_scv=entry.number("service_scv", parse_number, default=1.0),
        min_processors=low,
        max_processors=high,
        cpu=entry.number("cpu", parse_number, default=1.0),
    )


def _kinds(top: Section) -> dict[str, Kind]:
    found = {}
    for name, entry in top.entries("processors", "count", "speed", "cost"):
        count = entry.whole("count")
        if count is None:
            entry.fail("needs count")
        speed = entry.number("speed", parse_number, above=0.0)
        cost = entry.number("cost", parse_number, default=1.0, above=0.0)
        try:
            found[name] = Kind(count, speed, cost)
        except InputError as error:
            entry.fail(str(error))
    return found


def _edges(
    top: Section, sources: Mapping[str, float], operators: Mapping[str, OperatorEntry]
) -> tuple[Edge, ...]:
    raw = top.value.get("edges")
    if not isinstance(raw, list) or not raw:
        top.fail("must be a list such as [{from: a, to: b}], with at least one edge", "edges")
    edges: dict[tuple[str, str], Edge] = {}
    for index in range(len(raw)):
        entry = top.section("edges", index)
        entry.check_keys("from", "to", "gain", "feedback")
        sender = entry.name("from", {**sources, **operators}, "source or operator")
        receiver = entry.name("to", operators, "operator")
        feedback = entry.value.get("feedback", False)
        if not isinstance(feedback, bool):
            entry.fail(f"must be true or false; got {feedback!r}", "feedback")
        if feedback and sender in sources:
            entry.fail(f"source {sender!r} cannot send feedback: only operators can", "feedback")
        if (sender, receiver) in edges:
            entry.fail(f"the edge {sender} → {receiver} is given twice; add up their gains")
        gain = entry.number("gain", parse_number, default=1.0, above=0.0)
        edges[sender, receiver] = Edge(sender, receiver, gain, feedback)
    _check_shape(top, sources, operators, edges.values())
    return tuple(edges.values())


def _check_shape(
    top: Section,
    sources: Mapping[str, float],
    operators: Mapping[str, OperatorEntry],
    edges: Iterable[Edge],
) -> None:
    forward: dict[str, list[str]] = {name: [] for name in (*sources, *operators)}
    for edge in edges:
        if not edge.feedback:
            forward[edge.sender].append(edge.receiver)
    reached = set(sources)
    for group in groups(forward):
        if is_loop(group, forward):
            path = " → ".join(cycle_in(group, forward))
            top.fail(
                f"the forward edges form a cycle {path}; "
                "mark the edge that closes it with feedback: true",
                "edges",
            )
        if group[0] in reached:
            reached.update(forward[group[0]])
    for name in operators:
        if name not in reached:
            top.fail(
                "receives no tuples: no path of forward edges leads to it from a source",
                "operators",
                name,
            )
    for name in sources:
        if not forward[name]:
            top.fail("feeds nothing: add an edge from it", "sources", name)
