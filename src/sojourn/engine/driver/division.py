"""Divides an operator's shards anew among its executors while the topology runs: the
resource-centric way, and what splits an executor that has outgrown its machine. All that send to
the operator pause, the operator works off what has come, shards change hands, and the senders go
on. Fed by the hub; used by the supervisor, between two commits.

The state of a shard goes through the driver, a piece at a time from each executor, so that it never
has to keep more than a few."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sojourn.engine.driver.hub import Hub
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import Layout, senders_of

Wait = Callable[[Callable[[], bool], float], None]
TIMEOUT_S = 600.0


@dataclass
class Division:
    """One that was asked for: the executor of each shard. Afterwards it says how long senders
    paused: until all were drained, and until all shards had changed hands."""

    vertex: str
    table: list[int]
    done: threading.Event = field(default_factory=threading.Event)
    moved: int = 0
    drained_s: float = 0.0
    moved_s: float = 0.0
    failed: str = ""


class Divider:
    """Who has which shard, and how that changes."""

    def __init__(self, layout: Layout, hub: Hub) -> None:
        self.layout, self.hub = layout, hub
        self.tables: dict[str, list[int]] = {}

    def table(self, vertex: str, shards: int) -> list[int]:
        """The executor of each shard of an operator."""
        executors = len(self.layout.of(vertex))
        return list(self.tables.get(vertex) or (shard % executors for shard in range(shards)))

    def divide(self, division: Division, wait: Wait) -> bool:
        """Do it. Returns whether it was done; if not, the start must end, as some may be paused.
        `wait` gives up when the start cannot go on."""
        began = time.monotonic()
        hub, vertex = self.hub, division.vertex
        before = self.table(vertex, len(division.table))
        names = senders_of(self.layout, broadcasts=True).get(vertex, set())
        senders = [place for place in self.layout.places if place.vertex in names]
        own = self.layout.of(vertex)
        hub.handover.begin()
        for place in senders:
            hub.send(place, m.Pause(vertex))
        wait(lambda: len(hub.handover.paused) == len(senders), TIMEOUT_S)
        with hub.changed:
            paused = dict(hub.handover.paused)
        if len(paused) < len(senders):
            return False
        numbers = {place: number for number, place in enumerate(self.layout.places)}
        for place in own:
            rows = [
                (numbers[sender], back, number)
                for sender, sent in paused.items()
                for executor, back, number in sent
                if executor == place.executor
            ]
            hub.send(place, m.Drain(rows))
        wait(lambda: len(hub.handover.drained) == len(own), TIMEOUT_S)
        if len(hub.handover.drained) < len(own):
            return False
        division.drained_s = time.monotonic() - began
        pairs = enumerate(zip(before, division.table, strict=True))
        moves = [(shard, giver, to) for shard, (giver, to) in pairs if giver != to]
        for place in own:
            mine = [(shard, to) for shard, giver, to in moves if giver == place.executor]
            hub.handover.givers.update((shard, place) for shard, _ in mine)
            if mine:
                hub.send(place, m.Release(mine))
        wait(lambda: len(hub.handover.landed) == len(moves), TIMEOUT_S)
        if len(hub.handover.landed) < len(moves):
            return False
        division.moved, division.moved_s = len(moves), time.monotonic() - began - division.drained_s
        self.tables[vertex] = division.table
        for place in {*senders, *own}:
            hub.send(place, m.Divided(vertex, division.table))
        return True
