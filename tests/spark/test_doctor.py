"""What `sojourn doctor` finds where Spark runs."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sojourn.engine.spark import facts
from sojourn.engine.spark.session import PER_QUERY
from sojourn.engine.spark.standalone import StandaloneCluster

doctor: Any = importlib.import_module("sojourn.cli.doctor")  # the package has a function so called


def test_a_cluster_that_is_well_runs_a_topology(tmp_path: Path) -> None:
    """On this machine alone, the test of the wheel has it."""
    with StandaloneCluster(tmp_path) as cluster:
        cluster.add(6)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "sojourn", "doctor", "--master", cluster.url),
                *("--checkpoint", str(tmp_path / "checkpoint")),
            ],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    told = {line.split()[1]: line for line in done.stdout.splitlines()}
    assert told["cluster"] == f"ok    cluster   {cluster.url} answers"
    assert told["facts"].startswith("ok")
    assert told["machines"].startswith("ok    machines  1 with 6 task slots, Python 3.")
    assert "; 20 tuples came through, after " in told["topology"]
    told_meanwhile = ["starting Spark …", "waiting for a machine …", "trying a topology …"]
    assert done.stderr.splitlines() == told_meanwhile


def test_why_java_does_not_start_is_shown() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sojourn", "doctor"],
        env={**os.environ, "SPARK_SUBMIT_OPTS": "-Xss1x"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1
    assert "Invalid thread stack size: -Xss1x" in done.stderr
    (wrong,) = (line for line in done.stdout.splitlines() if line.startswith("wrong"))
    assert wrong.startswith("wrong facts     Spark does not start: ")


def test_a_cluster_without_machines_is_wrong(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_WAIT_S", 0.0)
    finding = doctor._machines(spark)
    assert str(finding).startswith("wrong machines  none came within 0 s; see in its own UI")


def test_a_spark_that_lacks_a_setting_is_wrong(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert facts.lacking(spark) == []
    monkeypatch.setitem(PER_QUERY, "spark.sql.noSuchThing", "1")
    monkeypatch.setattr(facts, "_CLOCK", "org.apache.spark.NoClock")
    (finding,) = doctor._of_session(spark, None, None)
    told = "this Spark lacks spark.sql.noSuchThing, org.apache.spark.NoClock"
    assert (finding.state, finding.found) == ("wrong", told)


def test_a_topology_that_cannot_run_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    finding = doctor._trial(spark, file)
    assert finding.state == "wrong"
    assert finding.found.startswith(f"fails: checkpoint {file}: must be a directory")
