"""The control loop on real Spark: a load step is answered, the journal tells why, and decides the
same again; machines of a real standalone cluster come and go."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from conftest import once, results
from pyspark.sql import SparkSession
from test_topologies import Count, check_counts, itself

import sojourn as sj
from sojourn.control.journal import read_journal, replay
from sojourn.engine.driver.engine import SparkEngine
from sojourn.engine.spark.session import AT_START
from sojourn.errors import InputError, TopologyFailed


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
    summary = sj.run(
        chain(rate, 1000, tmp_path / "out"),
        spark=spark,
        max_sojourn="400ms",
        settings={"measure.interval": "1s", "change.interval": "1s"},
        journal=journal,
    )
    added = [change for change in summary.changes if change.action == "add"]
    assert added
    assert max(change.after["nap"] for change in added) >= 3  # what 130/s of 20 ms take
    assert all("'nap'" in change.reason for change in added)
    assert sorted(results(tmp_path / "out")) == list(range(1000))
    shape, written = read_journal(journal)
    again = list(replay(shape, written, {}))
    assert len([r for r in again if not r.record.pressures]) == summary.intervals
    assert not [r.record.number for r in again if r.differs]


def test_advice_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    summary = sj.run(
        chain(100.0, 300, tmp_path / "out"),
        spark=spark,
        max_sojourn="100ms",
        advise=True,
        settings={"measure.interval": "1s"},
    )
    assert summary.changes == ()
    assert summary.most_processors == 1
    assert len(results(tmp_path / "out")) == 300


APP = """
import sys, time
import sojourn as sj
from pyspark.sql import SparkSession

def nap(n):
    time.sleep(0.005)
    return [n]

t = sj.Topology("submitted")
numbers = t.source("numbers", sj.sources.paced(lambda n: n, rate=50, count=200))
t.sink("out", sj.sinks.jsonl(sys.argv[-1]), t.operator("nap", nap, numbers))

if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate() if "own" in sys.argv[1] else None
    if sys.argv[1] == "own, then sojourn's":
        try:
            sj.run(t, spark=spark)
        except sj.InputError as error:
            print("refused:", error, flush=True)
        spark.stop()
        spark = None
    summary = sj.run(t, spark=spark)
    print("target kept in", summary.within_target, "of", summary.intervals, flush=True)
    if spark is not None:
        print("then", spark.range(5).count(), spark.conf.get("spark.sql.codegen.wholeStage"))
