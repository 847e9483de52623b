"""Which executor has how many of its workers on which machine. Fed by what operators should have
and by the machines there are; tells executors through the hub."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sojourn.engine.driver.hub import Hub
from sojourn.engine.wire.layout import Layout, Place
from sojourn.placement.assignment import PHI, Need, assign, by_chance
from sojourn.placement.balance import skew, tolerated
from sojourn.ports import Samples
from sojourn.queueing.keyed import KeyedStation, useful
from sojourn.queueing.split import divided
from sojourn.queueing.station import Station
from sojourn.shards import shares

_FRESH = 0.3  # how much the newest measure of a load counts
Cores = dict[Place, dict[str, int]]


@dataclass
class Placing:
    """The machines with room for workers, and who has them. Without `room` all workers are where
    their executors are. On a machine without an outpost there are only workers of its own
    executors."""

    layout: Layout
    hub: Hub
    movable: Mapping[str, bool]  # whether workers of an operator may be elsewhere
    most: Mapping[str, int | None] = field(default_factory=dict)  # processors that can be used
    room: dict[str, int] | None = None
    has: Cores = field(default_factory=dict)
    loads: dict[Place, float] = field(default_factory=dict)  # of executors, with decay
    intensities: dict[Place, float] = field(default_factory=dict)
    states: dict[Place, int] = field(default_factory=dict)  # bytes
    hottest: dict[Place, float | None] = field(default_factory=dict)  # share of the busiest shard
    given: dict[str, list[int]] = field(default_factory=dict)  # by who asked for it, as a split
    used: Callable[[str], Collection[int]] | None = None  # executors that have shards
    chance: random.Random | None = None  # to place by, the naive way
    counts: dict[str, list[int]] = field(default_factory=dict)  # of executors, as last told
    # As last placed: those with workers elsewhere, though they did not exchange much data then.
    abroad: set[Place] = field(default_factory=set)
    known: dict[str, list[Place]] = field(default_factory=dict)

    def split(self, name: str, counts: list[int] | None) -> None:
        """Give each executor of an operator so many processors from now on, or as many as it
        needs."""
        self.given.pop(name, None)
        if counts is not None:
            self.given[name] = counts

    def place(self, wanted: Mapping[str, int]) -> None:
        """Have operators use so many processors."""
        self.counts = {name: self._shared(name, count) for name, count in wanted.items()}
        shared = {
            place: share
            for name, found in self.counts.items()
            for place, share in zip(self._all(name), found, strict=True)
        }
        counts = {place: share for place, share in shared.items() if share}
        homes = {place: hello.machine for place, hello in self.hub.hellos().items()}
        known = self.room is not None and all(place in homes for place in counts)
        self.has = self._assigned(counts, homes) if known else {}
        self.abroad.clear()
        for place, count in counts.items():
            home = homes.get(place)
            away = {m: n for m, n in self.has.get(place, {}).items() if m != home}
            self.hub.resize(place, count, away)
            if away and self.intensities.get(place, 0.0) <= PHI:
                self.abroad.add(place)
        for place in shared.keys() - counts.keys():
            self.hub.resize(place, 1, {})  # it has nothing to do, and is ready for shards

    def look(self, wanted: Mapping[str, int], samples: Samples | None = None) -> None:  # noqa: ARG002
        """Take in what executors were busy with. If those of an operator are unequally busy, for
        sure and not by chance, give them other shares of its processors. Workers elsewhere come
        home if their executor has come to exchange much data."""
        off = False
        for name, processors in wanted.items():
            places, tuples = self._places(name), 0
            for place in places:
                part = self.hub.parts.get((name, place.executor))
                if part is not None:
                    tuples += part.arrivals
                    before = self.loads.get(place, part.load)
                    self.loads[place] = before + _FRESH * (part.load - before)
                    self.intensities[place] = part.intensity
                    self.hottest[place], self.states[place] = part.hottest, part.state
                    off |= place in self.abroad and part.intensity > PHI and self.chance is None
            if name in self.given:
                continue
            has = [n for n in self.counts.get(name, ()) if n] or shares(processors, len(places))
            if len(has) != len(places):  # shards have changed hands
                off = True
            elif len(places) > 1 and all(self.loads.get(place) for place in places):
                now, then = (self._busiest(name, c) for c in (has, self._split(name, processors)))
                busy = sum(self.loads[place] for place in places) / max(1, sum(has))
                by_chance = skew(len(places), max(1.0, tuples / _FRESH))
                off |= now > (tolerated(busy) + by_chance) * then
        if off:
            self.place(wanted)

    def _all(self, name: str) -> list[Place]:
        if name not in self.known:
            self.known[name] = self.layout.of(name)
        return self.known[name]

    def _places(self, name: str) -> list[Place]:
        """The executors that have something to do."""
        used = None if self.used is None else self.used(name)
        return [place for place in self._all(name) if used is None or place.executor in used]

    def _shared(self, name: str, processors: int) -> list[int]:
        """The processors of all executors, none for those that have nothing to do."""
        if name in self.given:
            return self.given[name]
        found = dict(zip(self._places(name), self._split(name, processors), strict=True))
        return [found.get(place, 0) for place in self._all(name)]

    def _split(self, name: str, processors: int) -> list[int]:
        """An operator's processors, by executor that has something to do: so that tuples wait
        least, as far as it is known what each has to do."""
        places = self._places(name)
        if len(places) < 2 or not all(self.loads.get(place) for place in places):
            return shares(processors, len(places))
        most = self.most.get(name)
        stations = [self._station(place) for place in places]
        return divided(stations, processors, None if most is None else -(-most // len(places)))

    def _station(self, place: Place) -> Station:
        """An executor, in terms of what one processor does."""
        load, hottest = self.loads[place], self.hottest.get(place)
        if hottest is None:
            return Station(load, 1.0)
        return KeyedStation(load, 1.0, hot=(hottest,) if hottest else ())

    def _busiest(self, name: str, counts: Sequence[int]) -> float:
        """The load of a processor of the busiest executor, of those that help."""
        found = 0.0
        for place, k in zip(self._places(name), counts, strict=True):
            found = max(found, self.loads[place] / min(k, useful(self._station(place))))
        return found

    def _assigned(self, counts: Mapping[Place, int], homes: Mapping[Place, str]) -> Cores:
        """Cores for everybody. Where there are too few, machines are crowded by their own."""
        assert self.room is not None
        room = dict(self.room)
        found = self._at_home(counts, homes, room)
        open_room = {machine: n for machine, n in room.items() if machine in self.hub.outposts}
        needs = {
            place: Need(
                homes[place],
                count - sum(found[place].values()),
                max(1.0, self.states.get(place, 0)),
                self.intensities.get(place, 0.0),
            )
            for place, count in counts.items()
            if count > sum(found[place].values())
        }
        now = {
            place: {m: n for m, n in self.has.get(place, {}).items() if m in open_room}
            for place in needs
        }
        if self.chance is not None:
            assigned = by_chance(needs, open_room, now, self.chance)
        else:
            now = {place: _trimmed(has, needs[place]) for place, has in now.items()}
            assigned = assign(needs, open_room, now)
        for place, of in assigned.cores.items():
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
