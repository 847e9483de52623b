"""What `sojourn run --profile` adds to a run: it starts with the processors that were found, says
when the profile holds no more, and may then profile again. That is a process of its own, with a
sample of what comes now; the run goes on meanwhile."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sojourn.cli.profilefile import edges_of, read_profile
from sojourn.control.controller import Record
from sojourn.ports import Samples
from sojourn.profiler.recalibration import Reason, Recalibration
from sojourn.settings import ControlSettings
from sojourn.topology import Topology

_log = logging.getLogger("sojourn")
_END_S = 20.0  # until a process that is told to end is killed


class Watch:
    """A profile in use. Called with every interval's samples, it may say why it holds no more."""

    def __init__(
        self,
        path: Path,
        topology: Topology,
        settings: ControlSettings,
        app: str,
        master: str | None,
        checkpoint: Path | None,
        profiles: bool,
        given: Sequence[str] = (),
    ) -> None:
        self.given = given  # options about settings
        self.profile = read_profile(path)
        self.topology = self.profile.applied(topology)
        for name, count in self.profile.parts.items():
            if count > 1:
                _log.warning("source %r: was profiled in %d parts; it runs in one", name, count)
        if self.profile.in_flight is not None:
            _log.warning(
                "it was profiled with at most %d tuples under way; the run has no such limit but "
                "maxQueue",
                self.profile.in_flight,
            )
        self.app, self.master, self.checkpoint = app, master, checkpoint
        self.profiles = profiles
        self.recalibration = Recalibration(
            self.profile.known, settings.stale_after_s, settings.stale_waiting
        )
        self.first = self._other(topology)
        self.due: Reason | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.out = path.parent / "again"

    @property
    def size(self) -> tuple[int, int]:
        """Machines and cores of each. Those of a cluster are taken to be as they were."""
        if self.master is None:
            return 1, os.cpu_count() or 1
        return self.profile.machines, self.profile.cores

    def _other(self, topology: Topology) -> Reason | None:
        """What differs from when it was profiled, before anything runs."""
        if self.profile.edges and self.profile.edges != edges_of(topology):
            return Reason("topology", "the topology has other edges than when it was profiled")
        before = self.profile.machines, self.profile.cores
        if before != self.size:
            words = "it was profiled on {} machines with {} cores; here: {} with {}"
            return Reason("platform", words.format(*before, *self.size))
        return None

    def __call__(self, samples: Samples, capacity: int | None) -> str | None:
        reason, self.first = self.first or self.recalibration.look(samples, capacity), None
        if reason is None:
            return None
        self.due = reason
        return f"{reason.cause}: {reason.words}"

    def heard(self, _record: Record) -> None:
        """Listen to the loop: begin to profile when that is due, and tell how it ended."""
        if self.process is not None and self.process.poll() is not None:
            code, self.process = self.process.returncode, None
            where = self.out / "profile.log"
            _log.warning(
                "profiling again has %s; see %s", "ended" if code == 0 else "failed", where
            )
        due, self.due = self.due, None
        if due is not None and due.is_profiled and self.profiles and self.process is None:
            self._begin()

    def command(self) -> list[str]:
        """Profiles the application again, where it runs, with a sample of what comes now."""
        machines, cores = self.size
        command = [sys.executable, "-m", "sojourn", "profile", self.app]
        command += ["--max-latency", f"{self.profile.known.limit_s * 1e3:g}ms"]
        command += ["--small", f"{self.profile.small:g}", "--out", str(self.out)]
        command += ["--machines", str(machines), "--cores", str(cores)]
        for name, value in self.profile.options.items():
            for one in value if isinstance(value, list) else [value]:
                command += [f"--{name}", str(one)]
        command += [*self.given, *([] if self.master is None else ["--master", self.master])]
        return command + ([] if self.checkpoint is None else ["--checkpoint", str(self.checkpoint)])

    def _begin(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        for old in self.out.rglob("*.jsonl"):
            old.unlink()  # of a sample that is older
        with (self.out / "profile.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _log.warning("profiling again, in a run of its own; see %s", self.out / "profile.log")

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        """End profiling, if it runs."""
        if self.process is None or self.process.poll() is not None:
            return
        os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