"""


def submitted(tmp_path: Path, session: str, *options: str) -> subprocess.CompletedProcess[str]:
    app = tmp_path / "app.py"
    app.write_text(APP, encoding="utf-8")
    return subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", "local[6]", *options, "--conf", "spark.sojourn.maxSojourn=1s"),
            *("--conf", "spark.sojourn.measure.interval=1s"),
            *(str(app), session, str(tmp_path / "out")),
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


def assert_controlled(told: str) -> None:
    """Only with a target and the short interval are there intervals in which it can be kept."""
    assert re.search(r"^target kept in \d+ of [1-9]\d*$", told, re.MULTILINE), told[-3000:]


def test_spark_submit_carries_the_settings_and_a_session_of_ones_own_is_refused_without_others(
    tmp_path: Path,
) -> None:
    ended = submitted(tmp_path, "own, then sojourn's")
    assert ended.returncode == 0, ended.stderr[-3000:]
    refused = ended.stdout[ended.stdout.index("refused: ") :]
    assert [key for key in AT_START if f"--conf {key}=" not in refused] == []
    assert_controlled(ended.stdout)
    assert sorted(results(tmp_path / "out")) == list(range(200))


def test_a_session_of_ones_own_needs_what_conf_prints_and_can_be_used_afterwards(
    tmp_path: Path,
) -> None:
    script = Path(sys.executable).parent / "sojourn"
    printed = subprocess.run([script, "conf"], check=True, capture_output=True, text=True).stdout
    ended = submitted(tmp_path, "own", *printed.split())
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert_controlled(ended.stdout)
    assert "then 5 true" in ended.stdout, "its settings are as before"
    assert sorted(results(tmp_path / "out")) == list(range(200))


def asked(url: str, what: str, body: Any = None, token: str = "") -> Any:
    """What the dashboard's REST answers."""
    request = urllib.request.Request(f"{url}api/v1/{what}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.headers = {"Authorization": f"Bearer {token}", "Content-type": "application/json"}
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_a_target_can_be_changed_and_processors_are_the_loops(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sj.start(
        chain(100.0, 100_000, tmp_path / "out"),
        spark=spark,
        max_processors=2,
        settings={
            **{"measure.interval": "500ms", "drain": "1s"},
            **{"dashboard": ":0", "dashboardChanges": "token"},
        },
    ) as running:
        with pytest.raises(InputError, match="the control loop decides"):
            running.resize({"nap": 3})
        assert running.samples().vertices["nap"].interval_s < 5
        running.change(max_processors=3)
        assert running.loop is not None
        assert running.loop.settings.max_processors == 3
        with pytest.raises(InputError, match="at least 1"):
            running.change(max_processors=0)
        with pytest.raises(InputError, match="max_processors must remain; give one of them"):
            running.change(max_processors=None)
        with pytest.raises(InputError, match="there is no option 'max_sojurn'"):
            running.change(max_sojurn="1s")  # type: ignore[call-arg]
        assert not running.wait(0.1)
        assert running.dashboard is not None
        told = capsys.readouterr().err
        assert f"dashboard: {running.dashboard}\n" in told
        (token,) = re.findall("token for changes: (.+)", told)
        assert asked(running.dashboard, "topology")["name"] == "naps"
        assert asked(running.dashboard, "allocation")["operators"].keys() == {"nap"}
        asked(running.dashboard, "limits", {"max_processors": 2}, token)
        asked(running.dashboard, "pause", {"paused": True}, token)
        assert running.loop.settings.max_processors == 2
        assert running.loop.advise
        running.pause(False)
        assert asked(running.dashboard, "status")["paused"] is False
        running.pause()
        assert asked(running.dashboard, "status")["paused"] is True
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asked(running.dashboard, "pause", {"paused": False}, "another")
    assert running.summary.intervals > 0
    with pytest.raises(urllib.error.URLError):
        asked(running.dashboard, "topology")


def test_whoever_looks_on_hears_why_it_failed(spark: SparkSession) -> None:
    def fail(number: int) -> int:
        prices: dict[int, int] = {}
        return prices[number]

    t = sj.Topology("prices")
    numbers = t.source("numbers", sj.sources.paced(lambda n: n, rate=20))
    t.sink("out", sj.sinks.call(lambda _: None), t.map("price", fail, numbers))
    # The program hears of the failure long before the control loop does.
    settings = {"measure.interval": "60s", "dashboard": ":0"}
    running = sj.start(t, spark=spark, max_processors=2, settings=settings)
    with urllib.request.urlopen(f"{running.dashboard}api/v1/events", timeout=60) as pages:
        with pytest.raises(TopologyFailed, match="KeyError"), running:
            running.wait()
        told = [line for line in pages if line.startswith(b"data: ")]
    status = json.loads(told[-1].removeprefix(b"data: "))["status"]
    assert status["finished"] is True
    assert "KeyError" in status["problem"]
    assert running.board is not None
    assert running.board.problem == status["problem"]


def test_another_master_is_refused_while_there_is_a_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Otherwise the topology would run elsewhere, and machines would be looked for in vain."""
    own = str(spark.sparkContext.master)
    refused = f"a Spark session on '{re.escape(own)}' already.* cannot run on 'local\\[2\\]'"
    with pytest.raises(InputError, match=refused):
        sj.start(chain(100.0, 10, tmp_path / "out"), master="local[2]")
    settings = {"machines.pool": "standalone", "machines.processors": 2, "machines.cores": 4}
    with pytest.raises(InputError, match="cannot run on 'spark://"):
        sj.start(chain(100.0, 10, tmp_path / "out"), max_processors=4, settings=settings)


def test_without_a_target_nothing_is_controlled(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give max_sojourn or max_processors"):
        sj.start(chain(100.0, 10, tmp_path / "out"), spark=spark, advise=True)
    with sj.start(chain(100.0, 10, tmp_path / "out"), spark=spark) as running:
        with pytest.raises(InputError, match="nothing is controlled"):
            running.change(max_sojourn="1s")
        assert running.wait()
    summary = running.stop()
    assert (summary.intervals, summary.most_processors, summary.restarts) == (0, 1, 0)
    assert not running.await_idle(0)


def counted(count: int, out: Path, there: Path) -> sj.Topology:
    """Numbers that are slept over, and then counted by their last digit. The last ones come only
    when a file is there."""
    t = sj.Topology("counted")

    def number(n: int) -> int:
        return next(once(there, [n])) if n > 0.9 * count else n

    numbers = t.source("numbers", sj.sources.paced(number, rate=50.0, count=count))
    digits = t.operator("nap", lambda n: [str(one % 10) for one in nap(n)], numbers)
    t.sink("out", sj.sinks.jsonl(out), t.operator("count", Count, digits, key=itself))
    return t


def lose_an_outpost(engine: SparkEngine, name: str, restarts: int) -> None:
    """Two of an operator's four workers are elsewhere; their outpost dies, and others come, after
    so many restarts."""

    killed: int | None = None

    def pid_of(machine: str) -> int | None:
        there = engine.hub.outposts.get(machine)
        return None if there is None else there[1].pid

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, (
                f"{engine.allocation()} after {engine.restarts} restarts; workers are at "
                f"{engine.placing.has}, outposts {engine.hub.outposts}, lost {killed}"
            )
            engine.samples(peek=True)  # outposts are looked after when samples are taken
            time.sleep(0.1)

    def four() -> bool:
        return engine.allocation().get(name) == 4

    # Otherwise four would be at home first, and two of those stay until others are up elsewhere.
    wait(lambda: len(engine.placing.room or ()) == 2)
    engine.resize({name: 4})
    wait(four)
    ((place, has),) = ((p, has) for p, has in engine.placing.has.items() if p.vertex == name)
    home = engine.hub.hellos()[place].machine
    (elsewhere,) = has.keys() - {home}
    assert has == {home: 2, elsewhere: 2}
    killed = pid_of(elsewhere)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait(lambda: engine.restarts >= restarts and pid_of(elsewhere) not in (None, killed) and four())
    engine.resize({name: 1})


MACHINES = """
import json, sys
sys.path[:0] = [{here!r}]
from pathlib import Path
import sojourn as sj
from sojourn.engine.driver.machines import SparkPool, StandalonePool, await_slots
from sojourn.engine.spark.standalone import StandaloneCluster
from test_promise import counted, lose_an_outpost

if __name__ == "__main__":
    cluster = StandaloneCluster(Path({directory!r}))
    cluster.add(5)
    there = Path({directory!r}) / "lost"
    topology = counted(1200, Path({out!r}), there)
    with sj.start(topology, master=cluster.url) as running:
        pool = StandalonePool(cluster, running.engine, processors=3, cores=5, most=2)
        said = [len(pool.machines()), pool.start(2), len(pool.machines()), len(pool.spare())]
        said += [pool.use(2), len(pool.machines()), pool.start(3)]
        lose_an_outpost(running.engine, "nap", 0)
        restarts = {{"without state": running.restarts}}
        lose_an_outpost(running.engine, "count", 1)
        restarts["with state"] = running.restarts
        there.touch()
        other = SparkPool(running.engine, processors=3, most=None)
        said += [len(other.machines()), other.use(1), len(other.machines())]
        said += [other.start(2), len(other.machines()), other.use(2), len(other.machines())]
        said += [pool.use(1), len(pool.machines()), len(other.machines())]
        assert running.await_idle(120)
        said += [restarts | {{"in all": running.restarts}}]
        kept = running.engine.checkpoint.is_dir()
    assert kept and not running.engine.checkpoint.exists()
    cluster.close()
    print(json.dumps(said), flush=True)
"""


def test_machines_of_a_standalone_cluster_come_and_go(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(
        MACHINES.format(
            here=str(Path(__file__).parent),
            directory=str(tmp_path),
            out=str(tmp_path / "out"),
        ),
        encoding="utf-8",
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    said = json.loads(ended.stdout.splitlines()[-1])
    restarts = said.pop()
    once = {"without state": 0, "with state": 1, "in all": 1}
    assert restarts == once, f"{said}\n{ended.stderr[-3000:]}"
    assert [word for word in said if isinstance(word, int)] == [1, 1, 1, 2, 2, 1, 1, 2, 1, 1]
    up, added, refused, killed, asked, used, given = [w for w in said if isinstance(w, str)]
    assert up == "worker-1 came up"
    assert added == "added worker-1"
    assert "no more are possible" in refused
    assert killed.startswith("gave back ")
    assert asked == "2 of 2 came up"
    assert used.startswith("added ")
    # Tuples wait if tasks of the query are on both.
    assert given.startswith(("gave back worker-0", "gave back worker-1"))
    check_counts(results(tmp_path / "out"), [str(n % 10) for n in range(1200)])


PROVISION = """
import json, sys, time
sys.path[:0] = [{here!r}]
from pathlib import Path
import sojourn as sj
from conftest import await_processors
from test_promise import nap

there, over = Path({directory!r}, "there"), Path({directory!r}, "over")


def numbers():
    number = 0
    while not over.exists():
        for _ in range(5 if there.exists() else 40):
            yield number
            number += 1
        time.sleep(0.2)


if __name__ == "__main__":
    t = sj.Topology("naps")
    kept = t.operator("nap", nap, t.source("numbers", sj.sources.iterable(numbers)), shed_after=0.2)
    t.sink("out", sj.sinks.jsonl({out!r}), kept)
    settings = {{
        **{{"policy": "provision", "provision.period": "5s", "measure.interval": "500ms"}},
        **{{"machines.pool": "standalone", "machines.processors": 1, "machines.cores": 4}},
        **{{"machines.most": 2, "commit": 1}},
    }}
    with sj.start(t, max_processors=2, settings=settings) as running:
        await_processors(running, nap=2)
        there.touch()
        await_processors(running, nap=1)
        over.touch()
        assert running.await_idle(60)
    said = [(one.before["nap"], one.after["nap"], one.reason) for one in running.summary.changes]
    print(json.dumps(said), flush=True)
"""


def test_machines_come_and_go_by_rates_alone(tmp_path: Path) -> None:
    """One machine is far too slow for what comes at first, and enough for what comes later."""
    script = tmp_path / "driver.py"
    script.write_text(
        PROVISION.format(
            here=str(Path(__file__).parent), directory=str(tmp_path), out=str(tmp_path / "out")
        ),
        encoding="utf-8",
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    changes = json.loads(ended.stdout.splitlines()[-1])
    assert [(before, after) for before, after, _ in changes] == [(1, 2), (2, 1)], changes
    assert "2 → 1 machines of 1 processors" in changes[1][2]
    kept = results(tmp_path / "out")
    assert len(set(kept)) == len(kept) > 0
