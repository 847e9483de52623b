"""How runs under control are scored: pure functions over seconds, sojourns and changes. Used by the
parts of `control.py`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sojourn.control.summary import Happened
from sojourn.ports import QUANTILES, Sojourn

_AT_FIRST = 3  # seconds in a row that are within the target once it is kept again
_SOON, _BY_CHANCE = 20, 3  # of so many seconds, so many may be above by chance


@dataclass
class Seconds:
    """The mean sojourn of the tuples that end in each second, and the seconds in which none does
    though some are under way."""

    count: dict[int, int] = field(default_factory=dict)
    total_s: dict[int, float] = field(default_factory=dict)

    def add(self, time_s: float, sojourn: Sojourn | None, under_way: bool) -> None:
        """Count what an interval that ended at that time has shown, all in the second of its
        end."""
        second = math.ceil(time_s - 1e-6) - 1
        if sojourn is not None:
            self.end(second, sojourn.mean_s, sojourn.count)
        elif under_way:
            self.count.setdefault(second, 0)

    def end(self, second: int, mean_s: float, count: int = 1) -> None:
        """Count tuples that ended in a second."""
        self.count[second] = self.count.get(second, 0) + count
        self.total_s[second] = self.total_s.get(second, 0.0) + mean_s * count

    def mean_s(self, second: int) -> float:
        """Infinite if nothing ended."""
        count = self.count.get(second, 0)
        return self.total_s[second] / count if count else math.inf

    def above(self, target_s: float) -> list[int]:
        """The seconds that missed the target."""
        return [second for second in sorted(self.count) if self.mean_s(second) > target_s]


def back_after(above: Sequence[bool]) -> int | None:
    """The first second from which on the target is kept: the next three are within it, of the next
    twenty at most three are above, and of all that follow at most a tenth. None if there is none.

    Where processors are just enough, chance puts 4 % of seconds above, several in a row. A steady
    minute there is taken for kept from its first two seconds on in 95 of 100 cases."""
    for first in range(len(above) - _AT_FIRST + 1):
        rest = above[first:]
        kept = not any(rest[:_AT_FIRST]) and sum(rest[:_SOON]) <= _BY_CHANCE
        if kept and sum(rest) <= 0.1 * len(rest):
            return first
    return None


def pooled(found: Iterable[Sojourn], percent: float) -> float:
    """A percentile over the tuples of many intervals. Each percentile of an interval stands for
    the tuples between the one below and itself."""
    shares = np.diff((0.0, *QUANTILES, 100.0)) / 100
    pairs = [((*s.quantiles, s.max_s), shares * s.count) for s in found]
    values = np.concatenate([values for values, _ in pairs])
    weights = np.concatenate([weights for _, weights in pairs])
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, percent / 100 * reached[-1] * (1 - 1e-9)))
    return float(values[order[place]])


def made(changes: Iterable[Happened]) -> list[Happened]:
    """The changes that change something; asking again does not."""
    return [change for change in changes if change.before != change.after]


def reversed_soon(changes: Sequence[Happened], within_s: float = 60.0) -> list[Happened]:
    """The changes of which a later one takes something back within so many seconds: it moves an
    operator the other way."""

    def way(change: Happened, name: str) -> int:
        return change.after[name] - change.before[name]

    return [
        change
        for number, change in enumerate(changes)
        if any(
            way(change, name) * way(later, name) < 0
            for later in changes[number + 1 :]
            if later.at_s <= change.at_s + within_s
            for name in change.after
        )
    ]


@dataclass(frozen=True)
class Score:
    """Seconds above the target, of how many, and processor-seconds."""

    above: int = 0
    seconds: int = 0
    processor_s: float = 0.0

    def __add__(self, other: "Score") -> "Score":
        return Score(
            self.above + other.above,
            self.seconds + other.seconds,
            self.processor_s + other.processor_s,
        )

    @property
    def share_above(self) -> float:
        """Of the seconds."""
        return self.above / max(1, self.seconds)


def verdict(own: Score, others: Mapping[str, Score], most_above: float) -> list[str]:
    """What speaks against a policy on a trace: it misses its target too often, or others have no
    more seconds above the target and no more processor-seconds."""
    found = []
    if own.share_above > most_above:
        found.append(f"{own.share_above:.1%} of seconds above the target, at most {most_above:.0%}")
    for name, other in others.items():
        if other.above <= own.above and other.processor_s <= own.processor_s:
            found.append(
                f"{name} has {other.above} seconds above and {other.processor_s:.0f} "
                f"processor-seconds, drs {own.above} and {own.processor_s:.0f}"
            )
    return found
