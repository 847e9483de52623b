"""Elasticutor fig. 9: what it takes to move a shard, elastic (between workers of an executor)
and resource-centric (between executors of an operator): to synchronise, by the number of executors
upstream, on one machine; and to hand over the state, by its size, between two machines of one host
and within one. From what it finds within one machine, and from the CPU time that an executor takes
to receive a tuple, the simulator has its `Costs`.

Claims: to synchronise takes elastic about 2 ms whatever there is upstream, and resource-centric two
to three orders of magnitude more, growing with it. Between machines, the state takes long only from
32 MB on, and resource-centric takes slightly longer; within one, it is negligible.

Rule: to synchronise takes elastic at most 5 ms in the median, and with 16 upstream at most twice
what it takes with 1, or 1 ms more; with 16 upstream it takes resource-centric at least ten times as
long as elastic; between machines, 32 MB take both at least ten times as long as 32 KB, and elastic
no longer than resource-centric. On one machine two to three orders may not appear, because messages
take microseconds here. What state takes within a machine is told, and not judged: processes do not
share it as the paper's threads do."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from lab import Finding, Lab
from moves import WARM_S, Times, divisions, elastic, moves, resource_centric, topology

import sojourn as sj

ENGINES = ("spark",)
NOTES = (
    "two cores; the operator sleeps 10 ms a tuple, 50 tuples a second, 64 shards of 32 KB; "
    "elastic: its workers change between 2 and 4; resource-centric: its executors between 2 and 4; "
    "states from 32 KB to 32 MB a shard with 8 shards, 1 executor upstream and two machines of a "
    "standalone cluster on one host, where half of the shards go to the other and back; received: "
    "as many tuples as are taken, of 128 bytes, by an executor with 4 workers that do nothing"
)
UPSTREAM = (1, 2, 4, 8, 16)
STATES = {"32 KB": 32 << 10, "1 MB": 1 << 20, "8 MB": 8 << 20, "32 MB": 32 << 20}
SMALL, SHARDS, FEW = 32 << 10, 64, 8
PAD = "x" * 128


def endless() -> Iterator[tuple[int, str]]:
    """Keys in turn, with a payload."""
    return ((n % 512, PAD) for n in itertools.count())


def first(pair: tuple[int, str]) -> int:
    """The key."""
    return pair[0]


def nothing(_pair: tuple[int, str]) -> list[Any]:
    """It makes nothing of it."""
    return []


def by_upstream(lab: Lab, upstream: int, paradigm: str, turns: int) -> Times:
    """On one machine, with so many executors upstream."""
    made = topology(upstream, SMALL, SHARDS, 1 if paradigm == "elastic" else 4)
    settings = {"paradigm": paradigm}
    with sj.start(made, spark=lab.session(), settings=settings) as running:
        if paradigm == "elastic":
            return moves(lab, running, (2, 4), turns)
        lab.let_pass(running, WARM_S)
        return divisions(lab, running, _two_or_four, turns)


def _two_or_four(turn: int) -> list[int]:
    """The executors that have the shards."""
    return [shard % (2 if turn % 2 == 0 else 4) for shard in range(SHARDS)]


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
    syncs = {
        paradigm: [by_upstream(lab, n, paradigm, turns)[0] for n in UPSTREAM]
        for paradigm in ("elastic", "resource-centric")
    }
    receive_us = received(lab, 10.0 if lab.quick else 60.0)
    lab.close()  # each cluster has a Spark of its own
    states: dict[str, dict[str, list[float]]] = {}
    for paradigm, of in (("elastic", elastic), ("resource-centric", resource_centric)):
        found = [of(lab, size, FEW, turns) for size in STATES.values()]
        states[paradigm] = {w: [times[w][1] for times in found] for w in ("between", "within")}
    upstream_ms, pause_ms = np.polyfit(UPSTREAM, syncs["resource-centric"], 1)
    one, many = syncs["elastic"][0], syncs["elastic"][-1]
    ratio = syncs["resource-centric"][-1] / many
    ours, theirs = (states[paradigm]["between"] for paradigm in states)
    large = [of[-1] / of[0] for of in (ours, theirs)]
    flat = many <= max(2 * one, one + 1)
    quick = max(syncs["elastic"]) <= 5 and flat and ratio >= 10
    holds = quick and min(large) >= 10 and ours[-1] <= theirs[-1]
    verdict = (
        f"to synchronise takes elastic {one:.1f} ms with 1 and {many:.1f} ms with 16 upstream, "
        f"resource-centric {ratio:.0f} times as long; between machines 32 MB take elastic "
        f"{ours[-1]:.0f} ms and resource-centric {theirs[-1]:.0f} ms, {large[0]:.0f} and "
        f"{large[1]:.0f} times as long as 32 KB"
    )
    rows = [
        ("synchronising, elastic, 1 upstream, ms", "about 2", f"{one:.2f}"),
        ("synchronising, elastic, 16 upstream, ms", "about 2", f"{many:.2f}"),
        (
            "synchronising with 16 upstream, resource-centric over elastic",
            "100 to 1000",
            f"{ratio:.0f}",
        ),
        ("resource-centric: ms, and for each upstream", "", f"{pause_ms:.1f}, {upstream_ms:.2f}"),
        ("CPU of the executor for a tuple, µs", "", f"{receive_us:.1f}"),
    ]
    for where, claim in (("between", ("little", "much")), ("within", ("negligible",) * 2)):
        for paradigm, by_size in states.items():
            for place, theirs_ in zip((0, -1), claim, strict=True):
                size = list(STATES)[place]
                what = f"{size} {where} machines, {paradigm}, ms"
                rows.append((what, theirs_, f"{by_size[where][place]:.2f}"))

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        kilobytes = [size / 1024 for size in STATES.values()]
        for paradigm, found in syncs.items():
            left.plot(UPSTREAM, found, "o-", label=paradigm)
            for where, style in (("between", "o-"), ("within", "o:")):
                label = f"{paradigm}, {where}"
                right.plot(kilobytes, states[paradigm][where], style, label=label)
        left.set(xlabel="executors upstream", ylabel="ms to synchronise", yscale="log")
        right.set(xlabel="KB a shard", ylabel="ms to hand over", xscale="log", yscale="log")
        left.legend()
        right.legend()

    figures = {
        "upstream": UPSTREAM,
        "sync_ms": syncs,
        "states": list(STATES),
        "move_ms": states,
        "pause_ms": float(pause_ms),
        "upstream_ms": float(upstream_ms),
        "receive_us": receive_us,
    }
    return Finding(figures, rows, verdict, bool(holds), draw)
