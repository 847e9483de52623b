"""Shards that change hands between executors: rows follow the new table, state comes whole, and
what was saved before does not come back."""

from collections import deque
from pathlib import Path
from typing import Any

import pytest
from test_emitter import group, items, rig, route
from test_worker import Count, serving, work
from test_workers import Rig as WorkersRig
from test_workers import keyed_bundle, rigged

from sojourn.engine.driver.handover import Handover
from sojourn.engine.driver.record import Record
from sojourn.engine.executor.workers import Worker
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import Trace
from sojourn.engine.wire.layout import Place
from sojourn.engine.worker import store
from sojourn.engine.worker.code import OperatorCode, Shared
from sojourn.engine.worker.state import State


def keyed_group(*pairs: tuple[bytes, int], executor: int) -> m.Group:
    payloads, shards = [payload for payload, _ in pairs], [shard for _, shard in pairs]
    traces = [Trace(i, 100 + i, 1000 + i) for i in range(0, len(pairs), 2)]
    return m.Group(0, executor, payloads, shards, traces)


# the emitter


def test_nothing_goes_to_a_paused_vertex_and_what_waits_follows_the_new_table() -> None:
    made = rig(route("next", executors=2), route("other"))
    made.emitter.add([keyed_group((b"a", 0), executor=0)])
    made.flush()
    assert made.emitter.pause("next") == [(0, False, 1)]
    made.emitter.add([keyed_group((b"b", 0), (b"c", 2), (b"d", 0), executor=0)])
    made.emitter.add([keyed_group((b"e", 1), executor=1), group(b"x", to=1)])
    made.flush()
    assert [bundle.payloads for _, bundle in made.bundles()] == [[b"a"], [b"x"]]
    assert made.emitter.due(asked=False, more_soon=False) is None
    waiting = made.emitter.count, made.emitter.bytes
    made.emitter.divided("next", [1, 1, 0])
    assert (made.emitter.count, made.emitter.bytes) == waiting == (4, 4)
    made.emitter.add([keyed_group((b"f", 2), (b"g", 0), executor=0)])
    made.flush()
    sent = [(to, list(items(bundle))) for to, bundle in made.bundles()[2:]]
    assert sorted(sent) == [
        (0, [(b"c", 2, None), (b"f", 2, (100, 1000))]),
        (
            1,
            [
                (b"b", 0, (100, 1000)),
                (b"d", 0, (102, 1002)),
                (b"e", 1, (100, 1000)),
                (b"g", 0, None),
            ],
        ),
    ]
    assert not made.emitter.count


# workers


class Other:
    """The link of a worker that stands for another executor."""

    def __init__(self) -> None:
        self.told: list[m.ToWorker] = []

    def send(self, frame: bytes) -> None:
        self.told.append(m.decode_to_worker(frame))


def other() -> tuple[Worker, Other]:
    link: Any = Other()
    return Worker(link, deque(), away=True), link


def settled(made: WorkersRig) -> None:
    made.workers.resize(2)
    made.ready(*made.workers.all)


def test_a_shard_leaves_for_another_executor_in_pieces() -> None:
    with rigged(keyed=True, shards=4) as made:
        settled(made)
        owner, (away, link) = made.workers.owner[3], other()
        made.workers.release(3, away)
        assert made.of(owner).heard() == [m.TakeShard(3)]
        assert made.workers.travelling == 1
        made.workers.taken(owner, m.GiveShard(3, b"one", True))
        assert link.told == [m.GiveShard(3, b"one", True)]
        made.workers.took(3)
        assert made.of(owner).heard() == [m.TakeMore(3, -1)]
        made.workers.taken(owner, m.GiveShard(3, b"two"))
        assert 3 not in made.workers.owner
        assert sorted(made.workers.own_shards) == [0, 1, 2]
        assert made.workers.may_cut
        assert made.workers.idle


def test_a_shard_that_is_on_its_way_already_goes_on_to_the_other_executor() -> None:
    with rigged(keyed=True, shards=2) as made:
        made.workers.resize(1)
        (old,) = made.workers.all
        made.ready(old)
        made.workers.resize(2)
        new = made.workers.all[1]
        made.ready(new)
        (shard,) = made.workers.moves
        away, link = other()
        made.workers.release(shard, away)
        assert made.of(old).heard() == [m.TakeShard(shard)], "one label only"
        assert (old.shards, new.shards) == (1, 0)
        made.workers.taken(old, m.GiveShard(shard, b"state"))
        assert link.told == [m.GiveShard(shard, b"state")]
        assert shard not in made.workers.owner
        assert made.workers.may_cut
        made.workers.resize(1)
        assert made.workers.processors == 1


def test_what_waits_for_a_shard_stays_behind_its_label() -> None:
    with rigged(keyed=True, shards=2) as made:
        made.workers.resize(1)
        (old,) = made.workers.all
        made.ready(old)
        made.workers.put(keyed_bundle((b"a", 0), (b"b", 1), (b"c", 1)))
        away, _ = other()
        made.workers.release(1, away)
        assert made.of(old).heard() == [m.Work([b"a"], [0], []), m.TakeShard(1)]
        assert [item[0] for item in made.workers.queued()] == [b"b", b"c"]


