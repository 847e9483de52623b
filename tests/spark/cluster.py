"""A real Spark standalone cluster on loopback, from pip's pyspark: a master and workers."""

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def standalone_cluster(directory: Path, workers: int, cores: int) -> Iterator[str]:
    """The URL of a master with so many workers; all of it is gone afterwards."""
    environ = {
        **os.environ,
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    started: list[subprocess.Popen[str]] = []

    def spawn(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(_HOME / "bin" / "spark-class"), *arguments],
            env=environ,
            cwd=directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    try:
        loopback = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = spawn(f"{_DEPLOY}.master.Master", *loopback)
        url = _await_line(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            work = directory / f"worker-{number}"
            work.mkdir()
            worker = spawn(
                f"{_DEPLOY}.worker.Worker",
                *loopback,
                *("--cores", str(cores), "--memory", "1g", "--work-dir", str(work), url),
            )
            _await_line(worker, r"Successfully registered with (master)")
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.communicate(timeout=30)


def _await_line(process: subprocess.Popen[str], pattern: str, timeout_s: float = 60.0) -> str:
    """What a pattern finds in a process's log, which is read until then."""
    assert process.stderr is not None
    deadline = time.monotonic() + timeout_s
    seen = ""
    while time.monotonic() < deadline:
        if select.select([process.stderr], [], [], 1.0)[0]:
            line = os.read(process.stderr.fileno(), 65536).decode(errors="replace")
            if not line:
                break
            seen += line
            if found := re.search(pattern, seen):
                return found[1]
    raise AssertionError(f"no line like {pattern!r} within {timeout_s} s in:\n{seen}")
