"""Which executors of an operator are split because they have outgrown their machine, and which are
merged because they are idle: what Elasticutor leaves to be done (§4.2). Pure.

A split gives about half of the load to another executor, which has little and is on another machine
if there is one. A merge gives all of an executor's shards to another one; it is then left without,
and needs no processor. It gets shards again once there is work for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sojourn.placement.balance import balanced

IDLE = 0.5  # processors that two executors keep busy, if they are to be one
_BUSY = 1.5  # processors that an executor keeps busy, if it is to give some to one without shards
_WORTH = 0.1  # of its load: a split that gives away less changes nothing


@dataclass(frozen=True)
class Regrouped:
    """The executor of each shard, and why."""

    table: list[int]
    reason: str


def regrouped(
    table: Sequence[int],
    loads: Mapping[int, float],
    cores: Sequence[int],
    homes: Sequence[str],
    room: Mapping[str, int] | None,
) -> Regrouped | None:
    """At most one split or merge; None if all is well. `loads` are processors that shards keep
    busy. Executors have so many `cores` and are at `homes`, which have so much `room`; without any,
    there is one machine, which nobody outgrows."""
    shards: dict[int, list[int]] = {executor: [] for executor in range(len(cores))}
    for shard, executor in enumerate(table):
        shards[executor].append(shard)
    busy = {e: sum(loads.get(shard, 0.0) for shard in mine) for e, mine in shards.items()}
    return _split(table, loads, cores, homes, room or {}, shards, busy) or _merged(
        table, shards, busy
    )


def _split(
    table: Sequence[int],
    loads: Mapping[int, float],
    cores: Sequence[int],
    homes: Sequence[str],
    room: Mapping[str, int],
    shards: Mapping[int, list[int]],
    busy: Mapping[int, float],
) -> Regrouped | None:
    grown = {
        e: f"uses {cores[e]} processors, and its machine has {room[home]}"
        for e, home in enumerate(homes)
        if home in room and cores[e] > room[home]
    }
    unused = next((e for e, mine in shards.items() if not mine), None)
    if unused is not None:
        for e in shards:
            if e not in grown and busy[e] > _BUSY:
                grown[e] = (
                    f"keeps {busy[e]:.2f} processors busy, and executor {unused} has no shards"
                )
    for executor in sorted(grown, key=lambda e: -busy[e]):
        others = [e for e in shards if e != executor]
        if not others:
            continue
        other = min(others, key=lambda e: (homes[e] == homes[executor], busy[e], e))
        owned = {executor: list(shards[executor]), other: list(shards[other])}
        moves = dict(balanced(owned, loads))
        given = sum(loads.get(shard, 0.0) for shard, to in moves.items() if to == other)
        if given <= _WORTH * busy[executor]:
            continue
        reason = f"executor {executor} {grown[executor]}: some of its shards go to executor {other}"
        return Regrouped([moves.get(shard, e) for shard, e in enumerate(table)], reason)
    return None


def _merged(
    table: Sequence[int], shards: Mapping[int, list[int]], busy: Mapping[int, float]
) -> Regrouped | None:
    used = sorted((e for e, mine in shards.items() if mine), key=lambda e: (busy[e], -e))
    if len(used) < 2 or busy[used[0]] + busy[used[1]] > IDLE:
        return None
    idle, other = used[:2]
    reason = (
        f"executors {idle} and {other} keep {busy[idle] + busy[other]:.2f} processors busy "
        f"together: all shards go to executor {other}"
    )
    return Regrouped([other if e == idle else e for e in table], reason)
