"""Tells Spark's UI which operators run in which stage. Spark describes all stages of a query alike,
and has no way to be told better. So this reaches into what the UI shows. A test checks every use of
Spark's internals here. Used by the supervisor, once all executors are up."""

import logging
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from sojourn.engine.wire.layout import Layout

_log = logging.getLogger("sojourn")


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


def _describe(spark: SparkSession, run: str, names: Sequence[str]) -> None:
    context, jvm = spark.sparkContext, spark._jvm
    assert jvm is not None
    tracker = context.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(run)))
    stages = [] if job is None else sorted(job.stageIds)
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
