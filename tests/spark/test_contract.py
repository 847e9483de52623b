"""Facts about Spark 4.3 that the engine stands on, one test each."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SLOTS
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sojourn.engine.spark import clock as module
from sojourn.engine.spark.session import AT_START, PER_QUERY, wait_for_slots
from sojourn.engine.spark.task import SCHEMA, pushed
from sojourn.errors import InputError


class Clock:
    """The clock of a query, and where Spark keeps its own checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self.spark, self.checkpoint = spark, checkpoint

    def rows(self, partitions: int) -> Any:
        self.made = module.Clock(self.spark, partitions)
        return self.made.rows

    def committed(self) -> int:
        """The last batch in Spark's log of commits."""
        folder = self.checkpoint / "commits"
        found = folder.iterdir() if folder.is_dir() else ()
        return max((int(path.name) for path in found if path.name.isdecimal()), default=-1)


def start(clock: Clock, rows: Any, seconds: int = 3600) -> StreamingQuery:
    writer = rows.writeStream.format("noop").outputMode("update")
    query: StreamingQuery = (
        writer.trigger(realTime=f"{seconds} seconds")
        .option("checkpointLocation", str(clock.checkpoint))
        .start()
    )
    return query


def refusal(clock: Clock, rows: Any, **changed: Any) -> str:
    """Why Spark does not run such a query."""
    given = {"mode": "update", "seconds": 3600, "checkpoint": True, **changed}
    writer = rows.writeStream.format("noop").outputMode(given["mode"])
    writer = writer.trigger(realTime=f"{given['seconds']} seconds")
    if given["checkpoint"]:
        writer = writer.option("checkpointLocation", str(clock.checkpoint))
    with pytest.raises(PySparkException) as refused:
        writer.start().awaitTermination(60)
    return str(refused.value)


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
            for batch in batches:
                if batch.num_rows:
                    Path(path, f"{name}-row").touch()
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


def test_a_clock_without_rows_drives_batches(spark: SparkSession, tmp_path: Path) -> None:
    """mapInArrow runs in Real-Time Mode, knows batch, query and partition, and its input ends with
    the batch."""
    notes = tmp_path / "notes"
    notes.mkdir()
    clock = Clock(spark, tmp_path / "checkpoint")
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1000ms")
    query = start(clock, clock.rows(2).mapInArrow(noting(str(notes)), SCHEMA), 2)
    try:
        await_file(notes / "0-0-start", query)
        await_file(notes / "0-1-start", query)
        assert (notes / "0-0-start").read_text(encoding="utf-8") == query.id
        await_file(notes / "0-1-end", query)
        await_file(notes / "1-0-start", query)
    finally:
        query.stop()


def test_a_row_makes_the_clock_sleep(spark: SparkSession, tmp_path: Path) -> None:
    """It goes no further, and a query that is stopped does not wait."""
    notes = tmp_path / "notes"
    notes.mkdir()
    clock = Clock(spark, tmp_path / "checkpoint")
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1000ms")
    query = start(clock, clock.rows(1).mapInArrow(noting(str(notes)), SCHEMA), 3)
    try:
        await_file(notes / "0-0-start", query)
        clock.made.sleep(module.AWAKE_S + 0.1)
        await_file(notes / "0-0-end", query)
        assert not (notes / "0-0-row").exists()
        await_file(notes / "1-0-start", query)
        clock.made.sleep(3600.0)
        query.awaitTermination(5)
        assert not (notes / "1-0-end").exists(), "a batch of three seconds goes on"
    finally:
        query.stop()
    assert query.exception() is None
    assert query.recentProgress[0]["numInputRows"] == 1


def test_a_stopped_batch_is_not_committed_and_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for _ in range(2):
        clock = Clock(spark, tmp_path / "checkpoint")
        query = start(clock, clock.rows(1).mapInArrow(noting(str(notes)), SCHEMA))
        await_file(notes / "0-0-start", query)
        query.stop()
        assert clock.committed() == -1
        (notes / "0-0-start").unlink()


def test_a_failing_python_function_fails_the_query_without_a_retry(
    spark: SparkSession, tmp_path: Path
) -> None:
    def broken(batches: Iterator[Any]) -> Iterator[Any]:
        raise ValueError(f"on purpose, before reading {batches}")

    clock = Clock(spark, tmp_path)
    query = start(clock, clock.rows(1).mapInArrow(broken, SCHEMA))
    with pytest.raises(PySparkException, match="on purpose"):
        query.awaitTermination(60)
    assert clock.committed() == -1


