"""An executor's workers and their queues. Fed with tuples by the receiver; hands their results
to the emitter.

Without a key, all workers share one queue, which is what M/M/k means. With a key, every shard
belongs to a worker (the second tier of the map; the first, key to shard, is fixed). To move a
shard, its routing pauses, what waits for it is held, and a label follows what the old worker has in
hand. When the label surfaces, the state is handed over, the map changes, and what was held follows.
Per-key order holds throughout. A worker gives up a few shards at a time, as many as it can hand
over in a moment; the others are served by it until it is their turn."""

import hashlib
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, repeat

from sojourn.engine.executor.table import Table
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import Bundle, Link, Trace, encode
from sojourn.engine.wire.shards import SLOTS
from sojourn.placement.balance import balanced, imbalance, skew, tolerated
from sojourn.placement.loads import LOOK_S, Loads
from sojourn.shards import shares

# How long a worker should be busy with what it is given at once. If shorter, handing over tuples
# would cost more than it gains. If longer, tuples would wait behind one worker while another is
# idle.
_GRAIN_S = 0.001
_HELPING_BYTES = 1 << 20
_HAND_OVER_S = 0.001  # how long the shards that move at once may take, beyond waiting for the label
HIRE_S = 10.0  # after which a worker of another machine does not come any more

Item = tuple[bytes, int, Trace | None]


def digest(payload: bytes) -> bytes:
    """A digest by which a tuple is recognised after a restart."""
    return hashlib.blake2b(payload, digest_size=16).digest()


@dataclass(eq=False)
class Worker:
    """A worker as its executor sees it."""

    link: Link
    queue: deque[Item]
    machine: str = ""  # another one than the executor's own
    given: deque[list[Item]] = field(default_factory=deque)
    pid: int | None = None
    retiring: bool = False
    shards: int = 0
    labels: int = 0  # of shards that it is to give up
    # Of these, the shards it was not told of yet, and who gets them.
    leaving: dict[int, "Worker"] = field(default_factory=dict)
    at_once: int = 0  # shards that it was told of together
    under_way: int = 0  # of these, those that have not come
    surfaces_s: float = 0.0  # when their labels should surface
    alone: bool = False  # it has only a suspect in hand
    cutting: bool = False  # it was told of a cut and has not answered
    saving: bool = False  # it has not said that all is on disk
    saves_to: str = ""  # the name of the file
    due_s: float | None = None  # when its first timer is due, by the wall clock
    timers: int = 0
    firing: bool = False  # it was told to fire timers, and has not answered
    loading: int = 0  # times that it was given state and has not said what timers came with it
    slots: int = 1  # tuples that it works on at once
    telling: deque[int] = field(default_factory=deque)  # sizes of broadcasts not taken up yet
    away: bool = False  # it stands for another executor
    exhausted: bool = False  # a source's that has nothing more to read
    backlog: dict[str, int] | None = None  # what waits in its splits


@dataclass
class Move:
    """A shard on its way, and what waits for it. Once its first piece has come, it goes to `into`,
    even if it is wanted elsewhere meanwhile."""

    to: Worker
    held: list[Item] = field(default_factory=list)
    giver: Worker | None = None
    into: Worker | None = None
    slot: int = -1  # of the shared memory that its pieces go through
    more: bool = False  # whether there are more pieces
    began_s: float = field(default_factory=time.monotonic)
    surfaced_s: float = 0.0  # when its label did


@dataclass
class Moved:
    """Sums over the shards that have moved so far."""

    count: int = 0
    bytes: int = 0
    sync_s: float = 0.0
    moving_s: float = 0.0


