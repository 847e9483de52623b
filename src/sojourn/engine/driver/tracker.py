"""Tells when everything derived from a root tuple is processed. Each tuple of a tree counts its id
when it is made and when it is processed; the exclusive-or of all ids is zero exactly when the tree
is done (as in Storm's ackers). Fed by executors' messages in any order; feeds the measured sojourn.

Both open trees and completed sojourns are bounded, because acknowledgements may get lost and
perhaps nobody collects sojourns."""

import random
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sojourn.engine.wire import messages as m
from sojourn.paths import Paths, Processed
from sojourn.ports import Sojourn

# Sojourns kept until they are collected. In a random sample of this size, the 99th percentile is
# nearly always between percentiles 98.7 and 99.3 of all.
MAX_COMPLETED = 10_000
# Open trees at a time: at 200 a second, those of more than eight minutes.
MAX_OPEN = 100_000
# Tuples of a tree whose critical path is looked for; one that has more has none.
MAX_PROCESSED = 1_000


@dataclass(slots=True)
class _Tree:
    value: int = 0
    arrival_s: float | None = None
    last_s: float = 0.0
    done: list[Processed] = field(default_factory=list)


class Tracker:
    """Open trees, and the sojourns of those completed since they were last collected.

    Beyond `max_completed`, `completed` is a random sample, in which all sojourns are equally
    likely; their number, mean and maximum stay exact. Beyond `max_open`, the tree that was opened
    first is forgotten, and counted in `forgotten`. Later messages about it open it anew. It is then
    never completed, and is forgotten once it is the first again."""

    def __init__(
        self,
        draw: random.Random | None = None,
        max_completed: int = MAX_COMPLETED,
        max_open: int = MAX_OPEN,
        senders: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.draw = random.Random() if draw is None else draw
        self.max_completed, self.max_open = max_completed, max_open
        self.trees: OrderedDict[int, _Tree] = OrderedDict()  # a dict finds its first item slowly
        self.forgotten = 0
        self.completed: list[float] = []
        self.count, self.total_s, self.max_s = 0, 0.0, 0.0
        self.paths = Paths({} if senders is None else senders)

    def note(self, traces: m.Traces, vertex: str = "") -> None:
        """Take up what an executor of a vertex reports."""
        for root in traces.roots:
            tree = self.trees.setdefault(root.root, _Tree())
            tree.value ^= root.value
            tree.arrival_s = root.arrival_s
            self._check(root.root, tree)
        for ack in traces.acks:
            tree = self.trees.setdefault(ack.root, _Tree())
            tree.value ^= ack.value
            tree.last_s = max(tree.last_s, ack.at_s)
            if len(tree.done) <= MAX_PROCESSED and ack.at_s != m.SHED_S:
                tree.done.append((ack.at_s, vertex))
            self._check(ack.root, tree)

    def collect(self) -> Sojourn | None:
        """The sojourns completed since the last call, or since `take`."""
        count, total_s, max_s = self.count, self.total_s, self.max_s
        done = sorted(self.take())
        if not done:
            return None
        found = replace(Sojourn.of(done), critical=self.paths.collect())
        if count == len(done):
            return found
        return replace(found, count=count, mean_s=total_s / count, max_s=max_s)

    def take(self) -> list[float]:
        """The same one by one, in no order: all of them, or the sample."""
        done, self.completed = self.completed, []
        self.count, self.total_s, self.max_s = 0, 0.0, 0.0
        return done

    def clear(self) -> None:
        """Forget open trees. The topology goes back to the last commit, so they will not be
        completed."""
        self.trees.clear()

    def _check(self, root: int, tree: _Tree) -> None:
        if tree.value == 0 and tree.arrival_s is not None:
            del self.trees[root]
            if 0 < len(tree.done) <= MAX_PROCESSED:
                self.paths.add(tree.arrival_s, tree.done)
            if tree.last_s:
                self._add(max(0.0, tree.last_s - tree.arrival_s))
        elif len(self.trees) > self.max_open:
            self.trees.popitem(last=False)
            self.forgotten += 1

    def _add(self, sojourn_s: float) -> None:
        """Keep a sojourn. Once the sample is full, the n-th replaces a kept one with the chance
        that any of the n has of being kept."""
        self.count += 1
        self.total_s += sojourn_s
        self.max_s = max(self.max_s, sojourn_s)
        if len(self.completed) < self.max_completed:
            self.completed.append(sojourn_s)
        elif (place := self.draw.randrange(self.count)) < self.max_completed:
            self.completed[place] = sojourn_s
