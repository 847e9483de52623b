"""Sinks that write files aside for commits to show, and the sink that writes JSON lines."""

import contextlib
import io
import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sojourn.durable import sync
from sojourn.errors import InputError
from sojourn.sinks.sink import Sink, Staged
from sojourn.units import parse_path

BUFFER_BYTES = 256 << 10


class Files(Sink[Any]):
    """Files written aside, in a folder of the sink's own, and moved into view when committed.
    `part-0-000007-000012-3fb2a1.jsonl` is number 12 of part 0 in epoch 7; the last piece of the
    name differs between checkpoints. Names sort in the order in which files were begun."""

    suffix = ""

    def __init__(self, directory: str | Path, roll_bytes: int) -> None:
        self.directory = parse_path(directory, f"the sink for {self.suffix} files").resolve()
        if isinstance(roll_bytes, bool) or not isinstance(roll_bytes, int) or roll_bytes < 1:
            raise InputError(
                f"the sink in {directory}: roll_bytes must be a whole number above zero; "
                f"got {roll_bytes!r}"
            )
        self.roll_bytes = roll_bytes
        self.part = self.epoch = self.sequence = 0
        self.staged = Staged()

    def open(self, part: int, epoch: int, held: Sequence[str] = ()) -> None:
        self.part, self.epoch = part, epoch
        for path in held:
            if not path.endswith(self.suffix) or not os.path.exists(path):
                raise InputError(
                    f"the sink in {self.directory}: cannot go on, because the checkpoint needs "
                    f"{path}, which is missing or of another kind; restore it, or start with a "
                    "new checkpoint"
                )
        for folder, mode in ((self.directory, 0o777), (self.staging, 0o700)):
            for made in (folder.parent, folder):
                if not made.is_dir():
                    made.mkdir(mode, parents=True, exist_ok=True)
                    sync(made.parent)
        self._marker.touch()
        self._clear([*held, str(self._marker)])
        self.token, self.numbers = secrets.token_hex(3), itertools.count()

    @property
    def staging(self) -> Path:
        return self.directory / "_staging" / f"part-{self.part}{self._run}"

    @property
    def _run(self) -> str:
        return f"-{self.run}" if self.run else ""

    @property
    def _marker(self) -> Path:
        """A file that is in the folder while the sink is open and no newer one has been opened. A
        sink whose marker is gone no longer removes anything."""
        return self.staging / f"{self.epoch:06d}-open"

    def _aside(self) -> Path:
        """A name in the staging folder that was not used before. If a later commit reused a name,
        publishing the earlier commit again would show the later one's file."""
        name = f"{self.epoch:06d}-{self.token}-{next(self.numbers):06d}{self.suffix}"
        return self.staging / name

    def _next_name(self) -> Path:
        """Where the next file is shown."""
        while True:
            number = f"{self.epoch:06d}-{self.sequence:06d}"
            path = self.directory / f"part-{self.part}-{number}{self._run}{self.suffix}"
            self.sequence += 1
            if not path.exists():
                return path

    def _clear(self, kept: Iterable[str]) -> None:
        """Remove what this epoch and earlier ones have left in the staging folder."""
        keep = {Path(path).resolve() for path in kept}
        for path in self.staging.iterdir():
            epoch = path.name.partition("-")[0]
            if epoch.isdigit() and int(epoch) <= self.epoch and path not in keep:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Leave only the files that a commit may need."""
        if self._marker.exists():
            self._clear([*self._counted_on(), *(source for source, _ in self.staged.publish)])
            for folder in (self.staging, self.staging.parent):
                with contextlib.suppress(OSError):  # others have files there
                    folder.rmdir()

    def _counted_on(self) -> Iterable[str]:
        return ()


class Jsonl(Files):
    """One growing file, written aside. Each commit shows a copy of it in place of the last copy.
    Once the file is long enough, a commit shows the file itself, and the next file begins. The
    number of commits per file is bounded too, because each of them copies the whole file."""

    suffix = ".jsonl"
    commits_per_file = 256

    def __init__(self, directory: str | Path, roll_bytes: int) -> None:
        super().__init__(directory, roll_bytes)
        self.buffer = bytearray()
        self.path: Path | None = None
        self.target = self.directory
        self.size = self.cut_size = self.commits = 0

    def write(self, value: Any) -> None:
        line = msgspec.json.encode(value) + b"\n"
        if len(self.buffer) >= BUFFER_BYTES:
            self._drain()
        self.buffer += line

    def _drain(self) -> None:
        if self.path is None:
            path, self.target = self._aside(), self._next_name()
            path.touch(exist_ok=False)
            self.path = path
            self.size = self.cut_size = self.commits = 0
        with io.FileIO(self.path, "r+b") as file:
            file.seek(self.size)
            while self.buffer:
                written = file.write(self.buffer)
                del self.buffer[:written]
                self.size += written

    def cut(self, last: bool = False) -> Callable[[], Staged]:
        if self.buffer:
            self._drain()
        if self.path is None or self.size == self.cut_size:
            return Staged
        path, target, size = self.path, self.target, self.size
        self.cut_size = size
        self.commits += 1
        whole = last or size >= self.roll_bytes or self.commits >= self.commits_per_file
        if whole:
            self.path = None

        def stage() -> Staged:
            source = path
            if not whole:
                source = self._aside()
                _copy(path, source, size)
            sync(source)
            sync(self.staging)
            self.staged = Staged(((str(source), str(target)),))
            return self.staged

        return stage


def _copy(source: Path, target: Path, size: int) -> None:
    """The first `size` bytes of a file that may be growing."""
    with io.FileIO(source) as old, io.FileIO(target, "xb") as new:
        left = size
        with contextlib.suppress(OSError):  # not every file system can; a real fault shows below
            while left and (done := os.copy_file_range(old.fileno(), new.fileno(), left)):
                left -= done
        while left:
            data = old.read(min(left, 1 << 20))
            if not data:
                raise OSError(f"{source} is {left} bytes shorter than what was written to it")
            left -= len(data)
            while data:
                data = data[new.write(data) :]