class Workers:
    """Workers that come and go while tuples flow.

    Tuples in `watched`, by their digest, may have killed a worker before the last restart. Each is
    given out alone, and `guilty` ones not at all. With `slots`, a worker handles that many tuples
    at once, and each counts as a processor."""

    def __init__(
        self,
        start_worker: Callable[[], Link],
        keyed: bool,
        own_shards: list[int],
        max_bundle: int,
        bundled: bool = False,
        watched: Collection[bytes] = (),
        guilty: Collection[m.Suspect] = (),
        give_up: Callable[[Item], None] = lambda _item: None,
        slots: int = 0,
        table: Table | None = None,
        hire: Callable[[str, int], None] = lambda _machine, _count: None,
    ) -> None:
        self.start_worker, self.hire = start_worker, hire
        self.wanted = 0
        self.away: dict[str, int] = {}  # workers that should be on other machines
        self.hired: Counter[str] = Counter()  # those that are on their way,
        self.hired_s: dict[str, float] = {}  # and since when
        self.keyed = keyed
        self.own_shards = own_shards
        self.max_helping = max_bundle
        self.grain_s = math.inf if bundled else _GRAIN_S
        self.watched = {*watched, *(suspect.digest for suspect in guilty)}
        self.guilty = set(guilty)
        self.give_up = give_up
        self.slots = slots
        self.table = Table() if table is None else table
        self.loads = Loads()
        self.looks_s = 0.0  # when to look whether workers are equally busy
        self.seen: Counter[bytes] = Counter()
        self.convicted: list[bytes] = []
        self.all: list[Worker] = []
        self.shared: deque[Item] = deque()
        self.owner: dict[int, Worker] = {}
        self.moves: dict[int, Move] = {}
        self.travelling = 0  # labels that were given out and whose shards have not come
        self.each_s = _HAND_OVER_S / 8  # that it takes to hand a shard over
        self.moved = Moved()
        self.slots_free = list(range(SLOTS))
        self.slots_wanted: deque[int] = deque()  # by these shards, which wait for one
        self.waiting = 0
        self.waiting_bytes = 0
        self.given = 0
        self.service_s = 0.01
        self.suspects: dict[bytes, int] = {}
        self.hold = False  # give out nothing
        self.no_moves = False  # give out no labels: a cut waits for shards that are on their way

    @property
    def processors(self) -> int:
        """Workers that take tuples."""
        return sum(w.slots for w in self.all if w.pid is not None and not w.retiring)

    @property
    def idle(self) -> bool:
        """Whether every tuple that came is processed, and no timer is being fired."""
        busy = any(w.firing or w.loading or w.telling or w.leaving for w in self.all)
        return not self.waiting and not self.given and not self.moves and not busy

    @property
    def may_cut(self) -> bool:
        """Whether no shard is on its way from one worker to another, and no worker is still busy
        with the last cut, or with a broadcast, which it may die of. Labels that were not given out
        yet do no harm."""
        return not self.travelling and not any(
            w.saving or (w.telling and w.pid is not None) for w in self.all
        )

    @property
    def open(self) -> bool:
        """Whether tuples can be put."""
        if self.keyed and self.own_shards:
            return bool(self.owner)
        return self.processors > 0

    @property
    def answer_soon(self) -> bool:
        """Whether quick workers have something in hand: then it is worth waiting for their answers,
        to send them on together."""
        return self.given > 0 and self.service_s < _GRAIN_S

    @property
    def due_s(self) -> float | None:
        """When the first timer is due, of the workers that can be told to fire."""
        due = [w.due_s for w in self.all if w.due_s is not None and self._can_fire(w)]
        return min(due, default=None)

    def queued(self) -> Iterator[Item]:
        """What waits, with each shard's tuples in the order in which they came."""
        queues = [w.queue for w in self.all] if self.keyed else [self.shared]
        for queue in queues:
            yield from queue
        for move in self.moves.values():
            yield from move.held

    def in_hand(self) -> Iterator[Item]:
        """What workers were given and have not answered."""
        for worker in self.all:
            for items in worker.given:
                yield from items

    def put(self, bundle: Bundle) -> int:
        """Queue the tuples of a bundle. Returns how many bytes they have."""
        traces = {trace.index: trace for trace in bundle.traces}
        size = sum(map(len, bundle.payloads))
        self.waiting += len(bundle.payloads)
        self.waiting_bytes += size
        if not self.keyed:
            shards = bundle.shards or repeat(-1)  # a sink has none, but its keys are spread by them
            self.shared.extend(
                (payload, shard, traces.get(i))
                for i, (payload, shard) in enumerate(zip(bundle.payloads, shards, strict=False))
            )
            self.pump()
            return size
        self.loads.arrived(bundle.shards)
        touched = set()
        for i, (payload, shard) in enumerate(zip(bundle.payloads, bundle.shards, strict=True)):
            item = (payload, shard, traces.get(i))
            move = self.moves.get(shard)
            if move is not None:
                move.held.append(item)
            else:
                worker = self.owner[shard]
                worker.queue.append(item)
                touched.add(worker)
        for worker in touched:
            self._give(worker)
        return size

    def tell(self, changes: list[m.Change]) -> None:
        """Let every worker know what was broadcast."""
        message = m.encode(m.Broadcast(changes))
        for worker in self.all:
            self.tell_one(worker, message)

    def tell_one(self, worker: Worker, message: bytes) -> None:
        """The same for one worker."""
        worker.telling.append(len(message))
        worker.link.send(message)

    @property
    def telling_bytes(self) -> int:
        """What was broadcast and the worker that has most of it still to take up has not."""
        return max((sum(worker.telling) for worker in self.all), default=0)

    def resize(self, wanted: int, away: Mapping[str, int] | None = None) -> None:
        """Start or retire workers until there are `wanted` processors, of which `away` are on other
        machines. As long as those are on their way, workers that are here stay."""
        self.wanted, self.away = wanted, dict(away or {})
        for gone in self.hired.keys() - self.away.keys():
            del self.hired[gone]
        there = sum(
            min(most, sum(w.pid is not None for w in self.staying(machine)))
            for machine, most in self.away.items()
        )
        least = wanted - sum(self.away.values())
        wanted = max(least, min(len(self.staying("")), wanted - there)) if self.away else wanted
        count = -(-wanted // self.slots) if self.slots else wanted
        for _ in range(count - len(self.staying(""))):
            self._add(Worker(self.start_worker(), self.queue()))
        for machine in {"", *self.away, *(w.machine for w in self.all)}:
            most = count if not machine else self.away.get(machine, 0)
            for worker in self.staying(machine)[most:]:
                worker.retiring = True
        self._hire()
        if self.slots:
            staying = self.staying("")
            for worker, slots in zip(staying, shares(wanted, count), strict=True):
                worker.slots = slots
        self.balance()
        for worker in [w for w in self.all if w.retiring]:
            self.retire_if_done(worker)
        self.pump()

    def staying(self, machine: str) -> list[Worker]:
        """The workers on a machine that are not about to go; here, if it has no name."""
        return [w for w in self.all if not w.retiring and w.machine == machine]

    def queue(self) -> deque[Item]:
        """For a new worker."""
        return deque() if self.keyed else self.shared

    def _add(self, worker: Worker) -> None:
        self.all.append(worker)
        if self.table.entries:
            self.tell_one(worker, m.encode(m.Broadcast(list(self.table.entries.values()))))

    def _hire(self) -> None:
        """Ask for the workers that lack on other machines and are not on their way. Those that do
        not come for long are not."""
        now_s = time.monotonic()
        for machine, count in self.away.items():
            if now_s > self.hired_s.get(machine, now_s) + HIRE_S:
                self.hired[machine] = 0
            lacking = count - len(self.staying(machine)) - self.hired[machine]
            if lacking > 0:
                self.hired[machine] += lacking
                self.hired_s[machine] = now_s
                self.hire(machine, lacking)

    def joined(self, link: Link, machine: str) -> Worker | None:
        """Take in a worker of another machine; None if it is not wanted any more."""
        self.hired[machine] = max(0, self.hired[machine] - 1)
        if len(self.staying(machine)) >= self.away.get(machine, 0):
            return None
        worker = Worker(link, self.queue(), machine)
        self._add(worker)
        return worker

    def look(self, now_s: float) -> None:
        """Move shards if workers are unequally busy, for sure and not by chance."""
        if not self.keyed or now_s < self.looks_s:
            return
        self.looks_s = now_s + LOOK_S
        self.loads.look(now_s)
        owned: dict[Worker | None, list[int]]
        owned = {w: [] for w in self.all if not w.retiring and w.pid is not None}
        if len(owned) < 2 or self.moves or any(w.leaving for w in self.all):
            return
        loads = self._loads()
        for shard in loads:
            owned.get(self.owner.get(shard), []).append(shard)
        by_chance = skew(len(owned), max(1.0, self.loads.tuples))
        if imbalance(owned, loads) > self._tolerated(loads) + by_chance:
            self.balance()

    def _loads(self) -> dict[int, float]:
        """Of all shards, with what waits for them, as it goes with them."""
        waiting = Counter(item[1] for item in self.queued())
        return self.loads.of_shards(self.service_s, waiting)

    def _tolerated(self, loads: Mapping[int, float]) -> float:
        return tolerated(self.loads.busy(loads.values(), max(1, self.processors)))

    def balance(self) -> None:
        """Move shards until all workers that stay are about equally busy, and others have none."""
        if not self.keyed:
            return
        # A worker that is not ready yet gets no shard while another one can serve it. But at the
        # start all wait for all, so that none loads what is another's a moment later.
        staying = [w for w in self.all if not w.retiring and w.pid is not None]
        starting = any(w.pid is None and not w.retiring for w in self.all)
        if not staying or (starting and not self.owner):
            return
        owned: dict[Worker, list[int]] = {worker: [] for worker in staying}
        homeless = []
        for shard in self.own_shards:
            owner = self._heir(shard)
            if owner in owned:
                owned[owner].append(shard)
            else:
                homeless.append(shard)
        loads = self._loads()
        most = self._tolerated(loads)
        for shard, target in balanced(owned, loads, homeless, most, self.service_s):
            self.assign(shard, target)
        for worker in self.all:
            self._give(worker)

    def _heir(self, shard: int) -> Worker | None:
        """The worker that has a shard, or is about to."""
        if shard in self.moves:
            return self.moves[shard].to
        owner = self.owner.get(shard)
        return None if owner is None else owner.leaving.get(shard, owner)

    def assign(self, shard: int, target: Worker) -> None:
        """Give a shard to a worker, by a move if another one has it."""
        heir = self._heir(shard)
        target.shards += 1
        if heir is None:
            self.owner[shard] = target
            return
        heir.shards -= 1
        self._leave(shard, target)

    def _take_along(self, worker: Worker) -> None:
        """Have what waits for shards that leave a worker go with them."""
        stays: deque[Item] = deque()
        for item in worker.queue:
            move = self.moves.get(item[1])
            (stays if move is None else move.held).append(item)
        worker.queue = stays

    def ready(self, worker: Worker, pid: int) -> None:
        """Note that a worker takes tuples from now on."""
        worker.pid = pid
        if worker.machine:
            self.resize(self.wanted, self.away)
        self.balance()
        self.pump()
        self.retire_if_done(worker)

    def taken(self, worker: Worker, given: m.GiveShard) -> None:
        """Hand a shard over, or a piece of it: its label has surfaced."""
        move = self.moves[given.shard]
        pieces = move.into is not None or given.more
        if move.into is None:
            move.surfaced_s = time.monotonic()
            self.moved.sync_s += move.surfaced_s - move.began_s
        self.moved.bytes += given.size or len(given.state or b"")
        move.giver, move.more = worker, given.more
        move.into = move.into or move.to
        move.into.link.send(m.encode(given))
        if not pieces or (move.into.away and not given.more):
            self._arrived(given.shard, move)

    def took(self, shard: int) -> None:
        """Ask for the next piece of a shard, as the last one is used up."""
        move = self.moves[shard]
        assert move.into is not None
        assert move.giver is not None
        if not move.more:
            move.into.link.send(m.encode(m.Settle(shard)))
            self._arrived(shard, move)
        elif move.slot < 0 and not (
            move.giver.machine or move.into.machine or move.giver.away or move.into.away
        ):
            self.slots_wanted.append(shard)
            self._give_slots()
        else:
            move.giver.link.send(m.encode(m.TakeMore(shard, move.slot)))

    def _give_slots(self) -> None:
        """Let shards that wait for shared memory go on, as far as there is some."""
        while self.slots_wanted and self.slots_free:
            shard = self.slots_wanted.popleft()
            move = self.moves[shard]
            move.slot = self.slots_free.pop()
            assert move.giver is not None
            move.giver.link.send(m.encode(m.TakeMore(shard, move.slot)))

    def _arrived(self, shard: int, move: Move) -> None:
        """All of a shard has come."""
        giver, into = move.giver, move.into
        assert giver is not None
        assert into is not None
        if move.slot >= 0:
            self.slots_free.append(move.slot)
            self._give_slots()
        self.moved.count += 1
        self.moved.moving_s += time.monotonic() - move.surfaced_s
        giver.labels -= 1
        self.travelling -= 1
        if giver.under_way:
            giver.under_way -= 1
            if not giver.under_way:
                each_s = (time.monotonic() - giver.surfaces_s) / giver.at_once
                self.each_s += (max(0.0, each_s) - self.each_s) / 2
                self._next_leave(giver)
        if into.away:
            del self.moves[shard], self.owner[shard]
            self.retire_if_done(giver)
            return
        self.owner[shard] = into
        into.loading += 1
        if giver.away:
            giver.link.send(m.encode(m.Settle(shard)))
        del self.moves[shard]
        into.queue.extend(move.held)
        self._leave(shard, move.to)
        self._give(into)
        self.retire_if_done(giver)
        # The new owner may have been told to retire while the shard was on its way.
        if into.retiring:
            self.balance()

    def release(self, shard: int, elsewhere: Worker) -> None:
        """Give a shard to another executor, for which `elsewhere` stands."""
        self.own_shards.remove(shard)
        heir = self._heir(shard)
        assert heir is not None
        heir.shards -= 1
        self._leave(shard, elsewhere)
        self._give(self.owner[shard])

    def land(self, given: m.GiveShard, elsewhere: Worker) -> None:
        """Take a shard of another executor, or a piece of it."""
        shard = given.shard
        if shard not in self.moves:
            staying = [w for w in self.all if not w.retiring and w.pid is not None]
            target = min(staying, key=lambda worker: worker.shards)
            target.shards += 1
            self.own_shards.append(shard)
            self.moves[shard] = Move(target)
            elsewhere.labels += 1
            self.travelling += 1
        self.taken(elsewhere, given)

    def _leave(self, shard: int, target: Worker) -> None:
        """Have a shard go to a worker, once it is its turn; or on to that one, if it is on its
        way."""
        if shard in self.moves:
            self.moves[shard].to = target
            return
        owner = self.owner[shard]
        if owner.leaving.pop(shard, None) is not None:
            owner.labels -= 1
        if target is not owner:
            owner.leaving[shard] = target
            owner.labels += 1

    def _next_leave(self, worker: Worker) -> None:
        """Have the next shards leave a worker, if those before them have come. As many as it hands
        over in a moment go at once, or in half the time of a tuple, as the label waits for one."""
        if not worker.leaving or worker.under_way or self.hold or self.no_moves:
            return
        most = max(1, int(max(_HAND_OVER_S, self.service_s / 2) / max(self.each_s, 1e-6)))
        together = [*islice(worker.leaving, most)]
        for shard in together:
            self.moves[shard] = Move(worker.leaving.pop(shard))
            worker.link.send(m.encode(m.TakeShard(shard)))
        worker.at_once = worker.under_way = len(together)
        in_hand = sum(map(len, worker.given)) / worker.slots
        worker.surfaces_s = time.monotonic() + in_hand * self.service_s
        self.travelling += len(together)
        self._take_along(worker)

    @property
    def busiest(self) -> dict[int, int] | None:
        """How many tuples came, ever, for the shards that are busiest now; None without a key."""
        return self.loads.busiest(m.BUSIEST) if self.keyed else None

    def told(self, worker: Worker, timers: m.Timers) -> None:
        """Note what timers a worker has, perhaps because it has loaded state."""
        worker.due_s, worker.timers = timers.due_s, timers.timers
        worker.loading -= timers.loaded

    def done(self, worker: Worker, done: m.Done) -> list[Item]:
        """Note that a worker has answered. Returns what it was given."""
        items = worker.given[done.place]
        del worker.given[done.place]
        worker.alone = False
        worker.due_s, worker.timers = done.due_s, done.timers
        worker.firing = worker.firing and bool(items)
        self.given -= len(items)
        if done.served:
            mean = done.elapsed_s / done.served
            self.service_s += 0.1 * (mean - self.service_s)
            if self.keyed and len(items) == 1:
                self.loads.served(items[0][1], mean)
        if self.suspects:
            for payload, _, _ in items:
                self.suspects.pop(payload, None)
        self.retire_if_done(worker)
        if worker in self.all:
            self._give(worker)
        return items

    def lost(self, worker: Worker) -> list[Item]:
        """Handle the death of a worker without a key: what it had goes back to the front, to be
        given out one at a time. Returns the tuples that have now cost a second worker."""
        self.all.remove(worker)
        guilty = []
        chunks = list(worker.given)
        worker.given.clear()
        for number, chunk in reversed([*enumerate(chunks)]):
            self.given -= len(chunk)
            begun = number == 0 or bool(self.slots)
            for item in reversed(chunk):
                died = self.suspects.get(item[0], 0) + begun
                if len(chunk) == 1 and died >= 2 and (not self.slots or len(chunks) == 1):
                    guilty.append(item)
                    self.suspects.pop(item[0], None)
                else:
                    if begun:
                        self.suspects[item[0]] = died
                    self.shared.appendleft(item)
                    self.waiting += 1
                    self.waiting_bytes += len(item[0])
        return guilty

    def suspected(self, worker: Worker | None) -> list[m.Suspect]:
        """The tuples that a worker was busy with; one may have killed it. Without a worker, those
        of all, because threads die together."""
        busy = self.all if worker is None else [worker]
        begun = None if self.slots else 1
        in_hand = [item for w in busy for chunk in islice(w.given, begun) for item in chunk]
        return [
            m.Suspect(known, max(1, self.seen[known]))
            for known in (digest(payload) for payload, _, _ in in_hand)
        ]

    def pump(self) -> None:
        """Give out what waits, to the workers with least in hand first."""
        if self.keyed:
            for worker in self.all:
                self._give(worker)
            return
        giving = True
        while self.shared and giving:
            free = [w for w in self.all if self._takes(w)]
            giving = bool(free) and self._give_one(min(free, key=lambda w: len(w.given)))

    def fire(self) -> None:
        """Have workers fire timers that are due."""
        now = time.time()
        for worker in self.all:
            if worker.due_s is not None and worker.due_s <= now and self._can_fire(worker):
                worker.firing = True
                worker.given.append([])
                worker.link.send(encode(m.Work([], [], [])))

    def _can_fire(self, worker: Worker) -> bool:
        return not worker.firing and not worker.alone and worker.pid is not None and not self.hold

    def _takes(self, worker: Worker) -> bool:
        if worker.pid is None or (worker.retiring and not self.keyed):
            return False
        if self.hold or worker.alone:
            return False
        if self.slots:
            return len(worker.given) < worker.slots
        # A second helping in advance keeps a quick worker busy during the round trip.
        return len(worker.given) < (2 if self.service_s < _GRAIN_S else 1)

    def _give(self, worker: Worker) -> None:
        if not self.keyed:
            self.pump()
            return
        if worker.leaving:
            self._next_leave(worker)
        while worker.queue and self._takes(worker) and self._give_one(worker):
            continue

    def _give_one(self, worker: Worker) -> bool:
        """Give the next helping. Returns whether that was possible."""
        queue = worker.queue
        first = queue[0]
        alone = self._is_suspect(first)
        if alone and worker.given:
            return False  # until it can be given by itself
        if alone and self._is_guilty(first):
            queue.popleft()
            self._taken_out(first)
            self.give_up(first)
            return True
        items = [first] if alone else self._helping(queue)
        for _ in items:
            queue.popleft()
        self._taken_out(*items)
        if alone and self.watched:
            self.seen[digest(first[0])] += 1
        worker.alone = alone
        self.given += len(items)
        worker.given.append(items)
        work = m.Work(
            [payload for payload, _, _ in items],
            [shard for _, shard, _ in items] if self.keyed else [],
            [Trace(i, t.root, t.id) for i, (_, _, t) in enumerate(items) if t is not None],
        )
        worker.link.send(encode(work))
        return True

    def _helping(self, queue: deque[Item]) -> list[Item]:
        """As many of the first tuples as are worth handing over together."""
        most = max(1, int(min(self.max_helping, self.grain_s / max(self.service_s, 1e-9))))
        most = 1 if self.slots else most
        if not self.keyed:
            most = max(1, min(most, -(-len(queue) // max(1, len(self.all)))))
        items: list[Item] = []
        size = 0
        watching = bool(self.suspects or self.watched)
        for item in islice(queue, most):
            if size >= _HELPING_BYTES:
                break
            if watching and items and self._is_suspect(item):
                break
            items.append(item)
            size += len(item[0])
        return items

    def _taken_out(self, *items: Item) -> None:
        self.waiting -= len(items)
        self.waiting_bytes -= sum(len(payload) for payload, _, _ in items)

    def _is_suspect(self, item: Item) -> bool:
        if self.suspects and item[0] in self.suspects:
            return True
        return bool(self.watched) and digest(item[0]) in self.watched

    def _is_guilty(self, item: Item) -> bool:
        """Whether this is the very tuple that was found guilty, not only an equal one."""
        if not self.guilty:
            return False
        known = digest(item[0])
        found = m.Suspect(known, self.seen[known] + 1)
        if found not in self.guilty:
            return False
        self.guilty.remove(found)
        self.seen[known] += 1
        self.convicted.append(known)
        return True

    def retire_if_done(self, worker: Worker) -> None:
        """Let a retiring worker go if it has nothing left to do."""
        busy = worker.given or worker.labels or (self.keyed and (worker.queue or worker.shards))
        busy = busy or worker.saving
        if worker.retiring and worker in self.all and not busy:
            incoming = any(worker in (move.to, move.into) for move in self.moves.values())
            incoming = incoming or any(worker in w.leaving.values() for w in self.all)
            if not incoming and worker.pid is not None:
                worker.link.send(m.encode(m.Close()))
                self.all.remove(worker)
