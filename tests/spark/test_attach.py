"""A plain query on a real standalone cluster, with Sojourn attached: executors come and go with the
load, no row is lost, and faults are told and change nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from sojourn.attached import journal
from sojourn.engine.spark.standalone import StandaloneCluster

HERE = Path(__file__).parent
DRIVER = """
import json, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
import sojourn as sj
from plain import rows
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf
from sojourn.attached import status as st

def slow(number):
    time.sleep(0.004)
    return number

def kept(batch, number):
    Path({out!r}, str(number)).write_text(json.dumps([row.number for row in batch.collect()]))

def await_executors(attached, wanted):
    with attached.decided:
        came = attached.decided.wait_for(
            lambda: len(st.executors(attached.status)) == wanted or attached.ended.is_set(), 90)
    assert came and not attached.ended.is_set(), (wanted, list(attached.periods)[-3:])
    print("executors", wanted, flush=True)

if __name__ == "__main__":
    builder = SparkSession.builder.master({url!r}).appName("plain")
    confs = {confs!r}
    confs["spark.driver.host"] = confs["spark.driver.bindAddress"] = "127.0.0.1"
    confs["spark.executor.cores"], confs["spark.executor.memory"] = "1", "512m"
    confs["spark.log.level"], confs["spark.ui.enabled"] = "FATAL", "false"
    for key, value in confs.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    began_s = time.time()

    def start(trace):
        stream = rows(spark, trace, began_s, 4, 400)
        slowly = stream.select(udf(slow, "bigint")(col("number")).alias("number"))
        writer = slowly.writeStream.foreachBatch(kept)
        return writer.option("checkpointLocation", {checkpoint!r}).start()

{body}
    query.stop()
    spark.stop()
"""


def driven(tmp_path: Path, url: str, body: str, **confs: str) -> str:
    """What a driver says that runs a query and does something with it."""
    out = tmp_path / "out"
    out.mkdir()
    script = tmp_path / "driver.py"
    script.write_text(
        DRIVER.format(
            path=[str(HERE.parents[1] / "experiments")],
            out=str(out),
            checkpoint=str(tmp_path / "checkpoint"),
            url=url,
            confs=confs,
            body="\n".join(f"    {line}" for line in body.strip("\n").split("\n")),
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def every_row_once(tmp_path: Path) -> int:
    """How many rows were kept, each of them once."""
    kept = [
        number
        for path in (tmp_path / "out").iterdir()
        for number in json.loads(path.read_text(encoding="utf-8"))
    ]
    assert sorted(kept) == list(range(len(kept)))
    return len(kept)


def test_executors_follow_the_load_over_a_restart_and_no_row_is_lost(tmp_path: Path) -> None:
    body = f"""
query = start("0:20")
with sj.attach(spark, query, max_latency="6s", period="2s", max_executors=3,
               journal={str(tmp_path / "journal.jsonl")!r}) as attached:
    await_executors(attached, 1)
    query.stop()
    query = start(f"0:20,{{time.time() - began_s:.1f}}:600")
    await_executors(attached, 3)
"""
    with StandaloneCluster(tmp_path) as cluster:
        for _ in range(3):
            cluster.add(1)
        said = driven(tmp_path, cluster.url, body)
    assert re.findall(r"executors (\d)", said) == ["1", "3"]
    assert every_row_once(tmp_path) > 400
    header, periods = journal.read(tmp_path / "journal.jsonl")
    every = list(journal.replay(periods, header.wish))
    assert all(then.decision == again for then, again in every)
    assert any(then.seen.batches is not None for then, _ in every)
