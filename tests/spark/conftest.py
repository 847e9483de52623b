"""One Spark session for all tests of a process, and topologies that leave nothing behind."""

import json
import os
import secrets
import select
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sojourn.engine.spark.session import QUICK_JAVA, session
from sojourn.wiring import Running

SLOTS = 18
LONG = ("examples", "promise", "experiments", "attach", "faults", "yarn", "cluster", "wheel")
# By which processes of this process's tests are told from those of others; all that they start
# inherit it.
MARK = os.environ.get("SOJOURN_TESTS", secrets.token_hex(8))
if not MARK.endswith(WHO := f"-{os.environ.get('PYTEST_XDIST_WORKER', '')}"):
    MARK += WHO
os.environ["SOJOURN_TESTS"] = MARK
OWN = f"SOJOURN_TESTS={MARK}"
# Drivers that make their own session are as quick to start as those that let Sojourn make it.
for _options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ[_options] = f"{QUICK_JAVA} {os.environ.get(_options, '')}".strip()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes first, so that none runs alone at the end."""
    order = {f"test_{name}": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONG)))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session(None, f"local[{SLOTS}]", SLOTS, "tests", 3.0, ui=True)
    yield made
    left = processes()
    made.stop()
    for pid in left:
        await_exit(pid)


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    yield
    for pid in executors():
        await_exit(pid)


def await_exit(pid: int, timeout_s: float = 20.0) -> None:
    """Return when a process, of whomever, is gone; complain if it does not go."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    gone, _, _ = select.select([descriptor], [], [], timeout_s)
    os.close(descriptor)
    assert gone, f"process {pid} is left behind"


def executors() -> list[int]:
    """Process ids of elastic executors, hosts and workers."""
    return [pid for pid in processes() if b"engine.spark.daemon" not in above(pid)]


def above(pid: int) -> bytes:
    """The command of the process above one: Spark's daemon is above a nursery, which stays as long
    as the session."""
    try:
        parent = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").split("\nPPid:")[1]
        return Path(f"/proc/{parent.split()[0]}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""  # it has ended


def processes(mark: str = OWN) -> list[int]:
    """Of executors, and of the nurseries that fork them, as far as this run has started them."""
    listed = subprocess.run(
        ["pgrep", "-u", str(os.getuid()), "-f", "sojourn.engine.executor.main"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(pid) for pid in listed.stdout.split() if _is_own(int(pid), mark)]


def _is_own(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended


def results(directory: Path) -> list[Any]:
    """What a JSONL sink has published, in order."""
    found = []
    for path in sorted(directory.glob("*.jsonl")):
        found += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return found


def await_processors(running: Running, **wanted: int) -> None:
    """Return when operators and sources have so many."""
    while wanted.items() - running.allocation().items():
        assert running.await_commit(60)


def await_results(running: Running, directory: Path, count: int = 1) -> None:
    """Return when a JSONL sink has published so many; commits show them."""
    while len(results(directory)) < count:
        assert running.await_commit(60)


def once(there: Path, values: Iterable[Any]) -> Iterator[Any]:
    """Values that come only when a file is there, such as when all executors are up."""
    while not there.exists():
        time.sleep(0.01)
    yield from values
