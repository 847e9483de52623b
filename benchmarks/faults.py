"""Kills parts of a running topology at random moments under load, and checks that nothing is lost
or repeated.

    python benchmarks/faults.py [--rounds 3] [--json] [worker "keyed worker" executor …]
    python benchmarks/faults.py --kills 100      many in one run: benchmarks/kills.py

Each round runs a word count with keyed state at 300 words/s, kills one part with SIGKILL at a
random moment, and lets it finish. The counts must equal the truth, the file sink must hold every
result once, and each key's results must stand in order. Recovery is the longest time without
results after the kill: at most 5 s for an elastic executor, 8 s for a Spark executor of a cluster.
Commits are a second apart. A killed driver is started again at once, and its recovery includes the
start of Python and of a Java machine.
"""

import argparse
import json
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

from kills import random_kills
from pyspark.sql import SparkSession
from victims import executor, spark_executor, spark_python_worker, worker

import sojourn as sj
from sojourn.engine.spark.session import session
from sojourn.engine.spark.standalone import StandaloneCluster
from sojourn.wiring import Running

LINES = [f"the quick {i % 7} fox {i % 3}" for i in range(1800)]
TRUTH = Counter(word for line in LINES for word in line.split())


class Count(sj.Operator):
    """Counts each word."""

    def process(self, word: str) -> Iterator[tuple[str, int]]:
        self.state[word] = self.state.get(word, 0) + 1
        yield word, self.state[word]


def wordcount(out: str) -> sj.Topology:
    """lines → split → count → out."""
    t = sj.Topology("wordcount")
    lines = t.source("lines", sj.sources.iterable(lambda: LINES, rate=60, arrivals="poisson"))
    words = t.operator("split", str.split, lines, processors=2)
    counts = t.operator("count", Count, words, key=lambda word: word, shards=32, processors=2)
    t.sink("out", sj.sinks.jsonl(out), counts)
    return t


VICTIMS: dict[str, Callable[[Running], int]] = {
    "worker": lambda running: worker(running, "split"),
    "keyed worker": lambda running: worker(running, "count"),
    "executor": lambda running: executor(running, "count"),
    "source": lambda running: executor(running, "lines"),
    "sink": lambda running: executor(running, "out"),
    "spark python worker": lambda running: spark_python_worker(running, "split"),
}
BOUNDS_S = {"executor": 5.0, "source": 5.0, "sink": 5.0, "spark executor": 8.0}
ON_A_CLUSTER = {"spark executor": lambda running: spark_executor(running, "count")}


def one_round(
    spark: SparkSession, victim: Callable[[Running], int], delay_s: float
) -> dict[str, Any]:
    """Run, kill, finish, check."""
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as checkpoint:
        with sj.start(
            wordcount(out), spark=spark, checkpoint=checkpoint, settings={"commit": 1}
        ) as running:
            running.engine.hub.wait(lambda: bool(running.engine.hub.tracker.completed), 60)
            running.engine.hub.wait(lambda: False, delay_s)
            killed = time.time()
            os.kill(victim(running), signal.SIGKILL)
            with running.engine.hub.changed:
                running.engine.hub.tracker.take()
            recovered = outage(running, killed)
            finished = running.await_idle(180)
            restarts = running.restarts
        return {
            "recovery_s": recovered,
            "restarts": restarts,
            "exact": finished and is_exact(Path(out)),
        }


def drive(out: str, checkpoint: str) -> None:
    """A driver that is about to be killed, or goes on after one that was: says when the first
    tree is complete, and ends when all is counted."""
    with sj.start(wordcount(out), checkpoint=checkpoint, settings={"commit": 1}) as running:
        running.engine.hub.wait(lambda: bool(running.engine.hub.tracker.completed), 60)
        print("complete", flush=True)
        if not running.await_idle(180):
            sys.exit("not finished in time")


