"""Plain queries on a real standalone cluster, with Sojourn attached: executors come and go with the
load, no row is lost, and faults are told and change nothing. All tests share a cluster and a
driver, whose executors are those that the test before has left."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sojourn.attached import journal
from sojourn.engine.spark.archive import class_options
from sojourn.engine.spark.java import find_java
from sojourn.engine.spark.session import QUICK_JAVA
from sojourn.engine.spark.standalone import StandaloneCluster

HERE = Path(__file__).parent
CONFS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.decommission.enabled": "true",
    "spark.log.level": "FATAL",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.noDataProgressEventInterval": "1000",  # ms
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1000ms",
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # for a sink in memory
}


class Beside:
    """A driver in a process of its own, on a cluster. It ends with us, as its input does."""

    def __init__(self, url: str, directory: Path, more: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        cache = Path.home() / ".cache" / "sojourn"
        java = find_java(os.environ, cache)
        _, archive = class_options(java.home, cache)
        quick = f"{QUICK_JAVA} -XX:+UseSerialGC {archive}"
        confs = {**CONFS, "spark.executor.extraJavaOptions": quick, **(more or {})}
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(HERE / "plain_driver.py")),
                *(url, json.dumps(confs), str(directory)),
            ],
            env={
                **os.environ,
                "JAVA_HOME": str(java.home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SUBMIT_OPTS": quick,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = self._answer()

    def run(self, body: str) -> Any:
        """Have the driver do something, and return what it tells."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(textwrap.dedent(body)) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        assert "failed" not in said, said["failed"]
        return said["told"]

    def executors(self) -> dict[str, int]:
        """Names and process ids of Spark executors, of those as well that only just start."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes().decode(errors="replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            if f"spark://CoarseGrainedScheduler@127.0.0.1:{self.port}" in command:
                found[command[command.index("--executor-id") + 1]] = int(path.parent.name)
        return found

    def journal(self, name: str) -> list[journal.Period]:
        """What the journal of a query says, which decides the same when it is replayed."""
        header, periods = journal.read(self.directory / name / "journal.jsonl")
        every = list(journal.replay(periods, header.wish))
        assert all(then.decision == again for then, again in every)
        return [then for then, _ in every]

    def close(self) -> None:
        """End the driver, unless it has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("attach")) as made:
        made.add(3, "3g")
        yield made


@pytest.fixture(scope="module")
def driver(cluster: StandaloneCluster) -> Iterator[Beside]:
    made = Beside(cluster.url, cluster.directory)
    made.run("driver.await_executors(3)")
    yield made
    made.close()


@pytest.fixture
def beside(driver: Beside) -> Iterator[Beside]:
    yield driver
    driver.run("driver.clear()")


def no_decision(periods: list[journal.Period]) -> bool:
    return all(p.decision.executors is None and not p.applied for p in periods)


def test_executors_follow_the_load_over_a_restart_and_no_row_is_lost(beside: Beside) -> None:
    beside.run("""
        query = driver.start(driver.rated(3, 3, 10), "load")
        attached = driver.attach(query, "load", max_latency="20s", max_executors=3)
        attached.scaling.decommissions = False  # executors without a task are ended
        until(attached, lambda p: p.seen.executors == 3)
        until(attached, lambda p: len(st.executors(attached.status)) == 1)
        query.stop()
        query = driver.start(driver.rated(150, 3, 10), "load")
        until(attached, lambda p: p.seen.executors == 3)
        attached.stop()
        query.stop()
    """)
    kept = beside.run('told = driver.kept("load")')
    # A row's number is its second times the rate of the run.
    before = next(n for n, number in enumerate(kept) if n != number)
    seconds, rest = divmod(before, 3)
    assert rest == 0
    assert kept[before:] == list(range(150 * seconds, 150 * seconds + len(kept) - before))
    assert len(kept) > 400
    periods = beside.journal("load")
    assert any(p.seen.batches is not None for p in periods)
    assert any("the query has ended; its executors stay" in p.note for p in periods)
    assert any("the query goes on" in p.note for p in periods)


