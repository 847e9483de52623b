"""Relocations: what is to be done while no query runs."""

from collections import deque

import pytest

from sojourn.engine.driver.supervisor import Relocation, Supervisor


def test_one_that_was_given_up_does_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor.__new__(Supervisor)
    supervisor.relocations = deque()
    monkeypatch.setattr(Supervisor, "is_alive", lambda _self: True)
    acted: list[int] = []
    with pytest.raises(TimeoutError, match="no commit was made in time"):
        supervisor.relocate(lambda: acted.append(1), timeout_s=0.0)
    assert not supervisor.is_to_relocate(), "the topology need not stop for it"
    supervisor.relocations.popleft().perform()
    assert acted == []


def test_one_that_has_begun_cannot_be_given_up() -> None:
    acted: list[int] = []
    relocation = Relocation(lambda: acted.append(1))
    relocation.perform()
    assert acted == [1]
    assert relocation.done.is_set()
    assert not relocation.decide()


def test_what_it_raises_is_kept_for_who_asked() -> None:
    def refuse() -> None:
        raise OSError("no machine")

    relocation = Relocation(refuse)
    relocation.perform()
    assert relocation.done.is_set()
    assert str(relocation.error) == "no machine"
