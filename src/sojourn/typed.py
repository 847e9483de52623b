"""The types of streams and of the code that users put on them. They make a wrong function on a
stream a type error. Nothing here is used at run time.

`In` is what a stream carries into an operator, `Out` what comes out of it. Where a checker cannot
tell, the default is Any: no annotation is required, and nothing is refused."""

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # Python 3.11 has none with defaults, checkers do

    T = TypeVar("T", default=Any)
    T_co = TypeVar("T_co", covariant=True, default=Any)
    Out = TypeVar("Out", default=Any)
else:
    from typing import TypeVar

    T, T_co, Out = TypeVar("T"), TypeVar("T_co", covariant=True), TypeVar("Out")

In = TypeVar("In")
A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")
_In_contra = TypeVar("_In_contra", contravariant=True)
_R_co = TypeVar("_R_co", covariant=True)


class Process(Protocol[_In_contra, _R_co]):
    """An operator, whatever it calls the parameter of `process`."""

    def process(self, value: _In_contra, /) -> _R_co: ...


class Partial(Protocol[_R_co]):
    """A `functools.partial`; the library's own is invariant, and so takes no subclass."""

    @property
    def func(self) -> Callable[..., _R_co]: ...


# Two types, for two signatures: in one signature with both, pyright takes a class for an instance.
Made: TypeAlias = type[Process[In, R]] | Partial[Process[In, R]]
"""Code that a worker makes an operator from: a class, or a `functools.partial` of one."""
Ready: TypeAlias = Callable[[In], R] | Process[In, R]
"""Code that is there: a function, or an operator."""
Code: TypeAlias = Made[In, R] | Ready[In, R]

Many: TypeAlias = Iterable[Out] | None
Flat: TypeAlias = Many[Out] | Awaitable[Many[Out]] | AsyncIterable[Out]
"""What code of `t.operator` may return; also a coroutine, or an async generator."""

_Usual: TypeAlias = list[Out] | tuple[Out, ...] | Iterator[Out] | None
Usual: TypeAlias = _Usual[Out] | Awaitable[_Usual[Out]] | AsyncIterator[Out]
"""What it does return mostly. Tried first, as mypy tells what it expects by the first that is
near."""
_Single: TypeAlias = str | bytes | bytearray | Mapping[Any, Any]
Single: TypeAlias = _Single | Awaitable[_Single]
"""What it may not return, although it can be iterated over, as it is meant as one value."""


class OneValueUseMapOrReturnAList:
    """What checkers call what comes of code that returns such a value: no stream, so that to use it
    is an error."""
