"""What the paradigms are compared on: a job of keyed operators, the popularity of its keys, a
cluster, and what things cost. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sojourn.errors import InputError

Shares = npt.NDArray[np.float64]
Paradigm = Literal["static", "resource-centric", "naive", "elastic"]
PARADIGMS: tuple[Paradigm, ...] = get_args(Paradigm)


def summed(places: npt.NDArray[np.int64], values: Shares, count: int) -> Shares:
    """The sum of the values at each of so many places."""
    return np.bincount(places, values, count).astype(np.float64)


@dataclass(frozen=True)
class Keyed:
    """An operator with a key: the CPU time of a tuple and its bytes, how many tuples it makes of it
    and their bytes, and the bytes of a shard's state. `per_order` says how many tuples it gets for
    one from outside; those with `behind` get them from that operator. It may have a number of
    executors of its own."""

    name: str
    cost_s: float = 0.001
    in_bytes: float = 128.0
    out_bytes: float = 0.0
    makes: float = 1.0
    shard_bytes: float = 32 * 1024.0
    per_order: float = 1.0
    behind: str | None = None
    executors: int | None = None


@dataclass(frozen=True)
class Popularity:
    """How tuples are spread over keys: by zipf's law. So many times a minute it is drawn anew which
    key has which rank."""

    keys: int = 10_000
    zipf: float = 0.5
    shuffles: float = 2.0  # ω, per minute
    seed: int = 0

    @property
    def turn_s(self) -> float:
        """How long a rank is kept."""
        return 60 / self.shuffles if self.shuffles else float("inf")

    def shares(self, turn: int) -> Shares:
        """Of all tuples, by key."""
        by_rank = np.arange(1, self.keys + 1, dtype=float) ** -self.zipf
        draw = np.random.default_rng([self.seed, turn])
        found: Shares = (by_rank / by_rank.sum())[draw.permutation(self.keys)]
        return found


@dataclass(frozen=True)
class Cluster:
    """Machines alike. Each has a card that carries so many bytes a second each way."""

    machines: int = 32
    cores: int = 8
    bytes_per_s: float = 125e6

    @property
    def all_cores(self) -> int:
        """Of all machines."""
        return self.machines * self.cores


@dataclass(frozen=True)
class Costs:
    """What the engine's own work takes. To move a shard takes `sync_s` and `each_s`, besides what
    its worker has in hand; its state goes at `local_bytes_per_s` within a machine. To repartition
    an operator takes `pause_s` and `upstream_s` more for each executor that sends to it, besides
    draining it; then its shards are handed over as workers do it, by all executors at once. (The
    engine sends them through the driver, which takes longer, and for which resource-centric is not
    to blame.) A tuple takes `receive_s` of its executor's receiver. These are the engine's, as
    `elasticutor_fig9` measured them on one machine. On the wire, a tuple has `frame_bytes` besides
    its own, which is assumed."""

    sync_s: float = 0.001
    each_s: float = 3e-5
    local_bytes_per_s: float = 270e6
    pause_s: float = 0.018
    upstream_s: float = 0.00016
    receive_s: float = 1.6e-6
    frame_bytes: float = 24.0
    max_queue: int = 10_000  # tuples that may wait at an executor
    period_s: float = 1.0  # between two decisions


@dataclass(frozen=True)
class Setup:
    """Operators on a cluster under a paradigm. `executors` and `shards` count per operator; where
    every core has an executor of its own, there are as many as cores."""

    operators: Sequence[Keyed] = (Keyed("calculator"),)
    popularity: Popularity = field(default_factory=Popularity)
    cluster: Cluster = field(default_factory=Cluster)
    costs: Costs = field(default_factory=Costs)
    paradigm: Paradigm = "elastic"
    executors: int = 32
    shards: int = 8192
    phi: float = 512e3
    seed: int = 0
    cores: int | None = None  # that may be used; all if None
    hash_seed: int = 1

    def __post_init__(self) -> None:
        if self.paradigm not in PARADIGMS:
            known = ", ".join(PARADIGMS)
            raise InputError(f"a paradigm must be one of {known}; got {self.paradigm!r}")
        all_executors = sum(map(self.executors_of, self.operators))
        if all_executors > self.usable:
            raise InputError(
                f"every executor needs a core: {len(self.operators)} operators with "
                f"{all_executors} executors in all are too many for {self.usable} cores"
            )

    def executors_of(self, operator: Keyed) -> int:
        """How many an operator has, where executors share out cores."""
        return self.executors if operator.executors is None else operator.executors

    @property
    def usable(self) -> int:
        """Cores that may be used."""
        return self.cluster.all_cores if self.cores is None else self.cores

    @property
    def is_elastic(self) -> bool:
        """Whether executors share out cores among them."""
        return self.paradigm in ("naive", "elastic")

    def shard_of_key(self, operator: int) -> npt.NDArray[np.int64]:
        """The shard of each key, by a hash of its own for each operator."""
        draw = np.random.default_rng([self.hash_seed, operator])
        return draw.integers(0, self.shards, self.popularity.keys)

    def shard_shares(self, turn: int, operator: int) -> Shares:
        """Of all tuples of an operator, by shard."""
        return summed(self.shard_of_key(operator), self.popularity.shares(turn), self.shards)
