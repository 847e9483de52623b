"""What benchmarks measure with: sojourns in seconds whose CPU nobody stole, and what the processes
of a session use."""

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sojourn.wiring import Running

sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))

from stolen import STOLEN, Steal

__all__ = ["STOLEN", "Steal"]


class Watch:
    """Notes when tracked tuples were due and done, when commits were made, and when batches ended,
    all by the steady clock, without getting in the way of the control loop."""

    def __init__(self, running: Running) -> None:
        self.done: list[tuple[float, float]] = []  # due, done
        self.commits: list[tuple[float, float]] = []  # begun, made
        self.batch_ends: list[tuple[float, float]] = []  # held, gone on
        self.held_s = 0.0
        hub, supervisor = running.engine.hub, running.engine.supervisor
        self._check, self._commit, self._go_on = hub.tracker._check, supervisor.commit, hub.go_on
        with hub.changed:
            hub.tracker._check = self._checked  # type: ignore[method-assign]
            supervisor.commit = self._committed  # type: ignore[method-assign,assignment]
            hub.go_on = self._gone_on  # type: ignore[method-assign]

    def _checked(self, root: int, tree: Any) -> None:
        if tree.value == 0 and tree.arrival_s is not None and tree.last_s:
            self.done.append((tree.arrival_s, tree.last_s))
        self._check(root, tree)

    def _committed(self, hold: bool = False, **options: Any) -> bool:
        began = time.monotonic()
        made = self._commit(hold=hold, **options)
        if hold:
            self.held_s = began
        else:
            self.commits.append((began, time.monotonic()))
        return made

    def _gone_on(self) -> bool:
        found = self._go_on()
        self.batch_ends.append((self.held_s, time.monotonic()))
        return found


def sojourns(running: Running, seconds: float, steal: Steal | None = None) -> list[float]:
    """Every tracked sojourn that completes in so many seconds; with `steal`, in so many seconds of
    which too little was stolen to matter, and those only."""
    with running.engine.hub.changed:
        running.engine.hub.tracker.take()
    found: list[float] = []
    kept, began = 0.0, time.monotonic()
    while kept < seconds and time.monotonic() < began + 10 * seconds + 10:
        start = time.monotonic()
        running.engine.hub.wait(lambda: False, 1.0 if steal else 0.2)
        with running.engine.hub.changed:
            taken = running.engine.hub.tracker.take()
        if steal is None or steal.was_clean(start):
            found += taken
            kept += time.monotonic() - start
    return found


def summary(values: list[float]) -> dict[str, float]:
    """Median, tails and number, in milliseconds."""
    ranked = sorted(values)
    return {
        "count": len(ranked),
        "median_ms": statistics.median(ranked) * 1e3,
        "p99_ms": ranked[int(0.99 * (len(ranked) - 1))] * 1e3,
        "max_ms": ranked[-1] * 1e3,
    }


def own_processes() -> dict[int, tuple[str, list[str]]]:
    """Kind and /proc statistics of all processes of this session: the driver, the JVM, Spark's
    Python workers, executors with their hosts and workers."""
    found = {}
    known = {
        b"SparkSubmit": "jvm",
        b"engine.executor.main": "executors",
        b"engine.spark.daemon": "spark python",
        b"pyspark": "spark python",
    }
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        try:
            with open(f"/proc/{entry.name}/cmdline", "rb") as file:
                command = file.read()
            with open(f"/proc/{entry.name}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        kinds = [kind for word, kind in known.items() if word in command]
        if int(entry.name) == os.getpid():
            kinds = ["driver"]
        if kinds:
            found[int(entry.name)] = (kinds[0], fields)
    return found


def cpu_seconds(*kinds: str) -> float:
    """CPU time of all processes of this session, or of those of some kinds."""
    hertz = os.sysconf("SC_CLK_TCK")
    # That of threads that have ended counts too: Java's compilers do when they have nothing to do.
    return sum(
        (int(fields[11]) + int(fields[12])) / hertz
        for kind, fields in own_processes().values()
        if not kinds or kind in kinds
    )


def usage() -> dict[str, dict[str, Any]]:
    """Processes, memory and open descriptors (files and sockets) by kind of process; memory is
    what each process has for itself, so that pages shared by forks do not count many times."""
    found: dict[str, dict[str, Any]] = {}
    for pid, (kind, _) in own_processes().items():
        row = found.setdefault(kind, {"processes": 0, "mb": 0.0, "descriptors": 0, "each_mb": {}})
        try:
            descriptors, memory = len(os.listdir(f"/proc/{pid}/fd")), own_memory_mb(pid)
        except OSError:
            continue  # it has just ended
        row["descriptors"] += descriptors
        row["processes"] += 1
        row["mb"] += memory
        row["each_mb"][pid] = round(memory, 1)
    return found


def still_usage(spark: SparkSession) -> dict[str, dict[str, Any]]:
    """The same without what only awaits collection, and not of the moment in which a batch ends
    and the next one has its sockets already: the JVM's live heap, and the fewest descriptors."""
    jvm: Any = spark._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    looks = []
    for _ in range(3):
        looks.append(usage())
        time.sleep(1)
    found = looks[-1]
    for kind, row in found.items():
        row["descriptors"] = min(look[kind]["descriptors"] for look in looks)
    found["jvm"]["mb"] = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    return found


def own_memory_mb(pid: int) -> float:
    """The memory that would come free if this process ended."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        lines = [line.split() for line in file if line.startswith("Private_")]
    return sum(int(line[1]) for line in lines) / 1024
