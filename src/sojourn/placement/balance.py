"""Shards over the workers of an elastic executor (Elasticutor §3.1). Fed by the load that each
shard brings; used by executors and by the simulator.

δ is the load of the busiest worker over the mean. A round moves one shard from the busiest worker
to the least busy one: that which lowers δ most. Rounds go on until δ is at most θ, and, which the
paper does not ask for, until no worker has less than 1/θ of the mean. Otherwise the seventh worker
would get nothing, as six that are evenly busy have a δ of 7/6. A worker that one shard alone keeps
busier than that is left to it, and the others share what remains.

θ is 1.2 as in the paper where workers have time to spare. Where they have not, the busiest worker
bounds what all can carry, so a δ of 1.2 costs a sixth of it. There θ is lower, as low as 1.05.

Which of many shards lowers δ most is often chance, as few tuples have come for each. Shards that
seem busiest are then those whose tuples have just come. Where keys come in turn, they would go to
the same worker, and with them a burst in every turn. So each shard's count is first changed by
about the error of counting, always in the same way, and the shard is chosen by that."""

import bisect
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

THETA = 1.2
CLOSE = 1.05  # the lowest θ
_FULL = 0.9  # of a worker's time, above which it has none to spare
_UNSEEN = 1e-3  # of the mean load of a shard: the load of one without any, so that all are spread
_GAINS = 0.05  # the least share of a difference that a move must take away

Owner = TypeVar("Owner", bound=Hashable)
Counts = TypeVar("Counts", float, npt.NDArray[np.float64])


def balanced(
    owned: dict[Owner, list[int]],
    loads: Mapping[int, float],
    homeless: Iterable[int] = (),
    most: float = THETA,
    each: float = 0.0,
) -> Iterator[tuple[int, Owner]]:
    """Moves after which all are about equally busy, and which are few. Each is a shard and its new
    owner; once all were told, ownership is updated. What has no owner gets one first. Without any
    load, all get equally many, or one more. `each` is the load of a tuple, if loads come from
    counting."""
    total = math.fsum(loads.get(shard, 0.0) for shards in owned.values() for shard in shards)
    homeless = list(homeless)
    total += math.fsum(loads.get(shard, 0.0) for shard in homeless)
    count = len(homeless) + sum(map(len, owned.values()))
    least, most = (_UNSEEN * total / count, most) if total > 0 else (1.0, 1.0)

    def load(shard: int) -> float:
        return loads.get(shard, 0.0) + least

    def likely(shard: int) -> float:
        # The root of a count is off by a half, whatever the count.
        root = math.sqrt(load(shard) / each) + _mixed(shard) - 0.5
        return each * max(0.0, root) ** 2

    rank = likely if each > 0 and total > 0 else load
    # Of each owner, the least busy shard first.
    ranked = {owner: sorted((rank(s), s) for s in shards) for owner, shards in owned.items()}
    busy = {owner: math.fsum(map(load, shards)) for owner, shards in owned.items()}

    def moved(shard: int, to: Owner) -> tuple[int, Owner]:
        bisect.insort(ranked[to], (rank(shard), shard))
        busy[to] += load(shard)
        return shard, to

    for shard in sorted(homeless, key=load, reverse=True):
        yield moved(shard, min(busy, key=busy.__getitem__))
    left = dict.fromkeys(owned)
    while len(left) > 1:
        mean = math.fsum(busy[owner] for owner in left) / len(left)
        high, low = max(left, key=busy.__getitem__), min(left, key=busy.__getitem__)
        if busy[high] <= most * mean and most * busy[low] >= mean:
            break
        gap, shards = busy[high] - busy[low], ranked[high]
        place = bisect.bisect(shards, (gap / 2,))
        nearest = min(shards[max(0, place - 1) : place + 1], key=lambda s: abs(gap / 2 - s[0]))
        least_gain = _GAINS / 2 * gap
        if load(nearest[1]) > gap - least_gain:  # perhaps only because its count was changed
            others = [s for s in shards if least_gain <= load(s[1]) <= gap - least_gain]
            if not others:
                del left[high]
                continue
            nearest = min(others, key=lambda s: abs(gap / 2 - load(s[1])))
        found = load(nearest[1])
        del shards[bisect.bisect_left(shards, nearest)]
        busy[high] -= found
        yield moved(nearest[1], low)
    for owner, shards in ranked.items():
        owned[owner] = [shard for _, shard in shards]


def _mixed(number: int) -> float:
    """A number from 0 to 1 that is always the same, and another for the next shard."""
    return (number * 2654435761 & 0xFFFFFFFF) / 0x100000000


def imbalance(owned: Mapping[Owner, Iterable[int]], loads: Mapping[int, float]) -> float:
    """δ; 1 if there is no load."""
    busy = [math.fsum(loads.get(shard, 0.0) for shard in shards) for shards in owned.values()]
    total = math.fsum(busy)
    return max(busy) * len(busy) / total if total > 0 else 1.0


def tolerated(busy: float) -> float:
    """θ, where workers are busy for this share of their time on average: what leaves the busiest
    one a tenth of its time, within bounds."""
    return min(THETA, max(CLOSE, _FULL / busy)) if busy > 0 else THETA


def skew(processors: Counts, tuples: Counts) -> Counts:
    """By how much δ may exceed θ by chance, if it was measured over so many tuples."""
    found: Counts = 2 * (processors / tuples) ** 0.5
    return found
