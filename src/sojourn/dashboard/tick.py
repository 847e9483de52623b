"""A tick as everything that shows one sees it, whatever made it: a control loop, a simulation, a
profile or an attached query. Made by `views`; feeds the board."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Edge:
    """From one vertex to another; `name` is what the sender's figures call it."""

    sender: str
    receiver: str
    name: str
    feedback: bool = False


@dataclass(frozen=True)
class About:
    """What does not change from tick to tick. `source` says what is shown, such as "run"; `unit`
    what is allocated. `kinds` has the kind of each vertex. Times count from `began_s`, a time of
    day where that is known."""

    name: str
    source: str
    kinds: Mapping[str, str]
    edges: tuple[Edge, ...] = ()
    unit: str = "processors"
    began_s: float | None = None
    across: str = "time"  # what goes from tick to tick: time, or rounds of trials

    @property
    def allocated(self) -> list[str]:
        """The vertices that processors are allocated to."""
        return [name for name, kind in self.kinds.items() if kind == "operator"]

    @property
    def commits(self) -> bool:
        """Whether what is shown makes any commits of ours."""
        return self.source in ("run", "journal", "simulation")


@dataclass(frozen=True)
class Part:
    """An elastic executor: its processors, how many of them are kept busy, the tuples that came,
    the share of its busiest shard, the bytes of its state, what moved, and how many of its
    processors are on which machine."""

    executor: int
    processors: int
    load: float
    arrivals: int
    hottest: float | None = None
    state: int = 0
    moves: int = 0
    moved: int = 0
    moving_s: float = 0.0
    machines: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Vertex:
    """An operator, source or sink in an interval. `rate` is what came per second. `share` is its
    part of the sojourn, `sent` how many tuples went over each edge per second. `shards` are the
    busiest, with the tuples that came for each; None without a key."""

    processors: int
    wanted: int
    busy: float
    rate: float | None
    service_s: float | None
    queue: int
    arrivals: int = 0
    served: int = 0
    dropped: int = 0
    shed: int = 0
    lag_s: float | None = None
    share: float | None = None
    arrival_scv: float | None = None
    service_scv: float | None = None
    sent: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    shards: Mapping[int, int] | None = None


@dataclass(frozen=True)
class Sojourn:
    """Sojourns of the tuple trees that were completed in an interval. `quantiles` are pairs of a
    percentage and the sojourn that so many did not exceed."""

    count: int
    mean_s: float
    p95_s: float | None
    p99_s: float | None
    max_s: float | None = None
    quantiles: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Forecast:
    """A load that is expected within so long, and by what."""

    rate: float
    horizon_s: float
    by: str


@dataclass(frozen=True)
class Decision:
    """What was decided and why. `applied` says that it was carried out; `acts` that it changes
    something, perhaps as advice only."""

    action: str
    reason: str
    acts: bool = False
    applied: bool = False
    allocation: Mapping[str, int] | None = None
    expected_s: float | None = None
    needed: int | None = None


@dataclass(frozen=True)
class Tick:
    """One turn of control. `sojourn` is that of the interval, `value_s` what the target applies to
    and `estimate_s` what the model has for that. An `urgent` tick ends no interval. `restarts`
    after failures and `relocations` are sums since the start, `commits` is the number of the last
    commit, which goes on from the checkpoint."""

    number: int
    time_s: float  # since the start
    interval_s: float
    decision: Decision
    vertices: Mapping[str, Vertex]
    wanted: Mapping[str, int]
    sojourn: Sojourn | None = None
    value_s: float | None = None
    estimate_s: float | None = None
    target_s: float | None = None
    least_s: float | None = None  # T_min
    percentile: float | None = None
    within_target: bool | None = None
    load: float | None = None
    forecast: Forecast | None = None
    most: int | None = None  # processors that may be used
    capacity: int | None = None
    machines: Mapping[str, int] | None = None
    restarts: int = 0
    relocations: int = 0  # other machines, or other task slots
    commits: int = 0
    urgent: bool = False
    note: str = ""

    @property
    def processors(self) -> int:
        """All that are there now and are allocated."""
        return sum(self.vertices[name].processors for name in self.wanted if name in self.vertices)
