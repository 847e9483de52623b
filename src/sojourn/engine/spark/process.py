"""A process of somebody else's that serves us for a while: it ends when we do, and what it says is
kept. Used for Spark's daemons and for the broker."""

import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_START_S = 60.0
_STOP_S = 30.0
# Runs a command until the pipe it reads from is closed, by us or by our death. It closes its own
# standard error, so the end of that stream means the end of the command.
_UNTIL_WE_END = '"$@" & child=$!; exec 2>/dev/null; read _; kill $child; wait $child; exit 0'


class Process:
    """A process that ends with us, and the lines that it writes to its standard error."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environ: Mapping[str, str]
    ) -> None:
        self.process = subprocess.Popen(
            ["sh", "-c", _UNTIL_WE_END, "sh", *command],
            env=environ,
            cwd=log.parent,
            start_new_session=True,  # Ctrl-C is not for it
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.name, self.log = name, log
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
            raise RuntimeError(f"{self.name} did not start within {_START_S:.0f} s; see {self.log}")
        return found[1]

    def stop(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(_STOP_S)
        self.reader.join()

    def _read(self) -> None:
        """Keep the pipe empty, so that the process never waits for it."""
        assert self.process.stderr is not None
        with self.process.stderr, self.log.open("a", encoding="utf-8") as log:
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
