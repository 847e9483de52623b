"""The first step of profiling (Liu 2017, §4.1): what an application is like, whatever the platform.
A small stream tells how long operators take at least and how much they pass on; algorithm 1 turns
that into ratios of tasks. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sojourn.errors import InputError

Kind = Literal["proportional", "workload", "logic"]
_LOGIC = math.sqrt(2)  # times as much comes out of twice as much, at most
_VARIES = 0.01  # scv of the tuples that one tuple makes, above which the workload decides


@dataclass(frozen=True)
class Feature:
    """An operator: how long one tuple takes at least, how many come for each source tuple, on what
    its output depends, and whether it may have more than one task."""

    least_s: float
    visits: float
    kind: Kind = "proportional"
    parallel: bool = True


@dataclass(frozen=True)
class Ratios:
    """What algorithm 1 finds: whole ratios of the tasks of operators that are scaled, and the tasks
    of those that are not."""

    scaled: Mapping[str, int]
    fixed: Mapping[str, int]

    @property
    def start(self) -> dict[str, int]:
        """Tasks to begin with."""
        return {**self.scaled, **self.fixed}


def dominated(kinds: Mapping[str, Kind], senders: Mapping[str, Sequence[str]]) -> set[str]:
    """Operators that every path from a source reaches through one that depends on logic. What comes
    to them does not grow with the load."""
    found: set[str] = set()
    changed = True
    while changed:
        changed = False
        for name in kinds.keys() - found:
            of = senders[name]
            if of and all(kinds.get(s) == "logic" or s in found for s in of):
                found.add(name)
                changed = True
    return found


def kind_of(in_1: float, out_1: float, in_2: float, out_2: float, scv: float) -> Kind:
    """On what the output of an operator depends, from the tuples per second in and out at two
    loads, and how the number varies that one tuple makes. Where little more comes out of twice as
    much, it is logic, such as a window or a ranking."""
    if not (in_1 > 0 and in_2 > in_1):
        raise InputError(f"two loads are needed, the second larger; got {in_1:g} and {in_2:g}/s")
    if out_1 > 0 and math.log(max(out_2, 1e-9) / out_1) < math.log(_LOGIC) * math.log2(in_2 / in_1):
        return "logic"
    return "workload" if scv > _VARIES else "proportional"


def ratios(
    features: Mapping[str, Feature],
    senders: Mapping[str, Sequence[str]],
    slice_: float,
    cores: int,
) -> Ratios:
    """Algorithm 1, and its decimals as small whole numbers (eq. 1, rounded up). Operators that are
    not scaled get at most as many tasks as there are cores: the printed quotient has no bound."""
    if not 0 < slice_ <= 1:
        raise InputError(f"slice must be above 0 and at most 1; got {slice_:g}")
    total = math.fsum(f.visits for f in features.values())
    loads = {n: f.least_s * f.visits / total for n, f in features.items()}
    steady = dominated({n: f.kind for n, f in features.items()}, senders)
    flow = min(
        (1 / loads[n] for n, f in features.items() if not f.parallel and loads[n] > 0),
        default=math.inf,
    )
    parallel = [n for n, f in features.items() if f.parallel]
    positive = [load for load in loads.values() if load > 0]
    least, most = min(positive, default=1.0), max(positive, default=1.0)
    fixed = {n: 1 for n, f in features.items() if not f.parallel}
    scaled = {}
    for name in parallel:
        if name in steady:
            exact = loads[name] / least if flow == math.inf else loads[name] * flow
            fixed[name] = max(1, min(cores, math.ceil(exact - 1e-9)))
        else:
            scaled[name] = max(1, math.ceil(loads[name] / most / slice_ - 1e-9))
    return Ratios(_reduced(scaled), fixed)


def _reduced(counts: Mapping[str, int]) -> dict[str, int]:
    divisor = math.gcd(*counts.values()) if counts else 1
    return {name: count // divisor for name, count in counts.items()}
