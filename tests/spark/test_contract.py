"""Facts about Spark 4.3 that the engine stands on, one test each."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sojourn.engine.clock import BatchClock
from sojourn.engine.session import AT_START, PER_QUERY, wait_for_slots
from sojourn.engine.task import SCHEMA
from sojourn.errors import InputError


def start(clock: BatchClock, rows: Any, seconds: int) -> StreamingQuery:
    writer = rows.writeStream.format("noop").outputMode("update")
    query: StreamingQuery = (
        writer.trigger(realTime=f"{seconds} seconds")
        .option("checkpointLocation", str(clock.checkpoint))
        .start()
    )
    return query


def noting(path: str) -> Any:
    """A level that notes when it starts and ends, and under which batch and partition."""

    def level(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        query = context.getLocalProperty("sql.streaming.queryId")
        name = f"{batch}-{context.partitionId()}"
        Path(path, f"{name}-start").write_text(str(query), encoding="utf-8")
        ended = threading.Event()

        def drain() -> None:
            for _ in batches:
                continue
            ended.set()

        threading.Thread(target=drain, daemon=True).start()
        ended.wait()
        Path(path, f"{name}-end").touch()
        yield from ()

    return level


def await_file(path: Path, query: StreamingQuery, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, (
            f"{path.name} did not come; there are {[*path.parent.iterdir()]}"
        )
        query.awaitTermination(1)


def test_a_clock_without_rows_drives_batches_and_ends_them_early(
    spark: SparkSession, tmp_path: Path
) -> None:
    """mapInArrow runs in Real-Time Mode, knows batch, query and partition, and its input ends with
    the batch, also when that is brought forward; the batch is then committed."""
    notes = tmp_path / "notes"
    notes.mkdir()
    clock = BatchClock(spark, tmp_path / "checkpoint")
    query = start(clock, clock.rows(2).mapInArrow(noting(str(notes)), SCHEMA), 3600)
    try:
        await_file(notes / "0-0-start", query)
        await_file(notes / "0-1-start", query)
        assert (notes / "0-0-start").read_text(encoding="utf-8") == query.id
        assert clock.committed() == -1
        clock.end_batch()
        await_file(notes / "0-1-end", query)
        await_file(tmp_path / "checkpoint" / "commits" / "0", query)
    finally:
        query.stop()
        clock.reset()
    again = BatchClock(spark, tmp_path / "checkpoint")
    first = clock.committed() + 1
    query = start(again, again.rows(3).mapInArrow(noting(str(notes)), SCHEMA), 3600)
    try:  # a restart goes on with the next batch, here with another number of partitions
        await_file(notes / f"{first}-2-start", query)
        again.end_batch()
        await_file(tmp_path / "checkpoint" / "commits" / str(first), query)
    finally:
        query.stop()
        again.reset()


def test_a_stopped_batch_is_not_committed_and_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for _ in range(2):
        clock = BatchClock(spark, tmp_path / "checkpoint")
        query = start(clock, clock.rows(1).mapInArrow(noting(str(notes)), SCHEMA), 3600)
        await_file(notes / "0-0-start", query)
        query.stop()
        assert clock.committed() == -1
        (notes / "0-0-start").unlink()


def test_a_failing_python_function_fails_the_query_without_a_retry(
    spark: SparkSession, tmp_path: Path
) -> None:
    def broken(batches: Iterator[Any]) -> Iterator[Any]:
        raise ValueError(f"on purpose, before reading {batches}")

    clock = BatchClock(spark, tmp_path)
    query = start(clock, clock.rows(1).mapInArrow(broken, SCHEMA), 3600)
    with pytest.raises(PySparkException, match="on purpose"):
        query.awaitTermination(60)
    assert clock.committed() == -1


def test_real_time_mode_wants_update_mode(spark: SparkSession, tmp_path: Path) -> None:
    clock = BatchClock(spark, tmp_path)
    rows = clock.rows(1).mapInArrow(noting(str(tmp_path)), SCHEMA)
    with pytest.raises(PySparkException):
        (
            rows.writeStream.format("noop")
            .outputMode("append")
            .trigger(realTime="3600 seconds")  # type: ignore[call-overload]
            .option("checkpointLocation", str(tmp_path))
            .start()
            .awaitTermination(60)
        )


def test_the_settings_exist_and_are_set(spark: SparkSession) -> None:
    for key, value in AT_START.items():
        assert spark.sparkContext.getConf().get(key) == value
    for key, value in PER_QUERY.items():
        assert spark.conf.get(key) == value


def test_too_few_slots_are_told_before_spark_fails(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="needs 999 task slots at once, and Spark has 12"):
        wait_for_slots(spark, 999, 0.1, lambda: False)
