"""A file of lines that only grows: when it is large, it continues in a new file, and the older ones
stay beside it. Journals are such files."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from sojourn.errors import InputError

MAX_BYTES = 64 << 20
MAX_PARTS = 10
T = TypeVar("T")


def check_new(path: Path) -> None:
    """Refuse the name of a journal that exists already or cannot be written. Nothing is made yet,
    so a start that is refused for another reason leaves no journal behind."""
    try:
        for part in [path] if path.exists() else rotated(path):
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


class LineFile:
    """A file to which lines are appended; each is on disk before the next. When the file reaches
    `max_bytes` it becomes FILE.1, the old FILE.1 becomes FILE.2, and so on up to MAX_PARTS. The
    oldest is deleted. Each begins with the same line."""

    def __init__(self, path: Path, first: bytes, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.first, self.max_bytes = path, first, max_bytes
        check_new(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file: IO[bytes] = path.open("xb")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        self.empty = True
        try:
            self._write(first)
        except OSError:
            self.file.close()
            path.unlink()  # so that it can be begun again
            raise

    def append(self, line: bytes) -> None:
        """Write a line, and begin a new file before that if this one is large."""
        if not self.empty and self.file.tell() + len(line) > self.max_bytes:
            self._rotate()
        self.empty = False
        self._write(line)

    def _rotate(self) -> None:
        """Begin a new file. If that fails, the old file goes on, and the next line tries again."""
        if self.path.exists():
            for number in range(MAX_PARTS - 1, 0, -1):
                if _part(self.path, number).exists():
                    _part(self.path, number).replace(_part(self.path, number + 1))
            self.path.replace(_part(self.path, 1))
        file = self.path.open("xb")
        self.file.close()
        self.file, self.empty = file, True
        self._write(self.first)

    def _write(self, line: bytes) -> None:
        self.file.write(line)
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _part(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def rotated(path: Path) -> list[Path]:
    """The older files of a journal, the oldest first."""
    parts = (_part(path, number) for number in range(MAX_PARTS, 0, -1))
    return [part for part in parts if part.exists()]


def parts_of(path: Path) -> list[Path]:
    """All files of a journal, the oldest first. The name itself is among them if there is none."""
    parts = rotated(path)
    if path.exists() or not parts:
        parts.append(path)
    return parts


def lines_of(path: Path, kind: type[T]) -> Iterator[T]:
    """The lines of a file behind its first. A last line that was cut short is left out."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1 or not line.endswith(b"\n"):
                continue
            try:
                yield msgspec.json.decode(line, type=kind)
            except msgspec.MsgspecError as error:
                raise InputError(f"{path}, line {number}: {error}") from None
