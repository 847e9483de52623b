"""The stages of a query's batch: where their tasks are, and which operators run in which. Spark
describes all stages of a query alike, and has no way to be told better. So this reaches into what
the UI shows. A test checks every use of Spark's internals here. Used once all executors are up."""

import logging
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from sojourn.engine.wire.layout import Layout

_log = logging.getLogger("sojourn")
_LOOK_S = 0.05


def describe(spark: SparkSession, run: str, topology: str, layout: Layout) -> None:
    """Describe the stages of the batch that a run of a query is in. Spark's UI shows it with its
    next update, a few seconds later."""
    if spark.sparkContext.uiWebUrl is None:
        return
    names = ["clock", *described(layout)]
    try:
        _describe(spark, run, [f"{topology}: {name}" for name in names])
    except Exception:  # noqa: BLE001  # the stages then have Spark's own descriptions
        _log.debug("the stages were not described", exc_info=True)


def described(layout: Layout) -> list[str]:
    """The vertices of each level."""
    levels: list[dict[str, None]] = [{} for _ in layout.partitions]
    for place in layout.places:
        levels[place.level][place.vertex] = None
    return [", ".join(level) for level in levels]


def running_on(spark: SparkSession, run: str, tasks: int, timeout_s: float) -> set[str]:
    """The Spark executors that have tasks of a run of a query, once Spark's store has heard of so
    many tasks. On a busy machine that is some time after they began."""
    deadline = time.monotonic() + timeout_s
    while len(found := _running(spark, run)) < tasks and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return set(found)


def _running(spark: SparkSession, run: str) -> list[str]:
    """The Spark executor of each task. None is tried again, as the query fails with it."""
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    lists = [store.taskList(stage, 0, 1_000_000) for stage in _stages(spark, run)]
    tasks = [some.apply(i) for some in lists for i in range(some.size())]
    return [task.executorId() for task in tasks if task.status() == "RUNNING"]


def _stages(spark: SparkSession, run: str) -> list[int]:
    """Of the batch that a run of a query is in."""
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(run)
    job = tracker.getJobInfo(max(jobs)) if jobs else None
    return [] if job is None else sorted(job.stageIds)


def _describe(spark: SparkSession, run: str, names: Sequence[str]) -> None:
    context, jvm = spark.sparkContext, spark._jvm
    assert jvm is not None
    stages = _stages(spark, run)
    if len(stages) != len(names):
        _log.debug("a batch has %d stages instead of %d", len(stages), len(names))
        return
    texts = dict(zip(stages, names, strict=True))
    listener: Any = context._jsc.sc().statusStore().listener().get()
    field = listener.getClass().getDeclaredField("liveStages")
    field.setAccessible(True)
    for stage in field.get(listener).values():
        if (number := stage.info().stageId()) in texts:
            getattr(stage, "description_$eq")(jvm.scala.Some(texts[number]))
