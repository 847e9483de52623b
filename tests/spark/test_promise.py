"""The control loop on real Spark: a load step is answered, the journal tells why, and decides the
same again; machines of a real standalone cluster come and go."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
from conftest import results
from pyspark.sql import SparkSession

import sojourn as sj
from sojourn.control.controller import Record
from sojourn.control.journal import read_journal, replay


def nap(n: int) -> list[int]:
    time.sleep(0.02)
    return [n]


def chain(rate: Any, count: int, out: Path) -> sj.Topology:
    t = sj.Topology("naps")
    numbers = t.source("numbers", sj.sources.paced(lambda n: n, rate=rate, count=count))
    t.sink("out", sj.sinks.jsonl(out), t.operator("nap", nap, numbers))
    return t


def test_a_load_step_is_answered_and_nothing_lost(spark: SparkSession, tmp_path: Path) -> None:
    """From well within what one processor can do to three times that."""
    rate = ((6.0, 20.0), (10.0, 130.0))
    journal = tmp_path / "journal.jsonl"
    records: list[Record] = []
    summary = sj.run(
        chain(rate, 1000, tmp_path / "out"),
        spark=spark,
        max_sojourn="400ms",
        conf=["measure.interval=1s", "change.interval=1s"],
        journal=journal,
        on_tick=records.append,
    )
    added = [change for change in summary.changes if change.action == "add"]
    assert added
    assert max(change.after["nap"] for change in added) >= 3  # what 130/s of 20 ms take
    assert all("'nap'" in change.reason for change in added)
    assert sorted(results(tmp_path / "out")) == list(range(1000))
    shape, written = read_journal(journal)
    again = list(replay(shape, written, {}))
    assert len(again) == summary.ticks == len(records)
    assert not [r.record.number for r in again if r.differs]


def test_advice_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    summary = sj.run(
        chain(100.0, 300, tmp_path / "out"),
        spark=spark,
        max_sojourn="100ms",
        advise=True,
        conf=["measure.interval=1s"],
    )
    assert summary.changes == ()
    assert summary.most_processors == 1
    assert len(results(tmp_path / "out")) == 300


APP = """
import sys, time
import sojourn as sj

def nap(n):
    time.sleep(0.005)
    return [n]

t = sj.Topology("submitted")
numbers = t.source("numbers", sj.sources.paced(lambda n: n, rate=50, count=200))
t.sink("out", sj.sinks.jsonl(sys.argv[-1]), t.operator("nap", nap, numbers))

if __name__ == "__main__":
    summary = sj.run(t)
    print("target kept in", summary.within_target, "of", summary.ready, flush=True)
"""


def test_spark_submit_carries_the_settings(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP, encoding="utf-8")
    ended = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", "local[6]", "--conf", "spark.sojourn.maxSojourn=1s"),
            *("--conf", "spark.sojourn.measure.interval=1s"),
            *(str(app), str(tmp_path / "out")),
        ],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "target kept in" in ended.stdout
    assert sorted(results(tmp_path / "out")) == list(range(200))


MACHINES = """
import json, sys
sys.path[:0] = [{here!r}]
from pathlib import Path
import sojourn as sj
from sojourn.engine.driver.machines import SparkPool, StandalonePool, await_slots
from sojourn.engine.spark.standalone import StandaloneCluster
from test_promise import chain

if __name__ == "__main__":
    cluster = StandaloneCluster(Path({directory!r}))
    cluster.add(4)
    topology = chain(50.0, 1000, Path({out!r}))
    with sj.start(topology, master=cluster.url, checkpoint={checkpoint!r}) as running:
        pool = StandalonePool(cluster, running, processors=2, cores=4, most=2)
        said = [len(pool.machines()), pool.change(2), len(pool.machines())]
        said += [pool.change(3)]
        other = SparkPool(running, processors=2, most=None)
        said += [len(other.machines()), other.change(1), len(other.machines())]
        said += [other.change(2), len(other.machines())]
        said += [pool.change(1), len(pool.machines()), len(other.machines())]
        assert running.await_idle(120)
        said += [running.restarts]
        print(json.dumps(said), flush=True)
    cluster.close()
"""


def test_machines_of_a_standalone_cluster_come_and_go(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(
        MACHINES.format(
            here=str(Path(__file__).parent),
            directory=str(tmp_path),
            out=str(tmp_path / "out"),
            checkpoint=str(tmp_path / "checkpoint"),
        ),
        encoding="utf-8",
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    said = json.loads(ended.stdout.splitlines()[-1])
    assert [word for word in said if isinstance(word, int)] == [1, 2, 2, 1, 2, 1, 1, 0]
    added, refused, killed, asked, given = [word for word in said if isinstance(word, str)]
    assert added.startswith("added worker-1; tuples waited")
    assert "neither more nor fewer" in refused
    assert killed.startswith("gave back ")
    assert asked.startswith("have 2 of 2; tuples waited")
    assert given.startswith("gave back worker-1; tuples waited")
    assert sorted(results(tmp_path / "out")) == list(range(1000))
