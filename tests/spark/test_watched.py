"""Plain queries on a real standalone cluster, seen from outside by the REST API of their driver and
afterwards by the event log that Spark writes by default."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_attach import Beside

from sojourn.attached import outside
from sojourn.attached import status as st
from sojourn.attached.decide import wished
from sojourn.attached.eventlog import Afterwards
from sojourn.cli.watch import watch
from sojourn.engine.spark.standalone import StandaloneCluster
from sojourn.errors import InputError


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Iterator[Beside]:
    """Two executors with two cores, of which a task takes both."""
    confs = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logs.as_uri(),
        "spark.executor.cores": "2",
        "spark.task.cpus": "2",
    }
    with StandaloneCluster(tmp_path_factory.mktemp("watched")) as cluster:
        cluster.add(4, "2g")
        made = Beside(cluster.url, cluster.directory, confs)
        yield made
        made.close()


def test_the_rest_api_of_a_driver_is_enough_to_advise(
    driver: Beside, capsys: pytest.CaptureFixture[str]
) -> None:
    address = driver.run("""
        query = driver.start(driver.rated(20, 2, 10), "live")
        told = driver.spark.sparkContext.uiWebUrl
    """)
    rest = st.Rest(address)
    notes: list[str] = []
    found = outside.advised(rest, wished("model", 20.0, 1, None, 1.0), None, notes.append)
    one = next(one for one in found if one.executors == 2 and " rows/s come" in one.why)
    assert re.match(r"[1-9]", one.why)
    assert notes == []
    assert [executor.slots for executor in st.executors(rest).values()] == [1, 1]
    watch(app=address, period="1s", periods=2, option=["predict=true"], as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["executors"] for line in lines] == [2, 2]
    driver.run("""
        other = driver.start(driver.given("second"), "second", queryName="bids")
        for number in range(3):
            driver.give("second", number)
            other.processAllAvailable()
    """)
    with pytest.raises(InputError, match=r"--query: must be given .*bids \("):
        outside.batches(rest)
    assert [batch.rows for batch in outside.batches(rest, query="bids")] == [1, 1]
    driver.run("driver.clear()")


def test_the_driver_and_its_rest_api_say_the_same(driver: Beside) -> None:
    told = driver.run("""
        from sojourn.attached import status as st
        from sojourn.attached.scaling import DriverStatus

        query = driver.start(driver.given("same"), "same")
        for number in range(3):
            driver.give("same", number)
            query.processAllAvailable()
        driver.clear()
        status, run = DriverStatus(driver.spark), str(query.runId)
        jobs = st.jobs(status, run)
        told = {
            "run": run,
            "jobs": repr(jobs),
            "since": repr(st.jobs(status, run, jobs[-1].number)),
            "stages": repr(st.ran(status, [number for job in jobs for number in job.stages])),
            "executors": repr(st.executors(status)),
            "forgotten": status.stage(1_000_000),
            "address": driver.spark.sparkContext.uiWebUrl,
        }
    """)
    rest = st.Rest(told["address"])
    jobs = st.jobs(rest, told["run"])
    assert len(jobs) >= 3
    assert told["jobs"] == repr(jobs)
    assert told["since"] == repr(jobs[-1:])
    assert told["stages"] == repr(st.ran(rest, [n for job in jobs for n in job.stages]))
    assert told["executors"] == repr(st.executors(rest))
    assert told["forgotten"] is None


def test_a_log_that_spark_wrote_by_default_tells_what_would_have_been_saved(
    driver: Beside, logs: Path
) -> None:
    """While it is written, and once it is whole."""
    driver.run("""
        query = driver.start(driver.given("logged"), "logged", queryName="logged")
        for number in range(0, 120, 10):
            driver.give("logged", *range(number, number + 4), ms=100)
            query.processAllAvailable()
    """)
    wish = wished("model", 60.0, 1, None, 2.0)
    written = Afterwards(logs, wish, "logged")
    assert any(one.executors == 2 for one in written.periods())
    driver.run("driver.clear()")
    driver.close()
    (folder,) = logs.iterdir()
    assert re.fullmatch(r"eventlog_v2_app-\d+-\d+", folder.name)
    (part,) = folder.glob("events_*")
    assert part.suffix == ".zstd"
    notes: list[str] = []
    whole = Afterwards(folder, wish, "logged", notes.append)
    found = list(whole.periods())
    assert any(re.match(r"[1-9]\S* rows/s come", one.why) for one in found)
    assert found[-1].executors == 2
    assert notes == []
    lasted_s = found[-1].time_s - found[0].time_s + 2 * wish.options.period_s
    assert 0 < whole.used_s <= 2 * lasted_s
    assert whole.advised_s > 0
