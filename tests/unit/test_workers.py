"""An executor's workers: they come and go while tuples flow, and each tuple is processed once, in
order.

Workers are played by this test at the far ends of sockets: each answers in the order in which it
is told, and they overtake one another at random."""

import pickle
import socket
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sojourn.engine.executor import workers
from sojourn.engine.executor.workers import Worker, Workers, digest
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import Bundle, Link, Trace

QUICK_S, SLOW_S = 0.00001, 0.1


class Far:
    """The far end of a worker's socket: what it was told, and its answers on their way."""

    def __init__(self, link: Link, near: Link) -> None:
        self.link, self.near = link, near
        self.told: deque[m.ToWorker] = deque()
        self.answers: deque[m.FromWorker] = deque([m.Ready(1)])
        self.states: dict[int, dict[int, int]] = {}
        self.leaving: dict[int, bytes] = {}
        self.coming: dict[int, bytes] = {}
        self.closed = False

    def give(self, shard: int, slot: int, size: int, slots: dict[int, bytes]) -> None:
        """Answer with the next piece of a shard, in a slot of shared memory if there is one."""
        data = self.leaving[shard]
        piece, self.leaving[shard] = data[:size], data[size:]
        more = bool(self.leaving[shard])
        if slot < 0:
            self.answers.append(m.GiveShard(shard, piece, more))
        else:
            assert slot not in slots, "two shards in one place"
            slots[slot] = piece
            self.answers.append(m.GiveShard(shard, b"", more, slot, len(piece)))

    def settle(self, shard: int) -> None:
        data = self.coming.pop(shard)
        if data:
            self.states[shard] = pickle.loads(data)

    def listen(self) -> None:
        self.near.flush()
        self.told.extend(map(m.decode_to_worker, self.link.receive() or []))

    def heard(self) -> list[m.ToWorker]:
        """Everything told since the last time."""
        self.listen()
        told = list(self.told)
        self.told.clear()
        return told


class Rig:
    """Workers, and their far ends."""

    def __init__(self, keyed: bool, shards: int = 0, max_bundle: int = 500) -> None:
        self.far: dict[Link, Far] = {}
        self.hired: deque[str] = deque()  # machines whose workers are on their way
        self.workers = Workers(
            self.start,
            keyed,
            list(range(shards)),
            max_bundle,
            hire=lambda machine, count: self.hired.extend([machine] * count),
        )

    def start(self) -> Link:
        ours, theirs = socket.socketpair()
        link = Link(ours)
        self.far[link] = Far(Link(theirs), link)
        return link

    def join(self) -> Worker | None:
        """Have the first that is on its way come."""
        link = self.start()
        worker = self.workers.joined(link, self.hired.popleft())
        if worker is None:
            self.far.pop(link).link.close()
            link.close()
        return worker

    def of(self, worker: Worker) -> Far:
        return self.far[worker.link]

    def ready(self, *workers: Worker) -> None:
        for worker in workers:
            self.of(worker).answers.popleft()
            self.workers.ready(worker, pid=1)

    def work(self, worker: Worker) -> list[bytes]:
        """The payloads of all work told since the last time, which must be all that was told."""
        payloads: list[bytes] = []
        for message in self.of(worker).heard():
            assert isinstance(message, m.Work)
            payloads += message.payloads
        return payloads

    def close(self) -> None:
        for link, far in self.far.items():
            link.close()
            far.link.close()


@contextmanager
def rigged(keyed: bool = False, shards: int = 0, max_bundle: int = 500) -> Iterator[Rig]:
    rig = Rig(keyed, shards, max_bundle)
    try:
        yield rig
    finally:
        rig.close()


def bundle(*payloads: bytes) -> Bundle:
    return Bundle(list(payloads), [], [])


def done(served: int = 1, each_s: float = SLOW_S) -> m.Done:
    return m.Done([], [], served, served * each_s, 0, 0.0, 0.0, [], [])


# one queue for all


