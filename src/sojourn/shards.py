"""How many processors each executor has."""

import heapq
from collections.abc import Sequence


def shares(processors: int, executors: int) -> list[int]:
    """An operator's processors, spread evenly over its executors."""
    whole, rest = divmod(processors, executors)
    return [whole + (i < rest) for i in range(executors)]


def shares_by_load(processors: int, loads: Sequence[float], most: int | None = None) -> list[int]:
    """An operator's processors over executors with these loads, one at least and `most` at most:
    the next one always goes to where each has most to do."""
    found = [1] * len(loads)
    heap = [(-load, place) for place, load in enumerate(loads)]
    heapq.heapify(heap)
    for _ in range(processors - len(loads)):
        if not heap:
            break
        place = heap[0][1]
        found[place] += 1
        if most is not None and found[place] >= most:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (-loads[place] / found[place], place))
    return found
