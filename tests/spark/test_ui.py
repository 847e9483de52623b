"""What Spark's own UI shows of a topology, and what the terminal shows of Spark."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sojourn as sj
from sojourn.engine.spark import stages

SAYS = """
import sys

def check(number):
    print("checked", number, file=sys.stderr)
    return number

import sojourn as sj

t = sj.Topology("numbers")
source = t.source("numbers", sj.sources.paced(lambda n: n, rate=20, count=100))
t.sink("out", sj.sinks.call(lambda _: None), t.map("check", check, source))
"""


def asked(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.load(answer)


def test_spark_knows_the_topology_and_its_operators_by_name(spark: SparkSession) -> None:
    t = sj.Topology("shop")
    orders = t.source("orders", sj.sources.paced(lambda n: n, rate=5))
    checked = t.map("check", lambda n: n, orders)
    priced = t.map("price", lambda n: n, orders, executors=2, processors=2)
    t.sink("out", sj.sinks.call(lambda _: None), checked, priced)
    with sj.start(t, spark=spark) as running:
        assert running.summary.ui == running.ui == spark.sparkContext.uiWebUrl
        query = running.engine.supervisor.query
        assert query is not None
        assert query.name == "shop"
        assert running.engine.running_on() == {"driver"}
        tasks = stages._running(spark, str(query.runId))
        assert len(tasks) == running.engine.layout.slots == 6
        app = f"{running.ui}/api/v1/applications/{spark.sparkContext.applicationId}"
        (job,) = (job for job in asked(f"{app}/jobs?status=running"))
        assert job["description"].splitlines()[0] == "shop"
        deadline = time.monotonic() + 60
        described: list[str] = []
        while not any("check" in one for one in described):
            assert time.monotonic() < deadline, described
            active = sorted(asked(f"{app}/stages?status=active"), key=lambda one: one["stageId"])
            described = [stage["description"] for stage in active]
            time.sleep(0.2)
    assert described == ["shop: clock", "shop: orders", "shop: check, price", "shop: out"]


def run(
    tmp_path: Path, *options: str, says: str = SAYS, code: int = 0
) -> subprocess.CompletedProcess[str]:
    app = tmp_path / "app.py"
    app.write_text(says, encoding="utf-8")
    command = (sys.executable, "-m", "sojourn", "run", str(app), "--max-sojourn", "1s", *options)
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done


def test_the_terminal_shows_what_operators_print_and_nothing_of_spark(tmp_path: Path) -> None:
    done = run(tmp_path)
    lines = done.stderr.splitlines()
    said = [line for line in lines if line.startswith("checked ")]
    assert sorted(said) == sorted(f"checked {number}" for number in range(100))
    # Where the machine is busy, stopping takes long enough to be told.
    told = [line for line in lines if line not in (*said, "stopping …")]
    assert len(told) == 2, told
    starting, ui = told
    assert starting == "starting Spark …"
    assert ui.startswith("Spark's UI: http://127.0.0.1:")
    address = ui.removeprefix("Spark's UI: ")
    assert f"  Spark's UI was at {address}\n" in done.stdout


def test_verbose_shows_what_spark_says(tmp_path: Path) -> None:
    done = run(tmp_path, "--verbose", "--duration", "1s")
    assert "Setting default log level" in done.stderr


def test_a_run_that_fails_has_its_report(tmp_path: Path) -> None:
    says = SAYS.replace("    return number", "    return number if number < 60 else number / 0")
    report = tmp_path / "out.html"
    done = run(tmp_path, "--report", str(report), says=says, code=1)
    assert "error: the topology failed: " in done.stderr
    assert "division by zero" in done.stderr
    page = report.read_text(encoding="utf-8")
    assert "<h1>numbers</h1>" in page
    assert re.search("It failed: [^<]*division by zero", page)


def test_a_report_that_cannot_be_written_costs_no_summary(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    leaves = f"    if number == 99:\n        import os\n        os.rmdir({str(room)!r})\n"
    says = SAYS.replace("    return number", f"{leaves}    return number")
    done = run(tmp_path, "--report", str(room / "out.html"), says=says, code=2)
    assert "numbers: " in done.stdout
    assert "intervals" in done.stdout
    assert f"error: {room / 'out.html'}: cannot be written" in done.stderr
