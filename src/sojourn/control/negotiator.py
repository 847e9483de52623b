"""The negotiator decides how many machines there should be, and gets them (DRS §IV-B). It works
below the scheduler: it is told how many processors are needed, and says how many there is room for.

It asks and goes on. The pool answers when it can, or refuses, or loses a machine. All of that is
normal, and shows only in the capacity."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from sojourn.ports import MachinePool

_log = logging.getLogger("sojourn")


@dataclass(frozen=True)
class Answer:
    """What became of a request for machines."""

    wanted: int
    had: int
    have: int
    words: str
    noted: bool = False


class Job(Protocol):
    """Something under way."""

    def is_alive(self) -> bool:
        """Whether it still is."""

    def join(self) -> None:
        """Wait until it is over."""


def in_a_thread(action: Callable[[], None]) -> Job:
    """Begin something that takes real time."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


class Negotiator:
    """Asks the pool for as many machines as the processors need, one request at a time. It asks for
    more immediately, but gives machines back only after they were not needed for long. It does not
    keep asking for what was refused."""

    def __init__(
        self, pool: MachinePool, begin: Callable[[Callable[[], None]], Job] = in_a_thread
    ) -> None:
        self.pool, self.begin = pool, begin
        self.answers: list[Answer] = []
        self.worker: Job | None = None
        self.spare_since_s: float | None = None
        self.refused: tuple[int, float] | None = None
        self.seen = 0

    @property
    def capacity(self) -> int | None:
        """Processors there is room for now; None means no limit."""
        per_machine = self.pool.processors_per_machine
        return None if per_machine is None else per_machine * len(self._machines())

    def moved(self) -> bool:
        """Whether machines came or went since this was last asked."""
        new, self.seen = self.answers[self.seen :], len(self.answers)
        return any(answer.have != answer.had for answer in new)

    def want(self, processors: int, now_s: float, quiet_s: float) -> None:
        """See to it that there is room for that many processors. Returns at once."""
        per_machine = self.pool.processors_per_machine
        if per_machine is None or (self.worker is not None and self.worker.is_alive()):
            return
        self._note_refusal(now_s, quiet_s)
        machines = max(1, -(-processors // per_machine))
        have = len(self._machines())
        if machines >= have:
            self.spare_since_s = None
        elif self.spare_since_s is None:
            self.spare_since_s = now_s
        spare = self.spare_since_s is not None and now_s - self.spare_since_s >= quiet_s
        asked = self.refused is not None and machines >= self.refused[0] > have
        if (machines > have and not asked) or (machines < have and spare):
            self.spare_since_s = None
            self.worker = self.begin(lambda: self._change(machines))

    def _note_refusal(self, now_s: float, quiet_s: float) -> None:
        """Note what was refused, so that it is not asked for again for a while."""
        if self.refused is not None and now_s >= self.refused[1]:
            self.refused = None
        if self.answers and self.refused is None and not self.answers[-1].noted:
            last = self.answers[-1]
            self.answers[-1] = replace(last, noted=True)
            if last.have < last.wanted:
                self.refused = (last.wanted, now_s + 2 * quiet_s)

    def _machines(self) -> list[str]:
        try:
            return self.pool.machines()
        except Exception:  # noqa: BLE001  # a pool that cannot say has none to give
            _log.exception("the pool of machines does not answer")
            return []

    def _change(self, machines: int) -> None:
        had = len(self._machines())
        try:
            words = self.pool.change(machines)
        except Exception as error:  # noqa: BLE001  # a refusal, whatever its form, is an answer
            words = f"refused: {error}"
        answer = Answer(machines, had, len(self._machines()), words)
        self.answers.append(answer)
        _log.info("machines: wanted %d, have %d: %s", answer.wanted, answer.have, answer.words)

    def close(self) -> None:
        """Wait for an answer that is under way."""
        if self.worker is not None:
            self.worker.join()
