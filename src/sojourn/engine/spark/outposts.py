"""Outposts as tasks of Spark jobs beside the query, so that whatever manages the cluster starts,
places and ends them. A job has one task that asks to be on a certain Spark executor. It takes a
free slot there and holds it until the outpost ends. Used by the driver; the task is what runs
there."""

import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark import InheritableThread
from pyspark.core.rdd import RDD
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession

from sojourn.engine.spark import nursery
from sojourn.engine.wire.channel import ChannelKeys
from sojourn.engine.wire.spec import OutpostSpec, spark_executor_id

_log = logging.getLogger("sojourn")
_TRIES = 5  # tasks that may come to a wrong place before nobody asks any more
_LOOK_S = 0.05


@dataclass(frozen=True)
class OutpostTask:
    """What the task runs: an outpost, if it is where it should be."""

    keys: ChannelKeys
    secret: bytes

    def __call__(self, wanted: Iterable[str]) -> Iterable[bool]:
        """Whether this was the right place; then the outpost has ended by now."""
        (spark_executor,) = wanted
        if spark_executor_id() not in ("", spark_executor):
            yield False
            return
        spec = OutpostSpec(self.keys, self.secret, spark_executor)
        with nursery.start_outpost(pickle.dumps(spec)) as held:
            held.recv(1)  # until it has ended
        yield True


@dataclass(frozen=True)
class SparkExecutor:
    """One that is up: its host, and how many of its task slots are free."""

    host: str
    free: int


def spark_executors(spark: SparkSession) -> dict[str, SparkExecutor]:
    """All that are up, by id, as far as Spark's store has heard of them."""
    jvm_list: Any = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    found = [jvm_list.apply(i) for i in range(jvm_list.size())]
    return {
        one.id(): SparkExecutor(
            one.hostPort().rpartition(":")[0], one.maxTasks() - one.activeTasks()
        )
        for one in found
        if one.id() != "driver" and one.hostPort()
    }


def await_heard_of(spark: SparkSession, timeout_s: float) -> None:
    """Wait until Spark's store has heard of all executors that have registered. On a busy machine
    that is some time after its scheduler has."""
    ids: Any = spark.sparkContext._jsc.sc().getExecutorIds()
    registered = {ids.apply(i) for i in range(ids.size())}
    deadline = time.monotonic() + timeout_s
    while not registered <= spark_executors(spark).keys() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def start_outpost(
    spark: SparkSession,
    keys: ChannelKeys,
    secret: bytes,
    spark_executor: str,
    ended: Callable[[], None],
) -> threading.Thread:
    """Have an outpost run on a Spark executor. Returns at once; the thread ends with it."""
    task = OutpostTask(keys, secret)

    def hold() -> None:
        try:
            for _ in range(_TRIES):
                if _run(spark, task, spark_executor):
                    return
        except Exception:  # noqa: BLE001  # who asked for it sees that it does not come
            _log.debug("the outpost on %s has ended", spark_executor, exc_info=True)
        finally:
            ended()

    thread = InheritableThread(target=hold, daemon=True, name=f"sojourn-outpost-{spark_executor}")
    thread.start()
    return thread


def cancel_outpost(spark: SparkSession, spark_executor: str) -> None:
    """End the job of an outpost, whether or not its task has begun."""
    spark.sparkContext.cancelJobGroup(_group(spark_executor))


def _group(spark_executor: str) -> str:
    return f"sojourn-outpost-{spark_executor}"


def _run(spark: SparkSession, task: OutpostTask, spark_executor: str) -> bool:
    context = spark.sparkContext
    jvm: Any = context._jvm
    description = f"sojourn: workers on Spark executor {spark_executor}"
    context.setJobGroup(_group(spark_executor), description, interruptOnCancel=True)
    found_there = spark_executors(spark).get(spark_executor)
    if found_there is None:
        return True
    where = jvm.PythonUtils.toSeq([f"executor_{found_there.host}_{spark_executor}"])
    item = jvm.scala.Tuple2(pickle.dumps(spark_executor), where)
    tag = getattr(jvm.scala.reflect, "ClassTag$").__getattr__("MODULE$").AnyRef()
    rows = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq([item]), tag)
    java = jvm.org.apache.spark.api.java.JavaRDD.fromRDD(rows, tag)
    wanted: RDD[str] = RDD(java, context, CPickleSerializer())
    found = wanted.mapPartitions(task).collect()
    return found == [True]
