"""What the engine costs and how fast it is, as ratios within one run.

    python benchmarks/engine.py [--json] [--quick] [latency throughput resize boundary …]

    latency     a chain of three no-op operators at 50 tuples/s, against the same chain in plain
                PySpark micro-batches with the same three shuffles
    throughput  the chain flat out with tuples of 100 bytes: bundles against single tuples, and the
                CPU per tuple against the same functions with the same pickling in one process
    resize      2 → 8 → 2 processors under load: how soon it takes effect, what tuples notice
    boundary    how long tuples stall where a batch of Spark's ends, once an hour by default
    chained     the chain with its operators in one worker (`chain=True`) against one worker each,
                at 1000 tuples/s: sojourn, CPU per tuple
    idle        what the chain costs while nothing comes, of a core, by kind of process: at most 5 %
    commit      what commits cost: benchmarks/commits.py
    soak        at half load with keyed state, resizes and commits: does anything grow?
                benchmarks/soak.py; only run when named

Operators that sleep are said to; all others are busy. Compare figures of one run only.
"""

import argparse
import json
import pickle
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from commits import commit
from machine import Steal, cpu_seconds, sojourns, summary
from pyspark.sql import SparkSession
from soak import soak

import sojourn as sj
from sojourn.engine.spark.session import session
from sojourn.wiring import Running

PAD = "x" * 100
KINDS = ("driver", "jvm", "spark python", "executors")
IDLE = 0.05  # of a core


def same(value: Any) -> tuple[Any]:
    """A no-op operator."""
    return (value,)


def nothing(value: Any) -> None:
    """A no-op operator that ends the chain."""


def nap(value: Any) -> Any:
    """10 ms of sleep."""
    time.sleep(0.01)
    return value


def chain(source: sj.Source, chained: bool = False) -> sj.Topology:
    """Three no-op operators behind a source."""
    t = sj.Topology("chain")
    a = t.operator("a", same, t.source("source", source))
    t.operator("c", nothing, t.operator("b", same, a, chain=chained), chain=chained)
    return t


def latency(spark: SparkSession, seconds: float) -> dict[str, Any]:
    """The chain at 50/s on the engine, then as micro-batches."""
    ours = latency_of_engine(spark, seconds)
    micro = micro_batches(spark, seconds)
    return {
        "engine": ours,
        "micro_batches": micro,
        "ratio": micro["median_ms"] / ours["median_ms"],
        "bound": 30,
    }


def latency_of_engine(spark: SparkSession, seconds: float) -> dict[str, float]:
    """The chain at 50/s."""
    source = sj.sources.paced(lambda _: PAD, rate=50, arrivals="constant")
    with sj.start(chain(source), spark=spark) as running:
        sojourns(running, 5)
        return summary(sojourns(running, seconds))


