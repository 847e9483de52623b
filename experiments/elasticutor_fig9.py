"""Elasticutor fig. 9: what it takes to move a shard, elastic (between workers of an executor)
and resource-centric (between executors of an operator): to synchronise, by the number of executors
upstream, and to hand over the state, by its size. On Spark, within one machine. From what it finds
and from the CPU time that an executor takes to receive a tuple, the simulator has its `Costs`.

Claims: to synchronise takes elastic about 2 ms whatever there is upstream, and resource-centric two
to three orders of magnitude more, growing with it; the state takes long only from 32 MB on.

Rule: to synchronise takes elastic at most 5 ms in the median, and with 16 upstream at most twice
what it takes with 1, or 1 ms more; with 16 upstream it takes resource-centric at least ten times as
long as elastic; 32 MB take at least ten times as long as 32 KB. On one machine two to three orders
may not appear, because messages take microseconds here."""

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from lab import Finding, Lab

import sojourn as sj

ENGINES = ("spark",)
NOTES = (
    "two cores; the operator sleeps 2 ms a tuple, 200 tuples a second, 64 shards; elastic: its "
    "workers change between 2 and 4; resource-centric: its executors between 2 and 4; states from "
    "32 KB to 32 MB a shard with 8 shards, and 1 executor upstream; received: as many tuples as "
    "are taken, of 128 bytes, by an executor with 4 workers that do nothing"
)
UPSTREAM = (1, 2, 4, 8, 16)
STATES = {"32 KB": 32 << 10, "1 MB": 1 << 20, "8 MB": 8 << 20, "32 MB": 32 << 20}
RATE = 200.0
PAD = "x" * 128


class Keep(sj.Operator):
    """Sleeps, counts, and keeps bytes for the first key of a shard."""

    def __init__(self, size: int) -> None:
        self.size = size

    def process(self, n: int) -> int:
        time.sleep(0.002)
        if self.size and "kept" not in self.state:
            self.state["kept"] = bytes(self.size)
        count: int = self.state.get(n, 0) + 1
        self.state[n] = count
        return count


def numbered(n: int) -> int:
    """A value."""
    return n % 512


def same(n: int) -> int:
    """It passes."""
    return n


def endless() -> Iterator[tuple[int, str]]:
    """Keys in turn, with a payload."""
    return ((n % 512, PAD) for n in itertools.count())


def first(pair: tuple[int, str]) -> int:
    """The key."""
    return pair[0]


def nothing(_pair: tuple[int, str]) -> list[Any]:
    """It makes nothing of it."""
    return []


def forget(_value: Any) -> None:
    """Nobody wants it."""


def topology(upstream: int, size: int, shards: int, executors: int) -> sj.Topology:
    """numbers → through → keep → out."""
    t = sj.Topology("moves")
    numbers = t.source("numbers", sj.sources.paced(numbered, rate=RATE))
    through = t.map("through", same, numbers, executors=upstream, processors=upstream)
    kept = t.map(
        "keep",
        Keep(size),
        through,
        key=same,
        shards=shards,
        executors=executors,
        processors=max(2, executors),
    )
    t.sink("out", sj.sinks.call(forget), kept)
    return t


def elastic(lab: Lab, upstream: int, size: int, shards: int, turns: int) -> tuple[float, float]:
    """Milliseconds to synchronise a move, and from then on, in the median of the turns."""
    with sj.start(topology(upstream, size, shards, 1), spark=lab.session()) as running:
        return moves(lab, running, (2, 4), turns)


def moves(
    lab: Lab, running: sj.Running, between: tuple[int, int], turns: int
) -> tuple[float, float]:
    """The same, of what runs, while its processors change between two numbers."""
    sync, beyond = [], []
    running.resize({"keep": between[0]})
    lab.let_pass(running, 4.0)
    running.samples()
    for turn in range(turns):
        running.resize({"keep": between[(turn + 1) % 2]})
        lab.let_pass(running, 1.0)
        for part in running.samples().vertices["keep"].parts:
            if part.moves:
                sync.append(part.sync_s * 1e3)
                beyond.append(part.moving_s * 1e3)
    return statistics.median(sync), statistics.median(beyond)


def divided(lab: Lab, upstream: int, size: int, shards: int, turns: int) -> tuple[float, float]:
    """The same for a division, whose senders all pause until it is over; the second figure is for
    one shard."""
    made = topology(upstream, size, shards, 4)
    settings = {"paradigm": "resource-centric"}

    def table(turn: int) -> list[int]:
        return [shard % (2 if turn % 2 == 0 else 4) for shard in range(shards)]

    with sj.start(made, spark=lab.session(), settings=settings) as running:
        lab.let_pass(running, 4.0)
        return divisions(lab, running, table, turns)


