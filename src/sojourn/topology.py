"""A topology as its author writes it: sources, operators, sinks and the edges between them.
Pure description, checked before anything starts; every engine runs it.

    t = Topology("wordcount")
    lines = t.source("lines", sources.lines("tweets.txt"))
    words = t.operator("split", split, lines)
    counts = t.operator("count", Count, words, key=lambda word: word)
    t.sink("out", sinks.jsonl("out/"), counts)
"""

import dis
import inspect
import re
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal, TypeVar

from sojourn.errors import InputError
from sojourn.graph import cycle_in, groups, is_loop
from sojourn.sinks import Sink
from sojourn.sources import Source

Concurrency = Literal["process", "thread"]
OnError = Literal["fail", "skip", "dead-letter"]
_ON_ERROR: tuple[OnError, ...] = ("fail", "skip", "dead-letter")
Key = Callable[[Any], Any]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
MAX_SHARDS = 65_536
_T = TypeVar("_T")


class Operator:
    """Base of operators that keep something between tuples.

    `open` is called once in every worker, `process` for every tuple, `close` when the worker ends.
    `self.state` is a mapping over the keys of the shard in hand, kept across restarts; it exists
    only where the topology declares `key=`. Change what it holds in the tuple that takes it out."""

    state: MutableMapping[Any, Any]
    columns: Literal["numpy", "arrow"] | None = None

    def open(self) -> None:
        """Set up what cannot be pickled: models, connections."""

    def process(self, value: Any) -> Any:  # noqa: ARG002
        """Return or yield the values that follow from this one, or None for none."""
        raise TypeError(f"{type(self).__name__} must define process(self, value)")

    def process_bundle(self, values: Any) -> Any:  # noqa: ARG002
        """Define this instead of `process` to take as many values at once as wait, for code that
        is faster so: a list of them, or with `columns = "numpy"` an array, with `columns =
        "arrow"` a table of mappings or an array. Return an array or a table with one result for
        each, or a list with what `process` would return for each. With a key, all are of one shard.
        If it raises, each is given by itself."""
        raise TypeError(f"{type(self).__name__} must define process_bundle(self, values)")

    def close(self) -> None:
        """Give back what `open` took."""


@dataclass(frozen=True)
class Output:
    """A value for one named output only: `return Output("rejected", value)`."""

    name: str
    value: Any


@dataclass(frozen=True)
class Vertex:
    """A handle to a vertex, or with `output` to one of its named outputs."""

    topology: "Topology" = field(repr=False, compare=False)
    name: str
    output: str | None = None

    def __getitem__(self, output: str) -> "Vertex":
        """`rejected = checked["rejected"]`: what `Output("rejected", …)` carries."""
        return Vertex(self.topology, self.name, output)


@dataclass(frozen=True)
class Edge:
    """From one vertex to another; `output` names the sender's output, None its plain one."""

    sender: str
    receiver: str
    output: str | None = None
    feedback: bool = False

    @property
    def name(self) -> str:
        """How samples name it: `match`, or `match[rejected]` for a named output."""
        return self.receiver if self.output is None else f"{self.receiver}[{self.output}]"


@dataclass(frozen=True)
class SourceSpec:
    """A source and how it is run."""

    name: str
    source: Source


@dataclass(frozen=True)
class OperatorSpec:
    """An operator and how it is run."""

    name: str
    code: Callable[[Any], Any] | type[Operator]
    key: Key | None
    shards: int
    executors: int
    processors: int
    concurrency: Concurrency
    on_error: OnError
    chained: bool = False


@dataclass(frozen=True)
class SinkSpec:
    """A sink and how it is run."""

    name: str
    sink: Sink
    on_error: OnError = "fail"


Spec = SourceSpec | OperatorSpec | SinkSpec


