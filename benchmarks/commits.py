"""What a commit costs, as `python benchmarks/engine.py commit`.

Rules, each within one run; seconds with more than 5 % of the CPU stolen do not count:

- stall: 200 tuples/s through an operator with 100 MB of state in 20 000 keys, of which 1 % change
  between two commits, with a commit every second and without any, in turns. The 99th percentile
  and the longest sojourn with commits must be at most 1.3 times those without, or 20 ms above.
- cpu: a commit of a million keys of which 1 % changed may take at most a twentieth of the CPU of
  one of which all changed: all processes but the JVM together, the median of three each.
- overload: a source flat out in front of an operator that sleeps 5 ms; and the chain of no-op
  operators flat out. With a commit asked for every second, none may come later than two seconds
  after the one before, results must be visible within two seconds, and `stop()` must be graceful
  and take at most ten seconds.
"""

import itertools
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from machine import Steal, cpu_seconds, sojourns, summary
from pyspark.sql import SparkSession

import sojourn as sj
from sojourn.wiring import Running

KEYS, VALUE = 20_000, bytes(5_000)
MILLION, SHARDS = 1_000_000, 64
NEVER_S = 86_400.0


class Hold(sj.Operator):
    """Replaces the value of a key with another of 5 KB."""

    def process(self, number: int) -> tuple[int]:
        self.state[number % KEYS] = number.to_bytes(8, "little") + VALUE
        return (number,)


def nothing(value: Any) -> None:
    """A no-op operator that ends the chain."""


def same(value: Any) -> Any:
    """A no-op operator."""
    return value


def nap(value: Any) -> Any:
    """5 ms of sleep."""
    time.sleep(0.005)
    return value


class Touch(sj.Operator):
    """Changes every so-many-th of a shard's keys: (shard, every)."""

    def process(self, what: tuple[int, int]) -> None:
        shard, every = what
        for key in range(shard, MILLION, SHARDS * every):
            self.state[key] = self.state.get(key, 0) + 1


def commit(spark: SparkSession, seconds: float) -> dict[str, Any]:
    """All of it."""
    found = {
        "stall": stall(spark, seconds),
        "cpu": cpu(spark),
        "overload": flat_out(spark, seconds, nap),
        "flat_out": flat_out(spark, seconds, same),
    }
    return {**found, "missed": [f"{part}: {m}" for part in found for m in found[part]["missed"]]}


def stall(spark: SparkSession, seconds: float) -> dict[str, Any]:
    """Sojourns with a commit every second and without, in turns."""
    t = sj.Topology("stall")
    fill_s = 20.0
    rate = [(fill_s, KEYS / fill_s * 1.05), (1.0, 200.0)]
    source = sj.sources.paced(lambda n: n, rate=rate, arrivals="constant")
    held = t.operator("hold", Hold, t.source("source", source), key=lambda n: n % KEYS)
    t.operator("end", nothing, held)
    found: dict[str, list[float]] = {"with": [], "without": []}
    took: list[float] = []
    with Steal() as steal, sj.start(t, spark=spark, settings={"commit": 1.0}) as running:
        running.engine.hub.wait(lambda: False, fill_s + 5)
        turns = 6
        for turn in range(turns):
            with_commits = turn % 2 == 0
            running.engine.supervisor.commit_s = 1.0 if with_commits else NEVER_S
            sojourns(running, 3)
            before = running.committed
            found["with" if with_commits else "without"] += sojourns(
                running, seconds * 2 / turns, steal
            )
            took.append(running.committed - before)
        clean = steal.told()
    told = {name: summary(values) for name, values in found.items()}
    missed = [
        f"{what} {told['with'][what]:.1f} with commits, {told['without'][what]:.1f} without"
        for what in ("p99_ms", "max_ms")
        if told["with"][what] > 1.3 * told["without"][what]
        and told["with"][what] > told["without"][what] + 20
    ]
    return {**told, "commits": took, "steal": clean, "missed": missed}


def cpu(spark: SparkSession) -> dict[str, Any]:
    """CPU of commits of a million keys, of which 1 % or all have changed."""
    with tempfile.TemporaryDirectory() as folder:
        t = sj.Topology("million")
        source = t.source("source", sj.sources.iterable(lambda: orders(Path(folder))))
        t.operator("touch", Touch, source, key=lambda what: what[0], shards=256)
        with sj.start(
            t, spark=spark, settings={"commit": NEVER_S}, checkpoint=f"{folder}/checkpoint"
        ) as running:
            ordered = 0

            def change(every: int) -> dict[str, float]:
                nonlocal ordered
                Path(folder, f"{ordered}.tmp").write_text(str(every), encoding="utf-8")
                Path(folder, f"{ordered}.tmp").rename(Path(folder, str(ordered)))
                ordered += 1
                arrived = SHARDS * ordered
                while served(running, "touch") < arrived:
                    running.engine.hub.wait(lambda: False, 0.1)
                running.engine.hub.wait(lambda: False, 1.0)
                idle_s = cpu_of(lambda: running.engine.hub.wait(lambda: False, 1.0))
                began = time.monotonic()
                used = cpu_of(running.engine.supervisor.commit)
                took = time.monotonic() - began
                settle = cpu_of(lambda: running.engine.hub.wait(lambda: False, 1.0))
                return {"cpu_s": used + settle - idle_s * (1 + took), "took_s": took}

            change(1)
            rounds = {every: [change(every) for _ in range(3)] for every in (100, 1)}
            Path(folder, "end").touch()
    few, all_ = (statistics.median(r["cpu_s"] for r in rounds[every]) for every in (100, 1))
    missed = [] if few <= all_ / 20 else [f"1 % takes {few:.3f} s of CPU, all {all_:.3f} s"]
    return {
        "one_percent_cpu_s": few,
        "all_cpu_s": all_,
        "ratio": all_ / few if few > 0 else None,
        "rounds": rounds,
        "missed": missed,
    }