def test_real_time_mode_wants_update_mode_and_long_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = Clock(spark, tmp_path)
    rows = clock.rows(1).mapInArrow(noting(str(tmp_path)), SCHEMA)
    assert "OUTPUT_MODE_NOT_SUPPORTED" in refusal(clock, rows, mode="append")
    key = "spark.sql.streaming.realTimeMode.minBatchDuration"
    shortest = spark.conf.get(key) or ""
    spark.conf.set(key, "5000ms")
    try:
        assert "5000" in refusal(clock, rows, seconds=1)
    finally:
        spark.conf.set(key, shortest)


def test_map_in_arrow_is_allowed_only_without_the_check(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = Clock(spark, tmp_path)
    key = "spark.sql.streaming.realTimeMode.allowlistCheck"
    spark.conf.set(key, "true")
    try:
        rows = clock.rows(1).mapInArrow(noting(str(tmp_path)), SCHEMA)
        assert "ALLOWLIST" in refusal(clock, rows).upper()
    finally:
        spark.conf.set(key, "false")


def test_all_stages_need_their_slots_at_once(spark: SparkSession, tmp_path: Path) -> None:
    clock = Clock(spark, tmp_path)
    half = SLOTS // 2 + 1
    rows = clock.rows(half).mapInArrow(noting(str(tmp_path)), SCHEMA)
    rows = rows.repartitionById(half, "pid").mapInArrow(noting(str(tmp_path)), SCHEMA)
    assert "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT" in refusal(clock, rows)


def sending(path: str) -> Any:
    """A level that sends an empty row and a full one to each of two partitions; to the second one
    another empty one, and when told, to the first one too. Ends with its input."""
    two_columns, draining = helpers()

    def level(batches: Iterator[Any]) -> Iterator[Any]:
        ended = draining(batches)
        yield two_columns((0, None), (0, b"held"), (1, None), (1, b"pushed"), (1, None))
        while not Path(path, "go").exists() and not ended.wait(0.02):
            continue
        yield two_columns((0, None))
        ended.wait()

    return level


def sending_singly(path: str) -> Any:
    """A level that sends the first row of all, one that somebody else may have made, and then its
    own, each when the one before has arrived."""
    two_columns, draining = helpers()

    def level(batches: Iterator[Any]) -> Iterator[Any]:
        ended = draining(batches)
        yield two_columns((0, b"first of all"), (1, b"first of all"), (1, None))
        for name in ("first", "second", "third"):
            yield two_columns((1, name.encode()))
            while not Path(path, name).exists() and not ended.wait(0.02):
                continue
        ended.wait()

    return level


def helpers() -> tuple[Any, Any]:
    """For levels: makes rows; and reads all there is to come, telling when that has ended. Made
    here, as Spark's Python workers know no module of tests."""

    def two_columns(*pairs: tuple[int, bytes | None]) -> Any:
        import pyarrow as pa

        pids = pa.array([pid for pid, _ in pairs], pa.int32())
        data = pa.array([data for _, data in pairs], pa.binary())
        return pa.RecordBatch.from_arrays([pids, data], names=["pid", "data"])

    def draining(batches: Iterator[Any]) -> threading.Event:
        ended = threading.Event()

        def drain() -> None:
            for _ in batches:
                continue
            ended.set()

        threading.Thread(target=drain, daemon=True).start()
        return ended

    return two_columns, draining


def receiving(path: str) -> Any:
    """A level that leaves a file named by each row it gets."""

    def level(batches: Iterator[Any]) -> Iterator[Any]:
        Path(path, "unix").write_text(
            os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", ""), encoding="utf-8"
        )
        for batch in batches:
            for data in batch.column(1).to_pylist():
                if data is not None:
                    Path(path, data.decode()).touch()
        yield from ()

    return level


def test_two_rows_arrive_only_with_the_next_one_and_at_once_while_input_is_open(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Neither the sender's nor the receiver's input has ended: output does not wait for it. Python
    and the JVM talk over Unix sockets."""
    notes = tmp_path / "notes"
    notes.mkdir()
    clock = Clock(spark, tmp_path / "checkpoint")
    rows = clock.rows(1).mapInArrow(sending(str(notes)), SCHEMA)
    rows = rows.repartitionById(2, "pid").mapInArrow(receiving(str(notes)), SCHEMA)
    query = start(clock, rows)
    try:
        await_file(notes / "pushed", query)
        assert not (notes / "held").exists()
        (notes / "go").touch()
        await_file(notes / "held", query)
        assert (notes / "unix").read_text(encoding="utf-8").lower() == "true"
    finally:
        query.stop()


def test_a_row_that_is_pushed_arrives_at_once(spark: SparkSession, tmp_path: Path) -> None:
    clock = Clock(spark, tmp_path / "checkpoint")
    rows = clock.rows(1).mapInArrow(sending_singly(str(tmp_path)), SCHEMA)
    rows = pushed(rows.repartitionById(2, "pid"), b"first of all")
    rows = rows.mapInArrow(receiving(str(tmp_path)), SCHEMA)
    query = start(clock, rows)
    try:
        await_file(tmp_path / "third", query)
    finally:
        query.stop()


def worker_of(path: str) -> Any:
    """A level that notes its process, and whether the batch before is committed by then."""

    def level(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        before = Path(path, "checkpoint", "commits", str(batch - 1))
        note = f"{os.getpid()} {batch == 0 or before.exists()}"
        Path(path, f"{batch}-{context.partitionId()}").write_text(note, encoding="utf-8")
        for _ in batches:
            continue
        yield from ()

    return level


def test_a_batch_starts_when_the_one_before_is_committed_and_in_the_same_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = Clock(spark, tmp_path / "checkpoint")
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1000ms")
    query = start(clock, clock.rows(2).mapInArrow(worker_of(str(tmp_path)), SCHEMA), 1)
    workers: list[set[str]] = []
    try:
        for batch in range(3):
            notes = [tmp_path / f"{batch}-{partition}" for partition in range(2)]
            await_file(tmp_path / "checkpoint" / "commits" / str(batch), query)
            told = [note.read_text(encoding="utf-8").split() for note in notes]
            assert [committed for _, committed in told] == ["True", "True"]
            workers.append({pid for pid, _ in told})
    finally:
        query.stop()
    assert workers[0] & workers[1] or workers[1] & workers[2]


def test_a_dead_python_worker_fails_the_query_and_its_batch_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()

    def dying(batches: Iterator[Any]) -> Iterator[Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    clock = Clock(spark, tmp_path / "checkpoint")
    query = start(clock, clock.rows(1).mapInArrow(dying, SCHEMA))
    with pytest.raises(PySparkException, match="Python worker exited unexpectedly"):
        query.awaitTermination(60)
    assert clock.committed() == -1
    again = Clock(spark, tmp_path / "checkpoint")
    query = start(again, again.rows(1).mapInArrow(noting(str(notes)), SCHEMA))
    try:
        await_file(notes / "0-0-start", query)
    finally:
        query.stop()


def test_a_python_foreach_sink_holds_rows_back(spark: SparkSession, tmp_path: Path) -> None:
    """So no sink of ours is one."""
    notes = tmp_path / "notes"
    notes.mkdir()
    folder = str(notes)

    def note(row: Any) -> None:
        if row["data"] is not None:
            Path(folder, f"seen-{bytes(row['data']).decode()}").touch()

    clock = Clock(spark, tmp_path / "checkpoint")
    rows = clock.rows(1).mapInArrow(sending(folder), SCHEMA)
    query = (
        rows.writeStream.foreach(note)
        .outputMode("update")
        .trigger(realTime="3600 seconds")
        .option("checkpointLocation", str(clock.checkpoint))
        .start()
    )
    try:
        (notes / "go").touch()
        with pytest.raises(AssertionError, match="did not come"):
            await_file(notes / "seen-pushed", query, 3)
    finally:
        query.stop()


def test_spark_knows_every_setting_of_ours(spark: SparkSession) -> None:
    """One that was renamed would be accepted and do nothing."""
    jvm: Any = spark._jvm
    known = jvm.org.apache.spark.internal.config.ConfigEntry
    for key in {**AT_START, **PER_QUERY}:
        assert known.findEntry(key) is not None, key


def test_the_settings_exist_and_are_set(spark: SparkSession) -> None:
    for key, value in AT_START.items():
        assert spark.sparkContext.getConf().get(key) == value
    for key, value in PER_QUERY.items():
        assert spark.conf.get(key) == value


def test_too_few_slots_are_told_before_spark_fails(spark: SparkSession) -> None:
    with pytest.raises(InputError, match=f"needs 999 task slots at once, but Spark has {SLOTS}"):
        wait_for_slots(spark, 999, 0.1, lambda: False)
