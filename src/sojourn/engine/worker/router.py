"""Addresses what users' code returns: for every receiver, the key gives a shard, the shard an
executor. Used by workers and by feeders."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import Trace
from sojourn.engine.wire.layout import Route
from sojourn.engine.worker import values
from sojourn.engine.worker.keys import key_hash
from sojourn.topology import Output


class Router:
    """Addresses results and gathers them by receiver until they are collected."""

    def __init__(self, routes: tuple[Route, ...], seed: int) -> None:
        self.routes = routes
        self.groups: dict[tuple[int, int], m.Group] = {}
        self.bytes = 0
        self.ids = random.Random(seed)

    def send(self, results: Iterable[Any], root: int | None) -> int:
        """Address each value along every route that takes it; returns the exclusive-or of the ids
        of the tuples made, for the tree `root`. If one cannot be sent, none is."""
        made = 0
        addressed = [found for value in results for found in self._addressed(value)]
        for number, executor, shard, payload in addressed:
            group = self.groups.get((number, executor))
            if group is None:
                group = self.groups[number, executor] = m.Group(number, executor, [], [], [])
            if root is not None:
                tuple_id = self.ids.getrandbits(63)
                made ^= tuple_id
                group.traces.append(Trace(len(group.payloads), root, tuple_id))
            group.payloads.append(payload)
            self.bytes += len(payload)
            if shard >= 0:
                group.shards.append(shard)
        return made

    def _addressed(self, value: Any) -> Iterator[tuple[int, int, int, bytes]]:
        """Route, executor, shard and bytes of each tuple that a value becomes."""
        output = None
        if isinstance(value, Output):
            output, value = value.name, value.value
        payload: bytes | None = None
        for number, route in enumerate(self.routes):
            if route.output != output:
                continue
            if payload is None:
                payload = values.dumps(value)
            executor, shard = -1, -1
            if route.key is not None:
                shard = key_hash(route.key(value)) % route.shards
                executor = shard % route.executors
            yield number, executor, shard, payload

    def collect(self) -> list[m.Group]:
        """What was gathered."""
        groups = list(self.groups.values())
        self.groups, self.bytes = {}, 0
        return groups
