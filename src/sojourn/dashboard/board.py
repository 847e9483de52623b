"""The board: what is known of a topology now and before, in bounded memory. Fed with ticks by
whoever runs it, from any thread; read by pages, REST and metrics."""

import bisect
import heapq
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sojourn.dashboard.history import History, row_of
from sojourn.dashboard.layout import Layout, laid_out
from sojourn.dashboard.tick import About, Decision, Tick
from sojourn.dashboard.whatif import Model
from sojourn.units import format_duration

DECISIONS = 500
MARKS = 1000  # of each kind
_KINDS = ("change", "restart", "relocation", "target", "commit")
_QUIET = {"hold", "wait", "settling"}
BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)

Heard = Callable[[], None]


@dataclass(frozen=True)
class Mark:
    """What charts mark: a change, a restart, a relocation, another target or a commit, at which
    tick."""

    time_s: float
    kind: str
    told: str
    number: int


@dataclass(frozen=True)
class Entry:
    """A decision as it is listed. Those that change nothing, one after the other, are listed once,
    with the newest reason, and so is the same advice: `times` says how often, `since_s` since
    when."""

    tick: Tick
    since_s: float
    times: int = 1


@dataclass
class Totals:
    """Sums since the start, for metrics. `buckets` count trees by their sojourn, up to each of
    BUCKETS_S; `trees` and `sojourn_s` are all of them."""

    intervals: int = 0
    within: int = 0
    targeted: int = 0
    trees: float = 0.0
    sojourn_s: float = 0.0
    changes: int = 0
    buckets: list[float] = field(default_factory=lambda: [0.0] * len(BUCKETS_S))
    decisions: Counter[str] = field(default_factory=Counter)
    tuples: Counter[tuple[str, str]] = field(default_factory=Counter)  # by vertex and what became


class Board:
    """Everything that is shown. `model` gives the model of the newest tick, for what-ifs."""

    def __init__(self, about: About, history: History | None = None) -> None:
        self.about = about
        self.names = about.allocated
        self.layout: Layout = laid_out(about.kinds, about.edges)
        self.lock = threading.Lock()
        self.history = History() if history is None else history
        self.decisions: deque[Entry] = deque(maxlen=DECISIONS)
        # Each kind has room of its own, so that frequent commits push nothing else out.
        self.by_kind: dict[str, deque[Mark]] = {kind: deque(maxlen=MARKS) for kind in _KINDS}
        self.totals = Totals()
        self.tick: Tick | None = None  # the newest that ended an interval
        self.last: Tick | None = None  # the newest
        self.late_s = 0.0  # by how much clocks were set back
        self.model: Callable[[], Model | str] = lambda: "nothing was measured yet"
        self.finished = False
        self.closed = False  # nobody shows it any more
        self.paused = False
        self.problem = ""  # why there will be no more ticks, if something went wrong
        self.listeners: set[Heard] = set()

    def know(self, about: About) -> None:
        """The topology is known better, before its first tick."""
        with self.lock:
            self.about, self.names = about, about.allocated
            self.layout = laid_out(about.kinds, about.edges)
        self.tell()

    def begin(self, began_s: float) -> None:
        """Times count from this time of day."""
        self.about = replace(self.about, began_s=began_s)

    def add(self, tick: Tick, model: Callable[[], Model | str] | None = None) -> None:
        """One more tick. Its time goes on from the last one, also where a clock was set back."""
        with self.lock:
            tick = self._later(tick)
            self._mark(tick)
            self._list(tick)
            if not tick.urgent:
                self.tick = tick
                self.history.add(row_of(tick, self.names))
                self._count(tick)
            self.totals.decisions[tick.decision.action] += 1
            self.totals.changes += tick.decision.applied
            self.last = tick
            if model is not None:
                self.model = model
        self.tell()

    @property
    def marks(self) -> list[Mark]:
        """Those of all kinds, the oldest first."""
        return list(heapq.merge(*self.by_kind.values(), key=lambda mark: mark.number))

    def pause(self, paused: bool) -> None:
        """Changes are paused, or go on."""
        with self.lock:
            self.paused = paused
        self.tell()

    def end(self, problem: str = "") -> None:
        """There are no more ticks, and why, if something went wrong. What is told first counts."""
        with self.lock:
            if self.finished:
                return
            self.finished, self.problem = True, problem
        self.tell()

    def close(self) -> None:
        """Nobody shows it any more."""
        with self.lock:
            self.closed = True
        self.tell()

    def tell(self) -> None:
        """Have all listeners know that something is new."""
        for heard in list(self.listeners):
            heard()

    def _later(self, tick: Tick) -> Tick:
        time_s, last = tick.time_s + self.late_s, self.last
        if last is not None and time_s < last.time_s:
            back_s = last.time_s + tick.interval_s - time_s
            self.late_s, time_s = self.late_s + back_s, time_s + back_s
            if self.about.began_s is not None:  # so that times of day from now on are right
                self.about = replace(self.about, began_s=self.about.began_s - back_s)
        return replace(tick, time_s=time_s) if self.late_s else tick

    def _mark(self, tick: Tick) -> None:
        decision, last = tick.decision, self.last
        if decision.applied:
            self._note(tick, "change", f"{decision.action}: {decision.reason}")
        if last is None:
            return
        if tick.restarts > last.restarts:
            self._note(tick, "restart", f"restart {tick.restarts}")
        if tick.relocations > last.relocations:
            self._note(tick, "relocation", "starts anew as planned, with other machines or slots")
        if tick.commits > last.commits:
            self._note(tick, "commit", f"commit {tick.commits}")
        if tick.target_s != last.target_s:
            target = "none" if tick.target_s is None else format_duration(tick.target_s)
            self._note(tick, "target", f"another target: {target}")

    def _note(self, tick: Tick, kind: str, told: str) -> None:
        self.by_kind[kind].append(Mark(tick.time_s, kind, told, tick.number))

    def _list(self, tick: Tick) -> None:
        now, last = tick.decision, self.decisions[-1] if self.decisions else None
        if last is not None and _same(now, last.tick.decision):
            self.decisions[-1] = replace(last, tick=tick, times=last.times + 1)
        else:
            self.decisions.append(Entry(tick, tick.time_s))

    def _count(self, tick: Tick) -> None:
        totals = self.totals
        totals.intervals += 1
        if tick.within_target is not None:
            totals.targeted += 1
            totals.within += tick.within_target
        for name, vertex in tick.vertices.items():
            for what in ("arrivals", "served", "dropped", "shed"):
                totals.tuples[name, what] += getattr(vertex, what)
        sojourn = tick.sojourn
        if sojourn is None:
            return
        totals.trees += sojourn.count
        totals.sojourn_s += sojourn.count * sojourn.mean_s
        percents = [0.0, *(percent for percent, _ in sojourn.quantiles)]
        values_s = [value_s for _, value_s in sojourn.quantiles]
        for place, bound in enumerate(BUCKETS_S):
            share = percents[bisect.bisect_right(values_s, bound)] / 100
            if sojourn.max_s is not None and sojourn.max_s <= bound:
                share = 1.0
            totals.buckets[place] += share * sojourn.count


def _same(now: Decision, before: Decision) -> bool:
    """Whether both change nothing, in the same way or because all is well, or both are the same
    advice."""
    if now.applied or before.applied or now.acts != before.acts:
        return False
    if now.acts:
        return (now.action, now.allocation) == (before.action, before.allocation)
    return now.action == before.action or {now.action, before.action} <= _QUIET