def test_a_query_that_is_idle_long_at_work_or_failed_keeps_its_executors(beside: Beside) -> None:
    beside.run("""
        made = driver.given("silent").selectExpr(
            "assert_true(number <> 3, 'a bad row') is null as good", "number", "slept")
        query = driver.start(made, "silent")
        with driver.attach(query, "full", min_executors=3) as full:
            until(full, lambda p: p.seen.executors == 3)
        attached = driver.attach(query, "silent")
        until(attached, lambda p: "Waiting for data to arrive" in p.decision.why)
        driver.give("silent", 0, 1, 2, ms=2000)
        until(attached, lambda p: "Processing new data" in p.decision.why)
        until(attached, lambda p: "only one batch" in p.decision.why)
        driver.give("silent", 3)
        until(attached, lambda p: "the query has failed" in p.note)
        until(attached, lambda p: "the query does not run" in p.decision.why)
    """)
    told = beside.run("""
        query = driver.start(driver.given("silent"), "fresh")
        until(attached, lambda p: "the query does not run" in p.decision.why)
        query.stop()
        query = driver.start(driver.given("silent"), "silent")
        until(attached, lambda p: "the query goes on" in p.note)
        attached.stop()
        query.stop()
        told = [driver.kept("silent"), attached.query == str(query.id)]
    """)
    assert told == [[0, 1, 2, 3], True]
    periods = beside.journal("silent")
    assert no_decision(periods)
    assert {p.seen.executors for p in periods} == {3}
    assert any("a bad row" in p.note for p in periods)


def test_an_executor_that_dies_at_work_is_replaced_and_not_asked_for_again(
    beside: Beside,
) -> None:
    name = beside.run("""
        query = driver.start(driver.given("killed"), "killed")
        attached = driver.attach(query, "killed", min_executors=3)
        until(attached, lambda p: p.seen.executors == 3)
        for number in range(2):
            driver.give("killed", number)
            until(attached, lambda p: p.seen.rates is not None or "only one" in p.decision.why)
        driver.give("killed", 10, 11, 12, ms=3000)
        until(attached, lambda p: p.seen.held == 3)
        told = killed = sorted(st.executors(attached.status))[0]
    """)
    os.kill(beside.executors()[name], signal.SIGKILL)
    told = beside.run("""
        until(attached, lambda _: len(st.executors(attached.status).keys() - {killed}) == 3)
        driver.give("killed", 13)
        query.processAllAvailable()
        attached.stop()
        query.stop()
        failed = driver.retried(query)
        told = [driver.kept("killed"), failed, sorted(st.executors(attached.status))]
    """)
    kept, failed, executors = told
    assert kept == [0, 1, 10, 11, 12, 13]
    assert failed > 0
    assert name not in executors
    periods = beside.journal("killed")
    assert any(p.decision.executors == 3 for p in periods)
    assert not any(p.applied for p in periods)
    assert [p.note for p in periods if f"executor {name} is gone" in p.note]


def test_batches_that_are_not_heard_of_are_no_silence(beside: Beside) -> None:
    """It is attached before the query starts, and takes the next one that does."""
    told = beside.run("""
        attached = driver.attach(None, "deaf", min_executors=1)
        until(attached, lambda p: "the query does not run" in p.decision.why)
        query = driver.start(driver.given("deaf"), "deaf")
        for number in range(2):
            driver.give("deaf", number)
            query.processAllAvailable()
        until(attached, lambda p: len(attached.observer.batches) == 2)
        driver.spark.streams._jsqm.removeListener(attached.listener.java)
        driver.give("deaf", 10)
        query.processAllAvailable()
        first = until(attached, lambda p: "of which nothing was heard" in p.decision.why)
        last = until(attached, lambda p: p.number > first.number + 2)
        driver.spark.streams._jsqm.addListener(attached.listener.java)
        driver.give("deaf", 11)
        until(attached, lambda p: "of which nothing was heard" not in p.decision.why)
        attached.stop()
        query.stop()
        told = [driver.kept("deaf"), attached.query == str(query.id), first.number, last.number]
    """)
    kept, is_ours, first, last = told
    assert kept == [0, 1, 10, 11]
    assert is_ours
    periods = [p for p in beside.journal("deaf") if first <= p.number <= last]
    assert len(periods) > 2
    assert no_decision(periods)


