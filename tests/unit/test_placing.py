"""Where workers go: who may be elsewhere, and whose machines others may use."""

import itertools
from types import SimpleNamespace
from typing import Any

from sojourn.engine.driver.division import Division
from sojourn.engine.driver.placing import Placing
from sojourn.engine.driver.repartitioning import Repartitioning
from sojourn.engine.wire.layout import Place
from sojourn.placement.assignment import PHI
from sojourn.ports import Part
from sojourn.shards import shares, shares_by_load


class FakeHub:
    """Executors and their machines, and the machines with an outpost."""

    def __init__(self, homes: dict[str, str], outposts: set[str]) -> None:
        self.homes, self.outposts = homes, outposts
        self.told: dict[str, tuple[int, dict[str, int]]] = {}
        self.counts: dict[int, int] = {}
        self.parts: dict[tuple[str, int], Part] = {}

    def hellos(self) -> dict[Place, Any]:
        return {
            Place(name, 0, 0, 0): SimpleNamespace(machine=home) for name, home in self.homes.items()
        }

    def resize(self, place: Place, count: int, away: dict[str, int]) -> None:
        self.told[place.vertex] = count, away
        self.counts[place.executor] = count


def placing(hub: FakeHub, room: dict[str, int] | None, fixed: frozenset[str] = frozenset()) -> Any:
    layout: Any = SimpleNamespace(of=lambda name: [Place(name, 0, 0, 0)])
    movable = {name: name not in fixed for name in hub.homes}
    made: Any = Placing(layout, hub, movable, room=room)  # type: ignore[arg-type]
    return made


def by_name(made: Any) -> dict[str, dict[str, int]]:
    return {place.vertex: of for place, of in made.has.items()}


def test_without_room_all_are_at_home() -> None:
    hub = FakeHub({"a": "x", "b": "y"}, {"x", "y"})
    placing(hub, None).place({"a": 5, "b": 7})
    assert hub.told == {"a": (5, {}), "b": (7, {})}


def test_what_home_has_no_room_for_goes_where_there_is_some() -> None:
    hub = FakeHub({"a": "x", "b": "x"}, {"x", "y"})
    made = placing(hub, {"x": 4, "y": 4})
    made.place({"a": 3, "b": 4})
    used = [sum(of.get(machine, 0) for of in made.has.values()) for machine in ("x", "y")]
    assert used == [4, 3]
    assert sum(sum(away.values()) for _, away in hub.told.values()) == 3


def test_nobody_is_sent_to_a_machine_without_an_outpost() -> None:
    hub = FakeHub({"a": "x", "b": "y"}, {"x"})
    made = placing(hub, {"x": 4, "y": 4})
    made.place({"a": 4, "b": 2})
    assert hub.told == {"a": (4, {}), "b": (2, {})}
    made.place({"a": 6, "b": 2})  # nobody has room for two of them but their own machine
    assert hub.told["a"] == (6, {})


def test_executors_of_a_machine_without_an_outpost_share_it_and_use_others() -> None:
    hub = FakeHub({"a": "x", "b": "x"}, {"y"})
    made = placing(hub, {"x": 4, "y": 4})
    made.place({"a": 3, "b": 4})
    assert {name: of["x"] for name, of in by_name(made).items()} == {"a": 2, "b": 2}
    assert hub.told == {"a": (3, {"y": 1}), "b": (4, {"y": 2})}


def test_what_cannot_be_elsewhere_stays() -> None:
    hub = FakeHub({"a": "x", "b": "x"}, {"x", "y"})
    made = placing(hub, {"x": 4, "y": 4}, frozenset({"a"}))
    made.place({"a": 3, "b": 3})
    assert hub.told == {"a": (3, {}), "b": (3, {"y": 2})}


def test_workers_stay_where_they_are_if_nothing_changes_for_them() -> None:
    hub = FakeHub({"a": "x", "b": "x"}, {"x", "y", "z"})
    made = placing(hub, {"x": 4, "y": 4, "z": 4})
    made.place({"a": 4, "b": 4})
    before = dict(hub.told)
    made.place({"a": 4, "b": 6})
    assert hub.told["a"] == before["a"]
    for machine, count in before["b"][1].items():
        assert hub.told["b"][1][machine] >= count


