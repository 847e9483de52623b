"""The file that `sojourn plan` reads: sources, operators, edges and limits in YAML, checked line
by line. Fed by the command; feeds it a network."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sojourn.errors import InputError
from sojourn.graph import cycle_in, groups, is_loop
from sojourn.queueing import Network, Station, traffic
from sojourn.units import parse_duration, parse_number, parse_rate, parse_whole


@dataclass(frozen=True)
class OperatorEntry:
    """One operator as the file gives it."""

    service_rate: float
    arrival_scv: float
    service_scv: float
    min_processors: int | None
    max_processors: int | None


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

    def network(self, model: str) -> Network:
        """The queueing network; the model `mmk` takes every SCV for 1."""
        external = dict.fromkeys(self.operators, 0.0)
        gains: dict[tuple[str, str], float] = {}
        for edge in self.edges:
            if edge.sender in self.sources:
                external[edge.receiver] += self.sources[edge.sender] * edge.gain
            else:
                gains[edge.sender, edge.receiver] = edge.gain
        rates = traffic(external, gains)
        exponential = model == "mmk"
        stations = {
            name: Station(
                rates[name],
                entry.service_rate,
                1.0 if exponential else entry.arrival_scv,
                1.0 if exponential else entry.service_scv,
            )
            for name, entry in self.operators.items()
        }
        return Network(stations, sum(self.sources.values()))

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
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a text file in UTF-8 ({error.reason})") from error
    top = _Section(*_parse(text, str(path)), path=str(path), place=())
    top.check_keys("name", "sources", "operators", "edges", "limits")
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
        )
    }
    for name in operators:
        if name in sources:
            top.fail(f"{name!r} is both a source and an operator; rename one", "operators", name)
    edges = _edges(top, sources, operators)
    limits = top.section("limits") if "limits" in top.value else None
    if limits:
        limits.check_keys("max_processors", "max_sojourn", "percentile")
    plan = PlanFile(
        name=str(top.value.get("name", path.stem)),
        sources=sources,
        operators=operators,
        edges=edges,
        max_processors=limits.whole("max_processors") if limits else None,
        max_sojourn=limits.optional("max_sojourn", parse_duration, above=0.0) if limits else None,
        percentile=limits.optional("percentile", parse_number, above=0.0) if limits else None,
    )
    if limits and plan.percentile and plan.percentile >= 100:
        limits.fail(f"must lie below 100, as in 99; got {plan.percentile:g}", "percentile")
    if plan.max_processors and plan.max_sojourn:
        top.fail("give max_processors or max_sojourn, not both", "limits")
    return plan


def _operator(entry: "_Section") -> OperatorEntry:
    if ("service_time" in entry.value) == ("service_rate" in entry.value):
        entry.fail("needs either service_time or service_rate")
    if "service_time" in entry.value:
        service_rate = 1 / entry.number("service_time", parse_duration, above=0.0)
    else:
        service_rate = entry.number("service_rate", parse_rate, above=0.0)
    low, high = entry.whole("min_processors"), entry.whole("max_processors")
    if low and high and low > high:
        entry.fail(f"min_processors {low} lies above max_processors {high}")
    return OperatorEntry(
        service_rate=service_rate,
        arrival_scv=entry.number("arrival_scv", parse_number, default=1.0),
        service_scv=entry.number("service_scv", parse_number, default=1.0),
        min_processors=low,
        max_processors=high,
    )


def _edges(
    top: "_Section", sources: Mapping[str, float], operators: Mapping[str, OperatorEntry]
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
    top: "_Section",
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


@dataclass(frozen=True)
class _Section:
    """A mapping of the file that knows where it stands, so that every complaint names its place."""

    value: dict[str, Any]
    lines: Mapping[tuple[str | int, ...], int]
    path: str
    place: tuple[str | int, ...]

    def fail(self, message: str, *below: str | int) -> NoReturn:
        place = (*self.place, *below)
        dotted = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".")
        line = next(
            self.lines[place[:n]] for n in range(len(place), -1, -1) if place[:n] in self.lines
        )
        raise InputError(f"{self.path}:{line}: {dotted + ': ' if dotted else ''}{message}")

    def section(self, *below: str | int) -> "_Section":
        value: Any = self.value
        for key in below:
            value = value[key]
        if not isinstance(value, dict):
            self.fail(f"must be a mapping of keys to values; got {value!r}", *below)
        return _Section(value, self.lines, self.path, (*self.place, *below))

    def entries(self, key: str, *known: str) -> Iterable[tuple[str, "_Section"]]:
        if not self.value.get(key):
            self.fail(f"needs {key} with at least one entry", *([key] if key in self.value else []))
        section = self.section(key)
        for name in section.value:
            entry = section.section(name)
            entry.check_keys(*known)
            yield name, entry

    def check_keys(self, *known: str) -> None:
        for key in self.value:
            if key not in known:
                self.fail(f"unknown key{_nearest(key, known)}", key)

    def number(
        self,
        key: str,
        parse: Callable[[object, str], float],
        default: float | None = None,
        above: float | None = None,
    ) -> float:
        if key not in self.value:
            if default is None:
                self.fail(f"needs {key}")
            return default
        try:
            number = parse(self.value[key], "")
        except InputError as error:
            self.fail(str(error).removeprefix(": "), key)
        if above is not None and number <= above:
            self.fail(f"must be above {above:g}; got {self.value[key]!r}", key)
        if number < 0:
            self.fail(f"must not be negative; got {self.value[key]!r}", key)
        return number

    def optional(
        self, key: str, parse: Callable[[object, str], float], above: float
    ) -> float | None:
        return self.number(key, parse, above=above) if key in self.value else None

    def whole(self, key: str) -> int | None:
        if key not in self.value:
            return None
        try:
            return parse_whole(self.value[key], "")
        except InputError as error:
            self.fail(str(error).removeprefix(": "), key)

    def name(self, key: str, known: Iterable[str], what: str) -> str:
        if key not in self.value:
            self.fail(f"needs {key}")
        value = self.value[key]
        if value not in known:
            self.fail(f"unknown {what} {value!r}{_nearest(str(value), known)}", key)
        return str(value)


def _nearest(word: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _parse(text: str, path: str) -> tuple[dict[str, Any], dict[tuple[str | int, ...], int]]:
    """The YAML as plain values, and the line of every key and item."""
    lines: dict[tuple[str | int, ...], int] = {(): 1}
    loader = yaml.SafeLoader(text)

    def build(node: yaml.Node, place: tuple[str | int, ...]) -> Any:
        if isinstance(node, yaml.MappingNode):
            mapping: dict[str, Any] = {}
            for key_node, value_node in node.value:
                line = key_node.start_mark.line + 1
                key = loader.construct_object(key_node)
                if not isinstance(key, str):
                    raise InputError(
                        f"{path}:{line}: the key {key!r} must be text; put it in quotes"
                    )
                if key in mapping:
                    raise InputError(f"{path}:{line}: the key {key!r} is given twice")
                lines[*place, key] = line
                mapping[key] = build(value_node, (*place, key))
            return mapping
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                lines[*place, index] = item.start_mark.line + 1
            return [build(item, (*place, index)) for index, item in enumerate(node.value)]
        return loader.construct_object(node)

    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                mark = event.start_mark
                line = f":{mark.line + 1}" if mark else ""
                raise InputError(f"{path}{line}: aliases (*name) are not supported; write it out")
        node = loader.get_single_node()
        value = build(node, ()) if node else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{path}{line}: is not valid YAML: {problem}") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: is not valid YAML: {error}") from error
    finally:
        loader.dispose()
    if not isinstance(value, dict):
        raise InputError(f"{path}:1: must hold sources, operators and edges; got {value!r}")
    return value, lines
