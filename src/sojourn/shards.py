"""Which worker has which shard, and how many processors each executor has."""

from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

Owner = TypeVar("Owner", bound=Hashable)


def evened(
    owned: dict[Owner, list[int]], homeless: Sequence[int] = ()
) -> Iterator[tuple[int, Owner]]:
    """The fewest moves after which all have equally many shards, or one more. Each move is a shard
    and its new owner; ownership is updated with each."""
    for shard in homeless:
        least = min(owned, key=lambda owner: len(owned[owner]))
        owned[least].append(shard)
        yield shard, least
    while True:
        most = max(owned, key=lambda owner: len(owned[owner]))
        least = min(owned, key=lambda owner: len(owned[owner]))
        if len(owned[most]) <= len(owned[least]) + 1:
            return
        shard = owned[most].pop(0)
        owned[least].append(shard)
        yield shard, least


def shares(processors: int, executors: int) -> list[int]:
    """An operator's processors, spread evenly over its executors."""
    whole, rest = divmod(processors, executors)
    return [whole + (i < rest) for i in range(executors)]
