"""Executors that have outgrown their machine are split, and idle ones merged."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sojourn.engine.driver.division import Division
from sojourn.engine.driver.regrouping import Regrouping
from sojourn.engine.wire.layout import Place
from sojourn.placement.regroup import IDLE, regrouped

EVEN = [shard % 3 for shard in range(12)]


def loads_of(*busy: float) -> dict[int, float]:
    """Four shards an executor, alike."""
    return {shard: busy[shard % 3] / 4 for shard in range(12)}


def test_an_executor_that_has_outgrown_its_machine_is_split() -> None:
    found = regrouped(EVEN, loads_of(8.0, 1.0, 0.5), [10, 2, 1], "xxy", {"x": 8, "y": 8})
    assert found is not None
    assert "executor 0 uses 10 processors, and its machine has 8" in found.reason
    assert "go to executor 2" in found.reason  # the one on another machine
    moved = [s for s in range(12) if found.table[s] != EVEN[s]]
    assert {EVEN[s] for s in moved} == {0}
    assert {found.table[s] for s in moved} == {2}
    assert 1 <= len(moved) <= 3


def test_idle_executors_are_merged() -> None:
    found = regrouped(EVEN, loads_of(2.0, 0.3, 0.1), [3, 1, 1], "xyz", None)
    assert found is not None
    assert "all shards go to executor 1" in found.reason
    assert found.table == [1 if e == 2 else e for e in EVEN]


def test_an_executor_without_shards_gets_some_once_there_is_work() -> None:
    """As after a quiet night, in which all became one."""
    found = regrouped([0] * 12, loads_of(1.0, 1.0, 1.0), [4, 0, 0], "xxx", None)
    assert found is not None
    assert "executor 0 keeps 3.00 processors busy, and executor 1 has no shards" in found.reason
    assert found.table.count(1) in (5, 6)
    assert regrouped(found.table, loads_of(0.6, 0.6, 0.6), [2, 2, 0], "xxx", None) is None


def test_all_is_left_as_it_is_if_all_is_well() -> None:
    loads = loads_of(2.0, 0.4, 0.4)
    assert regrouped(EVEN, loads, [3, 1, 1], "xxx", {"x": 8}) is None
    assert regrouped([0] * 12, loads_of(0.5, 0.4, 0.4), [9, 0, 0], "xxx", None) is None
    one_shard = {0: 20.0}
    assert regrouped([0] * 12, one_shard, [9], "x", {"x": 8}) is None
    hot = regrouped([0] * 12, one_shard, [9, 0], "xy", {"x": 8, "y": 8})
    assert hot is None or hot.table[0] == 0


@given(
    table=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    busy=st.lists(st.floats(0, 5), min_size=20, max_size=20),
    cores=st.lists(st.integers(0, 12), min_size=4, max_size=4),
    homes=st.lists(st.sampled_from("xyz"), min_size=4, max_size=4),
)
def test_every_shard_keeps_an_executor_and_only_two_of_them_change(
    table: list[int], busy: list[float], cores: list[int], homes: list[str]
) -> None:
    loads = dict(enumerate(busy[: len(table)]))
    found = regrouped(table, loads, cores, homes, {"x": 4, "y": 8})
    if found is None:
        return
    assert len(found.table) == len(table)
    assert set(found.table) <= set(range(4))
    changed = [(a, b) for a, b in zip(table, found.table, strict=True) if a != b]
    assert changed
    assert len({e for pair in changed for e in pair}) == 2
    if "all shards" in found.reason:
        gone = changed[0][0]
        assert gone not in found.table
        assert sum(n for s, n in loads.items() if found.table[s] == changed[0][1]) <= IDLE + 1e-9


def test_it_looks_now_and_then() -> None:
    asked: list[Division] = []
    table = list(EVEN)

    def divide(name: str, new: list[int]) -> Division:
        asked.append(Division(name, new))
        return asked[-1]

    places = [Place("count", n, 0, n) for n in range(3)]
    hub = SimpleNamespace(hellos=lambda: {p: SimpleNamespace(machine="x") for p in places})
    placing: Any = SimpleNamespace(
        layout=SimpleNamespace(of=lambda _name: places),
        hub=hub,
        counts={"count": [1, 1, 1]},
        room=None,
    )
    made = Regrouping(placing, {"count": 12}, lambda _name, _shards: list(table), divide, 10.0)

    def look(at_s: float, **sample: Any) -> None:
        vertices = {"count": SimpleNamespace(**sample)}
        samples: Any = SimpleNamespace(time_s=at_s, vertices=vertices)
        made.look(samples)

    busy = {"shards": dict.fromkeys(range(12), 50), "service_s": 0.01}
    for second in range(10):
        look(second, **busy)
    look(10.0, **busy)
    assert asked == [], "each keeps two processors busy"
    idle = {"shards": {0: 1, 1: 1, 2: 1}, "service_s": 0.01}
    for second in range(11, 20):
        look(second, **idle)
    assert asked == []
    look(20.0, **idle)
    assert len(asked) == 1
    look(31.0, **idle)
    assert len(asked) == 1, "the last one is not done"
    asked[0].done.set()
    table[:] = asked[0].table
    look(42.0, **idle)
    assert len(asked) == 2
    made.every_s = 0.0
    asked[1].done.set()
    look(99.0, **idle)
    assert len(asked) == 2
