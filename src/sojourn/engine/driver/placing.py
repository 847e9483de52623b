"""Which executor has how many of its workers on which machine. Fed by what operators should have
and by the machines there are; tells executors through the hub."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sojourn.engine.driver.hub import Hub
from sojourn.engine.wire.layout import Layout, Place
from sojourn.placement.assignment import Need, assign
from sojourn.shards import shares

Cores = dict[Place, dict[str, int]]


@dataclass
class Placing:
    """The machines with room for workers, and who has them. Without `room` all workers are where
    their executors are. On a machine without an outpost there are only workers of its own
    executors."""

    layout: Layout
    hub: Hub
    movable: Mapping[str, bool]  # whether workers of an operator may be elsewhere
    room: dict[str, int] | None = None
    has: Cores = field(default_factory=dict)

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

    def _assigned(self, counts: Mapping[Place, int], homes: Mapping[Place, str]) -> Cores:
        """Cores for everybody. Where there are too few, machines are crowded by their own."""
        assert self.room is not None
        room = dict(self.room)
        found = self._at_home(counts, homes, room)
        open_room = {machine: n for machine, n in room.items() if machine in self.hub.outposts}
        needs = {
            place: Need(homes[place], count - sum(found[place].values()), 1.0)
            for place, count in counts.items()
            if count > sum(found[place].values())
        }
        now = {
            place: _trimmed(
                {m: n for m, n in self.has.get(place, {}).items() if m in open_room}, need
            )
            for place, need in needs.items()
        }
        for place, of in assign(needs, open_room, now).cores.items():
            for machine, count in of.items():
                found[place][machine] = found[place].get(machine, 0) + count
        return found

    def _at_home(
        self, counts: Mapping[Place, int], homes: Mapping[Place, str], room: dict[str, int]
    ) -> Cores:
        """What can be only where its executor is: all workers of operators that cannot be
        elsewhere, and as many as there is room for on machines that nobody else can use. Takes it
        from the room."""
        found: Cores = {place: {} for place in counts}

        def give(place: Place, count: int) -> None:
            home = homes[place]
            found[place][home] = found[place].get(home, 0) + count
            room[home] = max(0, room.get(home, 0) - count)

        fixed = [place for place in counts if not self.movable[place.vertex]]
        for place in fixed:
            give(place, counts[place])
        closed = [p for p in counts if homes[p] not in self.hub.outposts and p not in fixed]
        for turn in range(max((counts[place] for place in closed), default=0)):
            for place in closed:
                if turn < counts[place] and room.get(homes[place], 0):
                    give(place, 1)
        return found


def _trimmed(has: Mapping[str, int], need: Need[str]) -> dict[str, int]:
    """No more than is needed. What is elsewhere is given up first."""
    found = dict(has)
    surplus = sum(found.values()) - need.cores
    for machine in sorted(found, key=lambda machine: (machine == need.home, found[machine])):
        gone = min(max(0, surplus), found[machine])
        found[machine] -= gone
        surplus -= gone
    return {machine: count for machine, count in found.items() if count}
