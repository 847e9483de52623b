"""Which process is which part of a running topology."""

import random
import subprocess
from pathlib import Path

from sojourn.engine.driver.running import Running


def children(pid: int) -> list[int]:
    """Process ids below one."""
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in listed.stdout.split()]


def executor(running: Running, vertex: str) -> int:
    """The process of a vertex's executor."""
    return next(h.pid for h in running.hub.members.values() if h.vertex == vertex)


def worker(running: Running, vertex: str) -> int:
    """One of its workers."""
    return random.choice(children(host(running, vertex)))


def host(running: Running, vertex: str) -> int:
    """The process that makes its workers; beside it there may be one that merges files."""
    mark = b"engine.executor.main"
    below = children(executor(running, vertex))
    return next(pid for pid in below if mark in Path(f"/proc/{pid}/cmdline").read_bytes())


def spark_python_worker(running: Running, vertex: str) -> int:
    """The Spark Python worker that started its executor."""
    status = Path(f"/proc/{executor(running, vertex)}/status").read_text(encoding="utf-8")
    return int(status.split("PPid:")[1].split()[0])


def spark_executor(running: Running, vertex: str) -> int:
    """The Spark executor, a Java process, that an executor's Spark task runs in."""
    pid = spark_python_worker(running, vertex)
    while "java" not in Path(f"/proc/{pid}/comm").read_text(encoding="utf-8"):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        pid = int(status.split("PPid:")[1].split()[0])
    return pid
