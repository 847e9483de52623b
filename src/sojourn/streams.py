"""Handles to the streams of a topology, and the methods that put users' code on them. They are a
module of their own because of their types: a checker infers from the code what comes out of it,
and refuses code that does not take what comes in."""

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

    - `key` sends all tuples of a key to the same shard, in order. `self.state` and `self.timers`
      need it.
    - `shards` is the number of shards that keys are spread over.
    - `processors` is the number to start with, at least one for each executor.
    - `executors` is the number of elastic executors that the operator is split into.
    - `concurrency` is "process" or "thread", the kind of worker. For an `async` operator it is how
      many tuples a worker handles at once; each of them counts as a processor.
    - `on_error` says what happens to a tuple whose processing raises: "fail" ends the topology,
      "skip" drops the tuple, "dead-letter" also writes it to a file.
    - `ttl`, such as "1h", forgets `self.state[key]` once no tuple of the key has come for that
      long.
    - `chain` makes the operator share the workers of its only input, which must be an operator.
      `executors`, `processors`, `concurrency` and `on_error` are then those of the input. A
      failure in a chain counts as a failure of the tuple at its head.
    - `shed_after` drops and counts tuples that would wait for longer than so many seconds at an
      executor. Only for an operator without a key right behind the sources.
    - `broadcast` names inputs of which every worker gets every value, a (key, value) pair.
      `self.broadcast` holds the last value of each key; None removes the key."""

    key: Callable[[In], Any] | None
    shards: int
    executors: int
    processors: int | None
    concurrency: Concurrency
    on_error: OnError
    chain: bool
    ttl: float | str | None
    shed_after: float | str | None
    broadcast: "Vertex[tuple[Any, ...]] | Sequence[Vertex[tuple[Any, ...]]]"


@dataclass(frozen=True)
class Vertex(Generic[T_co]):
    """A handle to a vertex, or with `output` to one of its named outputs. A `Vertex[int]` carries
    integers. Type checkers do not know what a named output carries."""

    topology: "Streams" = field(repr=False, compare=False)
    name: str
    output: str | None = None

    def __getitem__(self, output: str) -> "Vertex[Any]":
        """`rejected = checked["rejected"]`: the values emitted as `Output("rejected", …)`."""
        return Vertex(self.topology, self.name, output)


class Streams(ABC):
    """The methods of a topology that put code on streams. The last signature of each method is for
    inputs of several types: without it, mypy does not find their union."""

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
        """Add an operator that emits any number of values for each one it gets. Its code is a
        function that returns a list, a generator, or None. Or it is an `Operator` whose `process`
        does: the class, a `functools.partial` of it, or an instance. Several inputs are merged."""
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
        """Like `operator`, but the code returns one value, of any kind, for each it gets."""
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
        """Like `operator`, but the code returns whether the value goes on."""
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
        """Add an operator, or refuse it if it cannot run."""
