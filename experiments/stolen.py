"""What else takes the CPU while something is measured: others on the same hardware, and other
experiments."""

import fcntl
import math
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

STOLEN = 0.05  # a second with more of the CPU stolen than this says nothing about latency


class Steal(threading.Thread):
    """Notes for every second, by the steady clock, what share of the CPU others have stolen, and
    what share was used."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.shares: list[tuple[float, float, float]] = []
        self.busy: list[float] = []  # shares of the CPU that were used here
        self.ended = threading.Event()

    def __enter__(self) -> "Steal":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()

    def run(self) -> None:
        """Until left."""
        began, before = time.monotonic(), _cpu_ticks()
        while not self.ended.wait(1.0):
            now, ticks = time.monotonic(), _cpu_ticks()
            total = sum(ticks) - sum(before)
            self.shares.append((began, now, (ticks[7] - before[7]) / max(total, 1)))
            idle = sum(ticks[3:5]) + ticks[7] - sum(before[3:5]) - before[7]
            self.busy.append(1 - idle / max(total, 1))
            began, before = now, ticks

    def was_clean(self, since_s: float, until_s: float = math.inf) -> bool:
        """Whether little was stolen in every second since then, the running one included, or until
        some time."""
        shares = [share for began, end, share in self.shares if end > since_s and began < until_s]
        return all(share <= STOLEN for share in shares)

    def told(self) -> dict[str, Any]:
        """How many seconds count."""
        clean = sum(share <= STOLEN for _, _, share in self.shares)
        worst = max((share for _, _, share in self.shares), default=0.0)
        busy = sum(self.busy) / max(1, len(self.busy))
        return {
            "seconds": len(self.shares),
            "clean_seconds": clean,
            "most_stolen": round(worst, 3),
            "busy": round(busy, 3),
        }


def together(some: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several runs as one."""
    seconds = sum(one["seconds"] for one in some)
    busy = sum(one["busy"] * one["seconds"] for one in some) / max(1, seconds)
    return {
        "seconds": seconds,
        "clean_seconds": sum(one["clean_seconds"] for one in some),
        "most_stolen": max((one["most_stolen"] for one in some), default=0.0),
        "busy": round(busy, 3),
    }


@contextmanager
def alone(beside_its_own: bool = False) -> Iterator[None]:
    """A run that other experiments of this user do not disturb: each waits for the other's run to
    end. `beside_its_own` runs share the machine with one another only."""
    with ExitStack() as files:
        gate, machine = (files.enter_context(_lock(name)) for name in ("gate", "machine"))
        fcntl.flock(gate, fcntl.LOCK_EX)  # who waits to be alone keeps further runs from starting
        fcntl.flock(machine, fcntl.LOCK_SH if beside_its_own else fcntl.LOCK_EX)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield


@contextmanager
def _lock(name: str) -> Iterator[int]:
    path = Path(tempfile.gettempdir()) / f"sojourn-experiments-{os.getuid()}.{name}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _cpu_ticks() -> list[int]:
    with open("/proc/stat", encoding="ascii") as file:
        return [int(word) for word in file.readline().split()[1:9]]
