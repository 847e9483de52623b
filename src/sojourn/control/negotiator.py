"""The negotiator: how many machines there should be, and getting them (DRS §IV-B). Works below the
scheduler: it is told how many processors are needed, and says how many there is room for.

It asks and goes on; the pool answers when it can, or refuses, or loses a machine. All of that is
normal, and shows only in the capacity."""

import logging
import threading
from dataclasses import dataclass

from sojourn.ports import MachinePool

_log = logging.getLogger("sojourn")


@dataclass(frozen=True)
class Answer:
    """What became of a wish for machines."""

    wanted: int
    have: int
    words: str


class Negotiator:
    """Asks the pool for as many machines as the processors need, one wish at a time."""

    def __init__(self, pool: MachinePool) -> None:
        self.pool = pool
        self.answers: list[Answer] = []
        self.worker: threading.Thread | None = None

    @property
    def capacity(self) -> int | None:
        """Processors there is room for now; None: as many as anyone likes."""
        per_machine = self.pool.processors_per_machine
        return None if per_machine is None else per_machine * len(self.pool.machines())

    def want(self, processors: int) -> None:
        """See to it that there is room for so many; returns at once."""
        per_machine = self.pool.processors_per_machine
        if per_machine is None or (self.worker is not None and self.worker.is_alive()):
            return
        machines = max(1, -(-processors // per_machine))
        if machines != len(self.pool.machines()):
            self.worker = threading.Thread(target=self._change, args=(machines,), daemon=True)
            self.worker.start()

    def _change(self, machines: int) -> None:
        try:
            words = self.pool.change(machines)
        except Exception as error:  # noqa: BLE001  # a refusal, whatever its form, is an answer
            words = f"refused: {error}"
        answer = Answer(machines, len(self.pool.machines()), words)
        self.answers.append(answer)
        _log.info("machines: wanted %d, have %d: %s", answer.wanted, answer.have, answer.words)

    def close(self) -> None:
        """Wait for an answer that is under way."""
        if self.worker is not None:
            self.worker.join()
