"""What each shard of an executor brings, measured with decay. Fed by the executor with what comes
and what was processed; feeds `balance`."""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping

MEMORY_S = 3.0  # what is older hardly counts
LOOK_S = 0.5  # between two looks at whether workers are equally busy
SETTLES_S = 10.0  # after shards were divided anew among executors, before these are compared
_FORGOTTEN = 1e-3  # tuples
_PRIOR = 3.0  # tuples of the mean service time that a shard is taken to have had


class Loads:
    """The tuples that came lately for each shard, and how long they take. Tuples that are processed
    one at a time are timed, shard by shard; quick ones are taken to be alike."""

    def __init__(self) -> None:
        self.ever: Counter[int] = Counter()  # tuples that came
        self.new: Counter[int] = Counter()  # of these, since the last look
        self.lately: dict[int, float] = {}  # tuples, with decay
        self.timed: dict[int, tuple[float, float]] = {}  # tuples and seconds, with decay
        self.looked_s: float | None = None
        self.span_s = 0.0  # in which what counts has come, with decay

    def arrived(self, shards: list[int]) -> None:
        """Count tuples by their shards."""
        self.new.update(shards)

    def served(self, shard: int, seconds: float) -> None:
        """Note how long a tuple took."""
        count, total = self.timed.get(shard, (0.0, 0.0))
        self.timed[shard] = count + 1, total + seconds

    def look(self, now_s: float) -> None:
        """Take in what came since the last look."""
        passed_s = 0.0 if self.looked_s is None else now_s - self.looked_s
        share = math.exp(-passed_s / MEMORY_S)
        self.span_s = share * self.span_s + passed_s
        self.looked_s = now_s
        kept = {s: share * count for s, count in self.lately.items() if count > _FORGOTTEN}
        for shard, count in self.new.items():
            kept[shard] = kept.get(shard, 0.0) + count
        self.lately = kept
        self.timed = {s: (share * n, share * t) for s, (n, t) in self.timed.items() if s in kept}
        self.ever.update(self.new)
        self.new.clear()

    def busiest(self, most: int) -> dict[int, int]:
        """The tuples that came, ever, for so many shards: those that have most lately."""
        lately = self.lately | {s: self.lately.get(s, 0.0) + n for s, n in self.new.items()}
        found = heapq.nlargest(most, lately, key=lately.__getitem__)
        return {shard: self.ever[shard] + self.new[shard] for shard in found}

    @property
    def tuples(self) -> float:
        """That count."""
        return math.fsum(self.lately.values())

    def busy(self, loads: Iterable[float], processors: float) -> float:
        """The share of their time for which so many processors are busy with these loads; 0 if
        nothing is known yet."""
        return math.fsum(loads) / self.span_s / processors if self.span_s else 0.0

    def of_shards(self, service_s: float, waiting: Mapping[int, int]) -> dict[int, float]:
        """The load of each: its tuples, those that came lately and those that wait, times what one
        takes. That is `service_s` as far as nothing is known. Without any that came, what waits
        says nothing yet."""
        found: dict[int, float] = {}
        if not self.lately:
            return found
        for shard in self.lately.keys() | waiting.keys():
            count = self.lately.get(shard, 0.0) + waiting.get(shard, 0)
            timed, total_s = self.timed.get(shard, (0.0, 0.0))
            found[shard] = count * (total_s + _PRIOR * service_s) / (timed + _PRIOR)
        return found
