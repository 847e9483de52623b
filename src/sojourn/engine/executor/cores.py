"""The CPU that an executor's machine gives it. The emitter uses it to leave some to others."""

import os
from pathlib import Path

_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def cores(limit: Path = _LIMIT) -> float:
    """The CPU that this process may use."""
    found = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = limit.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return found  # no limit, or none that can be read
    return found if quota == "max" else min(found, int(quota) / int(period))
