"""Divides an operator's shards anew among its executors while the topology runs: the
resource-centric way, and what splits an executor that has outgrown its machine. All that send to
the operator pause, the operator works off what has come, shards change hands, and the senders go
on. Fed by the hub; used by the supervisor, between two commits.

The state of shards goes through the driver: of a few from each executor at a time, and of each of
these a piece at a time."""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sojourn.engine.driver.hub import Hub
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import Layout, Place, senders_of

Wait = Callable[[Callable[[], bool], float], None]
DRAIN_S = 60.0  # after which it is called off
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
        self.numbers = itertools.count(1)

    def table(self, vertex: str, shards: int) -> list[int]:
        """The executor of each shard of an operator."""
        executors = len(self.layout.of(vertex))
        return list(self.tables.get(vertex) or (shard % executors for shard in range(shards)))

    def divide(self, division: Division, wait: Wait, gives_up: Callable[[], bool]) -> bool:
        """Do it. If the operator does not get drained in time, or if somebody gives up, nothing has
        changed: it is called off. Returns False if the start must end, because shards are lost on
        their way. `wait` ends when the start cannot go on."""
        began = time.monotonic()
        hub, vertex, said = self.hub, division.vertex, self.hub.handover
        before = self.table(vertex, len(division.table))
        names = senders_of(self.layout, broadcasts=True).get(vertex, set())
        senders = [place for place in self.layout.places if place.vertex in names]
        own = self.layout.of(vertex)
        everybody = dict.fromkeys([*senders, *own])
        number = next(self.numbers)
        with hub.changed:
            said.begin(number)
        for place in senders:
            hub.send(place, m.Pause(number, vertex))
        wait(lambda: len(said.paused) == len(senders) or gives_up(), DRAIN_S)
        with hub.changed:
            paused = dict(said.paused)
        if len(paused) == len(senders):
            self._drain(number, own, paused)
            wait(lambda: len(said.drained) == len(own) or gives_up(), DRAIN_S)
        if len(paused) < len(senders) or len(said.drained) < len(own):
            division.failed = f"{vertex!r} was not drained within {DRAIN_S:g} s, so nothing changed"
            for place in everybody:
                hub.send(place, m.Divided(vertex, before))
            return True
        division.drained_s = time.monotonic() - began
        pairs = enumerate(zip(before, division.table, strict=True))
        moves = [(shard, giver, to) for shard, (giver, to) in pairs if giver != to]
        with hub.changed:
            for place in own:
                mine = [(shard, to) for shard, giver, to in moves if giver == place.executor]
                said.release(place, mine)
        wait(lambda: len(said.landed) == len(moves), TIMEOUT_S)
        if len(said.landed) < len(moves):
            return False
        division.moved, division.moved_s = len(moves), time.monotonic() - began - division.drained_s
        self.tables[vertex] = division.table
        for place in everybody:
            hub.send(place, m.Divided(vertex, division.table))
        return True

    def _drain(
        self, number: int, own: list[Place], paused: dict[Place, list[tuple[int, bool, int]]]
    ) -> None:
        """Tell each executor what has been sent to it."""
        numbers = {place: n for n, place in enumerate(self.layout.places)}
        for place in own:
            rows = [
                (numbers[sender], back, last)
                for sender, sent in paused.items()
                for executor, back, last in sent
                if executor == place.executor
            ]
            self.hub.send(place, m.Drain(number, rows))
