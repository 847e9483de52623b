"""How many machines a topology begins with, and may have; where it needs a checkpoint."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import sojourn as sj
from sojourn.engine.driver import machines as pools
from sojourn.engine.driver.engine import SparkEngine
from sojourn.engine.driver.machines import StandalonePool, first_machines
from sojourn.engine.spark.session import is_here
from sojourn.errors import InputError
from sojourn.ports import machines_within
from sojourn.settings import ControlSettings, EngineSettings


def same(value: Any) -> list[Any]:
    return [value]


@pytest.mark.parametrize(
    ("processors", "cores", "most", "machines"),
    [
        (4, 10, None, 1),
        (17, 10, None, 4),  # of five processors each
        (17, 10, 2, 2),
        (4, 2, None, 2),  # four task slots
        (17, 2, 1, 2),
    ],
)
def test_machines_to_begin_with(
    processors: int, cores: int, most: int | None, machines: int
) -> None:
    t = sj.Topology("row")
    source = t.source("in", sj.sources.iterable(lambda: range(3)))
    t.sink("out", sj.sinks.console(), t.operator("work", same, source, processors=processors))
    settings = ControlSettings(
        max_sojourn_s=1.0, machine_processors=5, machine_cores=cores, max_machines=most
    )
    assert first_machines(t, settings) == machines


def test_a_chain_begins_with_the_machines_of_its_head() -> None:
    t = sj.Topology("chained")
    stream = t.source("in", sj.sources.iterable(lambda: range(3)))
    stream = t.operator("head", same, stream, processors=2)
    for number in range(5):
        stream = t.operator(f"step{number}", same, stream, chain=True)
    t.sink("out", sj.sinks.console(), stream)
    settings = ControlSettings(max_sojourn_s=1.0, machine_processors=4, machine_cores=4)
    assert first_machines(t, settings) == 1


@pytest.mark.parametrize(
    ("asked", "least", "most", "machines"),
    [
        (5, 1, None, 5),
        (5, 1, 3, 3),
        (1, 2, None, 2),
        (1, 2, 3, 2),
        (5, 4, 3, 4),  # what the topology cannot do without counts for more
    ],
)
def test_machines_that_may_be_had(asked: int, least: int, most: int | None, machines: int) -> None:
    assert machines_within(asked, least, most) == machines


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True),
        ("local[4]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://localhosts:7077", False),
        ("spark://10.0.0.1:7077", False),
        ("local-cluster[2,1,1024]", False),
        ("yarn", False),
    ],
)
def test_which_clusters_are_on_this_machine(master: str, here: bool) -> None:
    assert is_here(master) == here


def test_a_cluster_elsewhere_needs_a_checkpoint() -> None:
    t = sj.Topology("row")
    source = t.source("in", sj.sources.iterable(lambda: range(3)))
    t.sink("out", sj.sinks.console(), t.operator("work", same, source))
    with pytest.raises(InputError, match="needs a checkpoint: a directory that all its machines"):
        SparkEngine(t, None, "spark://10.0.0.1:7077", None, EngineSettings())


class Workers:
    """A cluster without processes."""

    def __init__(self, count: int) -> None:
        self.workers: dict[str, SimpleNamespace] = {}
        for _ in range(count):
            self.add(8)

    def add(self, cores: int) -> str:
        name = f"worker-{len(self.workers)}"
        self.workers[name] = SimpleNamespace(silent=False, cores=cores, temporary=f"/{name}")
        return name

    def remove(self, name: str) -> None:
        del self.workers[name]


class Started:
    """A topology that starts anew on all machines that are up, and its outposts."""

    def __init__(self, cluster: Workers) -> None:
        self.starts, self.spark = 1, None
        self.layout = SimpleNamespace(slots=6)
        self.cluster, self.outposts = cluster, self
        self.is_up = True
        self.hub = SimpleNamespace(complete=lambda: self.is_up, hellos=self.hellos)
        self.machines: set[str] = set()
        self.homes = list(cluster.workers)
        self.clock = self.homes[0]
        self.names = {name: f"host:/{name}/1" for name in ("worker-0", "worker-1")}

    def running_on(self) -> set[str]:
        return {*self.homes, self.clock}

    def await_up(self, _timeout_s: float) -> None:
        self.is_up = True

    def hellos(self) -> dict[str, SimpleNamespace]:
        return {
            name: SimpleNamespace(machine=f"host:/{name}/1", spark_executor=name)
            for name in self.homes
        }

    def start(self, count: int) -> None:
        free = [name for name in self.cluster.workers if name not in self.homes]
        for name in free[:count]:
            self.machines.add(f"host:/{name}/1")

    def end(self, machines: list[str]) -> None:
        self.machines -= set(machines)

    def make_room(self, processors: int) -> None:
        """There is."""

    def relocate(self, action: Callable[[], None]) -> float:
        action()
        self.starts += 1
        self.homes = [name for name, one in self.cluster.workers.items() if not one.silent]
        return 2.5


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> StandalonePool:
    """One machine of at most three."""
    monkeypatch.setattr(pools, "await_slots", lambda _engine, _slots: None)
    cluster: Any = Workers(1)
    engine: Any = Started(cluster)
    return StandalonePool(cluster, engine, processors=4, cores=8, most=3)


def test_a_machine_that_is_up_is_in_use_once_it_has_an_outpost(pool: StandalonePool) -> None:
    assert pool.start(2) == "worker-1 came up"
    assert (pool.machines(), pool.spare()) == (["worker-0"], ["worker-1"])
    assert pool.use(2) == "added worker-1"
    assert (pool.machines(), pool.spare()) == (["worker-0", "worker-1"], [])
    assert pool.use(1) == "gave back worker-1"
    assert pool.machines() == ["worker-0"]
    assert pool.engine.starts == 1


def test_all_slots_of_a_machine_are_awaited(
    pool: StandalonePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has one more than cores, so those of machines that are there do not do for a new one."""
    asked: list[int] = []
    monkeypatch.setattr(pools, "await_slots", lambda _engine, slots: asked.append(slots))
    pool.start(2)
    cluster: Any = pool.cluster
    assert (asked, cluster.workers["worker-1"].cores) == ([18], 9)


