"""What executors say while shards change hands, and what is passed on from one to another. Fed by
the hub; used by `division`."""

from collections import deque
from collections.abc import Callable, Mapping

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import Place

_AT_ONCE = 16  # shards of an executor that are on their way
Rows = list[tuple[int, bool, int]]  # executor, whether feedback, number


class Handover:
    """Of one division at a time. Its methods are called with the hub's lock."""

    def __init__(self, send: Callable[[Place, m.ToExecutor], None]) -> None:
        self.send = send
        self.begin(0)

    def begin(self, number: int) -> None:
        """Forget what was said before."""
        self.number = number
        self.paused: dict[Place, Rows] = {}
        self.drained: set[Place] = set()
        self.landed: set[int] = set()
        self.givers: dict[int, Place] = {}
        self.waiting: dict[Place, deque[tuple[int, int]]] = {}

    def release(self, giver: Place, shards: list[tuple[int, int]]) -> None:
        """Have an executor give up shards, each for another executor, a few at a time."""
        self.givers.update((shard, giver) for shard, _ in shards)
        self.waiting[giver] = deque(shards[_AT_ONCE:])
        if shards:
            self.send(giver, m.Release(shards[:_AT_ONCE]))

    def heard(
        self, sender: Place, message: m.HandedOver, places: Mapping[tuple[str, int], Place]
    ) -> None:
        """Note it, or pass it on."""
        match message:
            case m.Paused(number, rows) if number == self.number:
                self.paused[sender] = rows
            case m.Drained(number) if number == self.number:
                self.drained.add(sender)
            case m.Carry(vertex, executor):
                self.send(places[vertex, executor], message)
            case m.Carried(shard):
                self.send(self.givers[shard], message)
            case m.Landed(shard):
                self.landed.add(shard)
                giver = self.givers[shard]
                if self.waiting[giver]:
                    self.send(giver, m.Release([self.waiting[giver].popleft()]))
            case _:  # of a division that was called off
                pass