class Topology:
    """Vertices and edges under construction. Mistakes are told at the line that makes them;
    what only the whole can show (an operator nobody feeds, a source without a receiver) by
    `check`, which every engine calls first."""

    def __init__(self, name: str) -> None:
        self.name = _named(name, "topology")
        self.vertices: dict[str, Spec] = {}
        self.edges: list[Edge] = []

    def source(self, name: str, source: Source) -> Vertex:
        """Where tuples enter."""
        if not isinstance(source, Source):
            raise InputError(
                f"source {name!r}: must be one of sojourn.sources, or a Source; got {source!r}"
            )
        return self._add(SourceSpec(_named(name, "source"), source))

    def operator(
        self,
        name: str,
        code: Callable[[Any], Any] | type[Operator],
        *inputs: Vertex,
        key: Key | None = None,
        shards: int = 256,
        executors: int = 1,
        processors: int | None = None,
        concurrency: Concurrency = "process",
        on_error: OnError = "fail",
        chain: bool = False,
    ) -> Vertex:
        """A function from a value to an iterable of values, or an `Operator` class.

        Several inputs join. `key` sends all tuples of a key to the same shard, in order, and is
        needed for `self.state`. `processors` is the number to start with, at least one for each
        of the `executors`. With `chain` it shares the workers of its only input, an operator, and
        all that is said of those; what fails in a chain fails as the tuple at its head."""
        what = f"operator {_named(name, 'operator')!r}"
        spec = OperatorSpec(
            name,
            _checked_code(what, code, keyed=key is not None),
            key,
            _whole(what, "shards", shards, MAX_SHARDS),
            _whole(what, "executors", executors),
            _whole(what, "processors", executors if processors is None else processors),
            _one_of(what, "concurrency", concurrency, ("process", "thread")),
            _one_of(what, "on_error", on_error, _ON_ERROR),
            _one_of(what, "chain", chain, (False, True)),
        )
        own = (executors, processors, concurrency, on_error) != (1, None, "process", "fail")
        if chain and own:
            raise InputError(
                f"{what}: with chain=True its executors, processors, concurrency and on_error are "
                "those of its input; leave them out"
            )
        if key is not None and not callable(key):
            raise InputError(f"{what}: key must be a function from a value to its key; got {key!r}")
        if spec.processors < spec.executors:
            raise InputError(
                f"{what}: each of its {spec.executors} executors needs a processor; "
                f"got processors={spec.processors}"
            )
        if spec.key is not None and spec.shards < spec.processors:
            raise InputError(
                f"{what}: {spec.processors} processors cannot share {spec.shards} shards; "
                "raise shards"
            )
        return self._add(spec, inputs)

    def sink(self, name: str, sink: Sink, *inputs: Vertex, on_error: OnError = "fail") -> Vertex:
        """Where results leave. `on_error` says what becomes of a value that it cannot write."""
        what = f"sink {_named(name, 'sink')!r}"
        if not isinstance(sink, Sink):
            raise InputError(f"{what}: must be one of sojourn.sinks, or a Sink; got {sink!r}")
        spec = SinkSpec(name, sink, _one_of(what, "on_error", on_error, _ON_ERROR))
        return self._add(spec, inputs)

    def feedback(self, sender: Vertex, receiver: Vertex) -> None:
        """Close a loop: what `sender` emits also goes to `receiver`, which may lie before it."""
        self._check_handle("feedback", sender)
        self._check_handle("feedback", receiver)
        for vertex in (sender, receiver):
            if not isinstance(self.vertices[vertex.name], OperatorSpec):
                raise InputError(
                    f"feedback {sender.name!r} → {receiver.name!r}: both ends must be operators; "
                    f"{vertex.name!r} is not"
                )
        if receiver.output is not None:
            raise InputError(
                f"feedback {sender.name!r} → {receiver.name!r}: goes to the operator, not to its "
                f"output {receiver.output!r}; give the operator itself"
            )
        self._connect(Edge(sender.name, receiver.name, sender.output, feedback=True))

    def check(self) -> None:
        """Refuse a topology that cannot run."""
        if not self.sources:
            raise InputError(f"topology {self.name!r}: has no source; add one with source()")
        fed = {edge.receiver for edge in self.edges if not edge.feedback}
        feeding = {edge.sender for edge in self.edges if not edge.feedback}
        for name, spec in self.vertices.items():
            if isinstance(spec, SourceSpec):
                if name not in feeding:
                    raise InputError(f"source {name!r}: feeds nothing; give it to an operator")
            elif name not in fed:
                raise InputError(f"{kind_of(spec)} {name!r}: has no input; name at least one")
        for spec in self.operators.values():
            if spec.chained:
                self._check_chain(spec)
        directories: dict[object, str] = {}
        for name, sink in self.sinks.items():
            directory = getattr(sink.sink, "directory", None)
            if directory is not None and directory in directories:
                raise InputError(
                    f"sink {name!r}: writes to {directory} as {directories[directory]!r} does; "
                    "give each a directory of its own"
                )
            directories[directory] = name
        forward = self.forward()
        for group in groups(forward):
            if is_loop(group, forward):
                path = " → ".join(cycle_in(group, forward))
                raise InputError(
                    f"topology {self.name!r}: the cycle {path} is closed by a plain edge; "
                    "only feedback() may close a loop"
                )

    def forward(self) -> dict[str, list[str]]:
        """Receivers of every vertex over forward edges."""
        onward: dict[str, list[str]] = {name: [] for name in self.vertices}
        for edge in self.edges:
            if not edge.feedback and edge.receiver not in onward[edge.sender]:
                onward[edge.sender].append(edge.receiver)
        return onward

    def levels(self) -> dict[str, int]:
        """The longest forward path from a source to every vertex; sources are level 0."""
        forward = self.forward()
        level = dict.fromkeys(self.vertices, 0)
        for (name,) in groups(forward):
            for receiver in forward[name]:
                level[receiver] = max(level[receiver], level[name] + 1)
        return level

    @property
    def sources(self) -> dict[str, SourceSpec]:
        """All sources, in the order they were declared."""
        return {n: s for n, s in self.vertices.items() if isinstance(s, SourceSpec)}

    @property
    def operators(self) -> dict[str, OperatorSpec]:
        """All operators, in the order they were declared."""
        return {n: s for n, s in self.vertices.items() if isinstance(s, OperatorSpec)}

    @property
    def sinks(self) -> dict[str, SinkSpec]:
        """All sinks, in the order they were declared."""
        return {n: s for n, s in self.vertices.items() if isinstance(s, SinkSpec)}

    def _check_chain(self, spec: OperatorSpec) -> None:
        """It must be able to share the workers of its input."""
        what = f"operator {spec.name!r}"
        senders = [edge.sender for edge in self.edges if edge.receiver == spec.name]
        sender = self.vertices[senders[0]]
        if len(senders) > 1 or not isinstance(sender, OperatorSpec):
            raise InputError(
                f"{what}: with chain=True its only input must be an operator, whose workers it "
                f"shares; it has {', '.join(map(repr, senders))}; leave out chain=True"
            )
        for one in (sender, spec):
            if one.key is not None or takes_bundles(one.code):
                why = "a key" if one.key is not None else "process_bundle"
                raise InputError(
                    f"{what}: cannot be chained to {sender.name!r}, as {one.name!r} has {why}; "
                    "leave out chain=True"
                )

    def _add(self, spec: Spec, inputs: tuple[Vertex, ...] = ()) -> Vertex:
        what = kind_of(spec)
        if spec.name in self.vertices:
            raise InputError(f"{what} {spec.name!r}: the name is taken; choose another")
        if not isinstance(spec, SourceSpec) and not inputs:
            raise InputError(f"{what} {spec.name!r}: has no input; name at least one")
        for vertex in inputs:
            self._check_handle(f"{what} {spec.name!r}", vertex)
        self.vertices[spec.name] = spec
        for vertex in inputs:
            self._connect(Edge(vertex.name, spec.name, vertex.output))
        return Vertex(self, spec.name)

    def _connect(self, edge: Edge) -> None:
        if edge in self.edges:
            raise InputError(f"the edge {edge.sender!r} → {edge.receiver!r} is given twice")
        self.edges.append(edge)

    def _check_handle(self, what: str, vertex: object) -> None:
        if not isinstance(vertex, Vertex) or self.vertices.get(vertex.name) is None:
            raise InputError(
                f"{what}: unknown input {vertex!r}; use what source() and operator() returned"
            )
        if vertex.topology is not self:
            raise InputError(f"{what}: the input {vertex.name!r} belongs to another topology")
        spec = self.vertices[vertex.name]
        if isinstance(spec, SinkSpec):
            raise InputError(f"{what}: the sink {vertex.name!r} has no output to use as an input")
        if vertex.output is not None and isinstance(spec, SourceSpec):
            raise InputError(f"{what}: the source {vertex.name!r} has no named outputs")