def micro_batches(spark: SparkSession, seconds: float, rate: int = 50) -> dict[str, float]:
    """The same chain as plain PySpark: rate source, three Python stages, three shuffles."""
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.pandas.udf.buffer.size": "65536",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
    }
    kept = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)

    def stage(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    rows = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
    for _ in range(3):
        rows = rows.repartition(1, "value").mapInArrow(stage, rows.schema)
    times: list[float] = []

    def arrived(batch: Any, _number: int) -> None:
        stamps = [row.timestamp.timestamp() for row in batch.collect()]
        now = time.time()
        times.extend(now - stamp for stamp in stamps)

    query = rows.writeStream.foreachBatch(arrived).start()
    deadline = time.monotonic() + 10 + seconds
    try:
        while time.monotonic() < deadline and query.isActive:
            query.awaitTermination(1)
            if time.monotonic() < deadline - seconds:
                times.clear()
    finally:
        query.stop()
        for key, old in kept.items():
            spark.conf.set(key, str(old))
    return summary(times)


def throughput(spark: SparkSession, count: int) -> dict[str, Any]:
    """Flat out, with bundles and without, and the CPU of both it and the floor."""
    bundles = flat_out(spark, count)
    single = flat_out(spark, max(2000, count // 200), maxBundle=1)
    floor = floor_cpu(count)
    return {
        "bundles": bundles,
        "single_tuples": single,
        "ratio": bundles["tuples_per_s"] / single["tuples_per_s"],
        "bound": 20,
        "floor_cpu_us_per_tuple": floor * 1e6,
        "cpu_over_floor": bundles["cpu_us_per_tuple"] / (floor * 1e6),
    }


def flat_out(spark: SparkSession, count: int, **settings: object) -> dict[str, float]:
    """Tuples per second through three operators, and CPU time per tuple of all processes."""
    source = sj.sources.iterable(lambda: (PAD for _ in range(count)))
    with sj.start(chain(source), spark=spark, settings={"batch": 600, **settings}) as running:
        running.engine.hub.wait(lambda: bool(running.engine.hub.tracker.completed), 60)
        cpu, start = cpu_seconds(), time.monotonic()
        before = served(running)
        while not running.await_idle(0.2):
            pass
        seconds = time.monotonic() - start
        tuples = served(running) - before
        used = cpu_seconds() - cpu
    return {"tuples_per_s": tuples / seconds, "cpu_us_per_tuple": used / tuples * 1e6}


def served(running: Running) -> int:
    """Tuples that the last operator has received."""
    return sum(r.arrivals for r in running.engine.hub.poll(5.0).values() if r.vertex == "c")


def floor_cpu(count: int) -> float:
    """CPU seconds per tuple of the three functions with the engine's pickling, in one process."""
    functions: list[Callable[[Any], Any]] = [same, same, nothing]
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(count):
        payloads = [pickle.dumps(PAD, protocol=5)]
        for function in functions:
            results = function(pickle.loads(payloads[0])) or ()
            payloads = [pickle.dumps(result, protocol=5) for result in results]
    after = resource.getrusage(resource.RUSAGE_SELF)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) / count


def resize(spark: SparkSession, seconds: float) -> dict[str, Any]:
    """A sleeping operator of 10 ms at 100 tuples/s, from 2 to 8 processors and back."""
    t = sj.Topology("resize")
    source = sj.sources.paced(lambda _: PAD, rate=100, arrivals="constant")
    t.operator("end", nothing, t.map("nap", nap, t.source("source", source), processors=2))
    with sj.start(t, spark=spark, settings={"batch": 600}) as running:
        sojourns(running, 5)
        steady = summary(sojourns(running, seconds))
        changes = {}
        for wanted in (8, 2):
            start = time.monotonic()
            running.resize({"nap": wanted})
            while running.allocation()["nap"] != wanted:
                if time.monotonic() - start > 10:
                    sys.exit("resize did not take effect within 10 s")
            effective = time.monotonic() - start
            changes[f"to_{wanted}"] = {
                "effective_ms": effective * 1e3,
                **summary(sojourns(running, seconds / 2)),
            }
        restarts = running.restarts
    worst = max(change["max_ms"] for change in changes.values())
    return {
        "steady": steady,
        **changes,
        "restarts": restarts,
        "worst_over_steady_p99": worst / steady["p99_ms"],
        "bounds": {"effective_ms": 100, "worst_over_steady_p99": 3},
    }


def boundary(spark: SparkSession, batches: int) -> dict[str, Any]:
    """The longest sojourn around each batch end, with batches of ten seconds."""
    source = sj.sources.paced(lambda _: PAD, rate=100, arrivals="constant")
    with sj.start(chain(source), spark=spark, settings={"batch": 10}) as running:
        sojourns(running, 5)
        stalls = [max(sojourns(running, 10)) for _ in range(batches)]
    return {
        "stall_ms": {
            "median": statistics.median(stalls) * 1e3,
            "least": min(stalls) * 1e3,
            "most": max(stalls) * 1e3,
        }
    }


def chained(spark: SparkSession, seconds: float) -> dict[str, Any]:
    """What a hop costs, by leaving two of three out."""
    found: dict[str, Any] = {}
    for name, together in (("apart", False), ("together", True)):
        made = chain(sj.sources.paced(lambda _: PAD, rate=1000), together)
        with Steal() as steal, sj.start(made, spark=spark) as running:
            running.engine.hub.wait(lambda: bool(running.engine.hub.tracker.completed), 60)
            running.engine.hub.wait(lambda: False, 5)
            running.samples()
            before = cpu_seconds()
            rows = sojourns(running, seconds, steal)
            used, tuples = cpu_seconds() - before, running.samples().vertices["c"].served
            found[name] = {**summary(rows), "cpu_us": used / tuples * 1e6}
    return {**found, "cpu_ratio": found["apart"]["cpu_us"] / found["together"]["cpu_us"]}


def idle(spark: SparkSession, seconds: float) -> dict[str, Any]:
    """CPU of all processes while the source has nothing to read."""

    def one() -> Iterator[int]:
        yield 0
        threading.Event().wait()

    with sj.start(chain(sj.sources.iterable(one)), spark=spark) as running:
        running.engine.hub.wait(lambda: bool(running.engine.hub.tracker.completed), 60)
        running.engine.hub.wait(lambda: False, 10)
        before, began = {kind: cpu_seconds(kind) for kind in KINDS}, time.monotonic()
        running.engine.hub.wait(lambda: False, seconds)
        took = time.monotonic() - began
        cores = {kind: (cpu_seconds(kind) - before[kind]) / took for kind in KINDS}
    total = sum(cores.values())
    missed = [f"idle: {total:.1%} of a core, {IDLE:.0%} allowed"] if total > IDLE else []
    return {"core": total, "by_kind": cores, "missed": missed}


def main() -> None:
    """Run what is asked for; end with code 1 where a figure misses its bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="which; all but commit and soak if none")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--minutes", type=int, help="length of the soak, instead of 60")
    options = parser.parse_args()
    parts = options.parts or ["latency", "throughput", "resize", "boundary", "chained", "idle"]
    seconds = 10 if options.quick else 30
    spark = session(None, "local[8]", 8, "benchmark", 10)
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "latency": lambda: latency(spark, seconds),
        "throughput": lambda: throughput(spark, 400_000 if options.quick else 2_000_000),
        "resize": lambda: resize(spark, seconds),
        "boundary": lambda: boundary(spark, 2 if options.quick else 6),
        "chained": lambda: chained(spark, seconds),
        "idle": lambda: idle(spark, seconds),
        "commit": lambda: commit(spark, seconds),
        "soak": lambda: soak(spark, options.minutes or (4 if options.quick else 60)),
    }
    results = {}
    for part in parts:
        print(f"{part} …", file=sys.stderr, flush=True)
        results[part] = work[part]()
        if not options.json:
            print(f"{part}: {json.dumps(results[part], indent=2)}", flush=True)
    spark.stop()
    if options.json:
        print(json.dumps(results, indent=2))
    missed = [
        f"{part}: ratio {result['ratio']:.1f}, bound {result['bound']}"
        for part, result in results.items()
        if "bound" in result and result["ratio"] < result["bound"]
    ]
    if "resize" in results:
        for name, most in results["resize"]["bounds"].items():
            found = results["resize"].get(name)
            worst = (
                found
                if found is not None
                else max(results["resize"][key][name] for key in ("to_8", "to_2"))
            )
            if worst > most:
                missed.append(f"resize: {name} {worst:.1f}, bound {most}")
    for result in results.values():
        missed += result.get("missed", [])
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