def one_driver(delay_s: float) -> dict[str, Any]:
    """Run a driver of its own, kill it, start it again on the same checkpoint, check."""
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as checkpoint:
        command = [sys.executable, __file__, "--drive", out, checkpoint]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            first.stdout.readline()
            try:
                first.wait(delay_s)
            except subprocess.TimeoutExpired:
                first.kill()
            killed = time.time()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            second.stdout.readline()
            recovered = time.time() - killed
            finished = second.wait(240) == 0
        exact = finished and is_exact(Path(out))
        return {"recovery_s": recovered, "restarts": 1, "exact": exact}


def outage(running: Running, killed: float) -> float:
    """The longest time without results in the quarter of a minute after the kill, in seconds."""
    last, longest = killed, 0.0
    while last - killed < 15:
        running.engine.hub.wait(lambda: bool(running.engine.hub.tracker.completed), 15.0)
        with running.engine.hub.changed:
            running.engine.hub.tracker.take()
        now = time.time()
        longest = max(longest, now - last)
        last = now
    return longest


def is_exact(out: Path) -> bool:
    """Whether every word was counted up from one, in order, to the truth."""
    last: Counter[str] = Counter()
    for path in sorted(out.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            word, number = json.loads(line)
            if number != last[word] + 1:
                return False
            last[word] = number
    return last == TRUTH


def all_rounds(names: list[str], delays: list[float]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every victim's rounds: on local Spark, on a standalone cluster, in a driver of its own."""
    spark = session(None, "local[8]", 8, "faults", 4)
    for name in [name for name in names if name in VICTIMS]:
        yield name, [one_round(spark, VICTIMS[name], delay) for delay in delays]
    spark.stop()
    if clustered := [name for name in names if name in ON_A_CLUSTER]:
        with (
            tempfile.TemporaryDirectory() as directory,
            StandaloneCluster(Path(directory)) as cluster,
        ):
            for _ in range(2):
                cluster.add(cores=4)
            spark = session(None, cluster.url, 8, "faults", 4)
            for name in clustered:
                yield name, [one_round(spark, ON_A_CLUSTER[name], delay) for delay in delays]
            spark.stop()
    if "driver" in names:
        yield "driver", [one_driver(delay) for delay in delays]


def main() -> None:
    """All victims, several rounds each; ends with code 1 if a count is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*VICTIMS, *ON_A_CLUSTER, "driver"]
    parser.add_argument("victims", nargs="*", help=f"of: {', '.join(known)}; all if none")
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=0, help="so many random ones in one run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.drive:
        drive(*options.drive)
        return
    if options.kills:
        random.seed(options.seed)
        found = random_kills(options.kills)
        print(json.dumps(found, indent=2))
        if found["missed"]:
            sys.exit("missed: " + "; ".join(found["missed"]))
        return
    for name in options.victims:
        if name not in known:
            parser.error(f"unknown victim {name!r}; known: {', '.join(known)}")
    draw = random.Random(options.seed)
    delays = [draw.uniform(0, 6) for _ in range(options.rounds)]
    results: dict[str, dict[str, Any]] = {}
    for name, rounds in all_rounds(options.victims or known, delays):
        times = [r["recovery_s"] for r in rounds]
        results[name] = {
            "rounds": len(rounds),
            "exact": sum(r["exact"] for r in rounds),
            "restarts": [r["restarts"] for r in rounds],
            "recovery_s": {
                "median": statistics.median(times),
                "least": min(times),
                "most": max(times),
            },
        }
        if not options.json:
            print(f"{name}: {json.dumps(results[name])}", flush=True)
    if options.json:
        print(json.dumps(results, indent=2))
    if any(row["exact"] < row["rounds"] for row in results.values()):
        sys.exit("a count is wrong")
    slow = [
        f"{name}: no results for {row['recovery_s']['most']:.1f} s, bound {BOUNDS_S[name]:g}"
        for name, row in results.items()
        if name in BOUNDS_S and row["recovery_s"]["most"] > BOUNDS_S[name]
    ]
    if slow:
        sys.exit("missed: " + "; ".join(slow))


if __name__ == "__main__":
    main()
