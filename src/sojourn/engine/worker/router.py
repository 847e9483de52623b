"""Addresses what users' code returns: for every receiver, the key gives a shard, the shard an
executor. Used by workers and by feeders."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import FIRST_TOLD, Trace
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import values
from sojourn.engine.worker.keys import identified, key_hash
from sojourn.operators import Output

Tuple = tuple[int, int, int, bytes]
"""Route, executor, shard and bytes."""


class Router:
    """Addresses results and gathers them by receiver until they are collected."""

    def __init__(self, routes: tuple[Route, ...], seed: int) -> None:
        self.routes: dict[str | None, list[tuple[int, Route]]] = {None: []}
        for number, route in enumerate(routes):
            self.routes.setdefault(route.output, []).append((number, route))
        plain = self.routes[None]
        self.only = plain[0] if len(plain) == 1 and not plain[0][1].broadcast else None
        self.groups: dict[tuple[int, int], m.Group] = {}
        self.plain: m.Group | None = None  # the group of the only route, if it has no key
        self.gathered = 0  # tuples of the only route that `gather` has counted
        self.products: dict[tuple[int, int], int] = {}
        self.bytes = 0
        self.ids = random.Random(seed)

    def send(self, results: Sequence[Any], root: int | None) -> int:
        """Address each value along every route that takes it, and gather the tuples made. Returns
        what `gather` does. If one value cannot be sent, none is."""
        # Most operators have one receiver, and most of their tuples one result.
        if not results:
            return 0
        if self.only is None or len(results) != 1:
            return self.gather(self.addressed(results), root)
        value = results[0]
        if isinstance(value, Output):
            return self.gather(self.addressed(results), root)
        number, route = self.only
        payload = values.dumps(value)
        if route.key is None:
            group = self.plain
            if group is None:
                group = self.plain = self._group(number, -1)
        else:
            shard = key_hash(route.key(value)) % route.shards
            group = self._group(number, shard % route.executors)
            group.shards.append(shard)
        made = 0
        if root is not None:
            made = self.ids.getrandbits(63)
            group.traces.append(Trace(len(group.payloads), root, made))
        group.payloads.append(payload)
        self.bytes += len(payload)
        return made

    def addressed(self, results: Sequence[Any]) -> list[Tuple]:
        """The addressed tuples of some values, to be gathered later."""
        return [found for value in results for found in self._addressed(value)]

    def gather(self, addressed: list[Tuple], root: int | None) -> int:
        """Keep tuples until they are collected. Returns the exclusive-or of their ids, for the tree
        `root`."""
        made = 0
        self._count(addressed)
        for number, executor, shard, payload in addressed:
            group = self._group(number, executor)
            if root is not None and shard > FIRST_TOLD:
                tuple_id = self.ids.getrandbits(63)
                made ^= tuple_id
                group.traces.append(Trace(len(group.payloads), root, tuple_id))
            group.payloads.append(payload)
            self.bytes += len(payload)
            if shard != -1:
                group.shards.append(shard)
        return made

    def together(self) -> list[m.Together]:
        """For each two routes, the sum over all `send` and `gather` since the last `collect` of how
        many tuples one made on the one times on the other. To be asked before `collect`."""
        if self.only is not None:
            number = self.only[0]
            ones = sum(len(g.payloads) for (n, _), g in self.groups.items() if n == number)
            self._add(number, number, ones - self.gathered)
        return [(one, other, product) for (one, other), product in self.products.items()]

    def _count(self, addressed: list[Tuple]) -> None:
        """Count what was made from one tuple. What `send` makes by itself is one tuple each time,
        so that it need not be counted there."""
        made: dict[int, int] = {}
        for number, _, shard, _ in addressed:
            if shard > FIRST_TOLD:  # a broadcast is no load
                made[number] = made.get(number, 0) + 1
        for one, count in made.items():
            for other, also in made.items():
                self._add(one, other, count * also)
        if self.only is not None:
            self.gathered += made.get(self.only[0], 0)

    def _add(self, one: int, other: int, product: int) -> None:
        if product:
            self.products[one, other] = self.products.get((one, other), 0) + product

    def _group(self, number: int, executor: int) -> m.Group:
        group = self.groups.get((number, executor))
        if group is None:
            group = self.groups[number, executor] = m.Group(number, executor, [], [], [])
        return group

    def _addressed(self, value: Any) -> Iterator[Tuple]:
        output = None
        if isinstance(value, Output):
            output, value = value.name, value.value
        routes = self.routes.get(output)
        if not routes:
            return
        payload = values.dumps(value)
        for number, route in routes:
            executor, shard = -1, -1
            if route.broadcast:
                told = broadcast_of(route.receiver, value)
                for executor in range(route.executors):
                    yield number, executor, FIRST_TOLD - executor, told
                continue
            if route.key is not None:
                shard = key_hash(route.key(value)) % route.shards
                executor = shard % route.executors
            yield number, executor, shard, payload

    def collect(self) -> list[m.Group]:
        """What was gathered."""
        groups = list(self.groups.values())
        self.groups, self.plain, self.bytes = {}, None, 0
        self.gathered, self.products = 0, {}
        return groups


def broadcast_of(receiver: str, value: Any) -> bytes:
    """A broadcast pair as a change of its key, which executors need not unpickle."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(
            f"a broadcast to {receiver!r} must be a (key, value) pair, with None as the value to "
            f"remove the key; got {value!r:.100}; make pairs with t.map before it"
        )
    key, held = value
    return m.encode((*identified(key), None if held is None else values.dumps(held)))
