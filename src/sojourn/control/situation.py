"""What a decision is based on, and what it is. Frozen values, made by the controller, read by
`review` and `decide`, written to the journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sojourn.control.measure import Measure
from sojourn.control.model import Bias, bare_of, estimate_of
from sojourn.queueing.network import Network
from sojourn.settings import ControlSettings
from sojourn.units import format_duration as told

RETRIES = 3  # times that a change which does not come is asked for again


class Action(StrEnum):
    """What a decision does."""

    HOLD = "hold"
    NOT_READY = "not ready"
    SETTLING = "settling"
    WAIT = "wait"
    INFEASIBLE = "infeasible"
    ADD = "add"
    REMOVE = "remove"
    MOVE = "move"
    ROLL_BACK = "roll back"
    RETRY = "retry"


ACTING = frozenset({Action.ADD, Action.REMOVE, Action.MOVE, Action.ROLL_BACK, Action.RETRY})


@dataclass(frozen=True)
class Change:
    """A change that was decided: when, from what, what was measured before it and
    expected of it at which external rate, and whether what was there before kept up. `worse`
    counts the intervals that speak against it; once it is `reviewed`, nothing more does."""

    time_s: float
    before: Mapping[str, int]
    action: Action
    measured_s: float | None
    expected_s: float | None
    rate: float
    kept_up: bool
    worse: int = 0
    reviewed: bool = False


@dataclass(frozen=True)
class Rejected:
    """What was rolled back, at which external rate, and until when it is not tried again."""

    allocation: Mapping[str, int]
    action: Action
    rate: float
    until_s: float


@dataclass(frozen=True)
class Memory:
    """What is remembered from tick to tick: since when fewer processors would do, and how many
    would have all that time; for how many intervals in a row the target was missed, an operator
    could not keep up, a resize was asked for again."""

    change: Change | None = None
    low_since_s: float | None = None
    enough: Mapping[str, int] = field(default_factory=dict)
    above: int = 0
    behind: int = 0
    retries: int = 0
    idle_since_s: float | None = None
    rejected: tuple[Rejected, ...] = ()
    bias: Bias = field(default_factory=Bias)


@dataclass(frozen=True)
class Limits:
    """What each operator must and may have, and what there is in all."""

    minimum: Mapping[str, int]
    maximum: Mapping[str, int]
    fixed: Mapping[str, int]  # sinks, which stay as they are
    capacity: int | None = None


@dataclass(frozen=True)
class Situation:
    """All that a decision is based on. `network` has the smoothed rates, `newest` those of the
    last interval where they are higher. `excess` says how many tuples wait at an operator beyond
    what is usual, `draining` how many processors work that off within an interval, `rising` that
    the load has gone up by more than chance in the last interval."""

    now_s: float
    latest: Measure
    smooth: Measure
    network: Network
    newest: Network
    excess: Mapping[str, float]
    draining: Mapping[str, int]
    rising: bool
    wanted: Mapping[str, int]
    limits: Limits
    memory: Memory
    settings: ControlSettings

    @property
    def current(self) -> dict[str, int]:
        """The processors that operators have."""
        return {name: self.latest.operators[name].processors for name in self.wanted}

    @property
    def most(self) -> int | None:
        """Processors that may be used in all."""
        known = [n for n in (self.settings.max_processors, self.limits.capacity) if n is not None]
        return min(known, default=None)

    @property
    def backlog(self) -> str:
        """What waits beyond what is usual, in words; nothing if nothing."""
        if self.latest.backlog_s > self.settings.interval_s / 2:
            return f"sources are {told(self.latest.backlog_s)} behind"
        for name in self.wanted:
            if self.excess[name] > 0:
                return f"{self.latest.operators[name].queue} tuples wait at {name!r}"
        return ""

    @property
    def keeps_up(self) -> bool:
        """Whether the processors there are suffice for what arrives."""
        return all(self.newest.stations[n].is_stable(k) for n, k in self.current.items())

    def total(self, allocation: Mapping[str, int]) -> int:
        """Processors of operators; sinks do not count."""
        return sum(allocation[name] for name in self.wanted)

    def estimate(self, network: Network, allocation: Mapping[str, int]) -> float:
        """What will be measured with an allocation, as far as is known."""
        whole = {**self.limits.fixed, **allocation}
        raw = estimate_of(network, whole, self.settings.percentile)
        return self.memory.bias.correct(raw, bare_of(network, self.settings.percentile))


@dataclass(frozen=True)
class Decision:
    """What to do and why. `needed` is how many processors it would take, also if there are not
    that many; `expected_s` what the allocation in force from now on should show; `enough` fewer
    processors that would do; `forced` that there was no choice, so that nobody is to judge it."""

    action: Action
    reason: str
    allocation: Mapping[str, int] | None = None
    expected_s: float | None = None
    needed: int | None = None
    enough: Mapping[str, int] | None = None
    forced: bool = False
