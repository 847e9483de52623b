"""A real Spark standalone cluster on this machine, from pip's pyspark: a master, and workers that
come and go. Used by tests and benchmarks."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark

from sojourn.engine.spark.archive import class_options
from sojourn.engine.spark.java import find_java
from sojourn.engine.spark.process import Process
from sojourn.engine.spark.session import QUICK_JAVA

_HOME = Path(pyspark.__file__).parent


class StandaloneCluster:
    """The cluster listens on loopback, writes to one directory, and is gone after `close`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.numbers = 0
        self.workers: dict[str, _Daemon] = {}
        self.environ = _environ()
        self.master = _Daemon(directory / "master.log", "master.Master", self.environ)
        self.url = self.master.await_line(r"Starting Spark master at (spark://\S+)")

    def add(self, cores: int, memory: str = "1g") -> str:
        """Start a worker and return its name once the master knows it."""
        name = f"worker-{self.numbers}"
        self.numbers += 1
        work = self.directory / name
        work.mkdir()
        # Sockets are in the temporary directory. With its own directory, a worker is like a machine
        # to elastic executors.
        temporary = tempfile.mkdtemp(prefix="sojourn-worker-")
        worker = _Daemon(
            self.directory / f"{name}.log",
            "worker.Worker",
            {**self.environ, "TMPDIR": temporary},
            temporary,
            ("--cores", str(cores), "--memory", memory, "--work-dir", str(work), self.url),
        )
        self.workers[name] = worker
        worker.await_line(r"Successfully registered with (master)")
        return name

    def remove(self, name: str) -> None:
        """Stop a worker and the Spark executors on it."""
        self.workers.pop(name).stop()

    def close(self) -> None:
        """Stop everything."""
        for name in list(self.workers):
            self.remove(name)
        self.master.stop()

    def __enter__(self) -> "StandaloneCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _environ() -> dict[str, str]:
    """What the cluster's processes are started with. Their Java is as quick to start as that of a
    session, since tuples may be waiting for the machine."""
    cache = Path.home() / ".cache" / "sojourn"
    java = find_java(os.environ, cache)
    _, archive = class_options(java.home, cache)

    def options(name: str, quick: str) -> dict[str, str]:
        return {name: f"{quick} {os.environ.get(name, '')}".strip()}

    return {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        **options("SPARK_DAEMON_JAVA_OPTS", f"{QUICK_JAVA} -XX:+UseSerialGC {archive}"),
        **options("SPARK_LAUNCHER_OPTS", f"{QUICK_JAVA} -XX:+UseSerialGC"),
    }


class _Daemon(Process):
    """One of the cluster's processes, and the temporary directory that goes with it."""

    def __init__(
        self,
        log: Path,
        name: str,
        environ: Mapping[str, str],
        temporary: str | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        command = [
            str(_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            *arguments,
        ]
        super().__init__(f"Spark's {name}", command, log, environ)
        self.temporary = temporary

    def stop(self) -> None:
        super().stop()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)
