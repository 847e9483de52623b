"""Tuples between vertices in virtual time: how many a vertex makes from one, where they go, and
which are on their way."""

import math
from dataclasses import dataclass

import numpy as np

from sojourn.simulator.draws import Times
from sojourn.simulator.trees import Roots


class Inbox:
    """Tuples on their way to a vertex."""

    def __init__(self) -> None:
        self.parts: list[tuple[Times, Roots]] = []

    def put(self, time_s: Times, root: Roots) -> None:
        """Add tuples, in any order."""
        if len(time_s):
            self.parts.append((time_s, root))

    def take(self, end_s: float, not_before_s: float) -> tuple[Times, Roots]:
        """Take the tuples that arrive before the end, in order. None arrives before a stall is
        over."""
        if not self.parts or not_before_s >= end_s:
            return np.empty(0), np.empty(0, np.int64)
        time_s = np.concatenate([part[0] for part in self.parts])
        root = np.concatenate([part[1] for part in self.parts])
        time_s = np.maximum(time_s, not_before_s)
        order = np.argsort(time_s, kind="stable")
        time_s, root = time_s[order], root[order]
        size = int(np.searchsorted(time_s, end_s))
        self.parts = [(time_s[size:], root[size:])] if size < len(time_s) else []
        return time_s[:size], root[:size]


@dataclass(frozen=True)
class Edge:
    """Where tuples go, how long that takes, and which of the sender's outputs they come from."""

    name: str
    receiver: str
    hop_s: float
    output: int


class Outputs:
    """How many tuples a vertex makes from one. All receivers of an output get each of them. If all
    outputs together make at most one tuple, each tuple goes to one of them or to none."""

    def __init__(self, gains: list[float]) -> None:
        total = sum(gains)
        self.choice = len(gains) > 1 and total < 1.01
        self.gains = [gain / max(1.0, total) for gain in gains] if self.choice else gains
        self.plain = all(gain == 1.0 for gain in self.gains)

    def counts(self, size: int, rng: np.random.Generator) -> list[Roots]:
        """The number of tuples on each output, for each of `size` tuples."""
        if self.choice:
            chosen = np.searchsorted(np.cumsum(self.gains), rng.random(size), side="right")
            return [(chosen == number).astype(np.int64) for number in range(len(self.gains))]
        found = []
        for gain in self.gains:
            whole = math.floor(gain)
            counts = np.full(size, whole, np.int64)
            found.append(counts + (rng.random(size) < gain - whole) if gain > whole else counts)
        return found