def test_executors_get_processors_by_what_they_have_to_do() -> None:
    hub = FakeHub({"a": "x"}, set())
    layout: Any = SimpleNamespace(of=lambda name: [Place(name, n, 0, 0) for n in range(4)])
    made = Placing(layout, hub, {"a": True}, {"a": 64})  # type: ignore[arg-type]

    def seen(*loads: float) -> dict[int, int]:
        hub.parts = {("a", n): Part(n, 1, 1000, load) for n, load in enumerate(loads)}
        made.look({"a": 12})
        return dict(hub.counts)

    assert seen(1.0, 1.1, 0.9, 1.0) == {}  # as good as even
    assert seen(6.0, 1.0, 1.0, 1.0) != {}
    for _ in range(20):
        found = seen(6.0, 1.0, 1.0, 1.0)
    assert found == {0: 5, 1: 3, 2: 2, 3: 2}  # 1.2 times as busy as can be
    hub.counts = {}
    assert seen(6.0, 1.0, 1.0, 1.0) == {}
    made.place({"a": 40})
    assert max(hub.counts.values()) == 16  # no more than it has shards


def test_workers_come_home_when_their_executor_comes_to_exchange_much_data() -> None:
    hub = FakeHub({"a": "x", "b": "x"}, {"x", "y"})
    made = placing(hub, {"x": 4, "y": 4})
    made.place({"a": 3, "b": 4})
    (far,) = [name for name, (_, away) in hub.told.items() if away][:1]
    hub.told.clear()
    hub.parts = {(far, 0): Part(0, 4, 1000, 1.0, bytes_in=4 * PHI / 2)}
    made.look({"a": 3, "b": 4})
    assert not hub.told
    hub.parts = {(far, 0): Part(0, 4, 1000, 1.0, bytes_in=4 * 2 * PHI)}
    made.look({"a": 3, "b": 4})
    assert hub.told[far][1] == {}
    hub.told.clear()
    made.look({"a": 3, "b": 4})
    assert not hub.told, "once is enough"


def two_executors() -> tuple[Placing, FakeHub]:
    hub = FakeHub({"a": "x"}, set())
    layout: Any = SimpleNamespace(of=lambda name: [Place(name, n, 0, 0) for n in range(2)])
    return Placing(layout, hub, {"a": True}), hub  # type: ignore[arg-type]


def test_a_hot_shard_gets_its_executor_no_processors_that_cannot_help() -> None:
    made, hub = two_executors()
    hub.parts = {("a", 0): Part(0, 1, 1000, 1.6, hottest=0.6), ("a", 1): Part(1, 1, 900, 0.8)}
    made.look({"a": 8})
    made.place({"a": 8})
    assert hub.counts == {0: 5, 1: 3}
    hub.parts["a", 0] = Part(0, 1, 1000, 0.9, hottest=0.95)
    for _ in range(20):
        made.look({"a": 8})
    made.place({"a": 8})
    assert hub.counts[0] < 5


def test_a_split_that_was_asked_for_stays() -> None:
    made, hub = two_executors()
    made.given["a"] = [1, 7]
    made.place({"a": 8})
    hub.parts = {("a", 0): Part(0, 1, 1000, 6.0), ("a", 1): Part(1, 7, 1000, 0.1)}
    for _ in range(5):
        made.look({"a": 8})
    assert hub.counts == {0: 1, 1: 7}