def orders(folder: Path) -> Iterator[tuple[int, int]]:
    """What the benchmark asks for by files, one after the other, for every shard."""
    number = 0
    while not (folder / "end").exists():
        if (folder / str(number)).exists():
            every = int((folder / str(number)).read_text(encoding="utf-8"))
            yield from ((shard, every) for shard in range(SHARDS))
            number += 1
        else:
            time.sleep(0.02)


def served(running: Running, vertex: str) -> int:
    """Tuples that an operator has processed, ever."""
    return sum(r.served for r in running.engine.hub.poll(5.0).values() if r.vertex == vertex)


def cpu_of(action: Any) -> float:
    """CPU of the driver, executors, workers and Spark's Python workers while something is done."""
    kinds = ("driver", "executors", "spark python")
    before = cpu_seconds(*kinds)
    action()
    return cpu_seconds(*kinds) - before


class _Looker(threading.Thread):
    """Notes the age of the newest result whenever what can be seen changes."""

    def __init__(self, out: Path) -> None:
        super().__init__(daemon=True)
        self.out, self.ended = out, threading.Event()
        self.ages: list[float] = []
        self.spoilt = 0

    def run(self) -> None:
        """Until ended."""
        seen = 0.0
        while not self.ended.wait(0.05):
            for path in sorted(self.out.glob("*.jsonl"))[-1:]:
                data = path.read_bytes()
                if not data.endswith(b"\n"):
                    self.spoilt += 1
                    continue
                newest = json.loads(data.rstrip(b"\n").rpartition(b"\n")[2])
                if newest > seen:
                    seen = newest
                    self.ages.append(time.monotonic() - newest)


def stamp(_value: Any) -> float:
    """When a result was made."""
    return time.monotonic()


def flat_out(spark: SparkSession, seconds: float, work: Any) -> dict[str, Any]:
    """A source without a pace in front of an operator: when commits come, when results are seen,
    how it stops."""
    with tempfile.TemporaryDirectory() as folder:
        t = sj.Topology("overload")
        source = t.source("source", sj.sources.iterable(endless))
        worked = t.map("work", work, source)
        t.sink("out", sj.sinks.jsonl(f"{folder}/out"), t.map("stamp", stamp, worked))
        looker = _Looker(Path(folder, "out"))
        with Steal() as steal:
            running = sj.start(
                t, spark=spark, settings={"commit": 1.0}, checkpoint=f"{folder}/checkpoint"
            )
            looker.start()
            running.engine.hub.wait(lambda: False, 5.0)
            times: list[float] = []
            end = time.monotonic() + seconds
            last = running.committed
            while time.monotonic() < end:
                running.engine.hub.wait(lambda: False, 0.02)
                if running.committed > last:
                    last = running.committed
                    times.append(time.monotonic())
            sample = running.samples().vertices["work"]
            looker.ended.set()
            looker.join()
            began = time.monotonic()
            running.stop()
            stopped = time.monotonic() - began
            clean = steal.told()
    gaps = [b - a for a, b in itertools.pairwise(times)]
    ages = looker.ages[2:]
    missed = []
    if not gaps or max(gaps) > 2.0:
        missed.append(f"longest time between commits {max(gaps, default=seconds):.2f} s")
    if not ages or max(ages) > 2.0:
        missed.append(f"results seen after {max(ages, default=seconds):.2f} s")
    if looker.spoilt:
        missed.append(f"{looker.spoilt} times half a line was seen")
    if stopped > 10:
        missed.append(f"stop() took {stopped:.1f} s")
    return {
        "tuples_per_s": sample.served / sample.interval_s,
        "waiting": sample.queue,
        "commits": len(times),
        "longest_gap_s": max(gaps, default=None),
        "median_gap_s": statistics.median(gaps) if gaps else None,
        "seen_after_s": {"median": statistics.median(ages), "most": max(ages)} if ages else None,
        "stop_s": stopped,
        "steal": clean,
        "missed": missed,
    }


def endless() -> Iterator[int]:
    """Numbers."""
    number = 0
    while True:
        yield number
        number += 1
