"""Windows, tried on the bench: every value is in its windows, each is closed once, what is late
leaves by an output of its own, and an idle stream closes its windows too."""

from typing import Any

import pytest

import sojourn as sj
from sojourn import windows
from sojourn.engine.worker.code import OperatorCode, Shared
from sojourn.errors import InputError
from sojourn.testing import Bench


def told(key: Any, window: windows.Window, values: list[Any]) -> tuple[Any, ...]:
    return key, window.start, window.end, [at for _, at in values]


def bench(operator: sj.Operator, now: float = 1000.0) -> Bench:
    t = sj.Topology("windows")
    source = t.source("in", sj.sources.iterable(tuple))
    found = t.operator("window", operator, source, key=lambda value: value[0])
    t.sink("out", sj.sinks.call(print), found)
    t.sink("late", sj.sinks.call(print), found["late"])
    return Bench(t, now)


def by_time(value: Any) -> float:
    return float(value[1])


def test_tumbling_windows_by_arrival() -> None:
    made = bench(windows.tumbling("10s", lambda key, window, values: (key, window, len(values))))
    for seconds in (0, 4, 5, 1):  # at 1000, 1004, 1009, 1010
        made.advance(seconds)
        made.send("in", ("a", None), ("b", None))
        made.run()
    assert made.outputs["out"] == [(k, (1000.0, 1010.0), 3) for k in "ab"]
    made.advance("1min")
    assert made.outputs["out"][2:] == [(k, (1010.0, 1020.0), 1) for k in "ab"]
    assert (made.state("window"), made.timers("window")) == ({}, [])


def test_tumbling_windows_by_a_time_of_ones_own() -> None:
    made = bench(windows.tumbling(10, told, time=by_time, lateness=5))
    made.send("in", ("a", 1), ("a", 12), ("a", 9), ("a", 14))
    made.run()
    assert made.outputs["out"] == [], "the clock shows 14, and lateness is 5"
    made.send("in", ("a", 16), ("a", 8))
    made.run()
    assert made.outputs["out"] == [("a", 0, 10, [1, 9])]
    assert made.outputs["late"] == [("a", 8)]


def test_keys_have_clocks_of_their_own() -> None:
    made = bench(windows.tumbling(10, told, time=by_time))
    made.send("in", ("a", 100), ("b", 1))
    made.run()
    assert (made.outputs["out"], made.outputs["late"]) == ([], [])


def test_an_idle_stream_closes_its_windows() -> None:
    made = bench(windows.tumbling(10, told, time=by_time, lateness=5))
    made.send("in", ("a", 7))
    made.advance(7.9)
    assert made.outputs["out"] == []
    made.advance(0.2)
    assert made.outputs["out"] == [("a", 0, 10, [7])]
    made.send("in", ("a", 9), ("a", 14))
    made.advance("1h")
    assert made.outputs["late"] == [("a", 9)]
    assert made.outputs["out"][1:] == [("a", 10, 20, [14])]


def test_the_clock_stands_still_while_the_topology_is_down() -> None:
    made = bench(windows.tumbling(10, told, time=by_time, lateness=1))
    made.send("in", ("a", 7))
    made.run()
    made.restart(down="1h")
    made.run()
    assert made.outputs["out"] == []
    made.send("in", ("a", 8))
    made.advance("10s")
    assert made.outputs == {"out": [("a", 0, 10, [7, 8])], "late": []}


def test_restarts_do_not_hold_up_the_clock() -> None:
    made = bench(windows.tumbling(60, told, time=by_time))
    made.send("in", ("a", 0))
    for _ in range(3):
        made.advance("25s")
        made.restart(down="1min")
    made.run()
    assert made.outputs["out"] == [("a", 0, 60, [0])]


def test_a_worker_that_takes_over_a_shard_goes_on_with_its_clock() -> None:
    now = [1000.0]

    def worker() -> OperatorCode:
        code = windows.tumbling(60, told, time=by_time)
        return OperatorCode(
            code, "w", Shared(), key=lambda value: value[0], clock=lambda: now[0], zero_s=900.0
        )

    old = worker()
    old.process(("a", 0.0), 5)
    now[0] += 59
    new = worker()
    new.give(5, old.take(5))
    now[0] += 2
    assert new.timers is not None
    ((shard, key, start),) = new.timers.fire(9)
    assert new.on_timer(shard, key, start) == [("a", 0, 60, [0.0])]
    assert new.process(("a", 0.5), 5) == [sj.Output("late", ("a", 0.5))]


