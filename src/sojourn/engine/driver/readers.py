"""Which process of a source reads which of its splits. Asks sources for their splits, at a start
and after every commit. If there are new ones, the next commit shares them out anew: the source's
readers stop at its cut, and go on with what is theirs once it is durable. A split stays with its
executor, by its place in the record: rows of two executors could overtake one another. Used by the
supervisor; fed by the record, which has the positions."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sojourn.engine.driver.record import Record
from sojourn.engine.wire import messages as m
from sojourn.engine.worker import values
from sojourn.errors import InputError
from sojourn.sources import Source
from sojourn.topology import SourceSpec

_log = logging.getLogger("sojourn")


@dataclass
class _Splits:
    """The splits of a source, as last heard and as its readers were last told."""

    spec: SourceSpec
    found: set[str]
    readers: int
    told: tuple[str, ...] = ()
    told_readers: int = 0
    asking: threading.Thread | None = None
    silent: bool = False  # whether it could not tell when it was last asked
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_due(self) -> bool:
        return len(self.found) > len(self.told) or self.readers != self.told_readers

    def settle(self) -> None:
        self.told, self.told_readers = tuple(sorted(self.found)), self.readers


class Readers:
    """The sources with splits. `heard` is called, in a thread of its own, when there are new
    ones."""

    def __init__(
        self,
        sources: Mapping[str, SourceSpec],
        record: Record,
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        self.heard = heard
        self.sources: dict[str, _Splits] = {}
        for name, spec in sources.items():
            found = _asked(name, spec.source)
            _check(name, spec, found is not None, record)
            if found is not None:
                # So that later commits have them.
                record.splits.setdefault(name, dict(sorted(found.items())))
                self.sources[name] = _Splits(spec, set(found), spec.executors)

    def bounds(self, name: str) -> tuple[int, int] | None:
        """The fewest and the most processes that can read a source: one for each executor and for
        each split. None if their number cannot be changed."""
        splits = self.sources.get(name)
        if splits is None or not splits.spec.source.elastic:
            return None
        return splits.spec.executors, max(splits.spec.executors, len(splits.found))

    def resize(self, name: str, readers: int) -> None:
        """Have so many processes read a source from the next commit on."""
        self.sources[name].readers = readers

    @property
    def due(self) -> list[str]:
        """The sources whose splits are to be shared out anew."""
        return [name for name, splits in self.sources.items() if splits.is_due]

    def settle(self, record: Record, names: list[str] | None = None) -> None:
        """Share out what is known now: for these sources, or at a start for all. The record gets
        those that are new, in order."""
        for name in self.sources if names is None else names:
            splits = self.sources[name]
            with splits.lock:
                for split in sorted(splits.found):
                    record.splits[name].setdefault(split, b"")
                splits.settle()

    def shares(self, name: str, record: Record) -> list[list[m.Share]] | None:
        """What is read by the processes of each executor of a source; None without splits. Splits
        go to executors by their place in the record, and to the processes of one by names."""
        splits = self.sources.get(name)
        if splits is None:
            return None
        saved, executors, count = record.splits[name], splits.spec.executors, splits.told_readers
        places = {split: place for place, split in enumerate(saved)}
        theirs: list[list[str]] = [[] for _ in range(executors)]
        for split in splits.told:
            theirs[places[split] % executors].append(split)
        mine = []
        for number in range(count):
            executor = number % executors
            processes = len(range(executor, count, executors))
            mine.append(theirs[executor][number // executors :: processes])
        schedule = max((part.schedule for part in record.of(name)), default=(0, 0.0, 0.0))
        busy = [number for number, own in enumerate(mine) if own]  # these share the pace
        order = [*busy, *(number for number, own in enumerate(mine) if not own)]
        found: list[list[m.Share]] = [[] for _ in range(executors)]
        for number, own in enumerate(mine):
            positions = {split: saved[split] for split in own}
            share = m.Share(positions, order.index(number), max(1, len(busy)), schedule)
            found[number % executors].append(share)
        return found

    def look(self) -> None:
        """Ask all sources for their splits, without waiting for what they say."""
        for name, splits in self.sources.items():
            if splits.asking is None or not splits.asking.is_alive():
                splits.asking = threading.Thread(
                    target=self._ask, args=(name, splits), name=f"sojourn-{name}", daemon=True
                )
                splits.asking.start()

    def _ask(self, name: str, splits: _Splits) -> None:
        try:
            found = _asked(name, splits.spec.source) or {}
        except Exception as error:  # noqa: BLE001  # of the user's code; what is known is read on
            if not splits.silent:
                _log.warning("source %r cannot list its splits (%s); it goes on", name, error)
            splits.silent = True
            return
        splits.silent = False
        with splits.lock:
            new = found.keys() - splits.found
            splits.found |= new
        if new:
            self.heard()


def _asked(name: str, source: Source[Any]) -> dict[str, bytes] | None:
    """A source's splits, and where each begins at the very first start."""
    found = source.splits()
    if found is None:
        return None
    names = list(found)
    if len({*names}) < len(names) or not all(isinstance(n, str) and n for n in names):
        raise InputError(
            f"source {name!r}: the names of its splits must be different strings, none of them "
            f"empty; got {names!r:.200}"
        )
    begin = found if isinstance(found, Mapping) else dict.fromkeys(names)
    return {n: b"" if at is None else values.dumps(at) for n, at in begin.items()}


def _check(name: str, spec: SourceSpec, has_splits: bool, record: Record) -> None:
    """Refuse a source that cannot be read as it should be, or not from where it was."""
    if not has_splits and spec.executors > 1:
        raise InputError(
            f"source {name!r}: has no splits, so one process reads it; "
            f"leave out executors={spec.executors}"
        )
    other = any(part.position for part in record.of(name)) if has_splits else name in record.splits
    if other:
        had, has = ("no splits", "some") if has_splits else ("splits", "none")
        raise InputError(
            f"source {name!r}: had {had} when the checkpoint was made, and has {has} now, so it is "
            "not known where to go on; start with another checkpoint, or the source as it was"
        )
