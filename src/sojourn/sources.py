"""Where tuples come from: iterables, files, generators at a pace, sockets, and the user's own.
A topology describes a source. The engine reads it in a process of its own, and resumes it from a
position.

A source yields (value, position) pairs. `read(position)` must go on right after that value. With
every commit, the engine saves the position of the last value it sent. A source that several
processes may read is made of splits, each with a position of its own."""

import bisect
import functools
import glob
import itertools
import json
import math
import random
import socket as sockets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Unpack, overload

from sojourn.errors import InputError
from sojourn.kafka.message import Message
from sojourn.kafka.topic import KafkaOptions, Topic, made_topic
from sojourn.typed import T, T_co
from sojourn.units import parse_path

__all__ = [
    "Arrivals",
    "Message",
    "Pace",
    "Piece",
    "Rate",
    "Source",
    "Unreadable",
    "files",
    "iterable",
    "jsonl",
    "kafka",
    "lines",
    "paced",
    "socket",
]
Arrivals = Literal["constant", "poisson", "uniform"]
Rate = float | Sequence[tuple[float, float]]
Piece = (
    tuple[T | "Unreadable", str, Any]
    | tuple[T | "Unreadable", str, Any, float]
    | tuple[str, Any]
    | None
)
"""What a reader of splits yields: a value, its split, the split's position after it, and maybe when
the value was meant to arrive, in seconds as `time.time` counts. A split and a position alone: there
was no value up to there. None: nothing for now."""
_BLOCK = 1024
_LOOK_S = 0.2  # how often files that are followed are looked at


@dataclass(frozen=True)
class Pace:
    """When tuples are meant to arrive: at a rate per second, or by a schedule of (seconds, rate)
    steps, the last of which never ends. Gaps are constant, Poisson or uniform."""

    rate: Rate
    arrivals: Arrivals = "constant"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.arrivals not in ("constant", "poisson", "uniform"):
            raise InputError(
                f"arrivals must be 'constant', 'poisson' or 'uniform'; got {self.arrivals!r}"
            )
        try:
            steps = self.steps
        except (TypeError, ValueError):
            steps = [(0.0, 0.0)]
        for seconds, rate in steps:
            if not 0 < seconds < math.inf or not 0 <= rate < math.inf:
                raise InputError(
                    f"rate must be above zero, or steps of (seconds, rate); got {self.rate!r}"
                )
        if not steps or not steps[-1][1] > 0:
            raise InputError(f"the last rate must be above zero; got {self.rate!r}")

    @property
    def steps(self) -> list[tuple[float, float]]:
        """The schedule; a plain rate is a schedule of one step."""
        if isinstance(self.rate, int | float):
            return [(1.0, float(self.rate))]
        return [(float(seconds), float(rate)) for seconds, rate in self.rate]

    def times(self, skip: int = 0, expected: float = 0.0) -> Iterator[tuple[float, float]]:
        """For each tuple from number `skip` on, the seconds from the start at which it is meant to
        arrive, and the sum of all gaps up to it, to be saved with its position.

        Gaps of mean 1 are drawn in expected tuples and mapped back to time through the schedule,
        so a change of rate takes effect at its very instant. `expected` is the sum that came with
        the tuple before `skip`. With it, the times are exactly those of a run without a break.
        Each block of gaps has its own seed, so it takes no longer after many tuples than after
        few."""
        block, within = divmod(skip, _BLOCK)
        steady = self.steps[0][1] if len(self.steps) == 1 else None
        while True:
            for gap in self._gaps(block)[within:]:
                expected += gap
                yield self._time_s(expected) if steady is None else expected / steady, expected
            block, within = block + 1, 0

    def _time_s(self, expected: float) -> float:
        starts, counts, rates = self._schedule
        step = bisect.bisect_left(counts, expected)
        if step < len(counts) and counts[step] == expected:
            return starts[step]
        step -= 1
        return starts[step] + (expected - counts[step]) / rates[step]

    @functools.cached_property
    def _schedule(self) -> tuple[list[float], list[float], list[float]]:
        """When each step starts, how many tuples are expected before it, and its rate."""
        starts, counts = [0.0], [0.0]
        for seconds, rate in self.steps[:-1]:
            starts.append(starts[-1] + seconds)
            counts.append(counts[-1] + seconds * rate)
        return starts, counts, [rate for _, rate in self.steps]

    def _gaps(self, block: int) -> list[float]:
        if self.arrivals == "constant":
            return [1.0] * _BLOCK
        draw = random.Random(f"{self.seed} {block}").random
        if self.arrivals == "poisson":
            return [-math.log(1.0 - draw()) for _ in range(_BLOCK)]
        return [2.0 * draw() for _ in range(_BLOCK)]


