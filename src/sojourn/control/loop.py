"""The loop: one tick is measure → model → decide → apply, and yields one record. The record is the
log line, the journal entry and what a test asserts. Fed by an engine; the pool of machines, the
journal and the screen follow it."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from sojourn.control.controller import Controller, Record, Shape
from sojourn.control.journal import Journal
from sojourn.control.negotiator import KindsNegotiator, Negotiator
from sojourn.control.situation import Action
from sojourn.control.summary import Summary, Tally
from sojourn.errors import TopologyFailed
from sojourn.ports import Engine, Pressure, Samples
from sojourn.settings import ControlSettings

_log = logging.getLogger("sojourn")
# Decisions that say something lasting about how many processors are needed.
_SETTLED = (Action.HOLD, Action.ADD, Action.REMOVE, Action.MOVE, Action.INFEASIBLE, Action.CHRONIC)
Listener = Callable[[Record], None]  # called with every tick's record
Stale = Callable[[Samples, int | None], str | None]


class ControlLoop:
    """Ticks once per interval, and between two ticks when the engine tells of pressure, until
    stopped. What listeners raise is logged, and so is a request to resize that fails; any other
    error ends the loop, and then the topology. With `advise` it changes nothing, with `act_after_s`
    nothing before that time on its clock. With `journal`, every record is written to that file.
    `stale` looks at each interval's samples and the processors there are room for, and may say why
    what was known of the topology before holds no more."""

    def __init__(
        self,
        engine: Engine,
        shape: Shape,
        settings: ControlSettings,
        negotiator: Negotiator | KindsNegotiator,
        listeners: Iterable[Listener] = (),
        *,
        advise: bool = False,
        act_after_s: float = 0.0,
        journal: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        stale: Stale | None = None,
    ) -> None:
        self.stale = stale
        self.engine, self.shape, self.negotiator = engine, shape, negotiator
        self.controller = Controller(shape, settings)
        self.settings, self.advise, self.clock = settings, advise, clock
        self.acts_from_s = clock() + act_after_s
        self.tally = Tally()
        self.journal = None if journal is None else Journal(journal, shape)
        written = () if self.journal is None else (self.journal,)
        self.listeners: tuple[Listener, ...] = (self.tally, *written, *listeners)
        self.stopping = threading.Event()
        self.woken = threading.Event()  # by pressure, or to stop
        self.pressures: deque[Pressure] = deque()
        engine.on_pressure = self.press
        self.ticked = threading.Condition()
        self.samples: Samples | None = None
        self.busy_s = 0.0

    def summary(self, restarts: int) -> Summary:
        """The summary so far."""
        return self.tally.summary(self.shape.name, restarts)

    def close(self) -> None:
        """End everything that the loop started."""
        self.negotiator.close()
        if self.journal is not None:
            self.journal.close()

    def submit(self, settings: ControlSettings) -> None:
        """Use other settings from the next tick on."""
        self.settings = settings

    def run(self) -> None:
        """Tick until stopped."""
        due = self.clock()
        while not self.stopping.is_set():
            due += self.controller.settings.interval_s
            while (left := due - self.clock()) > 0 and self.woken.wait(left):
                self.woken.clear()
                if self.stopping.is_set():
                    return
                if self.pressures:
                    self.tick(urgent=True)
            if self.stopping.is_set():
                return
            self.tick()
            due = max(due, self.clock() - self.controller.settings.interval_s)

    def stop(self) -> None:
        """Have `run` end."""
        self.stopping.set()
        self.woken.set()

    def press(self, pressure: Pressure) -> None:
        """Tick at once: something cannot wait."""
        self.pressures.append(pressure)
        self.woken.set()

    def tick(self, urgent: bool = False) -> Record:
        """One turn of measure → model → decide → apply. An urgent one takes no samples away from
        the next."""
        pressures: tuple[Pressure, ...] = ()
        if urgent:  # those that come from here on have a tick of their own
            pressures = tuple(self.pressures.popleft() for _ in range(len(self.pressures)))
        samples = self.engine.samples(peek=urgent)
        began = time.thread_time()
        controller = self.controller
        controller.settings = self.settings
        advise = self.advise or self.clock() < self.acts_from_s
        record = controller.step(samples, self.negotiator.capacity, advise, pressures)
        if self.stale is not None and not urgent:
            record = replace(record, stale=self.stale(samples, record.capacity))
        if record.applied:
            self._apply(record)
        if isinstance(self.negotiator, KindsNegotiator):
            record = replace(record, machines=self.negotiator.in_use)
        if not advise:
            self._negotiate(record)
        if not urgent:
            with self.ticked:
                self.samples = samples
                self.ticked.notify_all()
        for listener in self.listeners:
            try:
                listener(record)
            except Exception:  # noqa: BLE001  # the promise goes on, whoever cannot follow
                _log.exception("a listener of the control loop failed")
        self.busy_s += time.thread_time() - began
        return record

    def _negotiate(self, record: Record) -> None:
        """Have the machines come that the decision needs, if it says something lasting."""
        decision, quiet_s = record.decision, self.settings.about(self.settings.quiet_s)
        lasting = decision.action in ((Action.ADD,) if record.pressures else _SETTLED)
        if isinstance(self.negotiator, KindsNegotiator):
            self.negotiator.want(record.time_s, quiet_s, decision.kinds if lasting else None)
            return
        needed = decision.needed or sum(self.controller.memory.wanted.values())
        self.negotiator.want(needed if lasting else None, record.time_s, quiet_s)

    def _apply(self, record: Record) -> None:
        assert record.decision.allocation is not None
        try:
            self.engine.resize(record.decision.allocation)
        except TopologyFailed:
            raise
        except Exception:  # noqa: BLE001  # it is asked for again if it does not come
            _log.exception("the request to resize failed")
