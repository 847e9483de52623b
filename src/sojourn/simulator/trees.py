"""Roots whose trees are not complete yet: how many tuples of each are under way, and when the last
one was processed. Memory holds the trees from the oldest open one on."""

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from sojourn.paths import Paths, Processed
from sojourn.simulator.draws import Times

Roots = npt.NDArray[np.int64]
_EVERY = 8  # of so many trees one's critical path is looked for
REPEATED = -1  # a tuple that a failure repeats, and whose tree was collected before


class Trees:
    """Trees, numbered from zero. `base` is the number of the first one kept."""

    def __init__(self, senders: Mapping[str, Collection[str]] | None = None) -> None:
        self.paths = Paths({} if senders is None else senders)
        self.done: dict[int, list[Processed]] = {}  # of some trees
        self.base = 0
        self.arrival_s: Times = np.empty(0)
        self.last_s: Times = np.empty(0)
        self.open: Roots = np.empty(0, np.int64)

    @property
    def count(self) -> int:
        """Trees that are open."""
        return int(np.count_nonzero(self.open > 0))

    def add(self, arrival_s: Times, copies: int) -> Roots:
        """Add new roots, each with `copies` tuples under way."""
        first = self.base + len(self.arrival_s)
        self.arrival_s = np.concatenate((self.arrival_s, arrival_s))
        self.last_s = np.concatenate((self.last_s, arrival_s))
        self.open = np.concatenate((self.open, np.full(len(arrival_s), copies, np.int64)))
        return np.arange(first, first + len(arrival_s))

    def note(self, roots: Roots, at_s: Times, vertex: str) -> None:
        """Tuples were processed at a vertex: keep that of some trees, for their critical paths."""
        some = (roots >= 0) & (roots % _EVERY == 0)
        for root, time_s in zip(roots[some].tolist(), at_s[some].tolist(), strict=True):
            self.done.setdefault(root, []).append((time_s, vertex))

    def processed(self, roots: Roots, at_s: Times, children: Roots) -> None:
        """Note that a tuple of each root was processed and made `children`."""
        told = roots >= 0
        if not told.all():
            roots, at_s, children = roots[told], at_s[told], children[told]
        places = roots - self.base
        np.add.at(self.open, places, children - 1)
        np.maximum.at(self.last_s, places, at_s)

    def collect(self) -> Times:
        """Return the sojourns of complete trees, and forget these trees."""
        done = self.open == 0
        found: Times = self.last_s[done] - self.arrival_s[done]
        for place in np.flatnonzero(done).tolist():
            processed = self.done.pop(place + self.base, None)
            if processed is not None:
                self.paths.add(float(self.arrival_s[place]), processed)
        self.open[done] = -1
        still = np.flatnonzero(self.open > 0)
        keep = int(still[0]) if len(still) else len(self.open)
        if keep:
            self.base += keep
            self.arrival_s, self.last_s = self.arrival_s[keep:], self.last_s[keep:]
            self.open = self.open[keep:]
        return found

    def is_open(self, roots: Roots) -> npt.NDArray[np.bool_]:
        """Which of these roots have open trees."""
        places = roots - self.base
        found = (roots >= 0) & (places >= 0)
        found[found] = self.open[places[found]] > 0
        return found

    def restart(self, roots: Roots, copies: int) -> None:
        """Reset open trees that are processed anew: only `copies` tuples of each are under way."""
        self.open[roots[roots >= 0] - self.base] = copies
