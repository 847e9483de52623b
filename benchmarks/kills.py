"""Random kills over all kinds of process, as `python benchmarks/faults.py --kills 100`.

One topology runs all the time: keyed state on two levels, a split, a join and a loop, with a commit
every second. Again and again, a while after results have come, a random process is killed: a
worker with or without a key, an elastic executor, a source's, a sink's, a Python worker of Spark's.

Rule: in the end every key was counted up from one to what the numbers read say, in order, each
result once. Recovery, the longest time without results after a kill, must be at most 5 s for every
elastic executor; no more than two intervals may be done again.
"""

import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from machine import Steal
from pyspark.sql import SparkSession
from victims import executor, spark_python_worker, worker

import sojourn as sj
from sojourn.engine.driver.record import last_record
from sojourn.engine.driver.running import Running
from sojourn.engine.worker import values

RATE, COMMIT_S = 100.0, 1.0


class First(sj.Operator):
    """Counts by the first key."""

    def process(self, n: int) -> Iterator[tuple[str, int]]:
        self.state[n % 20] = self.state.get(n % 20, 0) + 1
        yield "first", n % 20


class Round(sj.Operator):
    """Counts down to zero over the loop, remembering each."""

    def process(self, n: int) -> Iterator[Any]:
        self.state.setdefault(n, []).append(1)
        yield "round", n
        if n:
            yield sj.Output("again", n - 1)


class Total(sj.Operator):
    """Counts what comes from anywhere."""

    def process(self, key: tuple[str, int]) -> Iterator[tuple[str, int, int]]:
        self.state[key] = self.state.get(key, 0) + 1
        yield (*key, self.state[key])


def split(n: int) -> list[Any]:
    """One for the join, one for the loop."""
    return [("plain", n % 7), sj.Output("loop", n % 4)]


def topology(out: str) -> sj.Topology:
    """numbers → first, split → round (loop) → total (join) → out."""
    t = sj.Topology("kills")
    numbers = t.source("numbers", sj.sources.paced(lambda n: n, rate=RATE, arrivals="poisson"))
    first = t.operator("first", First, numbers, key=lambda n: n % 20, shards=32, processors=2)
    both = t.operator("split", split, numbers, processors=2)
    rounds = t.operator("round", Round, both["loop"], key=lambda n: n, shards=8, processors=2)
    t.feedback(rounds["again"], rounds)
    total = t.operator(
        "total", Total, first, both, rounds, key=lambda k: k, shards=32, processors=2
    )
    t.sink("out", sj.sinks.jsonl(out), total)
    return t


def truth(count: int) -> Counter[tuple[str, int]]:
    """How often each key is counted after so many numbers."""
    found: Counter[tuple[str, int]] = Counter()
    for n in range(count):
        found["first", n % 20] += 1
        found["plain", n % 7] += 1
        found.update(("round", r) for r in range(n % 4 + 1))
    return found


VICTIMS: dict[str, Callable[[Running], int]] = {
    "worker": lambda running: worker(running, "split"),
    "keyed worker": lambda running: worker(running, random.choice(["first", "round", "total"])),
    "executor": lambda running: executor(
        running, random.choice(["first", "split", "round", "total"])
    ),
    "source": lambda running: executor(running, "numbers"),
    "sink": lambda running: executor(running, "out"),
    "spark python worker": lambda running: spark_python_worker(running, "split"),
}


def random_kills(spark: SparkSession, kills: int) -> dict[str, Any]:
    """Kill, wait for results, kill again; then look at what came out."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, out = Path(folder, "checkpoint"), Path(folder, "out")
        outages: dict[str, list[float]] = {}
        again: list[float] = []
        made = topology(str(out))
        with (
            Steal() as steal,
            sj.start(made, spark=spark, checkpoint=checkpoint, commit_s=COMMIT_S) as running,
        ):
            completed(running)
            for number in range(kills):
                name = random.choice(list(VICTIMS))
                running.hub.wait(lambda: False, random.uniform(0.0, 2.0))
                victim, restarts = VICTIMS[name](running), running.restarts
                os.kill(victim, signal.SIGKILL)
                unsafe = time.monotonic() - running.supervisor.safe_s
                outages.setdefault(name, []).append(outage(running))
                if running.restarts > restarts:
                    again.append(unsafe)
                print(f"{number + 1}: {name} {outages[name][-1]:.1f} s", flush=True)
            restarts = running.restarts
            stolen = steal.told()
        count = position(checkpoint)
        wrong = differences(out, truth(count))
    slow = {
        name: max(times) for name, times in outages.items() if name != "worker" and max(times) > 5
    }
    return {
        "kills": kills,
        "restarts": restarts,
        "numbers": count,
        "wrong": wrong,
        "outage_s": {
            name: {"times": len(t), "median": statistics.median(t), "most": max(t)}
            for name, t in outages.items()
        },
        "done_again_s": {"median": statistics.median(again), "most": max(again)},
        "steal": stolen,
        "missed": wrong
        + [f"{name}: no results for {t:.1f} s" for name, t in slow.items()]
        + ([f"{max(again):.1f} s were done again"] if max(again) > 2 * COMMIT_S else []),
    }


def completed(running: Running) -> None:
    """Wait until a tree that is begun from now on is complete."""
    with running.hub.changed:
        running.hub.tracker.take()
    running.hub.wait(lambda: bool(running.hub.tracker.completed), 60)


def outage(running: Running) -> float:
    """The longest time without results, of the kill and of three seconds with results after it."""
    longest, last, steady = 0.0, time.monotonic(), 0.0
    while steady < 3.0:
        completed(running)
        gap = time.monotonic() - last
        last += gap
        steady = 0.0 if gap > 1.0 else steady + gap
        longest = max(longest, gap)
    return longest


def position(checkpoint: Path) -> int:
    """How many numbers the last commit has behind it."""
    for part in last_record(checkpoint).parts:
        if part.vertex == "numbers":
            return int(values.loads(part.position)[1])
    return 0


def differences(out: Path, expected: Counter[tuple[str, int]]) -> list[str]:
    """Where results are not each key counted up from one, in order, to the truth."""
    last: Counter[tuple[str, int]] = Counter()
    wrong = []
    for path in sorted(out.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            kind, key, number = json.loads(line)
            if number != last[kind, key] + 1:
                wrong.append(f"{kind} {key}: {number} after {last[kind, key]}")
            last[kind, key] = number
    wrong += [
        f"{key}: {last[key]} of {expected[key]}"
        for key in {*last, *expected}
        if last[key] != expected[key]
    ]
    return wrong[:20]
