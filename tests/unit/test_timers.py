"""Timers and keys that are forgotten: by the clock, saved and moved with their shard, undone with
the tuple that fails, and each fired once."""

from pathlib import Path
from typing import Any

import pytest
from test_worker import serving

import sojourn as sj
from sojourn.engine.wire import messages as m
from sojourn.engine.worker import store, values
from sojourn.engine.worker.code import OperatorCode, Shared
from sojourn.errors import InputError


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Alarm(sj.Operator):
    """Takes (key, command, argument)."""

    def process(self, value: Any) -> list[Any]:
        key, command, argument = value
        self.state[key] = command
        if command == "after":
            self.timers.after(*argument)
        elif command == "at":
            self.timers.at(*argument)
        elif command == "cancel":
            return [self.timers.cancel(argument)]
        elif command == "fail":
            self.timers.after(1, "never")
            raise ValueError(key)
        return []

    def on_timer(self, key: Any, payload: Any) -> list[Any]:
        if payload == "bad":
            self.state[key] = "touched"
            raise ValueError(payload)
        if payload == "again":
            self.timers.after(5, "again")
        return [(key, payload, self.state.get(key))]


def alarm(clock: Clock, **options: Any) -> OperatorCode:
    def key(value: Any) -> Any:
        return value[0]

    return OperatorCode(Alarm, "alarm", Shared(), key=key, clock=clock, **options)


def fired(code: OperatorCode, most: int = 100) -> list[Any]:
    assert code.timers is not None
    found: list[Any] = []
    for shard, key, payload in code.timers.fire(most):
        found += code.on_timer(shard, key, payload)
    return found


def pending(code: OperatorCode) -> int:
    assert code.timers is not None
    return code.timers.pending


def test_timers_fire_in_order_when_they_are_due_and_once() -> None:
    clock = Clock()
    code = alarm(clock)
    code.process(("a", "after", (10, "late")), 3)
    code.process(("b", "after", ("5s", "soon")), 4)
    code.process(("a", "at", (1007.0, None)), 3)
    assert (pending(code), fired(code)) == (3, [])
    assert code.timers is not None
    assert code.timers.due_s == 1005.0
    clock.now = 1008.0
    assert fired(code) == [("b", "soon", "after"), ("a", None, "at")]
    clock.now = 2000.0
    assert (fired(code), fired(code), pending(code)) == ([("a", "late", "at")], [], 0)


def test_a_timer_is_replaced_or_cancelled_by_its_payload() -> None:
    clock = Clock()
    code = alarm(clock)
    for seconds in (10, 20):
        code.process(("a", "after", (seconds, "x")), 3)
    code.process(("a", "after", (20, "y")), 3)
    code.process(("b", "after", (20, "y")), 3)
    assert code.process(("a", "cancel", "y"), 3) == [True]
    assert code.process(("a", "cancel", "y"), 3) == [False]
    clock.now = 1015.0
    assert (fired(code), pending(code)) == ([], 2)
    clock.now = 1020.0
    assert [found[:2] for found in fired(code)] == [("a", "x"), ("b", "y")]


def test_a_timer_may_set_the_next() -> None:
    clock = Clock()
    code = alarm(clock)
    code.process(("a", "after", (5, "again")), 3)
    for _ in range(3):
        clock.now += 5
        assert [found[:2] for found in fired(code)] == [("a", "again")]
        assert pending(code) == 1


def test_only_so_many_fire_at_once() -> None:
    clock = Clock()
    code = alarm(clock)
    for number in range(5):
        code.process((number, "after", (1, None)), 3)
    clock.now += 1
    assert (len(fired(code, 3)), pending(code), len(fired(code, 3))) == (3, 2, 2)