def kind_of(spec: Spec) -> str:
    """What a vertex is called."""
    return {SourceSpec: "source", OperatorSpec: "operator", SinkSpec: "sink"}[type(spec)]


def _named(name: object, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{what} name {name!r}: must be 1 to 63 letters, digits, '_', '-' or '.', "
            "and start with a letter or digit"
        )
    return name


def _whole(what: str, knob: str, value: object, most: int = 100_000) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(f"{what}: {knob} must be a whole number from 1 to {most}; got {value!r}")
    return value


def _one_of(what: str, knob: str, value: _T, known: tuple[_T, ...]) -> _T:
    if value not in known:
        options = ", ".join(map(repr, known))
        raise InputError(f"{what}: {knob} must be one of {options}; got {value!r}")
    return value


def _checked_code(
    what: str, code: Callable[[Any], Any] | type[Operator], keyed: bool
) -> Callable[[Any], Any] | type[Operator]:
    if inspect.isclass(code):
        one = getattr(code, "process", Operator.process) is not Operator.process
        if one == takes_bundles(code):
            raise InputError(
                f"{what}: the class {code.__name__} must define process(self, value), or "
                f"process_bundle(self, values); it has {'both' if one else 'neither'}"
            )
        columns = getattr(code, "columns", None)
        if columns is not None:
            _one_of(what, "columns", columns, ("numpy", "arrow"))
        if not keyed and _uses_state(code):
            raise InputError(
                f"{what}: {code.__name__} uses self.state, which needs a key; add key=…"
            )
    elif not callable(code):
        raise InputError(f"{what}: must be a function or a class with process; got {code!r}")
    return code


def takes_bundles(code: object) -> bool:
    """Whether an operator's code wants many values at once."""
    many = getattr(code, "process_bundle", Operator.process_bundle)
    return inspect.isclass(code) and many is not Operator.process_bundle


def _uses_state(code: type) -> bool:
    """Whether any method of the class, or of its bases below Operator, mentions self.state."""
    return any(
        _mentions_state(function.__code__, function.__code__.co_varnames[:1])
        for base in code.__mro__
        if base not in (Operator, object)
        for function in vars(base).values()
        if inspect.isfunction(function)
    )


def _mentions_state(code: CodeType, self_names: tuple[str, ...]) -> bool:
    before = None
    for step in dis.get_instructions(code):
        if step.argval == "state" and step.opname.endswith("_ATTR") and before in self_names:
            return True
        before = step.argval
    return any(
        _mentions_state(inner, self_names)
        for inner in code.co_consts
        if isinstance(inner, CodeType)
    )
