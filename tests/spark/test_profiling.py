"""Profiling on real Spark: trials are measured, and a profile that holds no more is told of and
made again in a process of its own."""

import itertools
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sojourn as sj
from sojourn.cli.app import load_topology
from sojourn.cli.recalibrate import Watch
from sojourn.control.journal import read_journal
from sojourn.ports import Parallelism
from sojourn.profile import SparkPlatform
from sojourn.profiler.readings import Reading
from sojourn.profiler.rounds import run
from sojourn.profiler.trial import Measured, Proposal, Verdict
from sojourn.settings import ControlSettings, EngineSettings

SHORT = Reading(seconds=0.5, count=4, group=2, steadies=2)

APP = """
import sojourn as sj

def double(n):
    return 2 * n

t = sj.Topology("numbers")
t.sink("out", sj.sinks.call(print), t.map("double", double, t.source(
    "numbers", sj.sources.paced(lambda n: n, rate=100.0))))
"""
PROFILE = """
name: numbers
sources: {numbers: {rate: 100/s}}
operators: {double: {service_time: 10s}}
edges: [{from: numbers, to: double}]
profile:
  machines: 1
  cores: CORES
  limit: LIMIT
  throughput: 1000/s
  processors: {double: 2}
  service: {double: 10s}
  topology: [double → out, numbers → double]
"""


def twice(n: int) -> list[int]:
    return [n, n]


def test_trials_are_measured(spark: SparkSession, tmp_path: Path) -> None:
    t = sj.Topology("twice")
    numbers = t.source("numbers", sj.sources.iterable(itertools.count))
    t.sink("out", sj.sinks.jsonl(tmp_path / "out"), t.operator("twice", twice, numbers))
    shared = tmp_path / "shared"
    shared.mkdir()
    platform = SparkPlatform(t, 1, 2, spark=spark, folder=shared)
    assert platform.most_parts > 2
    seen: list[Measured] = []

    def method() -> Generator[Proposal | Verdict, Measured | None, Parallelism]:
        few = Proposal("few", Parallelism({"twice": 2}, {"numbers": 2}), "", 100.0)
        many = Proposal("many", Parallelism({"twice": 1}, {"numbers": 1}, 200), "")
        for proposal in (few, many):
            measured = yield proposal
            assert measured is not None
            assert not any(shared.iterdir())  # what a trial has kept there goes with it
            seen.append(measured)
            yield Verdict(True, "")
        return many.parallelism

    run(method(), platform, ("numbers",), SHORT)
    few, many = seen
    # How close to 100 depends on what else the machine does; unpaced, thousands come.
    assert 0 < few.throughput < 200
    assert few.seen["twice"].tasks == 2
    assert few.seen["twice"].emitted["out"] == pytest.approx(2.0, rel=0.05)
    assert few.seen["twice"].service_s is not None
    assert many.throughput > few.throughput
    assert not (tmp_path / "out").exists()  # no result of a trial is taken for one
    platform.close()
    assert spark.range(3).count() == 3  # the session is not the platform's


def test_a_profile_that_holds_no_more_is_told_and_made_again(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, path, journal = (tmp_path / name for name in ("app.py", "profile.yaml", "journal.jsonl"))
    app.write_text(APP, encoding="utf-8")
    text = PROFILE.replace("CORES", str(os.cpu_count()))
    path.write_text(text.replace("LIMIT", "0.001ms"), encoding="utf-8")
    settings = ControlSettings(max_sojourn_s=5.0, interval_s=0.5, stale_after_s=1.0)
    watch = Watch(path, load_topology(f"{app}"), settings, str(app), None, None, profiles=True)
    assert watch.topology.operators["double"].processors == 2
    with (
        watch,
        sj.Running(
            watch.topology,
            EngineSettings(),
            settings,
            spark=spark,
            journal=journal,
            listeners=[watch.heard],
            stale=watch,
        ) as running,
    ):
        assert running.engine.hub.wait(lambda: watch.process is not None, 60.0)
        assert watch.process is not None
        process = watch.process
    assert process.poll() is not None  # it ends with the run
    reasons = [record.stale for record in read_journal(journal)[1] if record.stale]
    assert len(reasons) == 1
    assert reasons[0].startswith("unknown: tuples take ")
    assert "profiling again, in a run of its own" in caplog.text
    assert (tmp_path / "again" / "profile.log").exists()
