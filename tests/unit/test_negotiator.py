"""The negotiator, told tick by tick what is needed: when it asks, when the topology moves, and what
a refusal or a loss changes."""

from collections.abc import Callable

import pytest

from sojourn.control.negotiator import Job, Negotiator

QUIET_S = 20.0


class Done:
    """Something that took no time."""

    def is_alive(self) -> bool:
        return False

    def join(self) -> None:
        """It is over."""


class Slow(Done):
    """Something that is over when it is said to be."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action, self.alive = action, True

    def is_alive(self) -> bool:
        return self.alive

    def finish(self) -> None:
        self.action()
        self.alive = False


def at_once(action: Callable[[], None], *, starts: bool) -> Job:  # noqa: ARG001
    action()
    return Done()


class Pool:
    """Machines of four processors, up to a quota; a move takes three seconds."""

    processors_per_machine = 4
    pause_s = 3.0

    def __init__(self, used: int = 1, quota: int = 9) -> None:
        self.used, self.ready, self.quota = used, 0, quota
        self.asked: list[str] = []

    def machines(self) -> list[str]:
        return ["used"] * self.used

    def spare(self) -> list[str]:
        return ["spare"] * self.ready

    def start(self, machines: int) -> str:
        self.asked.append(f"start {machines}")
        self.ready = max(self.ready, min(machines, self.quota) - self.used)
        return "told"

    def use(self, machines: int) -> str:
        self.asked.append(f"use {machines}")
        self.used, self.ready = min(machines, self.used + self.ready), 0
        return "told"

    def lose(self, machines: int) -> None:
        self.used -= machines


def told(negotiator: Negotiator, from_s: int, to_s: int, processors: int | None) -> None:
    """The same need at a tick a second."""
    for now_s in range(from_s, to_s):
        negotiator.want(processors, float(now_s), QUIET_S)


def test_a_machine_is_asked_for_at_once_and_used_if_the_need_lasts() -> None:
    pool = Pool()
    negotiator = Negotiator(pool, at_once)
    told(negotiator, 0, 1, 5)
    assert pool.asked == ["start 2"]
    told(negotiator, 1, 3, 5)
    assert pool.asked == ["start 2"]
    assert negotiator.capacity == 4
    told(negotiator, 3, 4, 5)
    assert pool.asked == ["start 2", "use 2"]
    assert negotiator.capacity == 8


def test_a_need_that_is_gone_moves_nothing_and_the_machine_is_given_back() -> None:
    pool = Pool()
    negotiator = Negotiator(pool, at_once)
    told(negotiator, 0, 2, 5)
    told(negotiator, 2, 21, 4)
    assert (pool.asked, pool.ready) == (["start 2"], 1)
    told(negotiator, 21, 23, 4)
    assert (pool.asked, pool.ready, pool.used) == (["start 2", "use 1"], 0, 1)


@pytest.mark.parametrize(("without", "asked"), [(2, ["start 2", "use 2"]), (3, ["start 2"])])
def test_a_need_that_is_back_soon_is_the_same_need(without: int, asked: list[str]) -> None:
    pool = Pool()
    negotiator = Negotiator(pool, at_once)
    told(negotiator, 0, 2, 5)
    told(negotiator, 2, 2 + without, 4)
    told(negotiator, 2 + without, 3 + without, 5)
    assert pool.asked == asked


def test_a_need_that_went_away_while_the_machine_started_does_not_count() -> None:
    pool, jobs = Pool(), list[Slow]()

    def later(action: Callable[[], None], *, starts: bool) -> Job:  # noqa: ARG001
        jobs.append(Slow(action))
        return jobs[-1]

    negotiator = Negotiator(pool, later)
    told(negotiator, 0, 2, 5)
    told(negotiator, 2, 10, 4)
    jobs[0].finish()
    told(negotiator, 10, 13, 5)
    assert (pool.asked, len(jobs)) == (["start 2"], 1)
    told(negotiator, 13, 14, 5)
    assert len(jobs) == 2


def test_nothing_moves_while_nothing_is_known() -> None:
    pool = Pool()
    negotiator = Negotiator(pool, at_once)
    told(negotiator, 0, 1, 5)
    told(negotiator, 1, 100, None)
    assert pool.asked == ["start 2"]


def test_a_machine_in_use_is_kept_for_longer_than_its_move_cost() -> None:
    pool = Pool(used=2)
    pool.pause_s = 8.0
    negotiator = Negotiator(pool, at_once)
    told(negotiator, 0, 40, 4)
    assert pool.asked == []
    told(negotiator, 40, 41, 4)
    assert pool.asked == ["use 1"]


def test_after_a_loss_as_many_as_before_are_asked_for_although_nothing_is_known() -> None:
    pool = Pool(used=3)
    negotiator = Negotiator(pool, at_once)
    told(negotiator, 0, 5, 12)
    pool.lose(2)
    told(negotiator, 5, 8, None)
    assert pool.asked == ["start 3"]
    told(negotiator, 8, 9, 12)
    assert pool.asked == ["start 3", "use 3"]


def test_what_was_refused_is_not_asked_for_again_for_a_while() -> None:
    pool = Pool(used=2, quota=2)
    negotiator = Negotiator(pool, at_once)
    told(negotiator, 0, 40, 12)
    assert pool.asked == ["start 3"]
    told(negotiator, 40, 42, 12)
    assert pool.asked == ["start 3", "start 3"]


def test_a_refusal_does_not_stand_in_the_way_after_a_loss() -> None:
    pool = Pool(used=2, quota=2)
    negotiator = Negotiator(pool, at_once)
    told(negotiator, 0, 5, 12)
    pool.lose(1)
    told(negotiator, 5, 6, None)
    assert pool.asked == ["start 3", "start 3"]
    assert pool.ready == 1
    told(negotiator, 6, 10, 12)
    assert pool.used == 2


def test_what_is_given_back_is_not_taken_for_lost() -> None:
    pool = Pool(used=3)
    negotiator = Negotiator(pool, at_once)
    told(negotiator, 0, 30, 4)
    told(negotiator, 30, 60, None)
    assert pool.asked == ["use 1"]
