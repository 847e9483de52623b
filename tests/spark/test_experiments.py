"""Paths of DRS's experiments that only full runs on Spark take, with tiny windows: real code under
control, allocations in turns, and machines that come and go."""

import json
import subprocess
import sys
from pathlib import Path

import coded
import drs_fig10
import lab
import paired
import pytest
from controlled import run_of
from pyspark.sql import SparkSession

from sojourn.settings import ControlSettings

SHORT = 1.0  # seconds
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize(("app", "policy"), [("vld", "drs-2017"), ("fpd", "drs")])
def test_real_code_runs_under_control(spark: SparkSession, app: str, policy: str) -> None:
    bench = lab.Lab("spark", quick=True, seed=1, spark=spark)
    shape = coded.coded(app, times=5.0 if app == "vld" else 2000.0)
    start = dict.fromkeys(shape.service, 2)
    settings = ControlSettings(
        policy=policy, max_processors=9, interval_s=SHORT, window_s=SHORT, change_interval_s=0.0
    )
    found = bench.controlled(shape, start, settings, 8 * SHORT)
    assert 0 < found.busy <= 1
    run = run_of(found.records, list(shape.service))
    assert len(run.means_s) == 8
    assert any(mean is not None for mean in run.means_s)
    assert sum(run.end) <= 9


def test_real_code_is_measured_in_turns(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("QUICK_TURNS", 2), ("QUICK_TURN_S", 4.0), ("_MOST_TIMES", 50)):
        monkeypatch.setattr(paired, name, value)
    bench = lab.Lab("spark", quick=True, spark=spark)
    rate = 0.3 * coded.coded("vld").rate
    steps = tuple((0.5, rate * (1 + number % 2)) for number in range(20))
    shape = coded.coded("vld", steps, 1.5 * rate, times=10.0)
    allocations = [{"extract": k, "match": 7 - k, "aggregate": 1} for k in (4, 5)]
    found = paired.in_turns(bench, shape, allocations)
    assert [one.allocation for one in found] == allocations
    for one in found:
        assert len(one.parts) == 2
        assert one.seen["extract"][1] > 0


def test_bulks_are_measured_in_turns(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("QUICK_TURNS", 2), ("QUICK_TURN_S", 2.0), ("_MOST_TIMES", 50)):
        monkeypatch.setattr(paired, name, value)
    two = drs_fig10.allocations()[:2]
    monkeypatch.setattr(drs_fig10, "allocations", lambda: two)
    bench = lab.Lab("spark", quick=True, spark=spark)
    some, flows = drs_fig10.of_shape(bench, drs_fig10.shapes(0)["rates"][0])
    assert [one.allocation for one in some] == two
    assert all(len(one.parts) == 2 for one in some)
    assert flows["match"].rate > flows["extract"].rate > 0


MACHINES = """
import json, sys
sys.path[:0] = [{experiments!r}]
import drs_fig9, lab

if __name__ == "__main__":
    drs_fig9.START = (2, 3, 1)
    bench = lab.Lab("spark", quick=False)
    pattern = ((3, 6.0), (26, 18.0))  # machines may take long to start
    run = drs_fig9.on_machines(bench, "drs-2017", pattern, 2, 2.0)
    changes = [(one.before, one.after, one.asked) for one in run.changes]
    print(json.dumps([run.machines, changes, run.gaps_s]), flush=True)
"""


def test_figure_9_runs_on_machines_that_come(tmp_path: Path) -> None:
    """In a driver of its own, as the cluster has a Spark of its own. What is waited for is then
    changed at once."""
    script = tmp_path / "driver.py"
    script.write_text(MACHINES.format(experiments=str(EXPERIMENTS)), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    machines, changes, gaps_s = json.loads(ended.stdout.splitlines()[-1])
    assert len(gaps_s) == len(machines)
    assert all(0 < gap_s < 60 for gap_s in gaps_s)  # something was done
    assert machines[0] == 2
    assert max(machines) > 2
    room = 10  # on the two machines that were there
    assert any(sum(after) > room and asked > 2 for _, after, asked in changes), changes
