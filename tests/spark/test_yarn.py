"""A topology, and a plain query with Sojourn attached, on a real YARN of two nodes, each in a
driver of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import results
from test_attach import Beside
from test_topologies import WORDS, check_counts
from yarn import YarnCluster

HERE = Path(__file__).parent
TOPOLOGY = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
import sojourn as sj
from sojourn.engine.worker.parent import die_with
from test_topologies import LINES, wordcount

if __name__ == "__main__":
    die_with({parent})
    topology = wordcount(Path({out!r}), LINES, 75, processors=2, executors=2)
    settings = {{"commit": 1, "clusterTimeout": 120}}
    with sj.start(
        topology, master="yarn", checkpoint={checkpoint!r}, settings=settings
    ) as running:
        assert running.await_commit(60)
        running.resize({{"count": 5, "split": 3}})
        assert running.await_commit(60)
        running.resize({{"count": 3, "split": 1}})
        assert running.await_idle(120)
        assert running.allocation() == {{"split": 1, "count": 3}}
        assert running.restarts == 0
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """Each node has room for an application's master and one large executor or two small ones."""
    with YarnCluster(tmp_path_factory.mktemp("yarn"), nodes=2, node_memory_mb=2048) as made:
        yield made


@pytest.fixture(autouse=True)
def drivers_find_the_cluster(cluster: YarnCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf))
    monkeypatch.setenv("SPARK_CONF_DIR", str(cluster.conf))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


def test_a_topology_is_resized_and_its_counts_are_exact(
    cluster: YarnCluster, tmp_path: Path
) -> None:
    cluster.configure(instances=2, cores=4, memory="1g")
    script, out = tmp_path / "driver.py", tmp_path / "out"
    script.write_text(
        TOPOLOGY.format(
            path=[str(HERE)],
            out=str(out),
            checkpoint=str(tmp_path / "checkpoint"),
            parent=os.getpid(),
        ),
        encoding="utf-8",
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    check_counts(results(out), WORDS)


def test_executors_are_given_back_and_come_and_no_row_is_lost(
    cluster: YarnCluster, tmp_path: Path
) -> None:
    cluster.configure(instances=2, cores=1, memory="512m")
    beside = Beside("yarn", tmp_path)
    try:
        there, kept = beside.run("""
            query = driver.start(driver.rated(50, 2, 1), "yarn")
            there = []
            for wanted in (2, 1, 3):
                wish = {"min_executors": wanted, "max_executors": wanted}
                one = driver.attach(query, f"yarn{wanted}", **wish)
                until(one, lambda p: len(st.executors(one.status)) == wanted)
                one.stop()
                there.append(wanted)
            driver.clear()
            told = there, driver.kept("yarn")
        """)
    finally:
        beside.close()
    assert there == [2, 1, 3]
    assert kept == list(range(len(kept)))
    assert kept
