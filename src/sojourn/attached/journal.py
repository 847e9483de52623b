"""The journal of an attached query: one JSON line per period with all that its decision was based
on, so that it can be decided anew. The first line says what was wished for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from sojourn.attached.decide import Decision, Memory, Wish, decided
from sojourn.attached.seen import Seen
from sojourn.errors import InputError
from sojourn.linefile import LineFile, lines_of, parts_of

FORMAT = 1


class Header(msgspec.Struct):
    """The first line."""

    sojourn_attached: int
    query: str
    wish: Wish


@dataclass(frozen=True)
class Period:
    """A line: what was seen, what was remembered, what was decided, and what became of it."""

    number: int
    seen: Seen
    memory: Memory
    decision: Decision
    applied: bool
    note: str = ""


class Journal:
    """A file to which every period is appended."""

    def __init__(self, path: Path, query: str, wish: Wish) -> None:
        self.lines = LineFile(path, msgspec.json.encode(Header(FORMAT, query, wish)) + b"\n")

    def __call__(self, period: Period) -> None:
        self.lines.append(msgspec.json.encode(period) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self.lines.close()


def is_attached(path: Path) -> bool:
    """Whether a journal is that of an attached query."""
    try:
        with parts_of(path)[0].open("rb") as file:
            return file.readline().startswith(b'{"sojourn_attached"')
    except OSError:
        return False


def read(path: Path) -> tuple[Header, Iterator[Period]]:
    """The wish and the periods, the oldest file first. A last line that was cut short is left
    out."""
    parts = parts_of(path)
    try:
        with parts[-1].open("rb") as file:
            header = msgspec.json.decode(file.readline(), type=Header)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: is not a journal of an attached query: {error}") from None
    if header.sojourn_attached != FORMAT:
        raise InputError(
            f"{path}: has journal format {header.sojourn_attached}; this version reads {FORMAT}"
        )
    return header, (period for part in parts for period in lines_of(part, Period))


def replay(
    periods: Iterator[Period], wish: Wish, **changes: Any
) -> Iterator[tuple[Period, Decision]]:
    """Decide every period anew with some wishes changed, each time from what really happened.
    Without changes, also from what was remembered, which a clock that is set back alters."""
    memory: Memory | None = None
    wish = replace(wish, **changes)
    for period in periods:
        known = memory if changes and memory is not None else period.memory
        again = decided(period.seen, known, wish)
        memory = again.memory
        yield period, again
