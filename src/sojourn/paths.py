"""Where trees of tuples spend their time: the operators that the end of each had to wait for.
Fed by trackers with when and where each tuple of a tree was processed; feeds the model, which must
know of tuples that are processed side by side."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

Processed = tuple[float, str]
"""When a tuple was processed, and at which vertex."""


class Critical(NamedTuple):
    """A vertex's part in the critical paths of trees, per tree: how often they pass it, for how
    many seconds, and the sum of the squares of these."""

    visits: float
    seconds: float
    squares: float = 0.0


def critical_path(
    arrival_s: float, done: Sequence[Processed], senders: Mapping[str, Collection[str]]
) -> list[tuple[str, float]]:
    """The vertices that a tree's end had to wait for, the last one first, each with the seconds
    since the one before: those of the tuple that was processed last, of the one that it follows
    from, and so on to the root. A tuple follows from the last one before it at a vertex that sends
    to its own; with several such at a time that is a guess, and mostly right."""
    path: list[tuple[str, float]] = []
    vertex, at_s = "", 0.0
    for before_s, name in sorted(done, reverse=True):
        if not vertex:
            vertex, at_s = name, before_s
        elif name in senders.get(vertex, ()):
            path.append((vertex, at_s - before_s))
            vertex, at_s = name, before_s
    if vertex:
        path.append((vertex, at_s - arrival_s))
    return path


class Paths:
    """The critical paths of trees since they were last collected."""

    def __init__(self, senders: Mapping[str, Collection[str]]) -> None:
        self.senders = senders
        self.trees = 0
        self.sums: dict[str, tuple[int, float, float]] = {}

    def add(self, arrival_s: float, done: Sequence[Processed]) -> None:
        """A tree is complete."""
        self.trees += 1
        for vertex, seconds in critical_path(arrival_s, done, self.senders):
            visits, total_s, squares = self.sums.get(vertex, (0, 0.0, 0.0))
            self.sums[vertex] = visits + 1, total_s + seconds, squares + seconds * seconds

    def collect(self) -> dict[str, Critical]:
        """Each vertex's part, per tree."""
        found = {
            vertex: Critical(*(total / self.trees for total in sums))
            for vertex, sums in self.sums.items()
        }
        self.trees, self.sums = 0, {}
        return found
