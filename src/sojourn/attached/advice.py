"""What all who advise without acting share: a piece of advice, which query is meant, and at which
interval its batches begin. Used while a query runs by outside.py, and afterwards by eventlog.py."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sojourn.attached.progress import Batch
from sojourn.errors import InputError

_BATCHES = 50  # that tell the interval
_PAUSE = 0.2  # of the interval, for which nothing is done if batches wait for it


@dataclass(frozen=True)
class Advised:
    """A piece of advice: when, how many executors there are and should be, and why."""

    time_s: float
    executors: int
    advised: int
    why: str


def chosen(queries: Mapping[str, str | None], wanted: str | None) -> str | None:
    """The id of the query that is meant, by its name or id, of those that there are with their
    names. Unless told, it must be the only one. None if there is none at all."""
    there = ", ".join(f"{name} ({of})" if name else of for of, name in queries.items())
    if wanted is None:
        if len(queries) > 1:
            raise InputError(
                f"--query: must be given where there are several queries, by name or id; there are "
                f"{there}"
            )
        return next(iter(queries), None)
    found = [of for of, name in queries.items() if wanted in (of, name)]
    if len(found) > 1:
        raise InputError(f"--query: must be one of the ids that {wanted!r} has; there are {there}")
    if not found and queries:
        raise InputError(f"--query: must be the name or id of a query; got {wanted!r} of {there}")
    return found[0] if found else None


def interval_s(batches: Sequence[Batch]) -> float:
    """The time between the beginnings of two batches where they wait for it, as a trigger has them
    do. Zero if mostly one follows the other. Only the program that starts a query knows its
    trigger."""
    found = []
    for one, later in itertools.pairwise(list(batches)[-_BATCHES:]):
        apart_s = later.time_s - one.time_s
        found.append(apart_s if later.time_s - one.end_s > _PAUSE * apart_s else 0.0)
    return statistics.median(found) if found else 0.0