def test_a_machine_that_is_just_being_removed_is_no_machine(pool: StandalonePool) -> None:
    pool.start(2)
    pool.use(2)
    names = pool.up()
    pool.cluster.remove("worker-1")
    assert [pool.is_home(name) for name in names] == [True, False]
    assert [pool.outpost(name) for name in names] == [None, None]


def test_a_machine_that_executors_are_on_is_left_by_a_new_start(pool: StandalonePool) -> None:
    pool.start(2)
    pool.engine.relocate(lambda: None)  # as after a failure: Spark uses all that are up
    assert pool.machines() == ["worker-0", "worker-1"]
    assert pool.use(1) == "gave back worker-1; tuples waited 2.5 s"
    assert pool.machines() == ["worker-0"]


def test_no_machine_goes_while_executors_start_anew_perhaps_there(pool: StandalonePool) -> None:
    pool.start(2)
    pool.use(2)
    started: Any = pool.engine
    started.is_up = False
    started.machines, started.homes = {"host:/worker-0/1"}, ["worker-1"]  # so it will be
    started.clock = "worker-1"
    assert pool.use(1) == "gave back worker-0"
    assert pool.machines() == ["worker-1"]


@pytest.mark.parametrize(("clock", "moves"), [("worker-0", 0), ("worker-1", 1), ("unknown", 1)])
def test_a_machine_that_may_have_other_tasks_of_the_query_is_left_by_a_new_start(
    clock: str, moves: int, pool: StandalonePool
) -> None:
    pool.start(2)
    pool.use(2)
    started: Any = pool.engine
    started.clock = clock
    assert pool.machines() == ["worker-0", "worker-1"]
    assert pool.use(1).startswith("gave back worker-1")
    assert started.starts == 1 + moves


def test_an_outpost_that_does_not_come_is_a_refusal(
    pool: StandalonePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool.engine, "start", lambda _count: None)
    pool.start(2)
    assert pool.use(2).startswith("refused")
    assert pool.machines() == ["worker-0"]


def test_a_spare_machine_goes_without_a_move(pool: StandalonePool) -> None:
    pool.start(3)
    assert pool.use(1) == "gave back worker-1, worker-2"
    assert pool.engine.starts == 1
    assert pool.spare() == []


def test_a_restart_uses_all_machines_that_are_up(pool: StandalonePool) -> None:
    pool.start(2)
    pool.cluster.workers["worker-0"].silent = True
    assert pool.machines() == []
    pool.engine.relocate(lambda: None)  # as after the failure that this was
    assert (pool.machines(), pool.spare()) == (["worker-1"], [])


def test_no_more_machines_than_allowed_and_no_fewer_than_needed(pool: StandalonePool) -> None:
    pool.start(9)
    assert len(pool.spare()) == 2
    assert "no more are possible" in pool.start(9)
    pool.use(9)
    assert "neither more nor fewer" in pool.use(9)
    pool.use(0)
    assert pool.machines() == ["worker-0"]
