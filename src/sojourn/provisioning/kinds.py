"""Several kinds of machines with prices: the cheapest that carry a load, and whether to switch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of machine: its task slots, its price an hour, and how long it takes to come."""

    name: str
    slots: int
    price: float
    start_s: float = 0.0


def cheapest(
    load: float, kinds: Sequence[Kind], slot_rate: float, full: float = 0.9
) -> dict[str, int]:
    """Machines of each kind that carry a load for the lowest price; of equal prices, the fewest
    machines. A slot processes `slot_rate` a second, of which `full` is used."""
    slots = max(1, math.ceil(load / (full * slot_rate) - 1e-9))
    best: list[tuple[float, int, dict[str, int]]] = [(0.0, 0, {})]
    for need in range(1, slots + 1):  # the cheapest for so many slots ends with one of the kinds
        found = []
        for kind in kinds:
            price, count, mix = best[max(0, need - kind.slots)]
            more = {**mix, kind.name: mix.get(kind.name, 0) + 1}
            found.append((price + kind.price, count + 1, more))
        best.append(min(found, key=lambda one: one[:2]))
    return best[-1][2]


def price(mix: Mapping[str, int], kinds: Sequence[Kind]) -> float:
    """An hour of these machines."""
    return math.fsum(kind.price * mix.get(kind.name, 0) for kind in kinds)


def slots(mix: Mapping[str, int], kinds: Sequence[Kind]) -> int:
    """Task slots of these machines."""
    return sum(kind.slots * mix.get(kind.name, 0) for kind in kinds)


def switched(
    now: Mapping[str, int],
    best: Mapping[str, int],
    kinds: Sequence[Kind],
    lasts_s: float,
) -> bool:
    """Whether other machines pay: while new ones come, old ones cost as well. What is saved over
    the time for which the load should last must be more."""
    coming = {k.name: best.get(k.name, 0) - now.get(k.name, 0) for k in kinds}
    both = math.fsum(k.price * max(0, coming[k.name]) * k.start_s for k in kinds)
    saved = (price(now, kinds) - price(best, kinds)) * lasts_s
    return saved > both
