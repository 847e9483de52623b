"""An operator or sink in virtual time: tuples wait in lanes for workers. Without a key, all workers
of an executor share one lane, which is what M/M/k means. With a key, every worker has its own lane,
and a shard's tuples go to its owner. Outside loops, a station is swept in one go per window; in
loops, tuple by tuple.

Tuples that cannot start before a window's end keep waiting, so what changes then counts for them
too. For tuples in service at its end, it is known when they will depart."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sojourn.placement.balance import THETA, balanced, skew
from sojourn.placement.loads import LOOK_S, MEMORY_S
from sojourn.ports import SEEN, Part
from sojourn.queueing.keyed import KeyedStation
from sojourn.queueing.split import divided
from sojourn.rush import Rush
from sojourn.shards import shares
from sojourn.simulator.draws import Times, quantized, squares
from sojourn.simulator.lane import Lane, Seat
from sojourn.simulator.trees import Roots
from sojourn.simulator.workload import OperatorLoad

Numbers = npt.NDArray[np.int64]
_BLOCK = 256


@dataclass
class Tuples:
    """Some tuples: times of arrival or departure, roots, times of service, and the shard or the
    executor each is for."""

    time_s: Times
    root: Roots
    service_s: Times
    place: Numbers

    @classmethod
    def none(cls) -> "Tuples":
        """No tuples."""
        empty, whole = np.empty(0), np.empty(0, np.int64)
        return cls(empty, whole, empty, whole)

    @classmethod
    def of(cls, rows: list[tuple[float, int, float, int]]) -> "Tuples":
        """From rows of the four values."""
        if not rows:
            return cls.none()
        time_s, root, service_s, place = zip(*rows, strict=True)
        return cls(
            np.array(time_s),
            np.array(root, np.int64),
            np.array(service_s),
            np.array(place, np.int64),
        )

    def __len__(self) -> int:
        return len(self.time_s)

    def some(self, which: npt.NDArray[np.bool_] | Numbers | slice) -> "Tuples":
        """The tuples at some places."""
        return Tuples(
            self.time_s[which], self.root[which], self.service_s[which], self.place[which]
        )

    def and_also(self, others: "Tuples") -> "Tuples":
        """These and then those."""
        if not len(self):
            return others
        if not len(others):
            return self
        return Tuples(
            np.concatenate((self.time_s, others.time_s)),
            np.concatenate((self.root, others.root)),
            np.concatenate((self.service_s, others.service_s)),
            np.concatenate((self.place, others.place)),
        )


@dataclass
class Counts:
    """What was seen since the last sample."""

    arrivals: int = 0
    gaps: int = 0
    gap_s: float = 0.0
    gap_s2: float = 0.0
    served: int = 0
    service_s: float = 0.0
    service_s2: float = 0.0
    busy_s: float = 0.0
    processor_s: float = 0.0
    emitted: dict[str, int] = field(default_factory=dict)
    together: dict[str, dict[str, int]] = field(default_factory=dict)
    shed: int = 0
    shards: Numbers | None = None  # how many came for each

    def arrived(self, count: int, gaps: Times) -> None:
        """Count tuples that came. `gaps` are those that tell something about the stream."""
        self.arrivals += count
        self.gaps += len(gaps)
        self.gap_s += float(gaps.sum())
        self.gap_s2 += squares(gaps)

    def sent(self, sums: Mapping[str, int], products: Mapping[tuple[str, str], int]) -> None:
        """Count tuples that went out by edge, with what makes their second moments."""
        for edge, count in sums.items():
            self.emitted[edge] = self.emitted.get(edge, 0) + count
        for (edge, other), count in products.items():
            row = self.together.setdefault(edge, {})
            row[other] = row.get(other, 0) + count


class Station:
    """The lanes of one vertex, what waits in them and what is in service."""

    def __init__(
        self,
        name: str,
        load: OperatorLoad,
        keyed: bool,
        shards: int,
        executors: int,
        rng: np.random.Generator,
    ) -> None:
        self.name, self.load, self.keyed = name, load, keyed
        # One random stream for each use, so it does not matter how many are drawn at a time.
        self.rng, self.places_rng, self.outputs_rng = rng.spawn(3)
        self.executors = executors
        self.waiting, self.serving = Tuples.none(), Tuples.none()
        self.lanes: list[Lane] = []
        self.lane_home: list[int] = []
        self.given: list[int] | None = None  # a split of its processors that was asked for
        self.turn = 0
        self.counts = Counts()
        self.hand_over_s = 0.0  # the part of the time on a seat that is not service
        self.rush = Rush()
        self.since_s = 0.0
        self.spare: list[float] = []
        # The executor of a shard is fixed; its owner, a lane of that executor, is not.
        self.home: Numbers = np.arange(shards) % executors
        self.owner: Numbers = np.full(shards, -1)
        self.moved_s: Times = np.zeros(shards)
        self.lately: Times = np.zeros(shards)  # tuples that came for each, with decay
        self.counted_s = self.looks_s = self.move_s = 0.0
        self.popular = _popularity(shards, load.zipf)
        self.ranks: Numbers = np.arange(shards)

    @property
    def processors(self) -> int:
        """The number of workers."""
        return sum(len(lane.seats) for lane in self.lanes)

    @property
    def queue(self) -> int:
        """Tuples that wait or are in service."""
        return len(self.waiting) + len(self.serving)

    def backlog_s(self, now_s: float) -> float:
        """About how long a tuple that comes now would wait."""
        work = float(self.waiting.service_s.sum() + (self.serving.time_s - now_s).clip(0).sum())
        return work / max(1, self.processors) if len(self.waiting) else 0.0

    def split(self, processors: int) -> list[int]:
        """How many of these processors each executor should have: where tuples wait least, as far
        as it is known what comes for each."""
        if self.given is not None and sum(self.given) == processors:
            return self.given
        came = np.bincount(self.home, self.lately, self.executors)
        if self.executors == 1 or not self.keyed or not came.all():
            return shares(processors, self.executors)
        most = np.zeros(self.executors)
        np.maximum.at(most, self.home, self.lately)
        loads = came * self.load.service.mean_s / MEMORY_S
        hot = zip(loads.tolist(), most.tolist(), (most / came).tolist(), strict=True)
        return divided(
            [KeyedStation(a, 1.0, hot=(share,) if n >= SEEN else ()) for a, n, share in hot],
            processors,
            int(np.bincount(self.home).max()),
        )

    @property
    def is_uneven(self) -> bool:
        """Whether its executors should have other shares of its processors."""
        if self.executors == 1 or not self.keyed:
            return False
        came = np.bincount(self.home, self.lately, self.executors)
        now = np.bincount(self.lane_home, minlength=self.executors)
        then = np.array(self.split(self.processors))
        busy = (came / now).max() / (came / then).max() if came.any() else 1.0
        return bool(busy > THETA + skew(self.executors, max(1.0, float(came.sum()))))

    def parts(self, interval_s: float) -> tuple[Part, ...]:
        """What came for each executor, if there are several."""
        counts = self.counts
        if self.executors == 1:
            return ()
        each_s = counts.service_s / counts.served if counts.served else 0.0
        if not self.keyed:
            came = shares(counts.arrivals, self.executors)
            seats = [len(lane.seats) for lane in self.lanes]
        else:
            shards = np.zeros(len(self.home)) if counts.shards is None else counts.shards
            came = np.bincount(self.home, shards, self.executors).astype(int).tolist()
            seats = np.bincount(self.lane_home, minlength=self.executors).tolist()
        return tuple(
            Part(
                executor,
                processors,
                n,
                n * each_s / interval_s if interval_s > 0 else 0.0,
                hottest=self._hottest(executor, n) if self.keyed else None,
            )
            for executor, (processors, n) in enumerate(zip(seats, came, strict=True))
        )

    def _hottest(self, executor: int, came: int) -> float:
        """The share of an executor's busiest shard, as far as it is more than chance."""
        shards = self.counts.shards
        most = 0 if shards is None else int(shards[self.home == executor].max(initial=0))
        return most / came if most >= SEEN else 0.0

    def seat(self, seats: list[list[Seat]], now_s: float, ready_s: float, move_s: float) -> None:
        """Place workers, per executor. A shard whose state moves to another machine can be served
        again after `move_s`."""
        if not self.keyed:
            self.lanes += [Lane() for _ in range(len(seats) - len(self.lanes))]
            for lane, own in zip(self.lanes, seats, strict=True):
                lane.seat(own, ready_s, self.rng)
            return
        before, machines = self.lanes, [lane.seats[0].machine for lane in self.lanes]
        fates: dict[int, int] = {}  # of old lanes that stay
        self.lanes, homes, self.lane_home = [], self.lane_home, []
        for executor, own in enumerate(seats):
            old = [number for number, home in enumerate(homes) if home == executor]
            for number, one in enumerate(own):
                lane = Lane()
                if number < len(old):
                    fates[old[number]] = len(self.lanes)
                    lane = before[old[number]]
                lane.seat([one], ready_s, self.rng)
                self.lanes.append(lane)
                self.lane_home.append(executor)
        left = np.array([machines[n] if n >= 0 else -1 for n in self.owner])
        self.owner = np.array([fates.get(n, -1) for n in self.owner.tolist()])
        self.move_s = move_s
        self._balance(range(self.executors), left, now_s)

    def _balance(self, executors: Iterable[int], left: Numbers, now_s: float) -> None:
        """Give every shard a lane of its executor, so that all are about equally busy. `left` are
        the machines that they have been at."""
        homes, loads = np.array(self.lane_home), dict(enumerate(self.lately.tolist()))
        for executor in executors:
            owned, homeless = self._owned(executor, homes)
            for shard, lane in balanced(owned, loads, homeless):
                self.owner[shard] = lane
        now_at = np.array([lane.seats[0].machine for lane in self.lanes])[self.owner]
        self.moved_s[(left >= 0) & (left != now_at)] = now_s + self.move_s

    def _owned(self, executor: int, homes: Numbers) -> tuple[dict[int, list[int]], list[int]]:
        """The shards of each lane of an executor, and those that have none."""
        owned: dict[int, list[int]] = {n: [] for n in np.flatnonzero(homes == executor).tolist()}
        homeless: list[int] = []
        for shard in np.flatnonzero(self.home == executor).tolist():
            owned.get(int(self.owner[shard]), homeless).append(shard)
        return owned, homeless

    def _note_shards(self, places: Numbers, now_s: float) -> None:
        """Take in what came for each shard, and move some if lanes are unequally busy, for sure and
        not by chance."""
        if not self.keyed:
            return
        came = np.bincount(places, minlength=len(self.owner))
        before = self.counts.shards
        self.counts.shards = came if before is None else before + came
        self.lately = self.lately * np.exp((self.counted_s - now_s) / MEMORY_S) + came
        self.counted_s = now_s
        if now_s < self.looks_s or len(self.lanes) < 2:
            return
        self.looks_s = now_s + LOOK_S
        homes = np.array(self.lane_home)
        busy = np.bincount(self.owner, self.lately, len(self.lanes))
        total, lanes = np.bincount(homes, busy), np.bincount(homes)
        most = np.zeros(len(total))
        np.maximum.at(most, homes, busy)
        by_chance = skew(lanes.astype(np.float64), np.maximum(1.0, total))
        uneven = np.flatnonzero(most * lanes > (THETA + by_chance) * total)
        if len(uneven):
            machines = np.array([lane.seats[0].machine for lane in self.lanes])
            self._balance(uneven.tolist(), machines[self.owner], now_s)

    def shift(self) -> None:
        """Other shards become the popular ones."""
        self.rng.shuffle(self.ranks)

    def advance(self, end_s: float, time_s: Times, root: Roots) -> Tuples:
        """Take tuples in the order of their arrival; returns those that depart before the end."""
        self._note_arrivals(time_s)
        came = Tuples(
            time_s, root, self.load.service.draw(self.rng, len(time_s)), self._places(len(time_s))
        )
        here = self.waiting.and_also(came)
        lane_of = self.owner[here.place] if self.keyed else here.place
        ready = np.maximum(here.time_s, self.moved_s[here.place]) if self.keyed else here.time_s
        if len(self.lanes) == 1:
            starts, services = self.lanes[0].serve(ready, here.service_s, end_s)
            started = here.some(slice(len(starts)))
            self.waiting = here.some(slice(len(starts), None))
        else:
            order = np.lexsort((ready, lane_of) if self.keyed else (lane_of,))
            bounds = np.searchsorted(lane_of[order], np.arange(len(self.lanes) + 1))
            chosen, found, took = [], [], []
            for lane, low, high in zip(self.lanes, bounds, bounds[1:], strict=False):
                if low == high:
                    continue
                own = order[low:high]
                first, lasted = lane.serve(ready[own], here.service_s[own], end_s)
                chosen.append(own[: len(first)])
                found.append(first)
                took.append(lasted)
            which = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
            starts = np.concatenate(found) if found else np.empty(0)
            services = np.concatenate(took) if took else np.empty(0)
            started = here.some(which)
            left = np.ones(len(here), bool)
            left[which] = False
            self.waiting = here.some(left)
        departing = Tuples(starts + services, started.root, services, started.place)
        self._note_shards(came.place, end_s)
        return self._depart(starts, departing, end_s)

    def _depart(self, starts: Times, departing: Tuples, end_s: float) -> Tuples:
        """The tuples that are done before the end, in order. The others stay in service."""
        counts = self.counts
        carried = self.serving
        counts.busy_s += float((np.minimum(departing.time_s, end_s) - starts).sum())
        counts.busy_s += float((np.minimum(carried.time_s, end_s) - self.since_s).sum())
        counts.processor_s += self.processors * (end_s - self.since_s)
        self.since_s = end_s
        every = carried.and_also(departing)
        done = every.time_s < end_s
        gone, self.serving = every.some(done), every.some(~done)
        gone = gone.some(np.argsort(gone.time_s, kind="stable"))
        counts.served += len(gone)
        served = np.maximum(0.0, gone.service_s - self.hand_over_s)
        counts.service_s += float(served.sum())
        counts.service_s2 += squares(served)
        return gone

    def _note_arrivals(self, time_s: Times) -> None:
        if not len(time_s):
            return
        first_s = self.rush.gap_s(float(time_s[0]))
        gaps = np.diff(time_s)[time_s[1:] >= self.rush.over_s]
        if first_s is not None:
            gaps = np.concatenate(([first_s], gaps))
        self.counts.arrived(len(time_s), gaps)
        self.rush.last_s = float(time_s[-1])

    def _places(self, count: int) -> Numbers:
        if self.keyed:
            drawn = np.searchsorted(self.popular, self.places_rng.random(count), side="right")
            return self.ranks[np.minimum(drawn, len(self.ranks) - 1)]
        if self.executors == 1:
            return np.zeros(count, np.int64)
        places = (self.turn + np.arange(count)) % self.executors
        self.turn = (self.turn + count) % self.executors
        return places

    # tuple by tuple, in loops

    def begin(self, end_s: float) -> list[tuple[float, int]]:
        """Start what waited. Returns the departure time and root of each tuple that departs before
        the end, including those that were in service."""
        waited, self.waiting = self.waiting, Tuples.none()
        self.started: list[tuple[float, float, int, float, int]] = []
        self.kept: list[tuple[float, int, float, int]] = []
        self.came: list[float] = []
        self.places: list[int] = []
        rows = zip(
            waited.time_s.tolist(),
            waited.root.tolist(),
            waited.service_s.tolist(),
            waited.place.tolist(),
            strict=True,
        )
        found = list(zip(self.serving.time_s.tolist(), self.serving.root.tolist(), strict=True))
        for row in rows:
            departs = self._start(*row, end_s)
            if departs is not None:
                found.append((departs, row[1]))
        return [(departs, root) for departs, root in found if departs < end_s]

    def take(self, time_s: float, root: int, end_s: float) -> float | None:
        """Take one tuple. Returns when it departs; None if it has to wait."""
        self.came.append(time_s)
        if not self.spare:
            self.spare = self.load.service.draw(self.rng, _BLOCK).tolist()[::-1]
        place = self._place()
        self.places.append(place)
        return self._start(time_s, root, self.spare.pop(), place, end_s)

    def _place(self) -> int:
        return int(self._places(1)[0]) if self.keyed or self.executors > 1 else 0

    def _start(
        self, time_s: float, root: int, service_s: float, place: int, end_s: float
    ) -> float | None:
        lane = self.lanes[self.owner[place] if self.keyed else place]
        ready = max(time_s, float(self.moved_s[place])) if self.keyed else time_s
        taken = lane.take(ready, service_s, end_s)
        if taken is None:
            self.kept.append((time_s, root, service_s, place))
            return None
        start, took = taken
        self.started.append((start, start + took, root, took, place))
        return start + took

    def end(self, end_s: float) -> None:
        """The window is over."""
        self._note_arrivals(np.array(self.came))
        self.waiting = Tuples.of(self.kept)
        starts = np.array([row[0] for row in self.started])
        self._depart(starts, Tuples.of([row[1:] for row in self.started]), end_s)
        self._note_shards(np.array(self.places, np.int64), end_s)

    # failures

    def kill_worker(self, now_s: float, back_s: float) -> None:
        """Kill a worker without a key: what it had in hand goes to the others."""
        lane = self.lanes[int(self.rng.integers(len(self.lanes)))]
        until_s = lane.kill_one(now_s, back_s, self.rng)
        if until_s is None:
            return
        hit = np.flatnonzero(self.serving.time_s == until_s)[:1]
        lost = self.serving.some(hit)
        self.serving = self.serving.some(np.delete(np.arange(len(self.serving)), hit))
        lost.time_s = np.full(len(hit), now_s)
        lost.service_s = self.load.service.draw(self.rng, len(hit))
        self.waiting = lost.and_also(self.waiting)

    def forget(self, now_s: float) -> None:
        """Lose all tuples here, and set workers free."""
        self.waiting, self.serving = Tuples.none(), Tuples.none()
        for lane in self.lanes:
            lane.forget(now_s)


def _popularity(shards: int, zipf: float) -> Times:
    """The cumulative shares of the shards, in order of rank."""
    weights = (1.0 + np.arange(shards)) ** -zipf
    shares = np.cumsum(weights / weights.sum())
    return quantized(shares)
