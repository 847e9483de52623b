"""The journal: one JSON line per tick with everything the decision was based on, so that it can be
decided anew. The first line describes the topology. Written by the loop, read by replay.

A journal that grows large continues in a new file; the older files stay beside it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import msgspec

from sojourn.control.controller import Controller, Record, Shape
from sojourn.control.situation import Decision
from sojourn.errors import InputError

FORMAT = 1
MAX_BYTES = 64 << 20
MAX_PARTS = 10
# The memory between ticks mostly covers this many intervals. What is not tried again, and patterns,
# are remembered for longer.
WARM_UP = 200


class Header(msgspec.Struct):
    """The first line."""

    sojourn_journal: int
    shape: Shape


def check_new(path: Path) -> None:
    """Refuse the name of a journal that exists already or cannot be written. Nothing is made yet,
    so a start that is refused for another reason leaves no journal behind."""
    try:
        for part in [path] if path.exists() else _rotated(path):
            raise InputError(f"{part}: exists; name another journal, or delete it")
        there = next(folder for folder in path.absolute().parents if folder.exists())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}; name another journal"
        ) from None
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(
            f"{path}: cannot be written, as {there} must be a directory that you may write to; "
            "name another journal"
        )


class Journal:
    """A file to which every record is appended; each is on disk before the next. When the file
    reaches `max_bytes` it becomes FILE.1, the old FILE.1 becomes FILE.2, and so on up to MAX_PARTS.
    The oldest is deleted."""

    def __init__(self, path: Path, shape: Shape, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.max_bytes = path, max_bytes
        self.header = Header(FORMAT, shape)
        check_new(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file: IO[bytes] = path.open("xb")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        self.empty = True
        self._write(_line(self.header))

    def __call__(self, record: Record) -> None:
        line = _line(record)
        if not self.empty and self.file.tell() + len(line) > self.max_bytes:
            self._rotate()
        self.empty = False
        self._write(line)

    def _rotate(self) -> None:
        """Begin a new file. If that fails, the old file goes on, and the next record tries
        again."""
        if self.path.exists():
            for number in range(MAX_PARTS - 1, 0, -1):
                if _part(self.path, number).exists():
                    _part(self.path, number).replace(_part(self.path, number + 1))
            self.path.replace(_part(self.path, 1))
        file = self.path.open("xb")
        self.file.close()
        self.file, self.empty = file, True
        self._write(_line(self.header))

    def _write(self, line: bytes) -> None:
        self.file.write(line)
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _line(value: Header | Record) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _part(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _rotated(path: Path) -> list[Path]:
    """The older files of a journal, the oldest first."""
    parts = (_part(path, number) for number in range(MAX_PARTS, 0, -1))
    return [part for part in parts if part.exists()]


def read_journal(path: Path) -> tuple[Shape, Iterator[Record]]:
    """The topology and its records, the oldest file first. A last line that was cut short is left
    out."""
    parts = _rotated(path)
    if path.exists() or not parts:
        parts.append(path)
    shapes = [_read_shape(part) for part in parts]
    for part, shape in zip(parts, shapes, strict=True):
        if shape != shapes[-1]:
            raise InputError(
                f"{part}: must be a journal of the same topology as {parts[-1]}, "
                f"{shapes[-1].name!r}; got another, or an older form of it, {shape.name!r}; move "
                "it away"
            )
    return shapes[-1], (record for part in parts for record in _records(part))


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


def _records(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1 or not line.endswith(b"\n"):
                continue
            try:
                yield msgspec.json.decode(line, type=Record)
            except msgspec.MsgspecError as error:
                raise InputError(f"{path}, line {number}: {error}") from None


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
