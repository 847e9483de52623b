"""Several kinds of machines with prices: the cheapest that have enough slots, and which to have
next, where to come and to switch costs something as well."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sojourn.errors import InputError
from sojourn.units import format_rate, parse_duration, parse_number, parse_whole

Mix = Mapping[str, int]  # machines by kind


@dataclass(frozen=True)
class Kind:
    """A kind of machine: its task slots, its price an hour, and how long it takes to come."""

    name: str
    slots: int
    price: float
    start_s: float = 0.0


def parse_kinds(value: object, what: str) -> tuple[Kind, ...]:
    """Kinds from `small=1:1.0,large=4:3.5:2min`: name, slots, price, and how long one takes to
    come, if that is not nothing."""
    found: dict[str, Kind] = {}
    for one in str(value).split(","):
        name, equals, rest = one.strip().partition("=")
        of = rest.split(":")
        if not name or not equals or not 2 <= len(of) <= 3 or name in found:
            raise InputError(
                f"{what}: each kind must be name=slots:price or name=slots:price:start"
            )
        slots, price = parse_whole(of[0], what), parse_number(of[1], what)
        start_s = parse_duration(of[2], what) if len(of) == 3 else 0.0
        if price < 0 or start_s < 0:
            raise InputError(f"{what}: a price or a duration cannot be below zero; got {one!r}")
        found[name] = Kind(name, slots, price, start_s)
    return tuple(found.values())


def cheapest(need: int, kinds: Sequence[Kind]) -> dict[str, int]:
    """Machines of each kind that have so many slots for the lowest price; of equal prices, the
    fewest machines."""
    best: list[tuple[float, int, dict[str, int]]] = [(0.0, 0, {})]
    for slots in range(1, need + 1):  # the cheapest for so many slots ends with one of the kinds
        found = []
        for kind in kinds:
            price, count, mix = best[max(0, slots - kind.slots)]
            found.append((price + kind.price, count + 1, together(mix, {kind.name: 1})))
        best.append(min(found, key=lambda one: one[:2]))
    return best[-1][2]


def together(one: Mix, other: Mix) -> dict[str, int]:
    """The machines of both."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def price_of(mix: Mix, kinds: Sequence[Kind]) -> float:
    """An hour of these machines."""
    return math.fsum(kind.price * mix.get(kind.name, 0) for kind in kinds)


def slots_of(mix: Mix, kinds: Sequence[Kind]) -> int:
    """Task slots of these machines."""
    return sum(kind.slots * mix.get(kind.name, 0) for kind in kinds)


def chosen(now: Mix, need: int, kinds: Sequence[Kind], lasts_s: float) -> dict[str, int]:
    """The machines to have next for so many slots, if they are needed for `lasts_s`: those that
    there are, with more where they are too few and without those that are too many; or the
    cheapest, if to switch to them pays."""
    stay = dict(now)
    for kind in sorted(kinds, key=lambda kind: -kind.price):
        spare = (slots_of(stay, kinds) - need) // kind.slots
        stay[kind.name] = stay.get(kind.name, 0) - max(0, min(spare, stay.get(kind.name, 0)))
    stay = together(stay, cheapest(max(0, need - slots_of(now, kinds)), kinds))
    best = cheapest(need, kinds)
    return best if cost(now, best, kinds, lasts_s) < cost(now, stay, kinds, lasts_s) else stay


def cost(now: Mix, then: Mix, kinds: Sequence[Kind], lasts_s: float) -> float:
    """What it costs to go on with other machines for a time: while new ones come, which are paid
    from the beginning, those before are still there."""
    coming = math.fsum(
        kind.price * max(0, then.get(kind.name, 0) - now.get(kind.name, 0)) * kind.start_s
        for kind in kinds
    )
    return (price_of(then, kinds) * lasts_s + coming) / 3600


def told(mix: Mix, kinds: Sequence[Kind]) -> str:
    """Machines and their price, in words."""
    some = [f"{mix[kind.name]} {kind.name}" for kind in kinds if mix.get(kind.name)]
    return f"{' and '.join(some) or 'none'} ({format_rate(price_of(mix, kinds))} an hour)"
