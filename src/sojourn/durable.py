"""Files that must survive a power cut, and that nobody else may touch. Used by sinks, by state and
by the checkpoint. Its files are unpickled, so whoever can write them can run code as their
owner."""

import errno
import os
import stat
from pathlib import Path
from typing import IO

from sojourn.errors import InputError

_FULL = {errno.ENOSPC, errno.EDQUOT}


def full_disk(error: OSError) -> str | None:
    """One clear message if the disk is full, else None."""
    if error.errno not in _FULL:
        return None
    where = f" ({error.filename})" if error.filename else ""
    return f"the disk is full{where}; make room; nothing that was committed is lost"


def sync(path: Path) -> None:
    """Have the disk hold a file's content, or the names in a directory, before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes) -> None:
    """Write a private file that is there whole or not at all, even after a power cut."""
    aside = path.with_name(f"{path.name}.tmp")
    with private_file(aside) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync(path.parent)


def private_file(path: Path) -> IO[bytes]:
    """Write a file anew that only this user may read, whatever the umask."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "wb")


def private_directory(path: Path) -> Path:
    """A directory that only this user may enter. It and its missing parents are made so. One that
    others could read until now is made private with all that is in it. One that others own or could
    write to is refused."""
    missing = [directory for directory in path.parents if not directory.exists()]
    for directory in (*reversed(missing), path):
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise InputError(
                f"{directory}: must be a directory; got a file; use another name, or move it away"
            ) from None
        _make_private(directory)
    return path


def _make_private(directory: Path) -> None:
    for status in (directory.lstat(), directory.stat()):  # a link and its target
        _check(directory, status)
    if status.st_mode & 0o777 == 0o700:
        return  # nobody else can have been in it
    for folder, names, files in os.walk(directory):
        for name in (*names, *files):
            path = Path(folder, name)
            status = path.lstat()
            _check(path, status)
            if not stat.S_ISLNK(status.st_mode):
                path.chmod(0o700 if stat.S_ISDIR(status.st_mode) else 0o600)
    directory.chmod(0o700)  # last, so that a refused directory is refused again


def _check(path: Path, status: os.stat_result) -> None:
    """Refuse what others could have changed."""
    if status.st_uid != os.geteuid():
        raise InputError(
            f"{path}: must belong to the user who runs this, {os.geteuid()}; it belongs to "
            f"{status.st_uid}; use another directory"
        )
    if status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode):
        raise InputError(
            f"{path}: must not be writable by others, because they could run code through it; its "
            f"mode is {stat.S_IMODE(status.st_mode):o}; use another directory, or, if you trust "
            "all that is in it, chmod -R go= it"
        )
