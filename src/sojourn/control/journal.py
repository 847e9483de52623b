"""The journal: one JSON line per tick with everything the decision was based on, so that it can be
decided anew. The first line describes the topology. Written by the loop, read by replay.

A journal that grows large continues in a new file; the older files stay beside it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from sojourn.control.controller import Controller, Record, Shape
from sojourn.control.situation import Decision
from sojourn.errors import InputError
from sojourn.linefile import MAX_BYTES, LineFile, lines_of, parts_of

FORMAT = 1
# The memory between ticks mostly covers this many intervals. What is not tried again, and patterns,
# are remembered for longer.
WARM_UP = 200


class Header(msgspec.Struct):
    """The first line."""

    sojourn_journal: int
    shape: Shape


class Journal:
    """A file to which every record is appended; each is on disk before the next."""

    def __init__(self, path: Path, shape: Shape, max_bytes: int = MAX_BYTES) -> None:
        self.lines = LineFile(path, _line(Header(FORMAT, shape)), max_bytes)

    def __call__(self, record: Record) -> None:
        self.lines.append(_line(record))

    def close(self) -> None:
        """Close the file."""
        self.lines.close()


def _line(value: Header | Record) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def read_journal(path: Path) -> tuple[Shape, Iterator[Record]]:
    """The topology and its records, the oldest file first. A last line that was cut short is left
    out."""
    parts = parts_of(path)
    shapes = [_read_shape(part) for part in parts]
    for part, shape in zip(parts, shapes, strict=True):
        if shape != shapes[-1]:
            raise InputError(
                f"{part}: must be a journal of the same topology as {parts[-1]}, "
                f"{shapes[-1].name!r}; got another, or an older form of it, {shape.name!r}; move "
                "it away"
            )
    return shapes[-1], (record for part in parts for record in lines_of(part, Record))


def _read_shape(path: Path) -> Shape:
    try:
        with path.open("rb") as file:
            line = file.readline()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: is not a journal of sojourn run: {error}") from None
    if header.sojourn_journal != FORMAT:
        raise InputError(
            f"{path}: has journal format {header.sojourn_journal}; this version reads {FORMAT}"
        )
    return header.shape


@dataclass(frozen=True)
class Replayed:
    """A recorded tick beside what would be decided now. A journal whose beginning is gone lacks the
    memory at its first tick, so its first ticks only serve to `warm_up`."""

    record: Record
    decision: Decision
    warm_up: bool = False

    @property
    def differs(self) -> bool:
        """Whether another allocation or another kind of decision comes out, where that is known."""
        then, now = self.record.decision, self.decision
        same = then.action == now.action and dict(then.allocation or {}) == dict(
            now.allocation or {}
        )
        return not same and not self.warm_up


def replay(
    shape: Shape, records: Iterator[Record], changes: Mapping[str, Any]
) -> Iterator[Replayed]:
    """Decide every tick anew with some settings changed, each time from what really happened."""
    controller: Controller | None = None
    warm_up = 0
    for record in records:
        settings = replace(record.settings, **changes)
        if controller is None:
            controller = Controller(shape, settings)
            controller.memory = replace(controller.memory, number=record.number - 1)
            warm_up = WARM_UP if record.number > 1 else 0
        controller.settings = settings
        controller.memory = replace(controller.memory, wanted=record.wanted)
        again = controller.step(
            record.samples, record.capacity, advise=True, pressures=record.pressures
        )
        yield Replayed(record, again.decision, warm_up > 0)
        warm_up -= 1
        if record.applied:
            controller.adopt(replace(record, settings=settings))
