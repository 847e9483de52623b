"""Experiments that wait for one another."""

import fcntl
import threading
from pathlib import Path

import pytest
import stolen


def is_free(kind: int, name: str = "machine") -> bool:
    """Whether a run of this kind could start now."""
    with stolen._lock(name) as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_nothing_starts_beside_a_run_that_is_alone() -> None:
    with stolen.alone():
        assert not is_free(fcntl.LOCK_SH)
        assert not is_free(fcntl.LOCK_EX)
    assert is_free(fcntl.LOCK_EX)


def test_runs_of_one_experiment_share_the_machine_with_one_another_only() -> None:
    with stolen.alone(beside_its_own=True), stolen.alone(beside_its_own=True):
        assert is_free(fcntl.LOCK_SH)
        assert not is_free(fcntl.LOCK_EX)
    assert is_free(fcntl.LOCK_EX)


def test_who_waits_to_be_alone_keeps_further_runs_from_starting() -> None:
    order: list[str] = []

    def waits() -> None:
        with stolen.alone():
            order.append("alone")

    with stolen.alone(beside_its_own=True):
        thread = threading.Thread(target=waits)
        thread.start()
        while is_free(fcntl.LOCK_EX, "gate"):
            assert thread.is_alive()
        order.append("its own")
    thread.join()
    assert order == ["its own", "alone"]
