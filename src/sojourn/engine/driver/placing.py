"""Which executor has how many of its workers on which machine. Fed by what operators should have
and by the machines there are; tells executors through the hub."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from sojourn.engine.driver.hub import Hub
from sojourn.engine.wire.layout import Layout, Place
from sojourn.placement.assignment import Need, assign
from sojourn.shards import shares


@dataclass
class Placing:
    """The machines with room for workers, and who has them. Without `room` all workers are where
    their executors are."""

    layout: Layout
    hub: Hub
    movable: Mapping[str, bool]  # whether workers of an operator may be elsewhere
    room: dict[str, int] | None = None
    has: dict[Place, dict[str, int]] = field(default_factory=dict)

    def place(self, wanted: Mapping[str, int]) -> None:
        """Have operators use so many processors."""
        counts = {
            place: share
            for name, processors in wanted.items()
            for place, share in zip(
                self.layout.of(name), shares(processors, len(self.layout.of(name))), strict=True
            )
        }
        homes = {place: hello.machine for place, hello in self.hub.hellos().items()}
        known = self.room is not None and all(place in homes for place in counts)
        self.has = self._assigned(counts, homes) if known else {}
        for place, count in counts.items():
            home = homes.get(place)
            away = {m: n for m, n in self.has.get(place, {}).items() if m != home}
            self.hub.resize(place, count, away)

    def _assigned(
        self, counts: Mapping[Place, int], homes: Mapping[Place, str]
    ) -> dict[Place, dict[str, int]]:
        """Cores for everybody; none elsewhere if there are too few."""
        assert self.room is not None
        needs = {
            place: Need(homes[place], count, 1.0, 0.0 if self.movable[place.vertex] else math.inf)
            for place, count in counts.items()
        }
        now = {place: _trimmed(self.has.get(place, {}), needs[place]) for place in counts}
        found = assign(needs, self.room, now)
        return {place: dict(of) for place, of in found.cores.items()}


def _trimmed(has: Mapping[str, int], need: Need[str]) -> dict[str, int]:
    """No more than is needed. What is elsewhere is given up first."""
    found = dict(has)
    surplus = sum(found.values()) - need.cores
    for machine in sorted(found, key=lambda machine: (machine == need.home, found[machine])):
        gone = min(max(0, surplus), found[machine])
        found[machine] -= gone
        surplus -= gone
    return {machine: count for machine, count in found.items() if count}