def test_a_long_batch_is_not_waited_for(beside: Beside) -> None:
    told = beside.run("""
        query = driver.start(driver.given("burst"), "burst")
        attached = driver.attach(query, "burst", max_executors=1)
        for number in (0, 10, 20):
            driver.give("burst", *range(number, number + 6), ms=100)
            query.processAllAvailable()
        until(attached, lambda p: p.seen.executors == 1)
        attached.stop()
        attached = driver.attach(query, "burst again", max_executors=3)
        for number in (30, 40):
            driver.give("burst", *range(number, number + 6), ms=100)
            query.processAllAvailable()
        driver.give("burst", *range(50, 56), ms=5000)
        more = until(attached, lambda p: p.seen.at_least and p.applied)
        there = until(attached, lambda p: p.seen.executors > 1)
        query.processAllAvailable()
        attached.stop()
        query.stop()
        told = [driver.kept("burst"), more.decision.why, there.seen.executors]
    """)
    kept, why, executors = told
    assert kept == [ten * 10 + one for ten in range(6) for one in range(6)]
    assert "of its tasks wait: at least" in why
    assert executors > 1


def test_in_real_time_mode_executors_at_work_are_kept_and_others_serve_the_next_batch(
    beside: Beside,
) -> None:
    told = beside.run("""
        live = RealTime(driver, "live", tasks=2, batch_s=1)
        live.give(0, 100)
        few = driver.attach(live.query, "live", max_executors=1)
        until(few, lambda p: p.seen.rates is not None)
        live.give(100, 200)
        last = until(few, lambda p: p.seen.executors == 2)
        last = until(few, lambda p: p.decision.executors is not None)
        few.stop()
        more = driver.attach(live.query, "more", min_executors=3)
        until(more, lambda p: p.applied)
        live.give(200, 300)
        until(more, lambda p: p.seen.executors == 3)
        until(more, lambda p: p.seen.rates is not None)
        more.stop()
        live.query.stop()
        told = [live.kept(), str(live.query.exception()), last.decision.executors]
    """)
    assert told == [list(range(300)), "None", 2]
    taken = [p for p in beside.journal("live") if p.decision.executors is not None]
    assert {p.decision.executors for p in taken} == {2}
    assert all("2 hold its tasks" in p.decision.why for p in taken)
    assert all("in effect with the next batch, in" in p.decision.why for p in taken)
    asked = [p for p in beside.journal("more") if p.applied]
    assert [p.decision.executors for p in asked] == [3]
    assert all("in effect with the next batch, in" in p.decision.why for p in asked)


def test_executors_that_do_not_come_are_asked_for_once_and_so_are_those_that_die_on_their_way(
    beside: Beside, cluster: StandaloneCluster
) -> None:
    beside.run("""
        query = driver.start(driver.rated(20, 4, 20), "short")
        attached = driver.attach(query, "short", min_executors=4)
        until(attached, lambda p: "3 of 4 executors are there after" in p.note)
        until(attached, lambda p: p.seen.rates is not None)
    """)
    there = beside.executors()
    cluster.add(1)
    deadline = time.monotonic() + 60
    while not (coming := beside.executors().keys() - there.keys()):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # until Spark's worker starts a process
    (name,) = coming
    os.kill(beside.executors()[name], signal.SIGKILL)
    told = beside.run("""
        until(attached, lambda p: p.seen.executors == 4)
        until(attached, lambda p: p.seen.rates is not None)
        attached.stop()
        query.stop()
        told = [driver.kept("short"), sorted(st.executors(attached.status))]
    """)
    kept, executors = told
    assert kept == list(range(len(kept)))
    assert name not in executors
    assert [p.decision.executors for p in beside.journal("short") if p.applied] == [4]


