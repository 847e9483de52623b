"""Walks of the optimal path for any weights of mean and variance, from one table of what each
processor saves. Fed by a network and limits; feeds the program for percentiles.

A walk gives the next processor to the station where it saves most. So its first n steps are the n
largest savings of all stations, and sorting them is the walk. The table has as many processors of
each station as the walks have needed so far."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from sojourn.queueing.network import Network
from sojourn.queueing.walk import Limits

_DEPTH = 16  # processors of each station to begin with

Numbers = npt.NDArray[np.float64]
Weights = tuple[float, float]
"""Of the mean and of the variance."""


@dataclass(frozen=True)
class Path:
    """A walk: the station of every step, what the step saves, and E[T] and Var[T] before the first
    step and after each."""

    stations: npt.NDArray[np.int64]
    savings: Numbers
    moments: Numbers

    def first(self, meets: Callable[[float, float], bool]) -> int | None:
        """The fewest steps after which mean and variance meet a condition. Once met, it must stay
        met."""
        low, high = 0, len(self.stations)
        if not meets(*self.moments[high].tolist()):
            return None
        while low < high:
            middle = (low + high) // 2
            if meets(*self.moments[middle].tolist()):
                high = middle
            else:
                low = middle + 1
        return low


class Table:
    """What every further processor saves of E[T] and Var[T], station by station."""

    def __init__(self, network: Network, start: Limits, maximum: Limits) -> None:
        self.start = {name: start[name] for name in network.stations}
        self.rooms = [maximum.get(name, math.inf) - k for name, k in self.start.items()]
        self.rows = [_row(network, name, k) for name, k in self.start.items()]
        self.known = [[next(row)] for row in self.rows]
        self.without_waiting = network.bound_moments()
        self.open = set(range(len(self.rows)))
        self._deepen(self.open)

    def allocation(self, path: Path, steps: int) -> dict[str, int]:
        """Where a walk is after so many steps."""
        given = np.bincount(path.stations[:steps], minlength=len(self.known)).tolist()
        return {name: k + n for (name, k), n in zip(self.start.items(), given, strict=True)}

    def walk(
        self, weights: Weights, until: Callable[[Path], int | None]
    ) -> tuple[Path, int | None]:
        """A walk as far as the step that `until` finds in it, and that step; to its end if there is
        none."""
        while True:
            path, ends = self._path(weights)
            steps = until(path)
            least = 0.0 if steps is None else path.savings[steps - 1] if steps else math.inf
            short = {i for i in self.open if ends[i] >= least}
            if not short:
                return path, steps
            self._deepen(short)

    def _path(self, weights: Weights) -> tuple[Path, Numbers]:
        """The walk over all that the table has, and what the last step of each station saves."""
        savings = self.saved @ np.array(weights)
        rising = (np.diff(savings) > 0) & (np.diff(self.stations) == 0)
        for i in np.unique(self.stations[1:][rising]):  # no step comes before the one below it
            part = slice(self.bounds[i], self.bounds[i + 1])
            savings[part] = np.minimum.accumulate(savings[part])
        ends = np.zeros(len(self.known))
        some = np.diff(self.bounds) > 0
        ends[some] = savings[self.bounds[1:][some] - 1]
        order = np.argsort(-savings, kind="stable")
        # Added up from the end, where little is left, so that no digits cancel.
        left = np.cumsum(self.saved[order[::-1]], axis=0)[::-1]
        moments = np.concatenate((left, np.zeros((1, 2)))) + self.left
        steps = order[: np.count_nonzero(savings > 0)]
        return Path(self.stations[steps], savings[steps], moments[: len(steps) + 1]), ends

    def _deepen(self, some: Iterable[int]) -> None:
        """Twice as many processors for some stations, as far as there is room and they save."""
        for i in list(some):
            row, known = self.rows[i], self.known[i]
            more = min(max(_DEPTH, len(known)), self.rooms[i] - len(known) + 1)
            known.extend(next(row) for _ in range(int(more)))
            if len(known) > self.rooms[i] or known[-1] == known[-2]:
                self.open.discard(i)
        sizes = [len(known) for known in self.known]
        found = np.fromiter(chain.from_iterable(chain.from_iterable(self.known)), np.float64)
        found = found.reshape(-1, 2)
        last = np.cumsum(sizes) - 1
        self.saved = np.delete(found[:-1] - found[1:], last[:-1], axis=0)
        self.stations = np.repeat(np.arange(len(sizes)), np.array(sizes) - 1)
        self.bounds = np.concatenate(([0], np.cumsum(np.array(sizes) - 1)))
        self.left = [
            base + math.fsum(found[last, i]) for i, base in enumerate(self.without_waiting)
        ]


def _row(network: Network, name: str, k: int) -> Iterator[tuple[float, float]]:
    """What waiting at a station adds to E[T] and Var[T] with k, k+1, k+2, … processors."""
    station = network.stations[name]
    if not station.arrival_rate > 0:
        while True:
            yield 0.0, 0.0
    visits, spread, twice = network.visits(name), network.spread(name), 2 / station.service_rate
    for wait, variance in station.waits(k):
        yield visits * wait, spread.times * variance + spread.visits * wait * (wait + twice)
