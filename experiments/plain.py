"""Plain Structured Streaming queries, and rows that come at given times, for experiments and tests
of `sojourn.attach`. Rows come by a trace: a rate from each of some seconds on. A row says when it
was meant to come, so how late its result is can be told."""

import bisect
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from sojourn.attached import status as st
from sojourn.attached.scaling import DriverScaling, DriverStatus

COMES_S = 60.0


class Trace:
    """Rates a second, each from a second on, as `0:50,20:400`. The last one is for ever; a rate of
    0 ends it."""

    def __init__(self, written: str) -> None:
        steps = [part.split(":") for part in written.split(",")]
        self.times = [float(at) for at, _ in steps]
        self.rates = [float(rate) for _, rate in steps]
        self.rows = [0.0]
        for place in range(1, len(steps)):
            passed_s = self.times[place] - self.times[place - 1]
            self.rows.append(self.rows[-1] + passed_s * self.rates[place - 1])

    def due(self, at_s: float) -> int:
        """Rows that were to come by then."""
        place = max(0, bisect.bisect_right(self.times, at_s) - 1)
        return int(self.rows[place] + max(0.0, at_s - self.times[place]) * self.rates[place] + 1e-6)

    def at_s(self, row: int) -> float:
        """When a row is to come."""
        place = bisect.bisect_right(self.rows, row) - 1
        while not self.rates[place]:
            place -= 1
        return self.times[place] + (row - self.rows[place]) / self.rates[place]


class Part(InputPartition):
    """Every so many rows of a range."""

    def __init__(self, first: int, end: int, step: int) -> None:
        self.first, self.end, self.step = first, end, step


class Rows(DataSource):
    """Options: `trace`, `began` (seconds, as of `time.time`), `partitions` and, at most that many
    in a batch, `maxRows`."""

    @classmethod
    def name(cls) -> str:
        """For `format`."""
        return "trace"

    def schema(self) -> str:
        """The row's number, and when it was meant to come."""
        return "number bigint, due double"

    def streamReader(self, schema: Any) -> "RowsReader":  # noqa: N802, ARG002
        """Spark asks for it."""
        return RowsReader(self.options)


class RowsReader(DataSourceStreamReader):
    """Knows what was to come by now, and reports it."""

    def __init__(self, options: Any) -> None:
        self.trace = Trace(options["trace"])
        self.began_s = float(options["began"])
        self.parts = int(options["partitions"])
        self.most = int(options["maxRows"]) if "maxRows" in options else None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """None was read."""
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """So many at most."""
        return ReadAllAvailable() if self.most is None else ReadMaxRows(self.most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """What is due, as far as it may be taken."""
        due = self._due()
        if isinstance(limit, ReadMaxRows):
            due = min(due, start["rows"] + limit.max_rows)
        return {"rows": max(start["rows"], due)}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """What is due."""
        return {"rows": self._due()}

    def _due(self) -> int:
        return self.trace.due(time.time() - self.began_s)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Rows in turn."""
        return [Part(start["rows"] + part, end["rows"], self.parts) for part in range(self.parts)]

    def read(self, partition: Any) -> Iterator[tuple[int, float]]:
        """Runs in an executor."""
        for row in range(partition.first, partition.end, partition.step):
            yield row, self.began_s + self.trace.at_s(row)


def rows(
    spark: SparkSession, trace: str, began_s: float, partitions: int, most: int | None = None
) -> DataFrame:
    """A stream of rows by a trace. Machines of the cluster do not have this file."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(Rows)
    reader = spark.readStream.format("trace").option("trace", trace).option("began", began_s)
    reader = reader.option("partitions", partitions)
    return (reader if most is None else reader.option("maxRows", most)).load()


def awaited(status: st.Status, wanted: int) -> dict[str, st.Executor]:
    """Executors, once there are so many. Spark tells nobody when they come and go."""
    deadline = time.monotonic() + COMES_S
    while len(found := st.executors(status)) != wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} executors, not {wanted}")
        time.sleep(0.1)
    return found


def resized(spark: SparkSession, wanted: int) -> dict[str, st.Executor]:
    """Have so many executors."""
    scaling, status = DriverScaling(spark), DriverStatus(spark)
    have = st.executors(status)
    scaling.ask(wanted)
    if len(have) > wanted:
        scaling.give_back(sorted(have, key=int)[wanted:])
    return awaited(status, wanted)
