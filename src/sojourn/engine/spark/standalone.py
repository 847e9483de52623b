"""A real Spark standalone cluster on this machine, from pip's pyspark: a master, and workers that
come and go. Used by tests and benchmarks."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

import pyspark

from sojourn.engine.spark.archive import class_options
from sojourn.engine.spark.java import find_java
from sojourn.engine.spark.session import QUICK_JAVA

_HOME = Path(pyspark.__file__).parent
_START_S = 60.0
_STOP_S = 30.0
# Runs a command until the pipe it reads from is closed, by us or by our death. It closes its own
# standard error, so the end of that stream means the end of the command.
_UNTIL_WE_END = '"$@" & child=$!; exec 2>/dev/null; read _; kill $child; wait $child; exit 0'


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


class _Daemon:
    """One of the cluster's processes, and what it says."""

    def __init__(
        self,
        log: Path,
        name: str,
        environ: Mapping[str, str],
        temporary: str | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.process = subprocess.Popen(
            [
                *("sh", "-c", _UNTIL_WE_END, "sh"),
                str(_HOME / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{name}",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
                *arguments,
            ],
            env=environ,
            cwd=log.parent,
            start_new_session=True,  # Ctrl-C is not for it
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.name, self.log, self.temporary = name, log, temporary
        self.said: list[str] = []
        self.silent = False
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def await_line(self, pattern: str) -> str:
        """Wait for a line that matches a pattern when the process starts, and return the match."""

        def find() -> re.Match[str] | None:
            return next((f for line in self.said if (f := re.search(pattern, line))), None)

        with self.news:
            self.news.wait_for(lambda: find() or self.silent, _START_S)
            found = find()
        if found is None:
            self.stop()
            raise RuntimeError(
                f"Spark's {self.name} did not start within {_START_S:.0f} s; see {self.log}"
            )
        return found[1]

    def stop(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(_STOP_S)
        self.reader.join()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def _read(self) -> None:
        """Keep the pipe empty, so that the process never waits for it."""
        assert self.process.stderr is not None
        with self.process.stderr, self.log.open("w", encoding="utf-8") as log:
            for line in self.process.stderr:
                log.write(line)
                log.flush()
                with self.news:
                    if len(self.said) < 1000:
                        self.said.append(line)
                    self.news.notify_all()
        with self.news:
            self.silent = True
            self.news.notify_all()
