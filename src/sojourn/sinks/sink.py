"""What a sink is to the engine, and how what it staged comes into view. Fed by the commits of the
engine; used by every kind of sink."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from sojourn.durable import sync
from sojourn.errors import InputError
from sojourn.typed import T

_log = logging.getLogger("sojourn")


@dataclass(frozen=True)
class Staged:
    """What a sink has made durable for a commit: files to be moved into view once it is recorded
    (from, to), and files kept aside for a later one."""

    publish: tuple[tuple[str, str], ...] = ()
    held: tuple[str, ...] = ()


def publish(staged: Iterable[tuple[str, str]], again: bool = False) -> None:
    """Move the files of a recorded commit into view. With `again`, after a restart, a staged file
    that is not there was moved before, and whoever reads results may have taken it away since; but
    the folder that it was staged in must still be there, or the whole sink may not be."""
    folders = set()
    for source, target in staged:
        try:
            os.replace(source, target)
        except FileNotFoundError:
            if again and (os.path.exists(target) or os.path.isdir(os.path.dirname(source))):
                _log.info("%s was published before", target)
            else:
                raise InputError(
                    f"{target}: cannot be published, as {source} is not there; the directory of a "
                    "sink must be one that all machines see, the driver's included, and what is "
                    "staged in it must stay: mount it, or if its results are no longer wanted, "
                    f"make {os.path.dirname(source)}"
                ) from None
        folders |= {os.path.dirname(source), os.path.dirname(target)}
    for folder in folders:
        if os.path.isdir(folder):
            sync(Path(folder))


class Sink(Generic[T]):
    """Base of all sinks; `write` is all that one needs. A `Sink[int]` takes whole numbers. `run`
    names the checkpoint, and so all starts that go on with one another's work."""

    run = ""

    def open(self, part: int, epoch: int, held: Sequence[str] = ()) -> None:
        """Called once before the first value. `part` numbers the executors of the sink, should
        there be several; `epoch` numbers the starts; `held` is what the last commit held."""

    def write(self, value: T, /) -> str | None:  # noqa: ARG002
        """Take one value, or raise and leave no trace of it; a returned line is printed by the
        driver."""
        raise TypeError(f"{type(self).__name__} must define write(self, value)")

    def cut(self, last: bool = False) -> Callable[[], Staged]:  # noqa: ARG002
        """A commit's cut: all written so far belongs to it, all written from now on to the next.
        Returns at once; the function it returns makes that durable, and is called in another
        thread while writing goes on. `last`: the topology stops, so hold nothing back."""
        return Staged

    def close(self) -> None:
        """The topology stops, and no function that `cut` returned is running."""
