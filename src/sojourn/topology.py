"""A topology as its author writes it: sources, operators, sinks and the edges between them.
A pure description: it is checked before anything starts, and every engine can run it.

    t = Topology("wordcount")
    lines = t.source("lines", sources.lines("tweets.txt"))
    words = t.operator("split", split, lines)
    counts = t.operator("count", Count, words, key=lambda word: word)
    t.sink("out", sinks.jsonl("out/"), counts)
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sojourn.drawing import Arrow, Box, as_svg, as_text
from sojourn.errors import InputError, check_options
from sojourn.graph import cycle_in, groups, is_loop
from sojourn.operators import Emits, UserCode, checked_code, is_async, one_of, takes_bundles
from sojourn.sinks import Sink
from sojourn.sources import Source
from sojourn.streams import Concurrency, OnError, OperatorOptions, Streams, Vertex
from sojourn.typed import T
from sojourn.units import parse_duration

_ON_ERROR: tuple[OnError, ...] = ("fail", "skip", "dead-letter")
Key = Callable[[Any], Any]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
MAX_SHARDS = 65_536
ONE_EACH = ("resource-centric", "static")
"""Paradigms in which every executor of an operator with a key has one processor."""
_ASYNC = 64  # tuples that a worker of an async operator handles at once, by default


@dataclass(frozen=True)
class Edge:
    """From one vertex to another. `output` is a named output of the sender, or None for its plain
    one."""

    sender: str
    receiver: str
    output: str | None = None
    feedback: bool = False
    broadcast: bool = False

    @property
    def name(self) -> str:
        """Its name in samples: `match`, or `match[rejected]` for a named output."""
        return self.receiver if self.output is None else f"{self.receiver}[{self.output}]"


@dataclass(frozen=True)
class SourceSpec:
    """A source and how it is run."""

    name: str
    source: Source[Any]
    executors: int = 1
    on_error: OnError = "fail"


@dataclass(frozen=True)
class OperatorSpec:
    """An operator and how it is run."""

    name: str
    code: UserCode
    key: Key | None
    shards: int
    executors: int
    processors: int
    concurrency: Concurrency
    on_error: OnError
    chained: bool = False
    emits: Emits = "many"
    ttl_s: float | None = None
    broadcast: bool = False
    shed_after_s: float | None = None

    @property
    def least_processors(self) -> int:
        """The fewest processors it can have: one for each executor."""
        return self.executors

    @property
    def most_processors(self) -> int | None:
        """The most processors it can use: with a key, one for each shard; else None, no limit."""
        return None if self.key is None else self.shards

    @property
    def is_divisible(self) -> bool:
        """Whether its shards can be divided anew while it runs."""
        return self.key is not None and self.concurrency == "process" and not self.chained

    def bounds(self, paradigm: str) -> tuple[int, int | None]:
        """The fewest and the most processors it can have. Where every executor has one, all that
        have any are in use, or as many as are wanted."""
        if paradigm not in ONE_EACH or not self.is_divisible:
            return self.least_processors, self.most_processors
        return (1 if paradigm == "resource-centric" else self.executors), self.executors


@dataclass(frozen=True)
class SinkSpec:
    """A sink and how it is run."""

    name: str
    sink: Sink[Any]
    on_error: OnError = "fail"
    executors: int = 1


Spec = SourceSpec | OperatorSpec | SinkSpec


class Topology(Streams):
    """Vertices and edges under construction. A mistake raises an error at the line that makes it.
    `check` finds mistakes that only the whole topology shows, such as a source without a receiver;
    every engine calls it first."""

    def __init__(self, name: str) -> None:
        self.name = _named(name, "topology")
        self.vertices: dict[str, Spec] = {}
        self.edges: list[Edge] = []

    def source(
        self, name: str, source: Source[T], *, executors: int = 1, on_error: OnError = "fail"
    ) -> Vertex[T]:
        """Add a source, where tuples enter. If it has splits, `executors` processes read them.
        `on_error` says what happens to what it cannot read."""
        what = f"source {_named(name, 'source')!r}"
        if not isinstance(source, Source):
            raise InputError(f"{what}: must be one of sojourn.sources, or a Source; got {source!r}")
        spec = SourceSpec(
            name,
            source,
            _whole(what, "executors", executors),
            one_of(what, "on_error", on_error, _ON_ERROR),
        )
        if executors > 1 and type(source).splits is Source.splits:
            raise InputError(
                f"{what}: has no splits, so one process reads it; leave out executors={executors}"
            )
        return self._add(spec)

    def _operator(
        self,
        emits: Emits,
        name: str,
        code: UserCode,
        inputs: tuple[Vertex[Any], ...],
        /,
        key: Key | None = None,
        shards: int = 256,
        executors: int = 1,
        processors: int | None = None,
        concurrency: Concurrency = "process",
        on_error: OnError = "fail",
        chain: bool = False,
        ttl: float | str | None = None,
        shed_after: float | str | None = None,
        broadcast: Vertex[Any] | Sequence[Vertex[Any]] = (),
        **unknown: object,
    ) -> Vertex[Any]:
        what = f"operator {_named(name, 'operator')!r}"
        check_options(what, unknown, OperatorOptions.__annotations__)
        told = _several(broadcast)
        spec = OperatorSpec(
            name,
            checked_code(what, code, emits, key is not None, bool(told)),
            key,
            _whole(what, "shards", shards, MAX_SHARDS),
            _whole(what, "executors", executors),
            _whole(what, "processors", executors if processors is None else processors),
            _checked_concurrency(what, code, concurrency),
            one_of(what, "on_error", on_error, _ON_ERROR),
            one_of(what, "chain", chain, (False, True)),
            emits,
            None if ttl is None else parse_duration(ttl, f"{what}: ttl"),
            bool(told),
            None if shed_after is None else parse_duration(shed_after, f"{what}: shed_after"),
        )
        if spec.shed_after_s is not None and (
            key is not None or chain or not spec.shed_after_s > 0
        ):
            raise InputError(
                f"{what}: shed_after must be above zero, and goes with neither a key nor "
                f"chain=True; got {shed_after!r}"
            )
        own = (executors, processors, concurrency, on_error) != (1, None, "process", "fail")
        if chain and own:
            raise InputError(
                f"{what}: with chain=True it takes executors, processors, concurrency and on_error "
                "from its input; leave them out"
            )
        if spec.ttl_s is not None and (key is None or not spec.ttl_s > 0):
            raise InputError(
                f"{what}: ttl must be above zero and needs key=…, because it is how long a key is "
                f"kept; got {ttl!r}"
            )
        if spec.ttl_s is not None and takes_bundles(code):
            raise InputError(
                f"{what}: ttl needs process(self, value), because process_bundle takes values of "
                "many keys at once; define process, or leave out ttl"
            )
        if is_async(code) and (key is not None or takes_bundles(code)):
            raise InputError(
                f"{what}: is async, so its tuples finish in any order; it can have neither a key "
                "nor process_bundle; leave these out, or make it not async"
            )
        if key is not None and not callable(key):
            raise InputError(f"{what}: key must be a function from a value to its key; got {key!r}")
        if spec.processors < spec.least_processors:
            raise InputError(
                f"{what}: each of its {spec.executors} executors needs a processor; "
                f"got processors={spec.processors}"
            )
        if spec.most_processors is not None and spec.processors > spec.most_processors:
            raise InputError(
                f"{what}: each processor needs a shard; got processors={spec.processors} and "
                f"shards={spec.shards}; raise shards"
            )
        return self._add(spec, inputs, told)

    def sink(
        self,
        name: str,
        sink: Sink[T],
        *inputs: Vertex[T],
        on_error: OnError = "fail",
        executors: int = 1,
    ) -> Vertex[Any]:
        """Add a sink, where results leave. `on_error` says what happens to a value that it cannot
        write. `executors` processes write, each some of the values."""
        what = f"sink {_named(name, 'sink')!r}"
        if not isinstance(sink, Sink):
            raise InputError(f"{what}: must be one of sojourn.sinks, or a Sink; got {sink!r}")
        spec = SinkSpec(
            name,
            sink,
            one_of(what, "on_error", on_error, _ON_ERROR),
            _whole(what, "executors", executors),
        )
        return self._add(spec, inputs)

    def feedback(self, sender: Vertex[Any], receiver: Vertex[Any]) -> None:
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
                f"feedback {sender.name!r} → {receiver.name!r}: must go to an operator, not to its "
                f"output {receiver.output!r}; give the operator itself"
            )
        self._connect(Edge(sender.name, receiver.name, sender.output, feedback=True))

    def __str__(self) -> str:
        return as_text(*self._drawn())

    def _repr_svg_(self) -> str:
        """How a notebook shows it."""
        return as_svg(*self._drawn())

    def _drawn(self) -> tuple[str, dict[str, Box], list[Arrow]]:
        levels = self.levels()
        boxes = {n: Box(kind_of(s), told_of(s), levels[n]) for n, s in self.vertices.items()}
        arrows = [
            Arrow(e.sender, e.receiver, e.output, e.feedback, e.broadcast) for e in self.edges
        ]
        return self.name, boxes, arrows

    def check(self) -> None:
        """Refuse a topology that cannot run."""
        if not self.sources:
            raise InputError(f"topology {self.name!r}: has no source; add one with source()")
        fed = {edge.receiver for edge in self.edges if not edge.feedback and not edge.broadcast}
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
            if spec.shed_after_s is not None:
                self._check_first(spec)
        directories: dict[object, str] = {}
        for name, sink in self.sinks.items():
            directory = getattr(sink.sink, "directory", None)
            if directory is not None and directory in directories:
                raise InputError(
                    f"sink {name!r}: writes to {directory}, as does {directories[directory]!r}; "
                    "give each its own directory"
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

    def without_broadcasts(self) -> "Topology":
        """The topology as control and simulations see it: without broadcasts, which are no load,
        and without sources that feed nothing else."""
        if not any(edge.broadcast for edge in self.edges):
            return self
        bare = Topology(self.name)
        bare.edges = [edge for edge in self.edges if not edge.broadcast]
        feeding = {edge.sender for edge in bare.edges}
        bare.vertices = {
            name: spec
            for name, spec in self.vertices.items()
            if name in feeding or not isinstance(spec, SourceSpec)
        }
        return bare

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

    def _check_first(self, spec: OperatorSpec) -> None:
        """Refuse an operator that sheds and is not right behind the sources."""
        for edge in self.edges:
            if (
                edge.receiver == spec.name
                and not edge.broadcast
                and edge.sender not in self.sources
            ):
                raise InputError(
                    f"operator {spec.name!r}: shed_after is for operators right behind sources, "
                    f"where nothing is done yet; it gets tuples from {edge.sender!r}"
                )

    def _check_chain(self, spec: OperatorSpec) -> None:
        """Refuse an operator that cannot share the workers of its input."""
        what = f"operator {spec.name!r}"
        senders = [
            edge.sender for edge in self.edges if edge.receiver == spec.name and not edge.broadcast
        ]
        sender = self.vertices[senders[0]]
        if len(senders) > 1 or not isinstance(sender, OperatorSpec):
            raise InputError(
                f"{what}: with chain=True it shares the workers of its only input, which must be "
                f"an operator; got {', '.join(map(repr, senders))}; leave out chain=True"
            )
        for one in (sender, spec):
            why = _unchained(one)
            if why is not None:
                raise InputError(
                    f"{what}: cannot be chained to {sender.name!r} because {one.name!r} has {why}; "
                    "leave out chain=True"
                )

    def _add(
        self,
        spec: Spec,
        inputs: tuple[Vertex[Any], ...] = (),
        told: tuple[Vertex[Any], ...] = (),
    ) -> Vertex[Any]:
        what = kind_of(spec)
        if spec.name in self.vertices:
            raise InputError(f"{what} {spec.name!r}: the name is taken; choose another")
        if not isinstance(spec, SourceSpec) and not inputs:
            raise InputError(f"{what} {spec.name!r}: has no input; name at least one")
        for vertex in (*inputs, *told):
            self._check_handle(f"{what} {spec.name!r}", vertex)
        for vertex in told:
            sender = self.vertices[vertex.name]
            if isinstance(sender, OperatorSpec) and sender.key is None:
                raise InputError(
                    f"{what} {spec.name!r}: its broadcast input {vertex.name!r} has no key, so its "
                    "processors could send two values of one key in either order; give it key=…"
                )
        self.vertices[spec.name] = spec
        for vertex in inputs:
            self._connect(Edge(vertex.name, spec.name, vertex.output))
        for vertex in told:
            self._connect(Edge(vertex.name, spec.name, vertex.output, broadcast=True))
        return Vertex(self, spec.name)

    def _connect(self, edge: Edge) -> None:
        if edge in self.edges:
            raise InputError(
                f"the edge {edge.sender!r} → {edge.receiver!r} is given twice; give it once"
            )
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


def _unchained(spec: OperatorSpec) -> str | None:
    """What keeps an operator out of chains, in words; None if nothing does."""
    if is_async(spec.code):
        return "an async process"
    if takes_bundles(spec.code):
        return "process_bundle"
    if spec.broadcast:
        return "a broadcast input"
    return None if spec.key is None else "a key"


def checked_topology(what: str, given: object) -> Topology:
    """The topology, if it is one and can run."""
    if not isinstance(given, Topology):
        raise InputError(f"{what}: needs a sojourn.Topology; got {given!r:.80}")
    given.check()
    return given


def kind_of(spec: Spec) -> str:
    """The word for a vertex: source, operator or sink."""
    return {SourceSpec: "source", OperatorSpec: "operator", SinkSpec: "sink"}[type(spec)]


def told_of(spec: Spec) -> str:
    """A vertex in a few words: its kind, and how it is run."""
    if not isinstance(spec, OperatorSpec) and spec.executors > 1:
        return f"{kind_of(spec)}, {spec.executors} executors"
    if not isinstance(spec, OperatorSpec):
        return kind_of(spec)
    what = {"many": "operator", "one": "map", "same": "filter"}[spec.emits]
    more = [f"{spec.processors} processors"] if spec.processors > 1 else []
    more += ["keyed"] if spec.key is not None else []
    more += ["chained"] if spec.chained else []
    return ", ".join([what, *more])


def _several(given: Any) -> tuple[Any, ...]:
    """What was given one by one, or one by itself."""
    many = isinstance(given, Iterable) and not isinstance(given, str)
    return tuple(given) if many else (given,)


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


def _checked_concurrency(what: str, code: UserCode, given: Concurrency) -> Concurrency:
    if not is_async(code):
        return one_of(what, "concurrency", given, ("process", "thread"))
    if given == "process":
        return _ASYNC
    if isinstance(given, str):
        raise InputError(
            f"{what}: is async, so concurrency must be a whole number: the tuples that a worker "
            f"handles at once; got {given!r}"
        )
    return _whole(what, "concurrency", given)