def test_what_a_limit_on_batches_hides_is_seen_in_the_newest_offset(beside: Beside) -> None:
    """Several times as many rows come as one executor carries in batches of sixty."""
    kept = beside.run("""
        query = driver.start(driver.limited(300, 3, 10, 60), "limited")
        attached = driver.attach(query, "one", policy="mended", max_executors=1)
        until(attached, lambda p: p.seen.executors == 1)
        attached.stop()
        with driver.attach(query, "told", policy="mended", max_executors=3, advise=True) as told:
            until(told, lambda p: p.decision.executors == 3)
            until(told, lambda p: p.seen.executors == 1)
        attached = driver.attach(query, "limited", policy="mended", max_executors=3)
        until(attached, lambda p: p.seen.executors == 3)
        attached.stop()
        query.stop()
        told = driver.kept("limited")
    """)
    assert kept == list(range(len(kept)))
    (asked,) = [p for p in beside.journal("limited") if p.applied]
    assert asked.decision.executors == 3
    rates = asked.seen.rates
    assert asked.seen.reported
    assert rates is not None
    assert rates.input == pytest.approx(300, rel=0.2)
    assert rates.total < 100


def test_offsets_that_go_back_are_no_reason_to_act(beside: Beside) -> None:
    kept = beside.run("""
        query = driver.start(driver.turned(30), "turned")
        attached = driver.attach(query, "turned", max_executors=1)
        for _ in range(3):
            until(attached, lambda p: "offsets went back" in p.decision.why)
        (driver.out / "zero").touch()
        until(attached, lambda p: "offsets went back" in p.decision.why)
        until(attached, lambda p: p.seen.rates is not None)
        for _ in range(3):
            one = until(attached, lambda p: True)
            assert one.seen.rates is not None, words(one)
        attached.stop()
        query.stop()
        told = driver.kept("turned")
    """)
    assert kept == list(range(len(kept)))
    periods = beside.journal("turned")
    odd = [p for p in periods if "went back" in p.decision.why]
    assert len(odd) >= 3
    assert no_decision(odd)
    assert all(p.seen.rates is None or not p.seen.why for p in periods), "no silence either"


def test_where_triggers_find_no_rows_executors_go_and_those_at_work_end_their_tasks_first(
    beside: Beside,
) -> None:
    name = beside.run("""
        query = driver.start(driver.given("paused"), "paused", trigger="2 seconds")
        attached = driver.attach(query, "paused", min_executors=2)
        attached.scaling.ask(3)
        until(attached, lambda p: p.seen.executors >= 3)
        for number in range(2):
            driver.give("paused", 3 * number, 3 * number + 1, 3 * number + 2, ms=50)
            until(attached, lambda p: p.seen.rates is not None or "only one" in p.decision.why)
        until(attached, lambda p: "Waiting for next trigger" in p.seen.why
              and p.seen.rates is not None and p.seen.rates.input == 0)
        until(attached, lambda p: p.seen.executors == 2)
        attached.stop()
        driver.await_at_most(2)  # one that still leaves would be counted with those at work
        driver.give("paused", 6, 7, ms=4000)
        driver.await_busy(2)
        told = leaving = sorted(st.executors(attached.status))[0]
        assert attached.scaling.give_back([leaving]) == [leaving]
    """)
    kept = beside.run("""
        query.processAllAvailable()
        query.stop()
        told = driver.kept("paused")
    """)
    assert kept == list(range(8))
    deadline = time.monotonic() + 60
    while name in beside.executors():
        assert time.monotonic() < deadline
        time.sleep(0.1)  # until its process has ended
    assert beside.run("told = driver.retried(query)") == 0
    periods = [p for p in beside.journal("paused") if p.applied]
    assert {p.decision.executors for p in periods} == {2}
