"""A driver with plain queries, which `test_attach.py` runs beside it: a process can have but one
Spark session, and that of the tests is local. It does what it is told, one piece of Python after
the other, and answers with what that piece leaves in `told`."""

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import plain
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

import sojourn as sj
from sojourn.attached import status as st
from sojourn.attached.journal import Period
from sojourn.attached.loop import Attached
from sojourn.attached.scaling import DriverStatus

_WAIT_S = 120.0
_SLEEPS = "java_method('java.lang.Thread', 'sleep', {ms}) as slept"  # starts no Python worker


class Turned(DataSource):
    """A source that has no rows, and takes back, time and again, how many there are. Once the file
    `zero` is there, it counts anew from zero, and goes on."""

    @classmethod
    def name(cls) -> str:
        """For `format`."""
        return "turned"

    def schema(self) -> str:
        """The row's number."""
        return "number bigint"

    def streamReader(self, schema: Any) -> "TurnedReader":  # noqa: N802, ARG002
        """Spark asks for it."""
        return TurnedReader(Path(self.options["zero"]))


class TurnedReader(DataSourceStreamReader):
    """Lives in the driver. Without partitions no Python worker starts."""

    def __init__(self, zero: Path) -> None:
        self.zero, self.asked, self.anew = zero, 0, False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """None was read."""
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802, ARG002
        """One further."""
        return {"rows": start["rows"] + 1}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """What it takes to be there."""
        self.asked += 1
        if not self.anew and self.zero.exists():
            self.asked, self.anew = 0, True
        return {"rows": self.asked if self.anew else 1_000_000 + self.asked % 3}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002
        """None."""
        return []

    def read(self, partition: Any) -> Iterator[tuple[int]]:  # noqa: ARG002
        """Nothing."""
        return iter(())


class Driver:
    """Its session, and what queries and tests need."""

    def __init__(self, url: str, confs: dict[str, str], out: Path) -> None:
        builder = SparkSession.builder.master(url).appName("plain")
        self.spark = builder.config(map={**confs}).getOrCreate()
        self.out = out
        self.attached: list[Attached] = []

    def rated(self, rate: int, tasks: int, row_ms: int) -> DataFrame:
        """Rows of Spark's own source, each of which keeps a slot busy for some time."""
        reader = self.spark.readStream.format("rate").option("rowsPerSecond", rate)
        found = reader.option("numPartitions", tasks).load()
        return found.selectExpr("value as number", _SLEEPS.format(ms=f"{row_ms}L"))

    def given(self, name: str) -> DataFrame:
        """Rows that `give` gives."""
        (self.out / name / "given").mkdir(parents=True, exist_ok=True)
        reader = self.spark.readStream.schema("number bigint, ms bigint")
        found = reader.json(str(self.out / name / "given" / "*"))
        return found.selectExpr("number", _SLEEPS.format(ms="ms"))

    def give(self, name: str, *numbers: int, ms: int = 1) -> None:
        """Rows for a query, each with a task of its own, for which it takes so long. They come in
        one batch: a directory that is moved in is there as a whole."""
        making = self.out / name / "making"
        making.mkdir()
        for number in numbers:
            row = json.dumps({"number": number, "ms": ms})
            (making / str(number)).write_text(row, encoding="utf-8")
        making.rename(self.out / name / "given" / str(numbers[0]))

    def turned(self, rate: int) -> DataFrame:
        """Rows of Spark's own source, together with one whose offsets go back."""
        self.spark.dataSource.register(Turned)
        reader = self.spark.readStream.format("turned").option("zero", str(self.out / "zero"))
        turned = reader.load()
        return self.rated(rate, 1, 1).select("number").union(turned)

    def limited(self, rate: int, tasks: int, row_ms: int, most: int) -> DataFrame:
        """Rows of a source that says what there is, of which a batch has so many at most."""
        found = plain.rows(self.spark, f"0:{rate}", time.time(), tasks, most)
        return found.selectExpr("number", _SLEEPS.format(ms=f"{row_ms}L"))

    def start(self, made: DataFrame, name: str, trigger: str = "0 seconds", **options: str) -> Any:
        """A query that writes its rows to files. What a batch has written counts once the batch is
        done."""
        writer = made.writeStream.format("json").option("path", str(self.out / name / "rows"))
        writer = writer.trigger(processingTime=trigger)
        given = {"checkpointLocation": str(self.out / name / "spark"), **options}
        return writer.options(**given).start()

    def kept(self, name: str) -> list[int]:
        """The rows that a query has written."""
        found = self.spark.read.json(str(self.out / name / "rows"))
        return sorted(row.number for row in found.collect())

    def retried(self, query: Any) -> int:
        """Tasks of a run that did not end well."""
        status = DriverStatus(self.spark)
        numbers = [job.number for job in st.jobs(status, str(query.runId))]
        return sum(int(status.store.job(number).numFailedTasks()) for number in numbers)

    def attach(self, query: Any, name: str, **more: Any) -> Attached:
        """A query with Sojourn attached, and a short period."""
        path = self.out / name / "journal.jsonl"
        found = sj.attach(self.spark, query, journal=path, **{"period": "1s", **more})
        self.attached.append(found)
        return found

    def await_executors(self, count: int) -> None:
        """Until so many are there."""
        self._await(lambda there: len(there) >= count, f"{count} executors")

    def await_at_most(self, count: int) -> None:
        """Until those that leave are gone, and no more than so many are there."""
        self._await(lambda there: len(there) <= count, f"{count} executors")

    def await_busy(self, count: int) -> None:
        """Until so many are there, all of them with a task."""
        self._await(
            lambda there: len(there) == count and all(e.running for e in there.values()),
            f"{count} busy executors",
        )

    def _await(self, are: Callable[[dict[str, st.Executor]], bool], what: str) -> None:
        """Spark tells nobody when executors come and go."""
        deadline, status = time.monotonic() + _WAIT_S, DriverStatus(self.spark)
        while not are(there := st.executors(status)):
            assert time.monotonic() < deadline, f"not {what}: {there}"
            time.sleep(0.1)

    def clear(self) -> None:
        """End all that a test has left."""
        for one in self.attached:
            one.stop()
        for query in self.spark.streams.active:
            query.stop()