class Divided:
    """An operator of four executors whose shards are divided as asked."""

    def __init__(self, paradigm: str = "resource-centric") -> None:
        self.hub = FakeHub({"a": "x"}, set())
        self.now = [shard % 4 for shard in range(16)]
        self.asked: list[Division] = []
        layout: Any = SimpleNamespace(of=lambda name: [Place(name, n, 0, 0) for n in range(4)])
        self.placing = Repartitioning(
            layout,
            self.hub,  # type: ignore[arg-type]
            {"a": True},
            shards={"a": 16},
            table=lambda _name, _shards: list(self.now),
            divide=self.divide,
            frozen=paradigm == "static",
        )

    def divide(self, name: str, table: list[int]) -> Division:
        self.asked.append(Division(name, table))
        return self.asked[-1]

    def finish(self) -> list[int]:
        division = self.asked[-1]
        self.now = division.table
        division.done.set()
        return self.now

    def look(self, wanted: int, shards: dict[int, int], at_s: float) -> None:
        sample: Any = SimpleNamespace(shards=shards, busy=0.5, processors=wanted)
        samples: Any = SimpleNamespace(time_s=at_s, vertices={"a": sample})
        self.placing.look({"a": wanted}, samples)


def test_shards_follow_the_number_of_processors_where_each_executor_has_one() -> None:
    made = Divided()
    made.placing.place({"a": 4})
    assert made.hub.counts == dict.fromkeys(range(4), 1)
    assert made.asked == []
    made.placing.place({"a": 2})
    made.placing.place({"a": 2})  # it is under way
    assert len(made.asked) == 1
    assert sorted(made.finish()) == [0] * 8 + [1] * 8
    made.placing.place({"a": 3})
    found = made.finish()
    assert sorted(set(found)) == [0, 1, 2]
    assert min(found.count(executor) for executor in range(3)) >= 5


def test_shards_are_divided_anew_where_executors_are_unequally_busy() -> None:
    made = Divided()
    even = dict.fromkeys(range(16), 500)
    loads = {**even, 0: 1500, 4: 1500}
    for second in range(1, 11):  # rows come one by one, so a few seconds tell little
        made.look(4, loads, float(second))
    assert made.asked == []
    for second in range(11, 15):
        made.look(4, loads, float(second))
    assert len(made.asked) == 1
    made.finish()
    for second in range(15, 60):  # balanced, it stays
        made.look(4, loads, float(second))
    assert len(made.asked) == 1
    busy = [sum(n for s, n in loads.items() if made.now[s] == e) for e in range(4)]
    assert max(busy) <= 1.25 * sum(busy) / 4


def test_executors_are_compared_again_only_when_a_division_has_settled() -> None:
    made = Divided()
    even = dict.fromkeys(range(16), 500)
    asked: list[int] = []
    for second in range(1, 61):
        first = 4 * (second // 3 % 4)  # another shard is busy all the time
        made.look(4, {**even, first: 9000}, float(second))
        if len(made.asked) > len(asked):
            asked.append(second)
            made.finish()
    assert asked
    assert min(after - before for before, after in itertools.pairwise([1, *asked])) >= 10


def test_what_was_asked_for_before_the_first_samples_settles_too() -> None:
    made = Divided()
    made.placing.place({"a": 3})
    made.finish()
    loads = {**dict.fromkeys(range(16), 500), 0: 9000}
    for second in range(10):  # times are those of a clock
        made.look(3, loads, 1e9 + second)
    assert len(made.asked) == 1
    for second in range(10, 13):
        made.look(3, loads, 1e9 + second)
    assert len(made.asked) == 2


def test_few_tuples_are_no_reason_to_divide_shards_anew() -> None:
    made = Divided()
    for second in range(1, 30):
        made.look(4, {0: 5, 4: 5}, float(second))  # the first executor has all
    assert made.asked == []


def test_where_nothing_changes_nothing_does() -> None:
    made = Divided("static")
    made.placing.place({"a": 2})
    other = Divided()
    for second in range(1, 40):
        for one in (made, other):
            one.look(4, {0: 5000, 1: 100, 4: 5000}, float(second))
    assert made.asked == []
    assert other.asked


def test_processors_by_load() -> None:
    assert shares_by_load(7, [1.0, 1.0, 1.0]) == shares(7, 3) == [3, 2, 2]
    assert shares_by_load(8, [5.0, 1.0, 0.0]) == [6, 1, 1]
    assert shares_by_load(8, [5.0, 1.0, 0.5], 3) == [3, 3, 2]