def test_nothing_is_given_to_a_worker_that_is_not_ready() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.workers.put(bundle(b"a"))
        assert rig.of(worker).heard() == []
        assert (rig.workers.waiting, rig.workers.given, rig.workers.processors) == (1, 0, 0)
        rig.ready(worker)
        assert rig.work(worker) == [b"a"]
        assert (rig.workers.waiting, rig.workers.given, rig.workers.processors) == (0, 1, 1)


def test_a_tuple_goes_to_an_idle_worker() -> None:
    with rigged() as rig:
        rig.workers.resize(3)
        rig.ready(*rig.workers.all)
        first, second, third = rig.workers.all
        rig.workers.put(bundle(b"a", b"b"))
        assert [len(w.given) for w in (first, second, third)] == [1, 1, 0]
        rig.workers.put(bundle(b"c", b"d"))
        assert [rig.work(w) for w in (first, second, third)] == [[b"a"], [b"b"], [b"c"]]
        assert rig.workers.waiting == 1
        rig.workers.done(second, done())
        assert [rig.work(w) for w in (first, second, third)] == [[], [b"d"], []]


def test_slow_tuples_are_given_one_at_a_time() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        rig.ready(*rig.workers.all)
        (worker,) = rig.workers.all
        rig.workers.put(bundle(b"a", b"b", b"c"))
        for payload in (b"a", b"b", b"c"):
            assert rig.work(worker) == [payload]
            rig.workers.done(worker, done())
        assert rig.workers.idle


def hurry(rig: Rig) -> None:
    """Let the workers learn that tuples take next to no time."""
    (worker, *_) = rig.workers.all
    for _ in range(100):
        rig.workers.put(bundle(b"x"))
        rig.workers.done(worker, done(each_s=QUICK_S))
    assert rig.work(worker) == [b"x"] * 100


def test_quick_tuples_are_given_together_and_in_advance() -> None:
    with rigged(max_bundle=20) as rig:
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        hurry(rig)
        rig.workers.put(bundle(*(b"%d" % i for i in range(50))))
        assert [len(chunk) for chunk in worker.given] == [20, 20]
        assert rig.work(worker) == [b"%d" % i for i in range(40)]
        rig.workers.done(worker, done(20, QUICK_S))
        assert rig.work(worker) == [b"%d" % i for i in range(40, 50)]


def test_quick_tuples_are_shared_evenly() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        rig.ready(*rig.workers.all)
        hurry(rig)
        rig.workers.resize(4)
        rig.ready(*rig.workers.all[1:])
        rig.workers.put(bundle(*(b"%d" % i for i in range(40))))
        assert all(1 <= len(worker.given[0]) <= 10 for worker in rig.workers.all)
        assert len(rig.workers.all[0].given[0]) == 10


def test_traces_are_counted_anew_in_each_helping() -> None:
    with rigged() as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        rig.workers.put(Bundle([b"a", b"b"], [], [Trace(1, 7, 8)]))
        first, second = (rig.of(worker).heard() for worker in rig.workers.all)
        assert first == [m.Work([b"a"], [], [])]
        assert second == [m.Work([b"b"], [], [Trace(0, 7, 8)])]


def test_done_returns_what_was_given() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        rig.workers.put(Bundle([b"a"], [], [Trace(0, 7, 8)]))
        assert rig.workers.done(worker, done()) == [(b"a", -1, Trace(0, 7, 8))]
        assert rig.workers.idle


# retirement


def test_an_idle_worker_retires_at_once() -> None:
    with rigged() as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        stays, goes = rig.workers.all
        rig.workers.resize(1)
        assert rig.workers.all == [stays]
        assert rig.of(goes).heard() == [m.Close()]
        assert rig.of(stays).heard() == []


def test_a_busy_worker_retires_when_it_has_answered() -> None:
    with rigged() as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        stays, goes = rig.workers.all
        rig.workers.put(bundle(b"a", b"b", b"c"))
        rig.workers.resize(1)
        assert rig.workers.processors == 1
        assert rig.work(goes) == [b"b"]
        rig.workers.done(goes, done())
        assert rig.of(goes).heard() == [m.Close()]
        assert rig.workers.all == [stays]
        rig.workers.done(stays, done())
        assert rig.work(stays) == [b"a", b"c"]