@pytest.mark.parametrize(
    ("command", "argument", "told"),
    [
        ("after", ("soon",), "timers.after"),
        ("at", ("noon",), "time.time"),
        ("at", (float("nan"),), "time.time"),
        ("at", (float("inf"),), "time.time"),
        ("at", (10**400,), "time.time"),
        ("at", (True,), "time.time"),
        ("after", (1, ["list"]), "must be hashable"),
        ("cancel", ["list"], "must be hashable"),
    ],
)
def test_a_wrong_timer_is_told(command: str, argument: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        alarm(Clock()).process(("a", command, argument), 3)


def saved(code: OperatorCode, path: Path) -> m.Load:
    code.cut(m.Save(1, str(path), hold=False, last=False))
    while (done := code.save_some()) is None:
        pass
    done()
    return m.Load([m.SavedFiles([str(path)], 0, 1)], [3, 4], anew=False)


def test_timers_are_saved_with_their_shard(tmp_path: Path) -> None:
    clock = Clock()
    code = alarm(clock)
    code.process(("a", "after", (10, "x")), 3)
    code.process(("b", "after", (20, "x")), 4)
    code.process(("c", "after", (20, "x")), 4)
    code.process(("c", "cancel", "x"), 4)
    load = saved(code, tmp_path / "first")
    clock.now += 15
    assert len(fired(code)) == 1, "after the cut"
    again = alarm(clock)
    again.load(load)
    assert (pending(again), [found[:2] for found in fired(again)]) == (2, [("a", "x")])
    clock.now += 15
    assert [found[:2] for found in fired(again)] == [("b", "x")]
    more = saved(again, tmp_path / "second")
    last = alarm(clock)
    last.load(
        m.Load([m.SavedFiles([*load.saved[0].files, *more.saved[0].files], 0, 1)], [3], False)
    )
    assert (pending(last), dict(last.shared.states[3])) == (0, {"a": "after"})


def test_timers_move_with_their_shard() -> None:
    clock = Clock()
    old, new = alarm(clock), alarm(clock)
    old.process(("a", "after", (10, "x")), 3)
    old.process(("b", "after", (10, "x")), 4)
    new.give(3, old.take(3))
    assert (pending(old), pending(new)) == (1, 1)
    clock.now += 10
    assert [found[0] for found in fired(old)] == ["b"]
    assert fired(new) == [("a", "x", "after")]


def test_threads_hand_timers_over_too() -> None:
    clock, shared = Clock(), Shared(in_threads=True)
    old, new = (
        OperatorCode(Alarm, "alarm", shared, key=lambda v: v[0], clock=clock) for _ in range(2)
    )
    old.process(("a", "after", (10, "x")), 3)
    new.give(3, old.take(3))
    clock.now += 10
    assert (fired(old), [found[0] for found in fired(new)]) == ([], ["a"])


def test_a_tuple_that_fails_sets_no_timer() -> None:
    clock = Clock()
    code = alarm(clock, keep_going=True)
    code.process(("a", "after", (10, "x")), 3)
    with pytest.raises(ValueError, match="a"):
        code.process(("a", "fail", None), 3)
    code.undo()
    assert pending(code) == 1
    clock.now += 10
    assert fired(code) == [("a", "x", "after")]


def test_a_timer_that_fails_changes_nothing_and_is_not_fired_again() -> None:
    code = alarm(Clock(), keep_going=True)
    code.process(("a", "at", (5.0, "bad")), 3)
    code.process(("a", "at", (6.0, "good")), 3)
    with serving(code, keep_going=True) as (tell, answer):
        tell(m.Work([], [], []))
        done = answer()
        assert isinstance(done, m.Done)
        assert [letter.shown for letter in done.failed] == ["timer 'bad' of key 'a'"]
        assert (done.served, done.timers, done.due_s) == (0, 0, None)
    assert dict(code.shared.states[3]) == {"a": "at"}


def test_a_worker_tells_when_to_fire(tmp_path: Path) -> None:
    clock = Clock()
    code = alarm(clock)
    code.process(("a", "after", (10, "x")), 3)
    load = saved(code, tmp_path / "file")
    with serving(alarm(clock)) as (tell, answer):
        tell(load)
        assert answer() == m.Timers(1010.0, 1, loaded=True)
        tell(m.Work([values.dumps(("b", "after", (5, "y")))], [3], []))
        done = answer()
        assert isinstance(done, m.Done)
        assert (done.due_s, done.timers) == (1005.0, 2)
        tell(m.TakeShard(3))
        timers = m.Timers(1005.0, 0, loaded=False)
        given, told = sorted(
            (answer(), answer()), key=lambda message: isinstance(message, m.Timers)
        )
        assert told == timers
        assert isinstance(given, m.GiveShard)
        state, beside = values.loads(given.state or b"")
        assert set(state.data) == {"a", "b"}
        assert len(beside.data) == 2


def test_timers_that_are_set_again_and_again_take_no_more_room() -> None:
    clock = Clock()
    code = alarm(clock)
    for number in range(10_000):
        code.process((number % 10, "after", (10, "x")), 3)
    assert code.timers is not None
    assert code.timers.kept < 3000
    clock.now += 10
    assert len(fired(code)) == 10


class Seen(sj.Operator):
    def process(self, key: str) -> None:
        self.state[key] = self.state.get(key, 0) + 1


def test_keys_of_which_nothing_comes_are_forgotten(tmp_path: Path) -> None:
    clock = Clock()

    def made() -> OperatorCode:
        return OperatorCode(Seen, "seen", Shared(), key=lambda k: k, ttl_s=80.0, clock=clock)

    code = made()
    for key in "ab":
        code.process(key, 3)
    clock.now += 50
    code.process("b", 3)
    assert (pending(code), fired(code)) == (0, [])
    clock.now += 45
    assert fired(code) == []
    assert dict(code.shared.states[3]) == {"b": 2}
    again = made()
    again.load(saved(code, tmp_path / "file"))
    clock.now += 50
    assert fired(again) == []
    assert dict(again.shared.states[3]) == {}
    assert set(store.read([tmp_path / "file"], lambda _: True)) == {3, ~3}


def test_another_ttl_after_a_restart_goes_by_when_keys_were_seen(tmp_path: Path) -> None:
    clock = Clock()

    def made(ttl_s: float) -> OperatorCode:
        return OperatorCode(Seen, "seen", Shared(), key=lambda k: k, ttl_s=ttl_s, clock=clock)

    first, again = made(800.0), made(80.0)
    first.process("a", 3)
    again.load(saved(first, tmp_path / "file"))
    fired(again)
    assert dict(again.shared.states[3]) == {"a": 1}
    clock.now += 100
    fired(again)
    assert dict(again.shared.states[3]) == {}


def test_a_key_is_not_forgotten_while_it_has_timers() -> None:
    clock = Clock()
    code = alarm(clock, ttl_s=80.0)
    code.process(("a", "after", (500, "x")), 3)
    clock.now += 400
    assert fired(code) == []
    assert dict(code.shared.states[3]) == {"a": "after"}
    clock.now += 100
    assert fired(code) == [("a", "x", "after")]
    clock.now += 200
    assert fired(code) == []
    assert dict(code.shared.states[3]) == {}, "a timer is no tuple"


def test_a_timer_that_a_failed_tuple_has_moved_fires_as_before() -> None:
    clock = Clock()
    code = alarm(clock, keep_going=True)
    code.process(("a", "after", (10, "never")), 3)
    for number in range(3000):
        code.process((number % 5, "after", (100, "x")), 3)
        with pytest.raises(ValueError, match="a"):
            code.process(("a", "fail", None), 3)  # sets "never" to a second from now
        code.undo()
    assert pending(code) == 6
    clock.now += 10
    assert [found[:2] for found in fired(code)] == [("a", "never")]


def test_timers_need_a_tuple_in_hand() -> None:
    code = alarm(Clock())
    assert code.timers is not None
    with pytest.raises(InputError, match="set them in process or on_timer"):
        code.timers.after(1)


class Tick(sj.Operator):
    def process(self, value: float) -> None:
        self.timers.after(value)

    def on_timer(self, key: Any, payload: Any) -> None: ...


def test_a_ttl_needs_a_key_and_timers_do() -> None:
    t = sj.Topology("t")
    source = t.source("n", sj.sources.iterable(lambda: range(3)))
    words = t.source("w", sj.sources.iterable(lambda: ["a"]))
    with pytest.raises(InputError, match="operator 'seen': ttl must be above zero and needs key"):
        t.operator("seen", lambda v: [v], source, ttl="1h")
    with pytest.raises(InputError, match="ttl must be above zero"):
        t.operator("seen", Seen, words, key=lambda v: v, ttl=0)
    with pytest.raises(InputError, match=r"'tick': Tick has on_timer, so it needs .* a key"):
        t.operator("tick", Tick, source)
    t.operator("seen", Seen, words, key=lambda v: v, ttl="1h")
    assert t.operators["seen"].ttl_s == 3600
