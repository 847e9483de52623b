"""The batch clock: a real-time source without data, which only says when a batch of Spark's begins
and ends. A contract test checks every use of Spark's internals here.

`LowLatencyMemoryStream` ends its input when a batch's time is over. The clock is a stage of one
partition, because the checkpoint fixes the number of partitions of a source. The topology's sources
follow after a shuffle, and may be any number.

While the stream has no row, its reader asks the driver for one a hundred times a second, which
costs a tenth of a core. So each batch gets one row. Reading it makes the reader sleep until shortly
before the batch is over."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

AWAKE_S = 1.0  # before a batch's end; one that ends late does no harm


class Clock:
    """The clock's rows, spread over partitions. No row gets further than the clock."""

    def __init__(self, spark: SparkSession, partitions: int) -> None:
        jvm: Any = spark._jvm
        self.jvm = jvm
        # Spark uses this session's settings for what this thread does.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
        sources = jvm.org.apache.spark.sql.execution.streaming.sources
        self.stream = sources.LowLatencyMemoryStream.apply(
            spark._jsparkSession, 1, jvm.org.apache.spark.sql.Encoders.LONG()
        )
        rows = DataFrame(self.stream.toDF(), spark)
        rows = rows.where("java_method('java.lang.Thread', 'sleep', value) = 'passed on'")
        rows = rows.select(F.lit(0).alias("pid"), F.col("value"))
        self.rows = rows.repartitionById(partitions, "pid")

    def sleep(self, batch_s: float) -> None:
        """Note that a batch of that length has begun."""
        sleep_ms = round((batch_s - AWAKE_S) * 1000)
        if sleep_ms > 0:
            row = self.jvm.java.util.stream.LongStream.of(sleep_ms).boxed().toList()
            self.stream.addData(self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(row))