def test_a_value_is_in_all_sliding_windows_that_hold_its_time() -> None:
    made = bench(windows.sliding(10, 5, told, time=by_time))
    made.send("in", ("a", 3), ("a", 7), ("a", 12))
    made.advance("1h")
    assert made.outputs["out"] == [
        ("a", -5, 5, [3]),
        ("a", 0, 10, [3, 7]),
        ("a", 5, 15, [7, 12]),
        ("a", 10, 20, [12]),
    ]


def test_a_value_that_is_late_for_some_sliding_windows_is_in_the_others() -> None:
    made = bench(windows.sliding(10, 5, told, time=by_time))
    made.send("in", ("a", 11), ("a", 9), ("a", 4))
    made.advance("1h")
    assert made.outputs["late"] == [("a", 4)]
    assert made.outputs["out"] == [("a", 5, 15, [11, 9]), ("a", 10, 20, [11])]


def test_sessions_last_until_a_gap() -> None:
    made = bench(windows.session(10, told, time=by_time, lateness=20))
    made.send("in", ("a", 0), ("a", 5), ("a", 25), ("a", 16), ("b", 1))
    made.run()
    open_ones = {(timer.key, timer.payload) for timer in made.timers("window")}
    assert open_ones == {("a", 0.0), ("a", 16.0), ("b", 1.0)}
    made.send("in", ("a", 14))
    made.advance("1h")
    assert sorted(made.outputs["out"]) == [("a", 0, 35, [0, 5, 25, 16, 14]), ("b", 1, 11, [1])]


def test_a_late_value_may_be_in_a_session_that_is_open() -> None:
    made = bench(windows.session(10, told, time=by_time))
    made.send("in", ("a", 20), ("a", 12), ("a", 29), ("a", 1))
    made.advance("1h")
    assert made.outputs["late"] == [("a", 1)]
    assert made.outputs["out"] == [("a", 12, 39, [20, 12, 29])]


def test_count_windows() -> None:
    made = bench(windows.count(3, lambda key, values: (key, len(values), values[0][1])))
    for number in range(7):
        made.send("in", ("a", number))
    made.send("in", ("b", 0))
    made.run()
    assert made.outputs["out"] == [("a", 3, 0), ("a", 3, 3)]
    assert set(made.state("window")) == {"a", "b"}


def test_what_is_gathered_may_be_a_sum() -> None:
    made = bench(
        windows.tumbling(
            10,
            lambda key, _window, total: (key, total),
            time=by_time,
            initial=lambda: 0,
            add=lambda total, value: total + value[1],
        )
    )
    made.send("in", ("a", 1), ("a", 2), ("a", 3))
    made.advance("1h")
    assert made.outputs["out"] == [("a", 6)]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: windows.tumbling(0, told), "windows.tumbling: size must be above zero"),
        (lambda: windows.sliding(5, 10, told), "windows.sliding: size must be above zero"),
        (lambda: windows.tumbling("ten", told), "windows.tumbling: size"),
        (lambda: windows.tumbling(1, told, lateness=-1), "lateness must not be below zero"),
        (lambda: windows.session(0, told), "the gap must be above zero"),
        (lambda: windows.count(1.5, told), "windows.count: size must be a whole number"),  # type: ignore[arg-type]
        (lambda: windows.tumbling(1, 3), "tumbling: result must be a function; got 3"),  # type: ignore[arg-type]
        (lambda: windows.sliding(2, 1, told, time="at"), "sliding: time must be a function"),  # type: ignore[arg-type]
        (lambda: windows.session(1, told, merge=0), "session: merge must be a function"),  # type: ignore[arg-type]
        (lambda: windows.count(1, told, initial=0), "count: initial must be a function"),  # type: ignore[arg-type]
        (lambda: windows.tumbling(1, told, late=1), "no option 'late'; did you mean 'lateness'"),  # type: ignore[call-arg]
        (lambda: windows.sliding(2, 1, told, init=1), "sliding: .*; did you mean 'initial'"),  # type: ignore[call-arg]
        (lambda: windows.session(1, told, merg=1), "session: .*; did you mean 'merge'"),  # type: ignore[call-arg]
        (lambda: windows.count(1, max, time=1), "no option 'time'; known are initial, add"),  # type: ignore[call-arg]
    ],
)
def test_a_wrong_window_is_told(make: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        make()


def test_windows_need_a_key() -> None:
    t = sj.Topology("t")
    source = t.source("in", sj.sources.iterable(tuple))
    with pytest.raises(InputError, match="needs a key"):
        t.operator("window", windows.tumbling(1, told), source)
