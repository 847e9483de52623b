"""Which process is which part of a running topology: for benchmarks and tests that kill some."""

import contextlib
import os
import random
import subprocess
from pathlib import Path

from pyspark import SparkContext

from sojourn.wiring import Running


def children(pid: int) -> list[int]:
    """Process ids below one."""
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in listed.stdout.split()]


def executor(running: Running, vertex: str) -> int:
    """The process of a vertex's executor."""
    return next(h.pid for h in running.engine.hub.members.values() if h.vertex == vertex)


def worker(running: Running, vertex: str) -> int:
    """One of its workers."""
    return random.choice(children(host(running, vertex)))


def host(running: Running, vertex: str) -> int:
    """The process that makes its workers; beside it there may be one that merges files."""
    some = children(executor(running, vertex))
    return next(pid for pid in some if b"engine.executor.main" in command(pid))


def nursery(running: Running, vertex: str) -> int:
    """The process that its executor was forked by; the executor if that is dead."""
    pid = executor(running, vertex)
    return parent(pid) if b"engine.executor.main" in command(parent(pid)) else pid


def spark_python_worker(running: Running, vertex: str) -> int:  # noqa: ARG001  # as all are
    """The Spark Python worker of one of its tasks."""
    workers = (pid for pid in processes() if b"engine.spark.daemon" in command(pid))
    called = (pid for pid in workers if told(pid, "comm").strip() == vertex.encode())
    return next(pid for pid in called if is_ours(pid))


def spark_executor(running: Running, vertex: str) -> int:
    """The Spark executor, a Java process, that one of its tasks runs in."""
    return parent(parent(spark_python_worker(running, vertex)))


def is_ours(pid: int) -> bool:
    """Whether a process belongs to this driver's Spark, not to another on the machine: it is below
    this one, or below an executor of this application."""
    application = str(SparkContext.getOrCreate().applicationId).encode()
    while pid > 1 and pid != os.getpid() and application not in command(pid):
        pid = parent(pid)
    return pid > 1


def processes() -> list[int]:
    """All that run."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def parent(pid: int) -> int:
    """The process above one; 0 above one that has ended."""
    status = told(pid, "status")
    return int(status.split(b"PPid:")[1].split()[0]) if status else 0


def command(pid: int) -> bytes:
    """What it was started with."""
    return told(pid, "cmdline")


def told(pid: int, what: str) -> bytes:
    """What the kernel tells of a process, nothing of one that has ended."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        return Path(f"/proc/{pid}/{what}").read_bytes()
    return b""
