"""The batch clock: a real-time source without data, which says when a batch of Spark's begins and
ends, and nothing else. Everything here that is Spark's inside is checked by a contract test.

`LowLatencyMemoryStream` ends its input when a batch's time is over. The clock is a stage of one
partition, because the number of partitions of a source is fixed by the checkpoint; sources follow
behind a shuffle and may be any number."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


def ticks(spark: SparkSession, partitions: int) -> DataFrame:
    """The clock's rows, of which there are none, spread over so many partitions."""
    jvm: Any = spark._jvm
    stream = jvm.org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream.apply(
        spark._jsparkSession, 1, jvm.org.apache.spark.sql.Encoders.LONG()
    )
    rows = DataFrame(stream.toDF(), spark).select(F.lit(0).alias("pid"), F.col("value"))
    return rows.repartitionById(partitions, "pid")
