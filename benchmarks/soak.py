"""The soak, as `python benchmarks/engine.py soak`: an hour at half load with keyed state, resizes
and a commit every five seconds, in which nobody calls samples().

Rule: from the first quarter to the last, medians of readings taken every minute, no kind of process
may have more processes, more than 5 % and 10 descriptors more, or more than 10 % and 5 MB more
memory (of the JVM: live heap, 50 MB more); the checkpoint may have no more than 20 files more, and
the sink no more than one for every 32 MiB of results that came in between, and five.
"""

import itertools
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import Steal, still_usage, summary
from pyspark.sql import SparkSession

import sojourn as sj
from sojourn.sinks import JSONL_ROLL_BYTES


def same(value: Any) -> Any:
    """A no-op operator."""
    return value


class Tally(sj.Operator):
    """Counts by key: a thousand keys, so that state stays the same size."""

    def process(self, number: int) -> int:
        self.state[number % 1000] = self.state.get(number % 1000, 0) + 1
        return number


def soak(spark: SparkSession, minutes: float) -> dict[str, Any]:
    """A chain with state and a file sink at half of what it carries flat out, resized twice a
    minute; usage every minute."""

    def topology(source: sj.Source, out: str) -> sj.Topology:
        t = sj.Topology("soak")
        numbers = t.source("source", source)
        tally = t.map("tally", Tally, numbers, key=lambda n: n % 1000, processors=2)
        t.sink("out", sj.sinks.jsonl(out), t.map("same", same, tally, processors=2))
        return t

    with tempfile.TemporaryDirectory() as out:
        with sj.start(topology(sj.sources.iterable(itertools.count), out), spark=spark) as running:
            running.engine.hub.wait(lambda: bool(running.engine.hub.tracker.completed), 60)
            running.samples()
            running.engine.hub.wait(lambda: False, 10)
            sample = running.samples().vertices["out"]
        full = sample.served / sample.interval_s
    with tempfile.TemporaryDirectory() as folder:
        readings: list[dict[str, Any]] = []
        source = sj.sources.paced(lambda i: i, rate=full / 2)
        made = topology(source, f"{folder}/out")
        with (
            Steal() as steal,
            sj.start(made, spark=spark, checkpoint=f"{folder}/checkpoint") as running,
        ):
            for minute in range(1, round(minutes) + 1):
                running.engine.hub.wait(lambda: False, 28)
                running.resize({"tally": 4, "same": 3})
                running.engine.hub.wait(lambda: False, 28)
                running.resize({"tally": 2, "same": 2})
                tracker = running.engine.hub.tracker
                with running.engine.hub.changed:
                    found = {**summary(tracker.completed), "open_trees": len(tracker.trees)}
                readings.append(
                    {
                        "minute": minute,
                        **found,
                        "most_stolen": max(share for _, _, share in steal.shares[-56:]),
                        "commit": running.committed,
                        "files": files(folder),
                        "usage": still_usage(spark),
                    }
                )
                print(json.dumps(readings[-1]), file=sys.stderr, flush=True)
            restarts = running.restarts
    return {
        "flat_out_per_s": full,
        "restarts": restarts,
        "missed": grown(readings),
        "readings": readings,
    }


def files(folder: str) -> dict[str, int]:
    """How many there are, and their bytes, by the first two folders."""
    found = {"checkpoint": 0, "out": 0, "checkpoint_bytes": 0, "out_bytes": 0}
    for path in Path(folder).rglob("*"):
        kind = path.relative_to(folder).parts[0]
        try:
            if path.is_file():
                found[kind] += 1
                found[f"{kind}_bytes"] += os.stat(path).st_size
        except OSError:
            continue  # it has just gone
    return found


def grown(readings: list[dict[str, Any]]) -> list[str]:
    """What the rule does not allow."""
    quarter = max(1, len(readings) // 4)
    missed = []

    def ends(*keys: str) -> tuple[float, float]:
        def value(reading: Any) -> float:
            for key in keys:
                reading = reading[key]
            return float(reading)

        values = [value(reading) for reading in readings]
        return statistics.median(values[:quarter]), statistics.median(values[-quarter:])

    for kind in readings[-1]["usage"]:
        for what, share, more in (
            ("processes", 1.0, 0.0),
            ("descriptors", 1.05, 10.0),
            ("mb", 1.1, 50.0 if kind == "jvm" else 5.0),
        ):
            first, last = ends("usage", kind, what)
            if last > first * share and last > first + more:
                missed.append(f"{what} of {kind}: {first:.0f} to {last:.0f}")
    bytes_before, bytes_after = ends("files", "out_bytes")
    rolled = (bytes_after - bytes_before) / JSONL_ROLL_BYTES
    for kind, more in (("checkpoint", 20.0), ("out", rolled + 5)):
        first, last = ends("files", kind)
        if last > first + more:
            missed.append(f"files of {kind}: {first:.0f} to {last:.0f}, {more:.0f} more allowed")
    return missed
