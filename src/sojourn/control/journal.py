"""The journal: one JSON line per tick with everything the decision was based on, so that it can be
decided anew. The first line says which topology it is of. Written by the loop, read by replay."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import msgspec

from sojourn.control.controller import Controller, Record, Shape
from sojourn.control.situation import Decision
from sojourn.errors import InputError

FORMAT = 1


class Header(msgspec.Struct):
    """The first line."""

    sojourn_journal: int
    shape: Shape


class Journal:
    """A file that every record is appended to, and on disk before the next."""

    def __init__(self, path: Path, shape: Shape) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file: IO[bytes] = path.open("xb")
        except FileExistsError:
            raise InputError(f"{path}: exists; name another journal, or delete it") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        self._write(Header(FORMAT, shape))

    def __call__(self, record: Record) -> None:
        self._write(record)

    def _write(self, value: Any) -> None:
        self.file.write(msgspec.json.encode(value) + b"\n")
        self.file.flush()

    def close(self) -> None:
        """Nothing more follows."""
        self.file.close()


def read_journal(path: Path) -> tuple[Shape, Iterator[Record]]:
    """The topology and its records. A last line that was cut short is left out."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        header = msgspec.json.decode(lines[0], type=Header)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: is no journal of sojourn run: {error}") from None
    if header.sojourn_journal != FORMAT:
        raise InputError(
            f"{path}: is a journal of format {header.sojourn_journal}; this version reads {FORMAT}"
        )

    def records() -> Iterator[Record]:
        for number, line in enumerate(lines[1:-1], 2):
            try:
                yield msgspec.json.decode(line, type=Record)
            except msgspec.MsgspecError as error:
                raise InputError(f"{path}, line {number}: {error}") from None

    return header.shape, records()


@dataclass(frozen=True)
class Replayed:
    """A recorded tick beside what would be decided now."""

    record: Record
    decision: Decision

    @property
    def differs(self) -> bool:
        """Whether another allocation, or another kind of decision, comes out."""
        then, now = self.record.decision, self.decision
        return then.action != now.action or dict(then.allocation or {}) != dict(
            now.allocation or {}
        )


def replay(
    shape: Shape, records: Iterator[Record], changes: Mapping[str, Any]
) -> Iterator[Replayed]:
    """Decide every tick anew, with some settings changed, each time from what really was."""
    controller: Controller | None = None
    for record in records:
        settings = replace(record.settings, **changes)
        if controller is None:
            controller = Controller(shape, settings)
        controller.settings = settings
        controller.wanted = dict(record.wanted)
        again = controller.step(
            record.samples, record.capacity, advise=True, disturbed=record.disturbed
        )
        yield Replayed(record, again.decision)
        if record.applied:
            controller.adopt(record)
