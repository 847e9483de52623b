"""Spark executors of a running driver: asked for and given back through Spark's own calls, which
are the same on a standalone cluster, on YARN and on Kubernetes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from sojourn.errors import InputError

_JOBS = 200  # that are looked at


class Scaling(Protocol):
    """Whoever gives executors and takes them back."""

    def ask(self, executors: int) -> bool:
        """Have so many in all; whether the cluster manager takes that."""

    def give_back(self, names: Sequence[str]) -> list[str]:
        """Let go of executors that have nothing to do, or of others once they are done. Returns
        those that will go."""


def check(spark: Any) -> None:
    """Refuse a session whose executors cannot be asked for."""
    if not hasattr(spark, "_jsc") or not hasattr(spark, "_jvm"):
        raise InputError(
            "sojourn.attach: needs a session in the driver's own process; got one of Spark "
            "Connect; call it in the program that starts the driver"
        )
    context = spark.sparkContext
    if context.master.startswith("local"):
        raise InputError(
            f"sojourn.attach: needs a cluster whose executors come and go; got master "
            f"{context.master!r}, which has none; use spark://…, yarn or k8s://…"
        )
    if context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise InputError(
            "sojourn.attach: cannot share executors with Spark's dynamic allocation; got "
            "spark.dynamicAllocation.enabled=true; set it to false"
        )


class DriverScaling:
    """Through Spark's context, in the driver."""

    def __init__(self, spark: Any) -> None:
        self.jvm = spark._jvm
        self.gateway = spark.sparkContext._gateway
        self.context = spark.sparkContext._jsc.sc()
        conf = spark.sparkContext.getConf()
        self.decommissions = conf.get("spark.decommission.enabled", "false").lower() == "true"

    def ask(self, executors: int) -> bool:
        """Have so many in all."""
        empty = getattr(getattr(self.jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        return bool(self.context.requestTotalExecutors(executors, 0, empty))

    def give_back(self, names: Sequence[str]) -> list[str]:
        """Gracefully, where Spark is set up for that: tasks end and blocks move first. Else those
        that have no task at the moment."""
        backend = self.context.schedulerBackend()
        if not self.decommissions:
            gone = backend.killExecutors(
                self.jvm.PythonUtils.toSeq(list(names)), False, False, False
            )
        else:
            kind = self.jvm.scala.Tuple2
            info = self.jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo
            pairs = self.gateway.new_array(kind, len(names))
            nobody = getattr(getattr(self.jvm.scala, "None$"), "MODULE$")
            for place, name in enumerate(names):
                pairs[place] = kind(name, info("sojourn: no longer needed", nobody))
            gone = backend.decommissionExecutors(pairs, False, False)
        return [gone.apply(place) for place in range(gone.size())]


class DriverStatus:
    """Spark's status store, in the driver. Answers are as of the REST API, with the fields that
    somebody reads: each costs a call, and to write whole answers as JSON, as the REST API does,
    costs more, most of all the first time."""

    def __init__(self, spark: Any) -> None:
        jvm = spark._jvm
        self.task_cpus = float(spark.sparkContext.getConf().get("spark.task.cpus", "1"))
        self.store = spark.sparkContext._jsc.sc().statusStore()
        self.job = jvm.java.lang.Class.forName("org.apache.spark.status.JobDataWrapper")
        self.none = jvm.java.util.ArrayList()
        self.quantiles = spark.sparkContext._gateway.new_array(jvm.double, 0)
        self.made: dict[str, Mapping[str, Any]] = {}  # what never changes, by executor

    def executors(self) -> Sequence[Mapping[str, Any]]:
        """Those that are there."""
        found = [
            {
                **self._made(one),
                "completedTasks": one.completedTasks(),
                "totalDuration": one.totalDuration(),
                "activeTasks": one.activeTasks(),
            }
            for one in _each(self.store.executorList(True).iterator())
        ]
        self.made = {one["id"]: self.made[one["id"]] for one in found}
        return found

    def _made(self, one: Any) -> Mapping[str, Any]:
        name = str(one.id())
        if name not in self.made:
            self.made[name] = {
                "id": name,
                "maxTasks": one.maxTasks(),
                "totalCores": one.totalCores(),
                "addTime": one.addTime().getTime(),
            }
        return self.made[name]

    def jobs(self, since: int = 0, group: str | None = None) -> Sequence[Mapping[str, Any]]:
        """The last ones, but none of before that number. Spark remembers a thousand."""
        newest = self.store.store().view(self.job).reverse().last(since).max(_JOBS)
        every = (_job(one.info(), group) for one in _each(newest.iterator()))
        return [job for job in every if job is not None]

    def stage(self, number: int) -> Mapping[str, Any] | None:
        """The last attempt at it."""
        attempts = self.store.stageData(number, False, self.none, False, self.quantiles)
        if attempts.isEmpty():
            return None
        found = attempts.last()
        status = found.status().toString()
        is_active = status == "ACTIVE"
        return {
            "status": status,
            "numTasks": found.numTasks(),
            "numCompleteTasks": found.numCompleteTasks(),
            "executorRunTime": found.executorRunTime(),
            "inputRecords": found.inputRecords(),
            "submissionTime": _moment(found.submissionTime()),
            "completionTime": _moment(found.completionTime()),
            "numFailedTasks": found.numFailedTasks() if is_active else 0,
            "numKilledTasks": found.numKilledTasks() if is_active else 0,
            "firstTaskLaunchedTime": (
                _moment(found.firstTaskLaunchedTime()) if is_active else None
            ),
        }


def _each(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()


def _job(of: Any, group: str | None) -> dict[str, Any] | None:
    """A job, if it is of that group, or of any."""
    in_group = of.jobGroup()
    name = in_group.get() if in_group.isDefined() else None
    if group not in (None, name):
        return None
    return {
        "jobId": of.jobId(),
        "jobGroup": name,
        "submissionTime": _moment(of.submissionTime()),
        "completionTime": _moment(of.completionTime()),
        "stageIds": [int(number) for number in of.stageIds().mkString(" ").split()],
    }


def _moment(at: Any) -> int | None:
    """What Scala may have, as milliseconds."""
    return at.get().getTime() if at.isDefined() else None
