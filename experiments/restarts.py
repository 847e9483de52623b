"""Storm's way to change processors, measured here: to stop a topology and to start it anew from its
checkpoint with others. Storm itself is not run."""

import tempfile
import time
from typing import Any

from lab import Lab
from paired import Estimate, estimate_of
from shapes import vld

import sojourn as sj

TIMES = 5
_WORKS_S = 8.0  # before it is stopped
BEFORE, AFTER = (
    dict(zip(("extract", "match", "aggregate"), counts, strict=True))
    for counts in ((8, 12, 2), (10, 11, 1))
)


def restarts(lab: Lab) -> Estimate:
    """Seconds from stopping to the first tuple that is done afterwards; made once for all."""
    found: Estimate = lab.once(
        "restarts", lambda: estimate_of([_seconds(lab, n) for n in range(TIMES)])
    )
    return found


def _seconds(lab: Lab, number: int) -> float:
    """Of one restart."""
    shape = vld(scale=3.0, drawn=lab.seed_of(f"restart {number}"))
    with tempfile.TemporaryDirectory() as checkpoint:
        at: dict[str, Any] = {"spark": lab.session(), "checkpoint": checkpoint}
        with sj.start(shape.topology(BEFORE, sleep=True), **at) as running:
            lab.let_pass(running, _WORKS_S)
            began = time.monotonic()
        with sj.start(shape.topology(AFTER, sleep=True), **at) as running:
            while running.samples().sojourn is None:
                lab.let_pass(running, 0.2)
            return time.monotonic() - began