class RealTime:
    """A query in real-time mode, from memory to memory: no other source and sink of it needs a
    broker."""

    def __init__(self, driver: Driver, name: str, tasks: int, batch_s: int) -> None:
        self.spark, self.name, self.jvm = driver.spark, name, driver.spark._jvm
        jvm: Any = self.jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.spark._jsparkSession)
        sources = jvm.org.apache.spark.sql.execution.streaming.sources
        encoder = jvm.org.apache.spark.sql.Encoders.LONG()
        self.stream = sources.LowLatencyMemoryStream.apply(
            self.spark._jsparkSession, tasks, encoder
        )
        writer = DataFrame(self.stream.toDF(), self.spark).writeStream.format("memory")
        writer = writer.queryName(name).outputMode("update")
        writer = writer.trigger(realTime=f"{batch_s} seconds")  # type: ignore[call-overload]
        place = str(driver.out / name / "spark")
        self.query = writer.option("checkpointLocation", place).start()

    def give(self, first: int, end: int) -> None:
        """Rows with these numbers."""
        jvm: Any = self.jvm
        some = jvm.java.util.stream.LongStream.range(first, end).boxed().toList()
        self.stream.addData(jvm.scala.jdk.javaapi.CollectionConverters.asScala(some))

    def kept(self) -> list[int]:
        """The rows that came out."""
        return sorted(row.value for row in self.spark.table(self.name).collect())


def until(attached: Attached, what: Callable[[Period], bool]) -> Period:
    """The first period from now on of which that is true."""
    last = attached.number

    def found() -> Period | None:
        return next((p for p in list(attached.periods) if p.number > last and what(p)), None)

    with attached.decided:
        attached.decided.wait_for(lambda: found() or attached.ended.is_set(), _WAIT_S)
    if (one := found()) is None:
        raise AssertionError("\n".join(words(p) for p in list(attached.periods)[-40:]))
    return one


def words(period: Period) -> str:
    """A period in words."""
    seen, decision = period.seen, period.decision
    return f"{seen.executors} there, {decision.executors}: {decision.why}; {period.note}"


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do what comes in, line by line."""
    driver = Driver(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]))
    names: dict[str, Any] = {"driver": driver, "RealTime": RealTime, "st": st}
    names |= {"until": until, "words": words}
    _say(told=driver.spark.conf.get("spark.driver.port"))
    for line in sys.stdin:
        names["told"] = None
        try:
            exec(json.loads(line), names)
            _say(told=names["told"])
        except Exception:  # noqa: BLE001  # the test that asked tells of it
            _say(failed=traceback.format_exc())
    driver.spark.stop()


if __name__ == "__main__":
    main()