@dataclass(frozen=True)
class Unreadable:
    """Stands for a value that a source found and cannot read. `shown` tells which, as far as it can
    be shown, and `error` why: both are for dead letters and messages."""

    shown: str
    error: str


class Source(Generic[T_co]):
    """Base of all sources; a `Source[int]` yields integers. It defines `read`, or `splits` and
    `read_splits`.

    `pace` says when tuples are meant to arrive; None means when they are read, or when
    `read_splits` says. `count` is the number of tuples, if it is known beforehand. `shed_after`
    drops and counts tuples that are that many seconds late. `elastic` says that the number of
    processes that read the splits may change while the topology runs, as an operator's processors
    do."""

    pace: Pace | None = None
    shed_after: float | None = None
    count: int | None = None
    elastic: bool = False

    def read(self, position: Any, /) -> Iterator[tuple[T_co, Any]]:
        """Yield pairs of a value and the position after it, from `position` on; None is the
        start. It may block while there is nothing."""
        splits = self.splits()
        if splits is None:
            raise TypeError(
                f"{type(self).__name__} must define read(self, position), or splits(self) and "
                "read_splits(self, positions)"
            )
        begin = splits if isinstance(splits, Mapping) else dict.fromkeys(splits)
        return _together(self.read_splits, {**begin, **(position or {})})

    def splits(self) -> Sequence[str] | Mapping[str, Any] | None:
        """The names of the parts that can be read independently of each other. None: there are
        none, and one process reads all by `read`. A mapping also gives the positions from which
        splits are read at the very first start; None is the beginning.

        The driver asks, at a start and again at every commit, in a thread of its own. A name stands
        for the same part forever, because positions are saved under it. A split that was not there
        before is read from its beginning; one that is missing keeps its position, and is read on if
        it comes back. The order does not matter."""
        return None

    def read_splits(
        self,
        positions: Mapping[str, Any],  # noqa: ARG002
        /,
    ) -> Iterator[Piece[T_co]]:
        """Yield (value, split, position) from the splits in `positions`: each goes on from the
        position given, and from its beginning where that is None. With every commit, the engine
        saves for each split the position of the last value it sent.

        A fourth item says when the value was meant to arrive, in seconds as `time.time` counts;
        the sojourn counts from then, unless the source has a pace. A value that cannot be read may
        be yielded as `Unreadable`; it meets the source's `on_error`. (split, position) alone says
        that there was no value up to that position.

        `None` instead of a tuple means that there is nothing for now. Yield it at least once a
        second rather than block for longer: between two yields the engine may call `backlog`, and
        may close the iterator because its splits go to another process. Clean up in `finally`. The
        process may also end without that.

        An iterator that ends says that its splits are read to the end; a source that never ends
        must not return, even if `positions` is empty, as it is where there are more processes than
        splits. All this runs in a process of its own, in a thread that the engine makes. Only
        `backlog` is called beside it, by the same thread, and of the newest iterator. When splits
        change hands, the next iterator may begin, in a thread of its own, before the one before it
        is closed. Another process has a copy of the source, as pickled in the driver."""
        raise TypeError(f"{type(self).__name__} must define read_splits(self, positions)")

    def backlog(self) -> Mapping[str, int] | None:
        """How many tuples wait in each split behind those that were yielded, of the splits that
        this process reads. None: not known. Asked about once a second, between two yields, so it
        should answer from what is at hand. Control takes the sum as the source's backlog."""
        return None


def _together(
    read: Callable[[Mapping[str, Any]], Iterator[Piece[T]]], positions: dict[str, Any]
) -> Iterator[tuple[T, dict[str, Any]]]:
    """Splits as if they were one source, whose position are theirs."""
    for piece in read(dict(positions)):
        if piece is None:
            continue
        if len(piece) == 2:
            positions[piece[0]] = piece[1]
            continue
        value, split, after, *_ = piece
        if isinstance(value, Unreadable):
            raise InputError(f"{value.shown} cannot be read: {value.error}")
        positions[split] = after
        yield value, dict(positions)


class _Counted(Source[T]):
    """A source whose position is how many values came before."""

    def __init__(
        self,
        values: Callable[[int], Iterable[T]],
        pace: Pace | None,
        shed: float | None,
        count: int | None = None,
    ):
        self.values, self.pace, self.shed_after, self.count = values, pace, shed, count

    def read(self, position: Any) -> Iterator[tuple[T, Any]]:
        done = position or 0
        for number, value in enumerate(self.values(done), done + 1):
            yield value, number


