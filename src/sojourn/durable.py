"""What must survive a power cut: used by sinks and by state."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have the disk hold a file's content, or the names in a directory, before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes) -> None:
    """A file that is there whole or not at all, also after a power cut."""
    aside = path.with_name(f"{path.name}.tmp")
    aside.write_bytes(data)
    sync(aside)
    aside.replace(path)
    sync(path.parent)
