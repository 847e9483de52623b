"""Runs of a plain query on a standalone cluster, in a driver of its own: rows come by a trace, and
somebody decides how many executors there are. Rows sleep in Java, so executors take little CPU.

    python experiments/plain_run.py MASTER MOST ARCHIVE [SETTINGS]

MOST executors of one slot each may be there. ARCHIVE is a file with classes that they need, with
which a start takes about half the CPU; where it is not there, they write it when they end. With
SETTINGS, as JSON, Spark's own dynamic allocation decides; else `sojourn.attach`. Each line of
standard input is a run, as JSON: `trace`, `lead_s` (seconds that do not count), `seconds` and
`attach`, its arguments. For each, a line comes out: machine-seconds, and how late results are,
after when their rows were to come. Machine-seconds count from when executors' processes start,
which on this cluster is at once when they are asked for, to when they are gone, or all rows are
done. A first run of 12 s is for nobody, as Java and Python are cold; an empty object says that it
is done.

With rows from a source in Python and a function in Python, one run under Spark's own allocation
used 81 % of two cores, and rows were a minute late. With rows from files, a batch a second and no
archive it was 90 %. So rows come from the driver's memory, and a batch every two seconds."""

import itertools
import json
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from plain import Trace, awaited, resized
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import sojourn as sj
from sojourn.attached.scaling import DriverStatus

ROW_S = 0.010
PARTITIONS = 12  # one, two, three and four executors share them evenly
SLICE_S = 0.25  # rows of so long come together
TRIGGER = "2 seconds"
LOOK_S = 0.25
DRAIN_S = 60.0  # for rows that still wait at the end


class Machines(threading.Thread):
    """Counts the processes of an application's executors, over and over."""

    def __init__(self, application: str) -> None:
        super().__init__(daemon=True)
        self.mark = application.encode()
        self.seen: list[tuple[float, int]] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Until told."""
        while not self.ended.wait(LOOK_S):
            self.seen.append((time.time(), self.count()))

    def count(self) -> int:
        """As of now."""
        found = 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:  # it has just ended
                continue
            found += b"CoarseGrainedExecutorBackend" in line and self.mark in line
        return found

    def seconds(self, since_s: float, until_s: float) -> float:
        """Machine-seconds between two times."""
        at = [(when, count) for when, count in self.seen if since_s <= when <= until_s]
        return sum(count * (b - a) for (a, count), (b, _) in itertools.pairwise(at))


def session(master: str, most: int, archive: str, settings: Mapping[str, Any]) -> SparkSession:
    """As a user would have it, but for the archive and a Java that compiles less."""
    use = "SharedArchiveFile" if Path(archive).is_file() else "ArchiveClassesAtExit"
    java = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    builder = SparkSession.builder.master(master).appName("plain")
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.cores": 1,
        "spark.cores.max": most,
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": f"{java} -XX:{use}={archive}",
        "spark.decommission.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "FATAL",
        **settings,
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class Memory:
    """A stream whose rows the driver has in memory: when each was to come."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        kind = jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream
        encoder = jvm.org.apache.spark.sql.Encoders.DOUBLE()
        self.stream = kind.apply(spark._jsparkSession, PARTITIONS, encoder)
        self.seq = jvm.PythonUtils.toSeq
        self.rows = DataFrame(self.stream.toDF(), spark)

    def add(self, times: list[float]) -> None:
        """Some more."""
        self.stream.addData(self.seq(times))


class Feeder(threading.Thread):
    """Adds rows when they are due."""

    def __init__(self, trace: Trace, began_s: float, memory: Memory) -> None:
        super().__init__(daemon=True)
        self.trace, self.began_s, self.memory = trace, began_s, memory
        self.ended = threading.Event()

    def run(self) -> None:
        """Until told."""
        done = 0
        for number in itertools.count(1):
            until_s = number * SLICE_S
            if self.ended.wait(max(0.0, self.began_s + until_s - time.time())):
                return
            due = self.trace.due(until_s)
            if due > done:
                at_s = [self.trace.at_s(row) for row in range(done, due)]
                self.memory.add([self.began_s + at for at in at_s])
            done = due


def ran(spark: SparkSession, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A run, and what came of it."""
    machines = Machines(spark.sparkContext.applicationId)
    machines.start()
    late: list[tuple[float, float]] = []  # when a row was to come, and how much later it was done

    def kept(batch: DataFrame, _number: int) -> None:
        due = [row.due for row in batch.collect()]
        done_s = time.time()
        late.extend((at, done_s - at) for at in due)

    began_s = time.time()
    counted_s, end_s = began_s + spec["lead_s"], began_s + spec["lead_s"] + spec["seconds"]
    trace = Trace(spec["trace"])
    wanted = trace.due(end_s - began_s)
    sleep = f.expr(f"reflect('java.lang.Thread', 'sleep', {round(ROW_S * 1e3)}L)")
    decisions: list[Any] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as after:
        memory = Memory(spark)
        feeder = Feeder(trace, began_s, memory)
        feeder.start()
        slowly = memory.rows.select(f.col("value").alias("due"), sleep.alias("slept"))
        writer = slowly.writeStream.foreachBatch(kept).trigger(processingTime=TRIGGER)
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
        if "attach" in spec:
            attached = after.enter_context(sj.attach(spark, query, **spec["attach"]))
        query.awaitTermination(max(1, math.ceil(end_s - time.time())))
        last = time.monotonic() + DRAIN_S
        while len(late) < wanted and query.isActive and time.monotonic() < last:
            query.awaitTermination(1)
        until_s = time.time()
        error = query.exception()
        if "attach" in spec:
            decisions = [
                (round(p.seen.time_s - began_s, 1), p.decision.executors, p.decision.why, p.note)
                for p in attached.periods
            ]
        query.stop()
        feeder.ended.set()
        feeder.join()
    machines.ended.set()
    machines.join()
    some = sorted(after_s for at, after_s in late if counted_s <= at < end_s)
    return {
        "machine_s": machines.seconds(counted_s, until_s),
        "rows": len(some),
        "done": len(late),
        "wanted": wanted,
        "late_s": {str(q): quantile(some, q / 100) for q in (50, 95, 99)},
        "machines": [
            (round(at - began_s, 2), count)
            for place, (at, count) in enumerate(machines.seen)
            if not place or machines.seen[place - 1][1] != count
        ],
        "decisions": decisions,
        "error": None if error is None else str(error)[:300],
    }


def quantile(values: list[float], share: float) -> float | None:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def main() -> None:
    """All runs that are asked for."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    master, most, archive, *more = sys.argv[1:]
    settings = json.loads(more[0]) if more else {}
    spark = session(master, int(most), archive, settings)
    if not settings:
        awaited(DriverStatus(spark), int(most))  # a standalone cluster gives all at first
    ran(spark, {"trace": "0:60,12:0", "lead_s": 0, "seconds": 12})
    print("{}", flush=True)
    for line in sys.stdin:
        spec = json.loads(line)
        if settings:
            awaited(DriverStatus(spark), int(settings["spark.dynamicAllocation.minExecutors"]))
        else:
            resized(spark, spec["attach"].get("min_executors", 1))
        print(json.dumps(ran(spark, spec)), flush=True)
    machines = Machines(spark.sparkContext.applicationId)
    spark.stop()
    while machines.count():  # an archive is whole once they are gone
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