class _Lines(Source[T]):
    """A text file, line by line; the position is a byte offset."""

    def __init__(
        self, path: Path, parse: Callable[[str], T], pace: Pace | None, shed: float | None
    ):
        self.path, self.parse, self.pace, self.shed_after = path, parse, pace, shed

    def read(self, position: Any) -> Iterator[tuple[T, Any]]:
        offset = position or 0
        with self.path.open("rb") as file:
            file.seek(offset)
            for line in file:
                offset += len(line)
                try:
                    value = self.parse(line.decode("utf-8").rstrip("\r\n"))
                except ValueError as error:
                    raise InputError(
                        f"{self.path}: the line that ends at byte {offset} cannot be read "
                        f"({error}): {line.decode('utf-8', 'replace').rstrip(chr(10))[:80]!r}"
                    ) from error
                yield value, offset


class _Files(Source[T]):
    """The lines of several files. Each file is a split, and its position a byte offset."""

    elastic = True

    def __init__(
        self,
        pattern: str,
        parse: Callable[[str], T],
        follow: bool,
        pace: Pace | None,
        shed: float | None,
    ) -> None:
        self.pattern, self.parse, self.follow = pattern, parse, follow
        self.pace, self.shed_after = pace, shed

    def splits(self) -> Sequence[str]:
        found = [n for n in glob.glob(self.pattern, recursive=True) if Path(n).is_file()]
        if not found and not self.follow:
            raise InputError(
                f"{self.pattern}: there is no such file; with follow=True, files may come later"
            )
        return found

    def read_splits(self, positions: Mapping[str, Any]) -> Iterator[Piece[T]]:
        at = {name: positions[name] or 0 for name in sorted(positions)}
        while True:
            before = dict(at)
            for name, offset in before.items():
                for piece in self._read(name, offset):
                    at[name] = piece[2]
                    yield piece
            if not self.follow:
                return
            yield None
            if at == before:
                time.sleep(_LOOK_S)

    def _read(self, name: str, offset: int) -> Iterator[tuple[T | Unreadable, str, int]]:
        """The lines from an offset on. A file that is gone has none."""
        try:
            if Path(name).stat().st_size <= offset:
                return
            file = Path(name).open("rb")  # noqa: SIM115  # closed below; only opening may fail
        except FileNotFoundError:
            return
        with file:
            file.seek(offset)
            for line in file:
                if self.follow and not line.endswith(b"\n"):
                    return  # the rest of it is still to come
                offset += len(line)
                yield self._parsed(name, offset, line), name, offset

    def _parsed(self, name: str, offset: int, line: bytes) -> T | Unreadable:
        try:
            return self.parse(line.decode("utf-8").rstrip("\r\n"))
        except Exception as error:  # noqa: BLE001  # user code may raise anything
            shown = line.decode("utf-8", "replace").rstrip("\r\n")[:80]
            return Unreadable(
                f"{name}: the line that ends at byte {offset}: {shown!r}",
                f"{type(error).__name__}: {error}",
            )


class _Socket(Source[str]):
    """Lines of text from a TCP server. It has no position: lines that were sent while nobody
    listened, or that were not committed when the topology failed, are lost."""

    def __init__(self, host: str, port: int, shed: float | None) -> None:
        self.host, self.port, self.shed_after = host, port, shed

    def read(self, position: Any) -> Iterator[tuple[str, Any]]:  # noqa: ARG002
        with sockets.create_connection((self.host, self.port)) as link, link.makefile("rb") as file:
            for line in file:
                yield line.decode("utf-8").rstrip("\r\n"), None


class _Kafka(Source[T]):
    """A topic, whose partitions are splits; the position is an offset."""

    elastic = True

    def __init__(self, topic: Topic, shed: float | None) -> None:
        self.topic, self.shed_after = topic, shed

    def splits(self) -> Sequence[str] | Mapping[str, Any]:
        return self.topic.splits()

    def read_splits(self, positions: Mapping[str, Any]) -> Iterator[Any]:
        return self.topic.read(positions)

    def backlog(self) -> Mapping[str, int] | None:
        return self.topic.backlog()


def iterable(
    values: Callable[[], Iterable[T]],
    *,
    rate: Rate | None = None,
    arrivals: Arrivals = "constant",
    seed: int = 0,
    shed_after: float | None = None,
) -> Source[T]:
    """The values that a function without arguments returns. It must return the same values on every
    call: a restart calls it again and skips those that are done."""
    if not callable(values):
        raise InputError(
            f"iterable() takes a function that returns the values, as in lambda: {values!r}; "
            "a restart calls it again"
        )

    def from_on(done: int) -> Iterable[T]:
        return itertools.islice(values(), done, None)

    return _Counted(from_on, _pace(rate, arrivals, seed), _shed(shed_after))


