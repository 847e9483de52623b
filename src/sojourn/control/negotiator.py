"""The negotiator decides how many machines there should be, and gets them (DRS §IV-B). It works
below the scheduler: it is told how many processors are needed, and says how many there is room for.

It asks and goes on. The pool answers when it can, or refuses, or loses a machine. All of that is
normal, and shows only in the capacity.

Nobody waits for a machine that starts, so it asks at once. Where tuples have to wait when a machine
comes into use, the pool says so, and it must be worth that."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from sojourn.ports import MachinePool

_log = logging.getLogger("sojourn")
_PAID_BACK = 5  # times the pause: what is needed again sooner is not worth two of them
_ANSWERS = 100  # kept
_GONE = 3  # ticks without a need in a row; one that is back before is the same need


@dataclass(frozen=True)
class Answer:
    """What became of a request for machines: of those that are up, or of those in use."""

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


class Begin(Protocol):
    """How to begin something that takes time. `starts` says that machines have to come up."""

    def __call__(self, action: Callable[[], None], *, starts: bool) -> Job: ...


def in_a_thread(action: Callable[[], None], *, starts: bool) -> Job:  # noqa: ARG001
    """Begin something that takes real time."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


class Negotiator:
    """Asks the pool for as many machines as the processors need, one request at a time. It asks for
    more immediately, uses them if the need lasts, and gives machines back only after they were not
    needed for long. It does not keep asking for what was refused."""

    def __init__(self, pool: MachinePool, begin: Begin = in_a_thread) -> None:
        self.pool, self.begin = pool, begin
        self.answers: list[Answer] = []
        self.worker: Job | None = None
        self.needed: int | None = None  # machines
        self.had = 0  # machines in use, as last seen
        self.short_since_s: float | None = None  # since when more machines are needed
        self.without = 0  # ticks in a row at which no more were needed
        self.spare_since_s: float | None = None
        self.refused: tuple[int, float] | None = None

    @property
    def capacity(self) -> int | None:
        """Processors there is room for now; None means no limit."""
        per_machine = self.pool.processors_per_machine
        return None if per_machine is None else per_machine * len(self._machines())

    @property
    def in_use(self) -> int:
        """Machines that the topology uses."""
        return len(self._machines())

    def want(self, processors: int | None, now_s: float, quiet_s: float) -> None:
        """See to it that there is room for that many processors. None says that nothing is known at
        the moment; then only a machine that was lost is asked for again. Returns at once."""
        per_machine = self.pool.processors_per_machine
        if per_machine is None:
            return
        have = len(self._machines())
        up = have + len(self._spare())
        if processors is not None:
            self.needed = -(-processors // per_machine)
            self._note_need(self.needed, have, up, now_s)
        if self.needed is None or (self.worker is not None and self.worker.is_alive()):
            return
        lost, self.had = have < self.had, have
        if processors is None and not lost:
            return
        self._note_refusal(now_s, quiet_s)
        if lost:
            self.refused = None
            self._note_need(self.needed, have, up, now_s)
        if self.needed > up and not self._was_refused(self.needed, up):
            self._start(self.needed)
        elif processors is not None:
            self._use(min(self.needed, up), have, up, now_s, quiet_s)

    def _use(self, machines: int, have: int, up: int, now_s: float, quiet_s: float) -> None:
        """Use more machines if they were needed for as long as tuples would wait. Give back those
        that were not needed for long."""
        pause_s = self.pool.pause_s
        quiet_s = max(quiet_s, _PAID_BACK * pause_s)
        lasts = self.short_since_s is not None and now_s - self.short_since_s >= pause_s
        spare = self.spare_since_s is not None and now_s - self.spare_since_s >= quiet_s
        more = machines > have and lasts and not self._was_refused(machines, have)
        if more or (machines < up and spare):
            self.spare_since_s = None
            self.worker = self.begin(lambda: self._move(machines), starts=False)

    def _move(self, machines: int) -> None:
        self._ask(self.pool.use, machines, self._machines)
        self.had, self.short_since_s = len(self._machines()), None

    def _start(self, machines: int) -> None:
        """Have machines come up, and use them at once if nobody waits for that and they are still
        needed."""

        def up() -> list[str]:
            return [*self._machines(), *self._spare()]

        def start() -> None:
            self._ask(self.pool.start, machines, up)
            wanted = min(self.needed or 0, len(up()))
            if not self.pool.pause_s and wanted > len(self._machines()):
                self._move(wanted)

        self.worker = self.begin(start, starts=True)

    def _note_need(self, needed: int, have: int, up: int, now_s: float) -> None:
        """Note since when more machines are needed than are in use, or fewer than are up."""
        self.without = 0 if needed > have else self.without + 1
        if self.without >= _GONE:
            self.short_since_s = None
        elif self.short_since_s is None and needed > have:
            self.short_since_s = now_s
        if needed >= up:
            self.spare_since_s = None
        elif self.spare_since_s is None:
            self.spare_since_s = now_s

    def _note_refusal(self, now_s: float, quiet_s: float) -> None:
        """Note what was refused, so that it is not asked for again for a while."""
        if self.refused is not None and now_s >= self.refused[1]:
            self.refused = None
        if self.answers and self.refused is None and not self.answers[-1].noted:
            last = self.answers[-1]
            self.answers[-1] = replace(last, noted=True)
            if last.have < last.wanted:
                self.refused = (last.wanted, now_s + 2 * quiet_s)

    def _was_refused(self, machines: int, have: int) -> bool:
        return self.refused is not None and machines >= self.refused[0] > have

    def _machines(self) -> list[str]:
        return self._told(self.pool.machines)

    def _spare(self) -> list[str]:
        return self._told(self.pool.spare)

    def _told(self, ask: Callable[[], list[str]]) -> list[str]:
        try:
            return ask()
        except Exception:  # noqa: BLE001  # a pool that cannot say has none to give
            _log.exception("the pool of machines does not answer")
            return []

    def _ask(
        self, ask: Callable[[int], str], machines: int, count: Callable[[], list[str]]
    ) -> None:
        had = len(count())
        try:
            words = ask(machines)
        except Exception as error:  # noqa: BLE001  # a refusal, whatever its form, is an answer
            words = f"refused: {error}"
        answer = Answer(machines, had, len(count()), words)
        self.answers.append(answer)
        del self.answers[:-_ANSWERS]
        _log.info("machines: wanted %d, have %d: %s", answer.wanted, answer.have, answer.words)

    def close(self) -> None:
        """Wait for an answer that is under way."""
        if self.worker is not None:
            self.worker.join()


class KindsNegotiator:
    """Where machines are of several kinds: a negotiator for each, which is told how many of that
    kind there should be. While some are still to come, none of the others are given back."""

    def __init__(self, each: Mapping[str, Negotiator]) -> None:
        self.each = each
        self.wanted: Mapping[str, int] | None = None

    @property
    def capacity(self) -> int:
        """Processors there is room for now."""
        return sum(one.capacity or 0 for one in self.each.values())

    @property
    def answers(self) -> list[Answer]:
        """What became of requests, kind by kind."""
        return [answer for one in self.each.values() for answer in one.answers]

    @property
    def in_use(self) -> dict[str, int]:
        """Machines by kind."""
        return {name: one.in_use for name, one in self.each.items()}

    def want(self, now_s: float, quiet_s: float, kinds: Mapping[str, int] | None) -> None:
        """See to it that there are so many of each kind. None: as before. Returns at once."""
        self.wanted = kinds if kinds is not None else self.wanted
        if self.wanted is None:
            return
        have = self.in_use
        coming = any(have[name] < self.wanted.get(name, 0) for name in have)
        for name, one in self.each.items():
            count = max(self.wanted.get(name, 0), have[name] if coming else 0)
            one.want(count * (one.pool.processors_per_machine or 1), now_s, quiet_s)

    def close(self) -> None:
        """Wait for answers that are under way."""
        for one in self.each.values():
            one.close()
