"""Handles to the streams of a topology, and the methods that put users' code on them. They stand
apart from the topology for their types: a checker infers from the code what comes out of it, and
refuses code that does not take what comes in."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, Unpack, overload

from sojourn.operators import Emits, UserCode
from sojourn.typed import (
    A,
    B,
    Code,
    Flat,
    In,
    Made,
    OneValueUseMapOrReturnAList,
    Out,
    Ready,
    Single,
    T_co,
    Usual,
)

Concurrency = Literal["process", "thread"] | int
OnError = Literal["fail", "skip", "dead-letter"]


class OperatorOptions(TypedDict, Generic[In], total=False):
    """How an operator is run.

    `key` sends all tuples of a key to the same shard, in order, and is needed for `self.state`;
    there are `shards` of them. `processors` is the number to start with, at least one for each of
    the `executors`. `concurrency` says whether workers are "process"es or "thread"s, or how many
    tuples a worker of an `async` operator works on at once, each of which counts as a processor.
    `on_error` says what becomes of a tuple whose processing raises. With `ttl`, such as "1h",
    `self.state[key]` is forgotten once no tuple of the key has come for so long. With `chain` the
    operator shares the workers of its only input, an operator, and all that is said of those; what
    fails in a chain fails as the tuple at its head. `broadcast` names inputs of which every worker
    gets every value, a (key, value) pair: they make up `self.broadcast`, and a None removes its
    key."""

    key: Callable[[In], Any] | None
    shards: int
    executors: int
    processors: int | None
    concurrency: Concurrency
    on_error: OnError
    chain: bool
    ttl: float | str | None
    broadcast: "Vertex[tuple[Any, ...]] | Sequence[Vertex[tuple[Any, ...]]]"


@dataclass(frozen=True)
class Vertex(Generic[T_co]):
    """A handle to a vertex, or with `output` to one of its named outputs. A `Vertex[int]` carries
    whole numbers. What a named output carries, type checkers do not know."""

    topology: "Streams" = field(repr=False, compare=False)
    name: str
    output: str | None = None

    def __getitem__(self, output: str) -> "Vertex[Any]":
        """`rejected = checked["rejected"]`: what `Output("rejected", …)` carries."""
        return Vertex(self.topology, self.name, output)


class Streams(ABC):
    """What a topology has for putting code on streams. Of each method's signatures the last is for
    inputs of several types, whose union mypy does not find otherwise."""

    @overload
    def operator(
        self,
        name: str,
        code: Made[In, Flat[Out]],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> Vertex[Out]: ...
    @overload
    def operator(
        self,
        name: str,
        code: Callable[[In], Usual[Out]],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> Vertex[Out]: ...
    @overload
    def operator(  # type: ignore[overload-overlap]  # what it refuses, those below would take
        self,
        name: str,
        code: Callable[[In], Single],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> OneValueUseMapOrReturnAList: ...
    @overload
    def operator(
        self,
        name: str,
        code: Ready[In, Flat[Out]],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> Vertex[Out]: ...
    @overload
    def operator(
        self,
        name: str,
        code: Code[A | B, Flat[Out]],
        first: Vertex[A],
        second: Vertex[B],
        /,
        *others: Vertex[Any],
        **options: Unpack[OperatorOptions[A | B]],
    ) -> Vertex[Out]: ...
    def operator(
        self,
        name: str,
        code: UserCode,
        *inputs: Vertex[Any],
        **options: Unpack[OperatorOptions[Any]],
    ) -> Any:
        """A function from a value to the values that follow from it: a list, a generator, or None.
        Or an `Operator` class, an instance of one, or a `functools.partial` of one, whose
        `process` is such a function. Several inputs join."""
        return self._operator("many", name, code, inputs, **options)

    @overload
    def map(
        self,
        name: str,
        code: Made[In, Awaitable[Out]],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> Vertex[Out]: ...
    @overload
    def map(
        self,
        name: str,
        code: Made[In, Out],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> Vertex[Out]: ...
    @overload
    def map(
        self,
        name: str,
        code: Ready[In, Awaitable[Out]],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> Vertex[Out]: ...
    @overload
    def map(
        self,
        name: str,
        code: Ready[In, Out],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> Vertex[Out]: ...
    @overload
    def map(
        self,
        name: str,
        code: Code[A | B, Awaitable[Out] | Out],
        first: Vertex[A],
        second: Vertex[B],
        /,
        *others: Vertex[Any],
        **options: Unpack[OperatorOptions[A | B]],
    ) -> Vertex[Out]: ...
    def map(
        self,
        name: str,
        code: UserCode,
        *inputs: Vertex[Any],
        **options: Unpack[OperatorOptions[Any]],
    ) -> Vertex[Any]:
        """As `operator`, for code that returns one value of any kind for each."""
        return self._operator("one", name, code, inputs, **options)

    @overload
    def filter(
        self,
        name: str,
        code: Made[In, object],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> Vertex[In]: ...
    @overload
    def filter(
        self,
        name: str,
        code: Ready[In, object],
        *inputs: Vertex[In],
        **options: Unpack[OperatorOptions[In]],
    ) -> Vertex[In]: ...
    @overload
    def filter(
        self,
        name: str,
        code: Code[A | B, object],
        first: Vertex[A],
        second: Vertex[B],
        /,
        *others: Vertex[Any],
        **options: Unpack[OperatorOptions[A | B]],
    ) -> Vertex[A | B]: ...
    def filter(
        self,
        name: str,
        code: UserCode,
        *inputs: Vertex[Any],
        **options: Unpack[OperatorOptions[Any]],
    ) -> Vertex[Any]:
        """As `operator`, for code that says of each value whether it goes on."""
        return self._operator("same", name, code, inputs, **options)

    @abstractmethod
    def _operator(
        self,
        emits: Emits,
        name: str,
        code: UserCode,
        inputs: tuple[Vertex[Any], ...],
        /,
        **options: Unpack[OperatorOptions[Any]],
    ) -> Vertex[Any]:
        """Add it, if it can run."""