def divisions(
    lab: Lab, running: sj.Running, table: Callable[[int], list[int]], turns: int
) -> tuple[float, float]:
    """The same, of what runs, by the executor that each shard should belong to in each turn. The
    first is a start and does not count."""
    sync, beyond = [], []
    for turn in range(turns + 1):
        division = running.engine.divide("keep", table(turn))
        division.done.wait(60)
        if turn and division.moved:
            sync.append(division.drained_s * 1e3)
            beyond.append(division.moved_s * 1e3 / division.moved)
        lab.let_pass(running, 1.0)
    return statistics.median(sync), statistics.median(beyond)


def received(lab: Lab, seconds: float) -> float:
    """CPU time of the executor's own process for a tuple that one of its workers serves, in
    microseconds."""
    t = sj.Topology("receive")
    numbers = t.source("numbers", sj.sources.iterable(endless))
    t.operator("keep", nothing, numbers, key=first, shards=256, processors=4)
    with sj.start(t, spark=lab.session(), settings={"batch": 3600.0}) as running:
        lab.let_pass(running, 4.0)
        members = running.engine.hub.members.values()
        pid = next(member.pid for member in members if member.vertex == "keep")
        running.samples()
        used_s = cpu_s(pid)
        lab.let_pass(running, seconds)
        tuples = running.samples().vertices["keep"].served
        return (cpu_s(pid) - used_s) / tuples * 1e6


def cpu_s(pid: int) -> float:
    """Of a process, so far."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def run(lab: Lab) -> Finding:
    """Both figures, both ways."""
    turns = 6 if lab.quick else 20
    divisions = [divided(lab, n, 32 << 10, 64, turns) for n in UPSTREAM]
    syncs = {
        "elastic": [elastic(lab, n, 32 << 10, 64, turns)[0] for n in UPSTREAM],
        "resource-centric": [sync_ms for sync_ms, _ in divisions],
    }
    hand_ms = statistics.median(beyond_ms for _, beyond_ms in divisions)
    states = {
        "elastic": [elastic(lab, 1, size, 8, turns)[1] for size in STATES.values()],
        "resource-centric": [divided(lab, 1, size, 8, turns)[1] for size in STATES.values()],
    }
    receive_us = received(lab, 10.0 if lab.quick else 60.0)
    upstream_ms, pause_ms = np.polyfit(UPSTREAM, syncs["resource-centric"], 1)
    one, many = syncs["elastic"][0], syncs["elastic"][-1]
    ratio = syncs["resource-centric"][-1] / many
    large = states["elastic"][-1] / states["elastic"][0]
    flat = many <= max(2 * one, one + 1)
    holds = max(syncs["elastic"]) <= 5 and flat and ratio >= 10 and large >= 10
    verdict = (
        f"to synchronise takes elastic {one:.1f} ms with 1 and {many:.1f} ms with 16 upstream, "
        f"resource-centric {ratio:.0f} times as long; 32 MB take {large:.0f} times as long as 32 KB"
    )
    fitted = f"{pause_ms:.1f}, {upstream_ms:.2f}, {hand_ms:.2f}"
    rows = [
        ("synchronising, elastic, 1 upstream, ms", "about 2", f"{one:.2f}"),
        ("synchronising, elastic, 16 upstream, ms", "about 2", f"{many:.2f}"),
        (
            "synchronising with 16 upstream, resource-centric over elastic",
            "100 to 1000",
            f"{ratio:.0f}",
        ),
        ("32 KB of state, elastic, ms", "little", f"{states['elastic'][0]:.2f}"),
        ("32 MB of state, elastic, ms", "much", f"{states['elastic'][-1]:.0f}"),
        (
            "32 MB of state, resource-centric, ms",
            "slightly more",
            f"{states['resource-centric'][-1]:.0f}",
        ),
        ("resource-centric: ms, for each upstream, for each shard", "", fitted),
        ("CPU of the executor for a tuple, µs", "", f"{receive_us:.1f}"),
    ]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        kilobytes = [size / 1024 for size in STATES.values()]
        for paradigm, found in syncs.items():
            left.plot(UPSTREAM, found, "o-", label=paradigm)
            right.plot(kilobytes, states[paradigm], "o-", label=paradigm)
        left.set(xlabel="executors upstream", ylabel="ms to synchronise", yscale="log")
        right.set(xlabel="KB a shard", ylabel="ms to hand over", xscale="log", yscale="log")
        left.legend()

    figures = {
        "upstream": UPSTREAM,
        "sync_ms": syncs,
        "states": list(STATES),
        "move_ms": states,
        "pause_ms": float(pause_ms),
        "upstream_ms": float(upstream_ms),
        "hand_ms": hand_ms,
        "receive_us": receive_us,
    }
    return Finding(figures, rows, verdict, bool(holds), draw)
