"""The supervisor's own steps, with a hub that is not Spark's."""

from types import SimpleNamespace

import pytest

from sojourn.engine.driver.justice import Justice
from sojourn.engine.driver.record import Record
from sojourn.engine.driver.supervisor import Supervisor
from sojourn.engine.wire import messages as m


@pytest.mark.parametrize(("at_rest", "error"), [(True, None), (False, "it had failed")])
def test_stopping_between_two_queries_is_an_error_only_if_something_is_lost(
    at_rest: bool, error: str | None
) -> None:
    """While it moves to other machines all is committed; after a failure it is not."""
    supervisor = object.__new__(Supervisor)
    supervisor.hub = SimpleNamespace(is_broken=False, failures=[])  # type: ignore[assignment]
    supervisor.committer = SimpleNamespace(record=Record(7))  # type: ignore[assignment]
    supervisor.query, supervisor.at_rest, supervisor.error = None, at_rest, None
    supervisor.drain(1.0)
    assert supervisor.error is None if error is None else error in str(supervisor.error)


# which tuple kills its worker


def death(*digests: bytes, number: int = 1) -> m.Failed:
    return m.Failed("count", "died", False, [m.Suspect(digest, number) for digest in digests])


def test_a_tuple_is_guilty_that_was_suspected_and_is_alone_in_hand_at_the_next_death() -> None:
    justice = Justice()
    justice.died(death(b"a", b"b"), 4)
    assert justice.suspects == {"count": {b"a", b"b"}}
    assert not justice.guilty(4)
    justice.died(death(b"b", number=3), 4)
    assert justice.guilty(4) == {"count": [m.Suspect(b"b", 3)]}


def test_one_that_was_not_suspected_is_not_guilty_at_its_first_death() -> None:
    justice = Justice()
    justice.died(death(b"a"), 4)
    justice.died(death(b"b"), 4)
    assert not justice.guilty(4)


def test_after_a_later_commit_the_culprit_is_the_first_of_its_like() -> None:
    justice = Justice()
    for _ in range(2):
        justice.died(death(b"a", number=3), 4)
    assert justice.guilty(5) == {"count": [m.Suspect(b"a", 1)]}


def test_who_was_left_out_before_a_commit_is_not_left_out_again() -> None:
    justice = Justice()
    for _ in range(2):
        justice.died(death(b"a"), 4)
    justice.committed(Record(5, 1, [m.Part("count", 0)]))
    assert justice.guilty(5)
    justice.committed(Record(6, 1, [m.Part("count", 0, guilty=[b"a"])]))
    assert not justice.guilty(6)


def test_suspicion_ends_after_some_commits() -> None:
    justice = Justice()
    justice.died(death(b"a"), 4)
    for number in (5, 6, 7):
        assert justice.suspects
        justice.committed(Record(number, 1, []))
    assert not justice.suspects
