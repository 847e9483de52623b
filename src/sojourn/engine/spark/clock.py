"""The batch clock: a real-time source without data that tells when a batch ends, and can be told
to end one at once. Everything here that is Spark's inside is checked by a contract test.

`LowLatencyMemoryStream` ends its input when `LowLatencyClock`, one per JVM, passes the batch's end
time. A row wakes its reader, and the row's value, evaluated in the JVM that reads it, moves that
JVM's clock to the end of time: so a batch can be ended early, and is committed as any other. The
clock is a stage of one partition, because the number of partitions of a source is fixed by the
checkpoint; sources follow behind a shuffle and may be any number."""

import json
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

_END_OF_TIME = 2**62
_SPARK = "org.apache.spark"


class BatchClock:
    """The clock of one query."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.jvm: Any = spark._jvm
        jvm: Any = self.jvm
        sources = jvm.org.apache.spark.sql.execution.streaming.sources
        self.stream = sources.LowLatencyMemoryStream.apply(
            spark._jsparkSession, 1, jvm.org.apache.spark.sql.Encoders.LONG()
        )

    def rows(self, partitions: int) -> DataFrame:
        """The clock's rows, spread over so many partitions."""
        value = self.jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute.quoted("value")
        moved = self._set_clock(self._new(f"{_SPARK}.util.ManualClock", value))
        ticks = DataFrame(self.stream.toDF(), self.spark).select(
            F.lit(0).alias("pid"), moved.alias("moved")
        )
        return ticks.repartitionById(partitions, "pid")

    def end_batch(self) -> None:
        """Let the running batch end now. The clock then stands still: no batch after it lasts,
        until `reset`."""
        # A stream made anew is empty but read from the checkpoint's offset on, so rows that are
        # never read must fill it up to there.
        logged = _numbers(self.checkpoint / "offsets")
        offset = 0
        if logged:
            text = (self.checkpoint / "offsets" / str(max(logged))).read_text(encoding="utf-8")
            offset = int(json.loads(text.splitlines()[-1])["0"])
        rows = [_END_OF_TIME] * (offset + 1)
        self.stream.addData(0, self.jvm.PythonUtils.toSeq(rows))

    def reset(self) -> None:
        """Set all clocks to the real time again, once the query has stopped."""
        jvm = self.jvm
        jvm.org.apache.spark.sql.execution.datasources.v2.LowLatencyClock.setClock(
            jvm.org.apache.spark.util.SystemClock()
        )
        if not str(self.spark.sparkContext.master).startswith("local"):
            real = self._set_clock(self._new(f"{_SPARK}.util.SystemClock"))
            self.spark.range(0, 64, 1, 64).select(real).collect()

    def committed(self) -> int:
        """The last committed batch, -1 if there is none."""
        return max(_numbers(self.checkpoint / "commits"), default=-1)

    def _class(self, name: str) -> Any:
        return self.jvm.org.apache.spark.util.Utils.classForName(name, True, False)

    def _new(self, name: str, *arguments: Any) -> Any:
        jvm = self.jvm
        seq, none = jvm.PythonUtils.toSeq, getattr(getattr(jvm.scala, "None$"), "MODULE$")
        kind = jvm.org.apache.spark.sql.types.ObjectType(self._class(f"{_SPARK}.util.Clock"))
        return jvm.org.apache.spark.sql.catalyst.expressions.objects.NewInstance(
            self._class(name), seq(list(arguments)), seq([]), False, kind, none
        )

    def _set_clock(self, clock: Any) -> Column:
        """An expression that moves the clock where it is evaluated. It stands inside java_method
        because that is interpreted: compiled, a call without a result would not pass."""
        jvm = self.jvm
        seq, none = jvm.PythonUtils.toSeq, getattr(getattr(jvm.scala, "None$"), "MODULE$")
        text = getattr(getattr(jvm.org.apache.spark.sql.types, "StringType$"), "MODULE$")
        call = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
            self._class(f"{_SPARK}.sql.execution.datasources.v2.LowLatencyClock"),
            text,
            "setClock",
            seq([clock]),
            seq([]),
            False,
            True,
            False,
            none,
        )
        column = Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(call))
        return F.java_method(F.lit("java.lang.Boolean"), F.lit("parseBoolean"), column)


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]