def test_a_new_worker_takes_what_waits() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        rig.ready(*rig.workers.all)
        rig.workers.put(bundle(b"a", b"b"))
        rig.workers.resize(2)
        first, second = rig.workers.all
        rig.ready(second)
        assert (rig.work(first), rig.work(second)) == ([b"a"], [b"b"])


def test_to_resize_to_the_same_number_changes_nothing() -> None:
    with rigged(keyed=True, shards=8) as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        before = list(rig.workers.all)
        moves = dict(rig.workers.moves)
        rig.workers.resize(2)
        assert rig.workers.all == before
        assert rig.workers.moves == moves
        assert len(rig.far) == 2


# deaths


def test_what_a_dead_worker_had_goes_back_to_the_front_one_at_a_time() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        hurry(rig)
        rig.workers.put(bundle(*(b"%d" % i for i in range(5))))
        rig.workers.put(bundle(b"5", b"6"))
        rig.workers.put(bundle(b"7"))
        assert [len(chunk) for chunk in worker.given] == [5, 2]
        assert rig.workers.lost(worker) == []
        assert (rig.workers.waiting, rig.workers.given) == (8, 0)
        rig.workers.resize(1)
        (heir,) = rig.workers.all
        rig.ready(heir)
        order = []
        while heir.given:
            order.append([payload for payload, _, _ in rig.workers.done(heir, done(1, QUICK_S))])
        assert order == [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"], [b"5", b"6", b"7"]]
        assert rig.workers.idle
        assert rig.workers.suspects == {}


def test_a_tuple_that_kills_a_second_worker_is_guilty_and_others_are_not() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        rig.ready(*rig.workers.all)
        hurry(rig)
        rig.workers.put(bundle(b"good", b"bad", b"fine"))
        traced = Bundle([b"also bad"], [], [Trace(0, 7, 8)])
        rig.workers.put(traced)
        processed, guilty, deaths = [], [], 0
        while not rig.workers.idle:
            (worker,) = rig.workers.all
            if worker.pid is None:
                rig.ready(worker)
            elif any(b"bad" in payload for payload, _, _ in worker.given[0]):
                deaths += 1
                guilty += rig.workers.lost(worker)
                rig.workers.resize(1)
            else:
                processed += [p for p, _, _ in rig.workers.done(worker, done(1, QUICK_S))]
        assert Counter(processed) == Counter([b"good", b"fine"])
        assert guilty == [(b"bad", -1, None), (b"also bad", -1, Trace(0, 7, 8))]
        assert deaths == 4
        assert rig.workers.suspects == {}


def test_what_waited_behind_the_tuple_in_hand_is_not_suspected() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        hurry(rig)
        rig.workers.put(bundle(b"in hand"))
        rig.workers.put(bundle(b"behind"))
        assert [len(chunk) for chunk in worker.given] == [1, 1]
        assert rig.workers.lost(worker) == []
        assert set(rig.workers.suspects) == {b"in hand"}


def test_equal_tuples_are_not_guilty_of_one_death_together() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        hurry(rig)
        rig.workers.put(bundle(b"same", b"same", b"same"))
        assert [len(chunk) for chunk in worker.given] == [3]
        assert rig.workers.lost(worker) == []
        assert rig.workers.waiting == 3


def test_other_workers_go_on_when_one_dies() -> None:
    with rigged() as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        dies, lives = rig.workers.all
        rig.workers.put(bundle(b"a", b"b", b"c"))
        assert rig.workers.lost(dies) == []
        assert rig.work(lives) == [b"b"]
        rig.workers.done(lives, done())
        assert rig.work(lives) == [b"a"]
        rig.workers.done(lives, done())
        assert rig.work(lives) == [b"c"]


def test_a_worker_that_dies_idle_costs_nothing() -> None:
    with rigged() as rig:
        rig.workers.resize(2)
        dies, lives = rig.workers.all
        rig.ready(lives)
        assert rig.workers.lost(dies) == []
        rig.workers.resize(2)
        assert len(rig.workers.all) == 2
        assert (rig.workers.waiting, rig.workers.given) == (0, 0)


# tuples that may have killed their worker before a restart


def test_a_suspect_is_given_alone_and_nothing_behind_it_until_it_is_done() -> None:
    with rigged() as rig:
        rig.workers.watched = {digest(b"x")}
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        rig.workers.service_s = QUICK_S
        rig.workers.put(bundle(b"a", b"x", b"b", b"c"))
        assert rig.work(worker) == [b"a"]
        rig.workers.done(worker, done(1, QUICK_S))
        assert rig.work(worker) == [b"x"]
        assert rig.workers.suspected(worker) == [m.Suspect(digest(b"x"), 1)]
        rig.workers.done(worker, done(1, QUICK_S))
        assert rig.work(worker) == [b"b", b"c"]


def test_only_the_guilty_one_of_equal_tuples_is_left_out() -> None:
    given_up: list[bytes] = []
    with rigged() as rig:
        rig.workers.watched = {digest(b"x")}
        rig.workers.guilty = {m.Suspect(digest(b"x"), 2)}
        rig.workers.give_up = lambda item: given_up.append(item[0])
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        rig.workers.put(bundle(b"x", b"x", b"x", b"y"))
        processed = []
        while not rig.workers.idle:
            processed += rig.work(worker)
            rig.workers.done(worker, done())
        assert processed == [b"x", b"x", b"y"]
    assert given_up == [b"x"]
    assert rig.workers.convicted == [digest(b"x")]


def test_bytes_that_wait_are_counted() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        rig.workers.put(bundle(b"aaa", b"bb", b"c"))
        assert rig.workers.waiting_bytes == 3
        assert rig.workers.lost(worker) == []
        assert rig.workers.waiting_bytes == 6


def test_a_helping_is_bounded_in_bytes() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        rig.workers.service_s = QUICK_S
        rig.workers.put(bundle(*[bytes(600_000)] * 6))
        assert [len(helping) for helping in worker.given] == [2, 2]


def test_while_all_is_held_nothing_is_given_out() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        (worker,) = rig.workers.all
        rig.ready(worker)
        rig.workers.hold = True
        rig.workers.put(bundle(b"a"))
        assert rig.of(worker).heard() == []
        rig.workers.hold = False
        rig.workers.pump()
        assert rig.work(worker) == [b"a"]


def test_a_worker_that_saves_does_not_retire_before_it_is_done() -> None:
    with rigged() as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        stays, goes = rig.workers.all
        goes.saving = True
        rig.workers.resize(1)
        assert rig.workers.all == [stays, goes]
        goes.saving = False
        rig.workers.retire_if_done(goes)
        assert rig.workers.all == [stays]


# keys


def keyed_bundle(*pairs: tuple[bytes, int]) -> Bundle:
    return Bundle([payload for payload, _ in pairs], [shard for _, shard in pairs], [])


def test_at_the_start_shards_wait_until_all_workers_are_ready() -> None:
    with rigged(keyed=True, shards=4) as rig:
        rig.workers.resize(2)
        first, second = rig.workers.all
        rig.ready(second)
        assert not rig.workers.owner
        rig.ready(first)
        assert rig.workers.open
        assert not rig.workers.moves
        assert (first.shards, second.shards) == (2, 2)


def test_a_worker_that_comes_later_gets_no_shard_before_it_is_ready() -> None:
    with rigged(keyed=True, shards=4) as rig:
        rig.workers.resize(1)
        (first,) = rig.workers.all
        rig.ready(first)
        rig.workers.resize(2)
        second = rig.workers.all[1]
        assert set(rig.workers.owner.values()) == {first}
        assert not rig.workers.moves
        rig.ready(second)
        assert {move.to for move in rig.workers.moves.values()} == {second}
        assert (first.shards, second.shards) == (2, 2)


def test_a_shard_moves_by_label_and_state_and_takes_along_what_waits() -> None:
    with rigged(keyed=True, shards=2) as rig:
        rig.workers.resize(1)
        (old,) = rig.workers.all
        rig.ready(old)
        rig.workers.put(keyed_bundle((b"a", 0), (b"b", 0)))
        rig.workers.resize(2)
        new = rig.workers.all[1]
        rig.ready(new)
        (shard,) = rig.workers.moves
        assert shard == 0
        rig.workers.put(keyed_bundle((b"c", 0), (b"d", 1)))
        assert rig.of(new).heard() == []
        assert rig.of(old).heard() == [m.Work([b"a"], [0], []), m.TakeShard(0)]
        rig.workers.done(old, done())
        assert rig.of(old).heard() == [m.Work([b"d"], [1], [])]
        assert not rig.workers.idle
        rig.workers.taken(old, m.GiveShard(0, b"state of 0"))
        assert rig.of(new).heard() == [m.GiveShard(0, b"state of 0"), m.Work([b"b"], [0], [])]
        rig.workers.done(old, done())
        rig.workers.done(new, done())
        assert rig.of(new).heard() == [m.Work([b"c"], [0], [])]
        rig.workers.done(new, done())
        assert not rig.workers.idle, "it may have brought timers"
        rig.workers.told(new, m.Timers(None, 0, loaded=True))
        assert rig.workers.idle


def test_shards_leave_a_few_at_a_time_and_are_served_until_then() -> None:
    with rigged(keyed=True, shards=8) as rig:
        rig.workers.resize(1)
        (old,) = rig.workers.all
        rig.ready(old)
        rig.workers.service_s, rig.workers.each_s = QUICK_S, 1.0  # they are heavy
        rig.workers.resize(2)
        new = rig.workers.all[1]
        rig.ready(new)
        (first,) = rig.workers.moves
        second = next(iter(old.leaving))
        assert (old.shards, new.shards, len(old.leaving)) == (4, 4, 3)
        assert rig.of(old).heard() == [m.TakeShard(first)]
        rig.workers.put(keyed_bundle((b"a", first), (b"b", second)))
        assert rig.work(old) == [b"b"]
        rig.workers.taken(old, m.GiveShard(first, None))
        assert rig.of(new).heard() == [m.GiveShard(first, None), m.Work([b"a"], [first], [])]
        assert rig.of(old).heard() == [m.TakeShard(second)]
        assert set(rig.workers.moves) == {second}
        rig.workers.put(keyed_bundle((b"c", second)))
        assert rig.of(old).heard() == []


def test_a_shard_whose_turn_has_not_come_may_stay() -> None:
    with rigged(keyed=True, shards=8) as rig:
        rig.workers.resize(1)
        (old,) = rig.workers.all
        rig.ready(old)
        rig.workers.service_s, rig.workers.each_s = QUICK_S, 1.0
        rig.workers.resize(2)
        new = rig.workers.all[1]
        rig.ready(new)
        (first,) = rig.workers.moves
        rig.workers.resize(1)
        assert not old.leaving
        assert rig.workers.moves[first].to is old
        rig.workers.taken(old, m.GiveShard(first, None))
        assert (owned_shards(rig, old), old.labels) == ([*range(8)], 0)
        assert rig.of(new).heard() == [m.Close()]


def test_a_keyed_worker_retires_when_its_shards_are_gone() -> None:
    with rigged(keyed=True, shards=2) as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        stays, goes = rig.workers.all
        assert rig.workers.owner[1] is goes
        rig.workers.put(keyed_bundle((b"a", 1)))
        rig.workers.resize(1)
        rig.workers.put(keyed_bundle((b"b", 1)))
        assert rig.workers.processors == 1
        assert goes in rig.workers.all
        rig.workers.done(goes, done())
        rig.workers.taken(goes, m.GiveShard(1, b"state"))
        assert rig.of(goes).heard() == [m.Work([b"a"], [1], []), m.TakeShard(1), m.Close()]
        assert rig.workers.all == [stays]
        assert rig.of(stays).heard()[-2:] == [m.GiveShard(1, b"state"), m.Work([b"b"], [1], [])]


def test_a_shard_of_no_key_is_refused() -> None:
    with rigged(keyed=True, shards=2) as rig:
        rig.workers.resize(1)
        rig.ready(*rig.workers.all)
        with pytest.raises(ValueError, match="zip"):
            rig.workers.put(Bundle([b"a"], [], []))


def test_workers_stay_here_until_those_elsewhere_are_ready() -> None:
    with rigged() as made:
        made.workers.resize(3)
        made.ready(*made.workers.all)
        made.workers.resize(3, {"x": 2})
        assert list(made.hired) == ["x", "x"]
        assert not any(w.retiring for w in made.workers.all)
        one = made.join()
        assert one is not None
        assert not any(w.retiring for w in made.workers.all)  # it has not said that it is ready
        made.ready(one)
        assert [w.machine for w in made.workers.all] == ["", "", "x"]


def test_who_does_not_come_for_long_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with rigged() as made:
        made.workers.resize(3)
        made.ready(*made.workers.all)
        made.workers.resize(3, {"x": 2})
        made.workers.resize(3, {"x": 2})
        assert list(made.hired) == ["x", "x"]
        monkeypatch.setattr(workers, "HIRE_S", -1.0)
        made.workers.resize(3, {"x": 2})
        assert list(made.hired) == ["x"] * 4


def test_who_comes_from_a_machine_that_is_not_wanted_any_more_is_sent_away() -> None:
    with rigged() as made:
        made.workers.resize(2, {"x": 1})
        made.workers.resize(2)
        assert made.join() is None
        made.workers.resize(2, {"x": 1})
        assert list(made.hired) == ["x"]  # it is asked for anew


class Simulation(RuleBasedStateMachine):
    """Everything that may happen to workers, in any order."""

    keyed = True
    shards = 7

    @initialize(
        workers=st.integers(1, 3),
        max_bundle=st.integers(1, 5),
        each_s=st.sampled_from([1e-5, 1.0]),
        piece=st.sampled_from([4, 20, 1000]),
    )
    def begin(self, workers: int, max_bundle: int, each_s: float, piece: int) -> None:
        self.rig = Rig(self.keyed, self.shards, max_bundle)
        self.workers = self.rig.workers
        self.workers.service_s = self.each_s = each_s
        self.piece = piece  # bytes of a shard that go at once
        self.slots: dict[int, bytes] = {}
        self.sent: Counter[int] = Counter()
        self.processed: Counter[bytes] = Counter()
        self.wanted = workers
        self.away: dict[str, int] = {}
        self.workers.resize(workers)

    @rule(workers=st.integers(1, 5), away=st.lists(st.sampled_from("xy"), max_size=4))
    def resize(self, workers: int, away: list[str]) -> None:
        """Some of them may be on other machines."""
        self.wanted, self.away = workers, dict(Counter(away[:workers]))
        self.workers.resize(workers, self.away)

    @precondition(lambda self: self.rig.hired)
    @rule()
    def let_one_join(self) -> None:
        self.rig.join()

    @precondition(lambda self: self.workers.open)
    @rule(keys=st.lists(st.integers(0, 11), min_size=1, max_size=12))
    def put(self, keys: list[int]) -> None:
        made = Bundle([], [], [])
        for key in keys:
            made.payloads.append(b"%d:%d" % (key, self.sent[key]))
            made.shards.append(key % self.shards)
            self.sent[key] += 1
        self.workers.put(made)

    @rule(number=st.integers(0, 9), steps=st.integers(1, 4))
    def let_a_worker_work(self, number: int, steps: int) -> None:
        far = list(self.rig.far.values())[number % len(self.rig.far)]
        for _ in range(steps):
            self.work(far)

    @rule(number=st.integers(0, 9))
    def let_an_answer_arrive(self, number: int) -> None:
        self.deliver(list(self.rig.far)[number % len(self.rig.far)])

    def work(self, far: Far) -> bool:
        """Do the first thing a worker was told; whether there was one."""
        far.listen()
        if not far.told:
            return False
        assert not far.closed, "told something after Close"
        match far.told.popleft():
            case m.Work(payloads, shards):
                for payload, shard in zip(payloads, shards or [-1] * len(payloads), strict=True):
                    self.process(far, payload, shard)
                far.answers.append(done(len(payloads), self.each_s))
            case m.TakeShard(shard):
                state = far.states.pop(shard, None)
                far.leaving[shard] = pickle.dumps(state) if state else b""
                far.give(shard, -1, self.piece, self.slots)
            case m.TakeMore(shard, slot):
                far.give(shard, slot, self.piece, self.slots)
            case m.GiveShard(shard, data, more) as given:
                if given.slot >= 0:
                    data = self.slots.pop(given.slot)
                assert shard not in far.states
                whole = shard not in far.coming and not more
                far.coming[shard] = far.coming.get(shard, b"") + (data or b"")
                far.answers.append(m.Timers(None, 0, loaded=True) if whole else m.Took(shard))
                if whole:
                    far.settle(shard)
            case m.Settle(shard):
                far.settle(shard)
                far.answers.append(m.Timers(None, 0, loaded=True))
            case m.Close():
                assert not far.states, "closed with state in hand"
                far.closed = True
        return True

    def process(self, far: Far, payload: bytes, shard: int) -> None:
        self.processed[payload] += 1
        assert self.processed[payload] == 1
        if self.keyed:
            key, number = map(int, payload.split(b":"))
            assert shard == key % self.shards
            # The state says how many came before: none may be missing, early, late or twice.
            state = far.states.setdefault(shard, {})
            assert state.get(key, 0) == number
            state[key] = number + 1

    def deliver(self, link: Link) -> bool:
        """Let the first answer of a worker arrive; whether there was one."""
        far = self.rig.far[link]
        worker = next((w for w in self.workers.all if w.link is link), None)
        if worker is None or not far.answers:
            return False
        match far.answers.popleft():
            case m.Timers() as timers:
                self.workers.told(worker, timers)
            case m.Ready(pid):
                self.workers.ready(worker, pid)
            case m.Done() as answer:
                self.workers.done(worker, answer)
            case m.GiveShard() as given:
                self.workers.taken(worker, given)
            case m.Took(shard):
                self.workers.took(shard)
        return True

    def settle(self) -> None:
        """Let everything under way arrive."""
        under_way = True
        while under_way:
            under_way = bool(self.rig.hired)
            while self.rig.hired:
                self.rig.join()
            for link, far in list(self.rig.far.items()):
                under_way |= self.work(far) | self.deliver(link)

    @invariant()
    def counts_are_right(self) -> None:
        given = sum(len(chunk) for w in self.workers.all for chunk in w.given)
        queued = sum(len(w.queue) for w in self.workers.all)
        held = sum(len(move.held) for move in self.workers.moves.values())
        assert self.workers.given == given
        if self.keyed:
            assert self.workers.waiting == queued + held
        else:
            assert self.workers.waiting == len(self.workers.shared)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        try:
            self.settle()
            self.check_the_end()
        finally:
            self.rig.close()

    def check_the_end(self) -> None:
        workers = self.workers
        assert workers.idle
        assert workers.processors == self.wanted
        everything = {b"%d:%d" % (k, n) for k, count in self.sent.items() for n in range(count)}
        assert set(self.processed) == everything
        staying = Counter(w.machine for w in workers.all)
        assert {machine: count for machine, count in staying.items() if machine} == self.away
        workers.resize(self.wanted, self.away)
        self.settle()
        assert len(workers.all) == self.wanted
        for link, far in self.rig.far.items():
            assert far.closed == all(worker.link is not link for worker in workers.all)
        if self.keyed:
            self.check_shards()

    def check_shards(self) -> None:
        """Every shard has one owner, who has its state and no more than its share."""
        workers = self.workers
        owned = Counter(id(worker) for worker in workers.owner.values())
        assert set(workers.owner) == set(range(self.shards))
        for worker in workers.all:
            assert worker.shards == owned[id(worker)] <= -(-self.shards // self.wanted)
            for shard in self.rig.of(worker).states:
                assert workers.owner[shard] is worker
        states: dict[int, int] = {}
        for far in self.rig.far.values():
            for state in far.states.values():
                assert not states.keys() & state.keys()
                states |= state
        assert states == dict(self.sent)


class SharedSimulation(Simulation):
    """The same without a key."""

    keyed = False


class MortalSimulation(Simulation):
    """Without a key, workers may also die, and give up nothing but what they had in hand."""

    keyed = False

    def __init__(self) -> None:
        super().__init__()
        self.guilty: Counter[bytes] = Counter()
        self.in_hand: Counter[bytes] = Counter()

    @rule(number=st.integers(0, 9))
    def let_a_worker_die(self, number: int) -> None:
        worker = self.workers.all[number % len(self.workers.all)]
        first = worker.given[0] if worker.given else []
        self.in_hand.update(payload for payload, _, _ in first)
        far = self.rig.far.pop(worker.link)
        for chunk in worker.given:  # what it did without having answered is done in vain
            for payload, _, _ in chunk:
                self.processed.pop(payload, None)
        for payload, _, _ in self.workers.lost(worker):
            self.guilty[payload] += 1
            assert self.in_hand[payload] >= 2
        worker.link.close()
        far.link.close()
        self.workers.resize(self.wanted, self.away)

    def check_the_end(self) -> None:
        assert all(count == 1 for count in self.guilty.values())
        assert not self.guilty.keys() & self.processed.keys()
        self.processed.update(self.guilty)
        super().check_the_end()


for simulation in (Simulation, SharedSimulation, MortalSimulation):
    simulation.TestCase.settings = settings(max_examples=100, stateful_step_count=50)

TestKeysKeepTheirOrderAndStateThroughMoves = Simulation.TestCase
TestASharedQueueProcessesEveryTupleOnce = SharedSimulation.TestCase
TestADeathCostsNoTupleThatWasNotInHandTwice = MortalSimulation.TestCase


def test_quick_workers_with_something_in_hand_answer_soon() -> None:
    with rigged() as rig:
        rig.workers.resize(1)
        found = [rig.workers.answer_soon]
        rig.workers.given, rig.workers.service_s = 3, 1e-6
        found.append(rig.workers.answer_soon)
        rig.workers.service_s = 0.01
        found.append(rig.workers.answer_soon)
        rig.workers.given = 0
    assert found == [False, True, False]


# shards by their load


def loaded(rig: Rig, shards: list[int], times: int, now_s: float) -> None:
    """Tuples for some shards, all of which are processed at once."""
    for _ in range(times):
        rig.workers.put(Bundle([b"x"] * len(shards), shards, []))
        while rig.workers.given:
            for worker in rig.workers.all:
                if worker.given:
                    rig.workers.done(worker, done(len(worker.given[0])))
        for far in rig.far.values():
            far.heard()
    rig.workers.look(now_s)


def owned_shards(rig: Rig, worker: Worker) -> list[int]:
    return sorted(shard for shard, owner in rig.workers.owner.items() if owner is worker)


def test_shards_that_keep_one_worker_busy_are_shared_out() -> None:
    with rigged(keyed=True, shards=8) as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        busy = owned_shards(rig, rig.workers.all[0])
        loaded(rig, busy, 100, 10.0)
        assert len(rig.workers.moves) == 2  # of four alike
        assert set(rig.workers.moves) <= set(busy)
        assert {move.to for move in rig.workers.moves.values()} == {rig.workers.all[1]}


def test_nothing_moves_while_all_are_about_equally_busy_or_little_is_known() -> None:
    with rigged(keyed=True, shards=8) as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        loaded(rig, list(range(8)), 100, 10.0)
        loaded(rig, owned_shards(rig, rig.workers.all[0])[:1], 3, 60.0)  # the others are forgotten
        assert not rig.workers.moves


def test_a_shard_that_is_busier_than_all_others_gets_a_worker_to_itself() -> None:
    with rigged(keyed=True, shards=8) as rig:
        rig.workers.resize(2)
        rig.ready(*rig.workers.all)
        busy, *rest = owned_shards(rig, rig.workers.all[0])
        loaded(rig, [busy] * 20 + rest, 20, 10.0)
        moving = {shard: move.to for shard, move in rig.workers.moves.items()}
        soon = rig.workers.owner | moving
        assert [shard for shard, worker in soon.items() if worker is soon[busy]] == [busy]
