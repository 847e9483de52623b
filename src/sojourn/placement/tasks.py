"""On which machine each task of a trial is. Pure; another way is another function."""

from collections.abc import Callable, Mapping

Placement = Callable[[Mapping[str, int], int], list[int]]
"""The machine of each task, for so many tasks of each vertex in order, on so many machines."""


def round_robin(counts: Mapping[str, int], machines: int) -> list[int]:
    """Tasks go to machines in turn."""
    return [number % machines for number in range(sum(counts.values()))]


def packed(counts: Mapping[str, int], machines: int) -> list[int]:
    """Tasks fill one machine after the other, each with as many as the others at most, so that
    tasks of an operator are together."""
    each = -(-sum(counts.values()) // machines)
    return [number // each for number in range(sum(counts.values()))]


PLACEMENTS: dict[str, Placement] = {"round-robin": round_robin, "packed": packed}
