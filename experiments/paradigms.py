"""What the experiments of Elasticutor share: the micro-benchmark's job under the four paradigms, in
virtual time, and how what came out is told.

The costs of the engine's own work are those that elasticutor_fig9 measured on Spark; none is fitted
to the paper's figures. What the paper does not say is chosen: sources send as
much as is taken, an executor may have 10 000 tuples waiting, and a decision is made every
second."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lab import Lab

from sojourn.simulator.elastic.flow import FlowRun, Outcome
from sojourn.simulator.elastic.job import Keyed, Paradigm, Popularity, Setup

ENGINES = ("simulator",)
THREE: tuple[Paradigm, ...] = ("static", "resource-centric", "elastic")
WARM_S = 10.0  # left out at the start
NOTES = (
    "virtual time, as a flow, which lies within 5 % of single tuples on four machines; 32 machines "
    "of 8 cores with 1 Gb/s each, 10 000 keys by zipf 0.5, 1 ms and 128 bytes a tuple, 32 KB a "
    "shard, 32 executors and 8192 shards, unless said otherwise; what the engine itself costs is "
    "as elasticutor_fig9 measured it"
)


def seconds(lab: Lab) -> float:
    """Three virtual minutes a point; one in quick runs."""
    return 60.0 if lab.quick else 180.0


def micro(
    paradigm: Paradigm,
    shuffles: float = 2.0,
    *,
    cost_s: float = 0.001,
    size: float = 128.0,
    state: float = 32 * 1024.0,
    **more: Any,
) -> Setup:
    """The micro-benchmark of §5.1."""
    keyed = Keyed("calculator", cost_s=cost_s, in_bytes=size, shard_bytes=state)
    return Setup(
        operators=(keyed,), popularity=Popularity(shuffles=shuffles), paradigm=paradigm, **more
    )


EVENTS = (
    "moving average",
    "composite index",
    "vwap",
    "volume",
    "spread",
    "volatility",
    "price alarm",
    "volume spike",
    "large trade",
    "fast move",
    "halt on limit",
)
SSE_NOTES = (
    "virtual time, as a flow; 32 machines of 8 cores with 1 Gb/s each; orders of 96 bytes take the "
    "transactor 1 ms, every other order makes a trade of 160 bytes, which takes each of the eleven "
    "operators behind it 0.1 ms; 32 executors of the transactor and 4 of each other, as twelve "
    "times 32 would need more cores than there are; 8192 shards each; 1500 stocks by zipf 0.35, "
    "so that none alone needs more than a core, drawn anew six times a minute; sources send as "
    "much as is taken, unless said otherwise; what the engine itself costs is as elasticutor_fig9 "
    "measured it"
)


def sse(paradigm: Paradigm, **more: Any) -> Setup:
    """The stock exchange of §5.4."""
    first = "transactor"
    transactor = Keyed(first, 0.001, 96.0, 160.0, makes=0.5 * len(EVENTS))
    behind = [
        Keyed(name, 0.0001, 160.0, shard_bytes=4096.0, per_order=0.5, behind=first, executors=4)
        for name in EVENTS
    ]
    return Setup(
        operators=(transactor, *behind),
        popularity=Popularity(keys=1500, zipf=0.35, shuffles=6.0),
        paradigm=paradigm,
        executors=32,
        shards=8192,
        **more,
    )


def ran(setup: Setup, seconds_: float, offered: float = math.inf) -> Outcome:
    """As many tuples as are taken, or as are offered, for so long."""
    return FlowRun(setup, offered).run(seconds_)


def rate(outcome: Outcome) -> float:
    """Tuples per second, once it is warm."""
    return outcome.rate(WARM_S, len(outcome.served) * outcome.step_s)


def dips(outcome: Outcome, turn_s: float) -> list[float]:
    """After each shuffle, for how many seconds less than 90 % is carried of the mean of the five
    seconds before it, over a sliding second."""
    step_s = outcome.step_s
    by_second = outcome.rates(1.0)
    found = []
    last = len(outcome.served) * step_s
    shuffle_s = turn_s
    while shuffle_s + turn_s <= last:
        usual = outcome.rate(shuffle_s - 5, shuffle_s)
        begin, end = (round((t - 1.0) / step_s) for t in (shuffle_s, shuffle_s + turn_s))
        found.append(float((by_second[begin:end] < 0.9 * usual).sum()) * step_s)
        shuffle_s += turn_s
    return found


def lines(
    figure: Any, of: Sequence[tuple[str, Iterable[float], Iterable[float]]], **axes_: Any
) -> Any:
    """Some lines on a figure of matplotlib."""
    axes = figure.add_subplot()
    for label, x, y in of:
        axes.plot(list(x), list(y), "o-", label=label)
    axes.set(**axes_)
    axes.legend()
    axes.grid(alpha=0.3)
    return axes


def on_machines(setup: Setup, machines: int) -> Setup:
    """The same on so many machines, with an executor for each."""
    return replace(setup, cluster=replace(setup.cluster, machines=machines), executors=machines)