def test_shards_are_released_a_few_at_a_time_and_what_is_late_does_not_count() -> None:
    sent: list[tuple[Place, m.ToExecutor]] = []
    giver, taker = Place("count", 0, 1, 0), Place("count", 1, 1, 1)
    said = Handover(lambda place, message: sent.append((place, message)))
    places = {("count", 0): giver, ("count", 1): taker}
    said.begin(2)
    said.heard(giver, m.Drained(1), places)
    said.heard(giver, m.Paused(1, [(0, False, 9)]), places)
    assert not said.drained
    assert not said.paused
    said.heard(giver, m.Drained(2), places)
    assert said.drained == {giver}
    said.release(giver, [(shard, 1) for shard in range(40)])
    said.release(taker, [])
    (place, first), *_ = sent
    assert place == giver
    assert isinstance(first, m.Release)
    for shard in range(40):
        assert sum(len(r.shards) for _, r in sent if isinstance(r, m.Release)) <= shard + 16
        said.heard(taker, m.Landed(shard), places)
    released = [pair for _, r in sent if isinstance(r, m.Release) for pair in r.shards]
    assert released == [(shard, 1) for shard in range(40)]
    said.heard(giver, m.Carry("count", 1, 3, b"x", True), places)
    said.heard(taker, m.Carried(3), places)
    assert [place for place, _ in sent[-2:]] == [taker, giver]


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_shard_of_another_executor_lands(pieces: int) -> None:
    with rigged(keyed=True, shards=3) as made:
        settled(made)
        away, link = other()
        for number in range(pieces):
            given = m.GiveShard(7, b"state", number + 1 < pieces, anew=True)
            made.workers.land(given, away)
            (target,) = (w for w in made.workers.all if given in made.of(w).heard())
            if pieces > 1:
                made.workers.took(7)
        if pieces > 1:
            assert made.of(target).heard() == [m.Settle(7)]
        asked = [m.TakeMore(7, -1)] * (pieces - 1)
        assert link.told == [*asked, m.Settle(7)]
        assert made.workers.owner[7] is target
        made.workers.told(target, m.Timers(None, 0, loaded=True))
        made.workers.put(keyed_bundle((b"a", 7)))
        assert made.of(target).heard() == [m.Work([b"a"], [7], [])]


def test_an_executor_without_shards_is_open() -> None:
    with rigged(keyed=True, shards=0) as made:
        before = made.workers.open
        settled(made)
        assert (before, made.workers.open) == (False, True)
        assert made.workers.may_cut


# state


def test_what_was_saved_before_a_shard_was_elsewhere_does_not_come_back(tmp_path: Path) -> None:
    here, there = (OperatorCode(Count, "count", Shared()) for _ in range(2))
    here.process("old", 3)
    here.process("kept", 3)

    def saved(code: OperatorCode, name: str) -> Path:
        code.cut(m.Save(1, str(tmp_path / name), False, False))
        finish = None
        while finish is None:
            finish = code.save_some()
        finish()
        return tmp_path / name

    first = saved(here, "first")
    there.give(3, here.take(3), anew=True)
    del there.shared.states[3]["old"]
    elsewhere = saved(there, "elsewhere")
    assert dict(store.read([elsewhere], lambda _: True)[3]) == {"kept": [1]}
    here.give(3, there.take(3), anew=True)
    here.process("new", 3)
    second = saved(here, "second")
    wanted = {"kept": [1], "new": [1]}
    assert dict(store.read([first, second], lambda _: True)[3]) == wanted
    merged = tmp_path / "merged"
    store.merge([first, second], merged, drop_deleted=False)
    assert dict(store.read([first, merged], lambda _: True)[3]) == wanted
    whole = tmp_path / "whole"
    store.merge([first, second], whole, drop_deleted=True)
    assert dict(store.read([whole], lambda _: True)[3]) == wanted


def test_a_shard_that_moves_on_before_a_commit_is_still_saved_anew() -> None:
    state = State({"a": 1})
    state.renew()
    again = State.unpacked(state.packed())
    assert again.cut() == 2
    assert again.drain(lambda: False)
    assert again.take_changes()[0] == (b"", b"", None)
    again.renew()
    assert State.unpacked(again.packed()).cut() == 2
    empty = State()
    empty.renew()
    assert empty.cut() == 1
    assert empty.take_changes() == [(b"", b"", None)]


def test_a_worker_takes_up_a_shard_of_another_executor(tmp_path: Path) -> None:
    code = OperatorCode(Count, "count", Shared())
    with serving(code) as (tell, answer):
        tell(m.GiveShard(3, b"", anew=True))
        assert isinstance(answer(), m.Timers)
        tell(work("a"))
        assert isinstance(answer(), m.Done)
        tell(m.Save(1, str(tmp_path / "1"), False, False))
        assert [type(answer()), type(answer())] == [m.Cut, m.Saved]
    with store.File(tmp_path / "1") as file:
        (block,) = file.blocks(3)
    assert block[0] == (b"", b"", None)


# the record


def test_a_record_knows_who_had_which_shard() -> None:
    parts = [
        m.Part("count", 0, state=[("count/0/a", 1)], shards=[0, 1, 3]),
        m.Part("count", 1, state=[("count/1/b", 1)], shards=[2]),
        m.Part("plain", 0),
    ]
    record = Record(3, 1, parts)
    assert record.tables({"count": 2, "plain": 1}) == {"count": [0, 0, 1, 0]}
    assert record.tables({"count": 3, "plain": 1}) == {}
    welcome = record.welcome(Path("/state"), "count", 1, 2)
    assert not welcome.anew
    assert welcome.state == [m.SavedFiles(["count/1/b"], 1, 2, [2])]
    welcome = record.welcome(Path("/state"), "count", 2, 3)
    assert welcome.anew
    assert [s for s in range(4) if welcome.state[0].count_for(s)] == [0, 1, 3]
