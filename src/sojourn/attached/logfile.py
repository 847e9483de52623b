"""Event logs as Spark writes them: by default a directory with files that follow one another, which
are compressed with zstd; before Spark 4, a plain file. From a path to events, the oldest first, for
eventlog.py."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sojourn.errors import InputError

_OTHER_CODECS = ("lz4", "lzf", "snappy")  # in formats of Java's own
_PIECE = 512  # bytes; where zstd is cut off, the last piece is lost
_FOLDER, _STATUS = "eventlog_v2_", "appstatus_"
_PART = re.compile(r"events_(\d+)_")
_COMPACTED = ".compact"


def events(
    path: Path, tell: Callable[[str], None] = lambda _: None, only: bytes = b""
) -> Iterator[Mapping[str, Any]]:
    """The events of a log whose lines contain `only`. A log that is still written, or whose driver
    was ended, may be cut off. Then all but the end is read, and somebody is told."""
    files = _files(path)
    if files[0].name.endswith(_COMPACTED):
        tell(f"{files[0]}: is compacted by the history server; jobs that were done are left out")
    some = False
    for file in files:
        number = 0
        try:
            for line in _lines(file):
                if not line.endswith(b"\n"):
                    raise _CutOff("an event has no end")
                number, some = number + 1, True
                if only in line:
                    yield _event(file, number, line)
        except _CutOff as why:
            if file is not files[-1] or not some:
                raise InputError(f"{file}: cannot be read as an event log: {why}") from None
            tell(f"{file}: is cut off after line {number}, where {why}; all before it counts")
        except OSError as error:
            raise InputError(f"{file}: cannot be read as an event log: {error}") from None


class _CutOff(Exception):
    """That a file ends where it should not."""


def _lines(file: Path) -> Iterator[bytes]:
    codec = _codec(file)
    if codec in _OTHER_CODECS:
        raise InputError(
            f"{file}: must be plain or compressed with zstd; got {codec}; set "
            "spark.eventLog.compression.codec=zstd, or spark.eventLog.compress=false"
        )
    if codec != "zstd":
        with file.open("rb") as lines:
            yield from lines
        return
    held: list[bytes] = []
    for piece in _unpacked(file):
        if b"\n" not in piece:
            held.append(piece)
            continue
        *whole, rest = b"".join([*held, piece]).split(b"\n")
        yield from (line + b"\n" for line in whole)
        held = [rest] if rest else []
    if held:
        yield b"".join(held)


def _unpacked(file: Path) -> Iterator[bytes]:
    import pyarrow

    with pyarrow.input_stream(str(file), compression="zstd") as stream:
        while True:
            try:
                piece = stream.read(_PIECE)
            except OSError as error:
                if error.errno is not None:  # of the disk, not of what is on it
                    raise
                raise _CutOff(str(error)) from None
            if not piece:
                return
            yield piece


def _codec(file: Path) -> str:
    """Spark names it at the end of the file's name, or before it where the file is not final."""
    name = file.name.removesuffix(_COMPACTED).removesuffix(".inprogress")
    return name.rpartition(".")[2]


def _files(path: Path) -> list[Path]:
    """Those of a log: a file, a directory with files that are numbered, or a directory with
    nothing but one of these."""
    if not path.is_dir():
        return [path]
    below = [one for one in path.iterdir() if not one.name.startswith((".", _STATUS))]
    parts = {one: int(of[1]) for one in below if (of := _PART.match(one.name))}
    if parts:
        return _in_order(path, parts)
    logs = sorted(
        one for one in below if one.is_file() or (one.is_dir() and one.name.startswith(_FOLDER))
    )
    if not logs:
        raise InputError(f"{path}: has no event log; set spark.eventLog.enabled=true and dir")
    if len(logs) > 1:
        names = ", ".join(log.name for log in logs[:5]) + (", …" if len(logs) > 5 else "")
        raise InputError(f"{path}: has the logs of {len(logs)} applications; give one of {names}")
    return _files(logs[0])


def _in_order(path: Path, parts: Mapping[Path, int]) -> list[Path]:
    """By number. The history server may have compacted all parts up to one, which then begins the
    log."""
    files = sorted(parts, key=lambda part: (parts[part], part.name.endswith(_COMPACTED)))
    whole = [place for place, part in enumerate(files) if part.name.endswith(_COMPACTED)]
    files = files[whole[-1] :] if whole else files
    first = parts[files[0]] if whole else 1
    missing = set(range(first, parts[files[-1]])) - {parts[part] for part in files}
    if missing:
        raise InputError(
            f"{path}: must have all parts of the log; it lacks events_{min(missing)}_…"
        )
    return files


def _event(file: Path, number: int, line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "Event" not in found:
        raise InputError(f"{file}, line {number}: is not an event of Spark")
    return found
