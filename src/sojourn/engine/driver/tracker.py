"""Tells when everything derived from a root tuple is processed: the exclusive-or of the ids of all
tuples of a tree, each counted when it is made and when it is processed, is zero exactly then
(as in Storm's ackers). Fed by executors' messages in any order; feeds the measured sojourn."""

from dataclasses import dataclass

from sojourn.engine.wire import messages as m
from sojourn.ports import Sojourn


@dataclass
class _Tree:
    value: int = 0
    arrival_s: float | None = None
    last_s: float = 0.0


class Tracker:
    """Open trees, and the sojourns of those completed since they were last collected."""

    def __init__(self) -> None:
        self.trees: dict[int, _Tree] = {}
        self.completed: list[float] = []

    def note(self, traces: m.Traces) -> None:
        """Take up what an executor reports."""
        for root in traces.roots:
            tree = self.trees.setdefault(root.root, _Tree())
            tree.value ^= root.value
            tree.arrival_s = root.arrival_s
            self._check(root.root, tree)
        for ack in traces.acks:
            tree = self.trees.setdefault(ack.root, _Tree())
            tree.value ^= ack.value
            tree.last_s = max(tree.last_s, ack.at_s)
            self._check(ack.root, tree)

    def collect(self) -> Sojourn | None:
        """The sojourns completed since the last call."""
        done = sorted(self.completed)
        self.completed = []
        return Sojourn.of(done) if done else None

    def clear(self) -> None:
        """The topology goes back to an earlier batch: open trees will not be completed."""
        self.trees.clear()

    def _check(self, root: int, tree: _Tree) -> None:
        if tree.value == 0 and tree.arrival_s is not None:
            del self.trees[root]
            if tree.last_s:
                self.completed.append(max(0.0, tree.last_s - tree.arrival_s))
