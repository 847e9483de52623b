"""Random kills over all kinds of process, as `python benchmarks/faults.py --kills 100`.

One topology on one checkpoint: keyed state on two levels, a split, a join and a loop, with a commit
every second. It runs in three parts, each of which goes on where the one before was stopped:

- on local Spark, 80 of 100 kills: a worker with or without a key, an elastic executor, the process
  that makes its workers, a source's, a sink's, a Python worker of Spark's;
- on a standalone cluster of two machines, 12 of 100: any of these, or a Spark executor;
- in a driver of its own, 8 of 100: the driver, which is then started again.

A kill comes up to two seconds after results have flowed again for three.

Rule: in the end every key was counted up from one to what the numbers read say, in order, each
result once. Recovery, the longest time without results after a kill, must be at most 5 s for every
elastic executor and 8 s for every Spark executor; no more than two intervals may be done again.
"""

import contextlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from machine import Steal
from pyspark.sql import SparkSession
from victims import executor, host, nursery, spark_executor, spark_python_worker, worker

import sojourn as sj
from sojourn import durable
from sojourn.engine.driver.record import last_record
from sojourn.engine.spark.session import session
from sojourn.engine.spark.standalone import StandaloneCluster
from sojourn.engine.worker import values
from sojourn.wiring import Running

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


OPERATORS = ["first", "split", "round", "total"]
VICTIMS: dict[str, Callable[[Running], int]] = {
    "worker": lambda running: worker(running, "split"),
    "keyed worker": lambda running: worker(running, random.choice(["first", "round", "total"])),
    "executor": lambda running: executor(running, random.choice(OPERATORS)),
    "nursery": lambda running: nursery(running, random.choice(OPERATORS)),
    "host": lambda running: host(running, random.choice(OPERATORS)),
    "source": lambda running: executor(running, "numbers"),
    "sink": lambda running: executor(running, "out"),
    "spark python worker": lambda running: spark_python_worker(running, "split"),
}
SPARK_EXECUTOR: dict[str, Callable[[Running], int]] = {
    "spark executor": lambda running: spark_executor(running, random.choice(OPERATORS))
}
BOUNDS_S = {"executor": 5.0, "source": 5.0, "sink": 5.0, "spark executor": 8.0}


class Kills:
    """What became of each kill, and the topology's folder."""

    def __init__(self, folder: str) -> None:
        self.checkpoint, self.out = Path(folder, "checkpoint"), Path(folder, "out")
        self.outages: dict[str, list[float]] = {}
        self.again: list[float] = []
        self.restarts = 0

    def start(self, spark: SparkSession) -> Running:
        """Begin, or go on."""
        made = topology(str(self.out))
        return sj.start(
            made, spark=spark, checkpoint=self.checkpoint, settings={"commit": COMMIT_S}
        )

    def note(self, name: str, outage_s: float) -> None:
        """Remember one, and tell."""
        self.outages.setdefault(name, []).append(outage_s)
        number = sum(map(len, self.outages.values()))
        print(f"{number}: {name} {outage_s:.1f} s", flush=True)

    def some(self, spark: SparkSession, kills: int, victims: list[str]) -> None:
        """Kill, wait for results, kill again."""
        known = VICTIMS | SPARK_EXECUTOR
        with self.start(spark) as running:
            completed(running)
            for _ in range(kills):
                name = random.choice(victims)
                running.engine.hub.wait(lambda: False, random.uniform(0.0, 2.0))
                victim, restarts = known[name](running), running.restarts
                os.kill(victim, signal.SIGKILL)
                unsafe = time.monotonic() - running.engine.supervisor.safe_s
                self.note(name, outage(running))
                if running.restarts > restarts:
                    self.again.append(unsafe)
            self.restarts += running.restarts

    def drivers(self, kills: int) -> None:
        """Kill drivers; the last one is left alone and stopped."""
        command = [sys.executable, __file__, str(self.checkpoint.parent)]
        began: float | None = None
        for number in range(kills + 1):
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as driver:
                assert driver.stdout is not None
                assert driver.stdout.readline() == "complete\n", "the driver did not come up"
                if began is not None:
                    self.note("driver", time.monotonic() - began)
                if number < kills:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        driver.wait(random.uniform(0.0, 4.0))
                    driver.kill()
                    began = time.monotonic()


def drive(folder: str) -> None:
    """A driver: says when the first tree is complete, and stops when standard input ends."""
    spark = session(None, "local[12]", 12, "kills", 10)
    with Kills(folder).start(spark) as running:
        completed(running)
        print("complete", flush=True)
        sys.stdin.read()


def random_kills(kills: int) -> dict[str, Any]:
    """All three parts; then look at what came out."""
    with tempfile.TemporaryDirectory() as folder, Steal() as steal:
        run = Kills(folder)
        drivers, on_cluster = kills * 8 // 100, kills * 12 // 100
        spark = session(None, "local[12]", 12, "kills", 10)
        run.some(spark, kills - drivers - on_cluster, list(VICTIMS))
        spark.stop()
        machines = durable.private_directory(Path(folder, "cluster"))
        with StandaloneCluster(machines) as cluster:
            for _ in range(2):
                cluster.add(cores=6)
            spark = session(None, cluster.url, 12, "kills", 10)
            run.some(spark, on_cluster, [*VICTIMS, *["spark executor"] * len(VICTIMS)])
            spark.stop()
        run.drivers(drivers)
        stolen = steal.told()
        count = position(run.checkpoint)
        wrong = differences(run.out, truth(count))
    return {
        "kills": kills,
        "restarts": run.restarts,
        "numbers": count,
        "wrong": wrong,
        "outage_s": {
            name: {"times": len(t), "median": statistics.median(t), "most": max(t)}
            for name, t in run.outages.items()
        },
        "done_again_s": {"median": statistics.median(run.again), "most": max(run.again)},
        "steal": stolen,
        "missed": wrong
        + [
            f"{name}: no results for {max(times):.1f} s, bound {BOUNDS_S[name]:g}"
            for name, times in run.outages.items()
            if max(times) > BOUNDS_S.get(name, math.inf)
        ]
        + ([f"{max(run.again):.1f} s were done again"] if max(run.again) > 2 * COMMIT_S else []),
    }


def completed(running: Running) -> None:
    """Wait until a tree that is begun from now on is complete."""
    with running.engine.hub.changed:
        running.engine.hub.tracker.take()
    running.engine.hub.wait(lambda: bool(running.engine.hub.tracker.completed), 60)


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


if __name__ == "__main__":
    drive(sys.argv[1])