def paced(
    value: Callable[[int], T],
    *,
    rate: Rate,
    arrivals: Arrivals = "poisson",
    count: int | None = None,
    seed: int = 0,
    shed_after: float | None = None,
) -> Source[T]:
    """`value(0)`, `value(1)`, … at a pace, forever or `count` times."""

    def from_on(done: int) -> Iterable[T]:
        return map(value, itertools.count(done) if count is None else range(done, count))

    return _Counted(from_on, _pace(rate, arrivals, seed), _shed(shed_after), count)


def lines(
    path: str | Path,
    *,
    rate: Rate | None = None,
    arrivals: Arrivals = "constant",
    seed: int = 0,
    shed_after: float | None = None,
) -> Source[str]:
    """The lines of a text file in UTF-8."""
    return _Lines(_file(path), str, _pace(rate, arrivals, seed), _shed(shed_after))


def jsonl(
    path: str | Path,
    *,
    rate: Rate | None = None,
    arrivals: Arrivals = "constant",
    seed: int = 0,
    shed_after: float | None = None,
) -> Source[Any]:
    """The values of a file with one JSON value per line."""
    return _Lines(_file(path), json.loads, _pace(rate, arrivals, seed), _shed(shed_after))


def files(
    pattern: str | Path,
    *,
    parse: Callable[[str], T] = str,  # type: ignore[assignment]  # without it, T is str
    follow: bool = False,
    rate: Rate | None = None,
    arrivals: Arrivals = "constant",
    seed: int = 0,
    shed_after: float | None = None,
) -> Source[T]:
    """The lines of all text files in UTF-8 whose names match a pattern, such as `"logs/*.txt"`;
    `**` stands for any folders. `parse` makes a value of a line: `json.loads`, for JSON lines.
    Each file is a split, so several processes can share the files. With `follow`, the source never
    ends: it reads on where files grow, as whole lines come, and files that come later."""
    whole = str(parse_path(pattern, "the files of a source").absolute())
    return _Files(whole, parse, follow, _pace(rate, arrivals, seed), _shed(shed_after))


def socket(host: str, port: int, *, shed_after: float | None = None) -> Source[str]:
    """Lines of text from a TCP server. Lines that a failure loses do not come again."""
    return _Socket(host, port, _shed(shed_after))


@overload
def kafka(
    servers: str,
    topic: str,
    *,
    read: Literal["text"] = "text",
    shed_after: float | None = None,
    **options: Unpack[KafkaOptions],
) -> Source[str]: ...
@overload
def kafka(
    servers: str,
    topic: str,
    *,
    read: Literal["bytes"],
    shed_after: float | None = None,
    **options: Unpack[KafkaOptions],
) -> Source[bytes]: ...
@overload
def kafka(
    servers: str,
    topic: str,
    *,
    read: Literal["json"],
    shed_after: float | None = None,
    **options: Unpack[KafkaOptions],
) -> Source[Any]: ...
@overload
def kafka(
    servers: str,
    topic: str,
    *,
    read: Literal["message"],
    shed_after: float | None = None,
    **options: Unpack[KafkaOptions],
) -> Source[Message]: ...
@overload
def kafka(
    servers: str,
    topic: str,
    *,
    read: Callable[[Message], T],
    shed_after: float | None = None,
    **options: Unpack[KafkaOptions],
) -> Source[T]: ...
def kafka(
    servers: str,
    topic: str,
    *,
    read: str | Callable[[Message], Any] = "text",
    shed_after: float | None = None,
    **options: Unpack[KafkaOptions],
) -> Source[Any]:
    """The messages of a Kafka topic, read by as many processes as the source has, one for each
    partition at most. `read` says what becomes of a message: its value as "text", "bytes" or
    "json", the whole "message" with key, headers and time, or what a function of that returns."""
    found = made_topic(servers, topic, read, Unreadable, **options)
    return _Kafka(found, _shed(shed_after))


def _pace(rate: Rate | None, arrivals: Arrivals, seed: int) -> Pace | None:
    return None if rate is None else Pace(rate, arrivals, seed)


def _shed(after: float | None) -> float | None:
    if after is not None and not after > 0:
        raise InputError(f"shed_after must be above zero seconds; got {after!r}")
    return after


def _file(path: str | Path) -> Path:
    found = parse_path(path, "the file of a source").resolve()
    if not found.is_file():
        raise InputError(f"{path}: no such file")
    return found
