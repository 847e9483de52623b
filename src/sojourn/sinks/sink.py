"""What the engine asks of a sink, and how staged files come into view. Fed by the engine's commits;
used by every kind of sink."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from sojourn.durable import sync
from sojourn.errors import InputError
from sojourn.typed import T

_log = logging.getLogger("sojourn")


@dataclass(frozen=True)
class Staged:
    """What a sink has made durable for a commit: the files to move into view once it is recorded,
    as pairs (from, to), and the files held for a later one."""

    publish: tuple[tuple[str, str], ...] = ()
    held: tuple[str, ...] = ()


def publish(staged: Iterable[tuple[str, str]], again: bool = False) -> None:
    """Move the files of a recorded commit into view. With `again`, after a restart, a missing
    staged file was moved before, and a reader of the results may have taken it away since. But its
    staging folder must still be there, or else the whole sink may be missing."""
    folders = set()
    for source, target in staged:
        if not os.path.isabs(target):
            raise InputError(
                f"{source}: holds results that were committed for {target}, but the sink is "
                "another now; start once with the sink as it was, which sends them"
            )
        try:
            os.replace(source, target)
        except FileNotFoundError:
            if again and (os.path.exists(target) or os.path.isdir(os.path.dirname(source))):
                _log.info("%s was published before", target)
            else:
                raise InputError(
                    f"{target}: cannot be published, because {source} is missing; all machines, "
                    "including the driver's, must see the directory of a sink, and what is staged "
                    "in it must stay; mount it, or, if its results are no longer wanted, make "
                    f"{os.path.dirname(source)}"
                ) from None
        folders |= {os.path.dirname(source), os.path.dirname(target)}
    for folder in folders:
        if os.path.isdir(folder):
            sync(Path(folder))


class Sink(Generic[T]):
    """Base of all sinks; `write` is all that one needs. A `Sink[int]` takes integers. `run`
    identifies the checkpoint, and so all starts that continue one another's work. `room` is a
    directory in the checkpoint that is this sink's alone. Where several processes write, values
    with the same `key` go to the same one."""

    run = ""
    room = Path()
    key: Callable[[Any], Any] | None = None

    def open(self, part: int, epoch: int, held: Sequence[str] = ()) -> None:
        """Called once before the first value. `part` is the number of this executor of the sink,
        `epoch` the number of the start, and `held` what the last commit held."""

    def write(self, value: T, /) -> str | None:  # noqa: ARG002
        """Write one value, or raise and leave no trace of it. The driver prints a returned line."""
        raise TypeError(f"{type(self).__name__} must define write(self, value)")

    def cut(self, last: bool = False) -> Callable[[], Staged]:  # noqa: ARG002
        """Make the cut of a commit: everything written so far belongs to it, everything later to
        the next. Returns at once. The returned function makes the commit's part durable; it is
        called in another thread while writing goes on. With `last`, the topology stops, so hold
        nothing back."""
        return Staged

    def publish(
        self,
        staged: Sequence[tuple[str, str]],
        commit: int,  # noqa: ARG002
        again: bool = False,
    ) -> None:
        """Called in the driver once a commit is recorded, with what all processes staged: show it.
        With `again`, after a restart, it may have been shown before."""
        publish(staged, again)

    def retire(self) -> None:
        """Called in the driver when the topology has stopped, after the last `publish`."""

    def close(self) -> None:
        """Called when the topology stops and no function that `cut` returned is running."""
