"""The supervisor's own steps, with a clock and a driver that are not Spark's."""

from types import SimpleNamespace
from typing import Any

import pytest

from sojourn.engine.driver import supervisor as module
from sojourn.engine.driver.supervisor import Supervisor


class Deaf:
    """A clock that another topology sets right again before it is looked at, so many times."""

    def __init__(self, times: int) -> None:
        self.times, self.asked = times, 0

    def end_batch(self) -> None:
        self.asked += 1

    def committed(self) -> int:
        return 4 if self.asked > self.times else 3


def made(clock: Any, is_broken: bool = False) -> Supervisor:
    supervisor = object.__new__(Supervisor)
    supervisor.clock = clock
    supervisor.hub = SimpleNamespace(is_broken=is_broken)  # type: ignore[assignment]
    supervisor.query = SimpleNamespace(isActive=True)  # type: ignore[assignment]
    return supervisor


def test_a_batch_is_ended_again_until_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ASK_AGAIN_S", 0.01)
    clock = Deaf(2)
    assert made(clock)._commit(4, float("inf"))
    assert clock.asked == 3


def test_nobody_waits_for_a_batch_of_a_broken_topology() -> None:
    assert not made(Deaf(2), is_broken=True)._commit(4, float("inf"))
    assert not made(Deaf(2))._commit(4, 0.0)


@pytest.mark.parametrize(("at_rest", "error"), [(True, None), (False, "it had failed")])
def test_stopping_between_two_queries_is_an_error_only_if_something_is_lost(
    at_rest: bool, error: str | None
) -> None:
    """While it moves to other machines all is committed; after a failure it is not."""
    supervisor = made(Deaf(0))
    supervisor.query, supervisor.at_rest, supervisor.error = None, at_rest, None
    supervisor.plan = SimpleNamespace(layout=SimpleNamespace(places=()))  # type: ignore[assignment]
    supervisor.hub.failures = []
    supervisor.drain(1.0)
    assert supervisor.error is None if error is None else error in str(supervisor.error)
