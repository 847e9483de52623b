"""What executors say while shards change hands, and what is passed on from one to another. Fed by
the hub; used by `division`."""

from collections.abc import Callable, Mapping

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.layout import Place

Rows = list[tuple[int, bool, int]]  # executor, whether feedback, number


class Handover:
    """Of one division at a time. Its methods are called with the hub's lock."""

    def __init__(self, send: Callable[[Place, m.ToExecutor], None]) -> None:
        self.send = send
        self.begin()

    def begin(self) -> None:
        """Forget what was said before."""
        self.paused: dict[Place, Rows] = {}
        self.drained: set[Place] = set()
        self.landed: set[int] = set()
        self.givers: dict[int, Place] = {}

    def heard(
        self, sender: Place, message: m.HandedOver, places: Mapping[tuple[str, int], Place]
    ) -> None:
        """Note it, or pass it on."""
        match message:
            case m.Paused(_, rows):
                self.paused[sender] = rows
            case m.Drained():
                self.drained.add(sender)
            case m.Carry(vertex, executor):
                self.send(places[vertex, executor], message)
            case m.Carried(shard):
                self.send(self.givers[shard], message)
            case m.Landed(shard):
                self.landed.add(shard)
