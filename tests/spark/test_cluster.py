"""The same topology on a real standalone cluster of two workers, in a driver of its own, because
a process can have but one Spark session; and with a Spark executor killed under load."""

import json
import re
import subprocess
import sys
from pathlib import Path

from conftest import results
from test_topologies import WORDS, check_counts

from sojourn.engine.spark.standalone import StandaloneCluster

HERE = Path(__file__).parent
DRIVER = """
import os, signal, sys
sys.path[:0] = {path!r}
from pathlib import Path
import sojourn as sj
from pyspark.sql import SparkSession
from sojourn.engine.spark.archive import class_options
from sojourn.engine.spark.java import find_java
from sojourn.engine.spark.session import QUICK_JAVA
from test_topologies import LINES, wordcount
from victims import spark_executor

def start():
    \"""The number of the query, which Spark's checkpoint is named for.\"""
    return max((int(path.name) for path in Path({checkpoint!r}).glob("spark/*")), default=None)

if __name__ == "__main__":
    builder = sj.configure(SparkSession.builder.master({url!r}).appName("cluster"))
    confs = {{}}
    confs["spark.driver.host"] = confs["spark.driver.bindAddress"] = "127.0.0.1"
    confs["spark.executor.cores"], confs["spark.cores.max"] = "4", "8"
    confs["spark.executor.memory"] = "512m"
    cache = Path.home() / ".cache" / "sojourn"
    archive = class_options(find_java(os.environ, cache).home, cache)[1]
    confs["spark.executor.extraJavaOptions"] = f"{{QUICK_JAVA}} -XX:+UseSerialGC {{archive}}"
    confs["spark.log.level"] = "FATAL"
    for key, value in confs.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    topology = wordcount(Path({out!r}), LINES, 30, processors=3, executors=2)
    settings = {{"commit": 1, "batch": 8}}
    with sj.start(
        topology, spark=spark, checkpoint={checkpoint!r}, settings=settings
    ) as running:
        print("up", flush=True)
        assert running.await_commit()
        first = start()
        running.resize({{"count": 4}})
        while start() in (None, first):
            assert running.await_commit(120)
        print("moved", start() - first, "restarts before", running.restarts)
        while running.allocation()["count"] != 4:  # workers take a moment
            assert running.await_commit(120)
        print("processors", running.allocation()["count"])
        os.kill(spark_executor(running, "count"), signal.SIGKILL)
        print("killed", flush=True)
        while running.restarts == 0:
            running.await_idle(0.1)
        assert running.await_idle(120)
        print("restarts", running.restarts, flush=True)
    spark.stop()
"""


def test_a_cluster_runs_the_same_and_survives_a_killed_spark_executor(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with StandaloneCluster(tmp_path) as cluster:
        for _ in range(2):
            cluster.add(cores=4)
        script = tmp_path / "driver.py"
        script.write_text(
            DRIVER.format(
                path=[str(HERE), str(HERE.parents[1] / "benchmarks")],
                url=cluster.url,
                out=str(out),
                checkpoint=str(tmp_path / "checkpoint"),
            ),
            encoding="utf-8",
        )
        ended = subprocess.run(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=240,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout
    assert "restarts 1" in ended.stdout
    assert "processors 4" in ended.stdout  # also where an executor has moved
    assert "restarts before 0" in ended.stdout
    (moved,) = re.findall(r"moved (\d+)", ended.stdout)
    assert int(moved) > 0  # at the end of a batch Spark has put a partition elsewhere
    check_counts(results(out), WORDS)


SHEDDER = """
import collections, json, time
import sojourn as sj

def slow(number):
    time.sleep(0.01)
    return [number]

if __name__ == "__main__":
    t = sj.Topology("shedder")
    numbers = t.source("numbers", sj.sources.paced(int, rate=1000, count={count}))
    kept = t.operator("slow", slow, numbers, executors=2, processors=2, shed_after=0.1)
    t.sink("out", sj.sinks.jsonl({out!r}), kept)
    by = collections.Counter()
    with sj.start(t, master={url!r}, settings={{"commit": 1}}) as running:
        done = False
        while not done:
            done = running.await_idle(1.0)
            sample = running.samples().vertices["slow"]
            assert sum(sample.shed_by.values()) == sample.shed
            by.update(sample.shed_by)
    print(json.dumps(by))
"""


def test_each_machine_sheds_what_it_cannot_take_and_counts_it(tmp_path: Path) -> None:
    """Two machines take a hundred tuples a second each, and a thousand come."""
    count, out = 2500, tmp_path / "out"
    with StandaloneCluster(tmp_path) as cluster:
        for _ in range(2):
            cluster.add(cores=3)
        script = tmp_path / "driver.py"
        made = SHEDDER.format(count=count, out=str(out), url=cluster.url)
        script.write_text(made, encoding="utf-8")
        ended = subprocess.run(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=240,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout
    by = json.loads(ended.stdout.splitlines()[-1])
    assert len(by) == 2
    assert all(name and shed > 0 for name, shed in by.items())
    kept = results(out)
    assert len(set(kept)) == len(kept) > 0
    assert sum(by.values()) == count - len(kept)
