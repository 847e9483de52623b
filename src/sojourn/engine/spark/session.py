"""The Spark session that a topology runs in. It is made with the settings that Real-Time Mode and
Python need; a user's own session is checked for the same. Fed by `start`; the reasons are in
docs/engine.md."""

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sojourn.engine.spark.archive import class_options
from sojourn.engine.spark.java import find_java
from sojourn.engine.spark.quiet import hushed
from sojourn.errors import InputError
from sojourn.units import parse_duration

_log = logging.getLogger("sojourn")
# Fixed when a session starts: a session with other values cannot be used. `sojourn conf` prints
# them.
AT_START = {
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.shuffle.streaming.networkBufferSize": "31",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1000",
    "spark.shuffle.streaming.writerMaxMemory": "1",
    "spark.shuffle.streaming.readerMaxMemory": "65536",
}
_OPTIONS = "SPARK_SUBMIT_OPTS"
_EXECUTORS = "spark.executor.extraJavaOptions"
# Java's second compiler takes half of the CPU in a Java machine's first minutes, when a start or a
# recovery should be quick. It gains little where rows are only passed on.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
# Can be set on a running session.
PER_QUERY = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
    "spark.sql.execution.pandas.udf.buffer.size": "256",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# A session can do without these, but with them starts and recoveries take seconds less, and the
# sockets of Python workers have short paths on YARN, too: there Spark would put them into a
# container's own directory, whose path is longer than that of a socket may be.
QUICK = {
    "spark.python.daemon.module": "sojourn.engine.spark.daemon",
    "spark.python.task.killTimeout": "100ms",  # how long a cancelled task holds its slot
    "spark.python.unix.domain.socket.dir": "/tmp",
}
_UI_PORT = 4040


def session(
    spark: SparkSession | None,
    master: str | None,
    slots: int,
    name: str,
    batch_s: float,
    ui: bool = False,
) -> SparkSession:
    """A session that can run a query with that many slots. If it is made, and on this machine, it
    may have Spark's UI."""
    own = False
    if spark is None:
        _check_master(master)
        cache = Path.home() / ".cache" / "sojourn"
        java = find_java(os.environ, cache)
        os.environ.setdefault("JAVA_HOME", str(java.home))
        write, use = class_options(java.home, cache)
        master = master or submitted().get("spark.master")
        if master is None:
            own, master = True, f"local[{slots + 1}]"  # one for what warms it up
        builder = SparkSession.builder.master(master).appName(name)
        if is_here(master):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ["PYSPARK_PYTHON"] = sys.executable  # the same machine, so the same Python
            builder = builder.config("spark.driver.host", "127.0.0.1")
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
            theirs = submitted().get(_EXECUTORS, "")
            builder = builder.config(_EXECUTORS, f"{QUICK_JAVA} {use} {theirs}".strip())
        given = submitted()
        builder = configure(builder).config(
            map={
                key: value
                for key, value in _defaults(ui and is_here(master)).items()
                if key not in given
            }
        )
        options: dict[str, str] = builder._options
        with _java_options(f"{QUICK_JAVA} {write or use}"), hushed(options):
            own = own and SparkContext._active_spark_context is None
            spark = _plain(builder) if own else builder.getOrCreate()
    _check(spark)
    spark = spark.newSession()  # so that a user's own keeps its settings
    for key, value in PER_QUERY.items():
        spark.conf.set(key, value)
    # Spark refuses batches shorter than this, 5 s unless set.
    shortest = spark.conf.get("spark.sql.streaming.realTimeMode.minBatchDuration") or "0"
    if batch_s < parse_duration(shortest, "spark.sql.streaming.realTimeMode.minBatchDuration"):
        spark.conf.set(
            "spark.sql.streaming.realTimeMode.minBatchDuration", f"{batch_s * 1000:.0f}ms"
        )
    if own:
        warm_up(spark, 1)
    return spark


def _defaults(ui: bool) -> dict[str, str]:
    """What Spark does unless it is told otherwise. The supervisor reports failures, with their
    cause, so Spark need not. Its UI has no passwords, so nothing can be changed there."""
    return {
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.port": _ui_port(),
        "spark.ui.killEnabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN" if _log.isEnabledFor(logging.DEBUG) else "FATAL",
    }


def _ui_port() -> str:
    """Where Spark's users look for it. If that is taken, any: Spark itself gives up after a few."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", _UI_PORT))
        except OSError:
            return "0"
    return str(_UI_PORT)


def _check_master(asked: str | None) -> None:
    """A process has one Spark, and Spark would silently use that, wherever it is."""
    active = SparkContext._active_spark_context
    if asked is not None and active is not None and active.master != asked:
        raise InputError(
            f"master: this process has a Spark session on {active.master!r} already, so the "
            f"topology cannot run on {asked!r}; stop that session first, or give it as spark="
        )


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Set what a session of your own needs: `sj.configure(SparkSession.builder).getOrCreate()`. For
    spark-submit, `sojourn conf` prints the same settings."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in {**QUICK, **AT_START}.items():
        builder = builder.config(key, value)
    return builder


def _check(spark: SparkSession) -> None:
    given = spark.sparkContext.getConf()
    missing = [f"{key}={value}" for key, value in AT_START.items() if given.get(key) != value]
    if missing:
        raise InputError(
            "the Spark session lacks settings that a topology needs, and that can only be set when "
            "it is made. Make it with sojourn.configure(SparkSession.builder), or let Sojourn make "
            f"it, or give spark-submit: {' '.join(f'--conf {one}' for one in missing)}"
        )


def _plain(builder: Any) -> SparkSession:
    """A session without the extensions that Spark finds on its path: loading those of MLlib takes a
    second."""
    conf = SparkConf()
    for key, value in builder._options.items():
        conf.set(key, value)
    context = SparkContext(conf=conf)
    jvm: Any = context._jvm
    none, empty = jvm.scala.Option.empty(), jvm.PythonUtils.toScalaMap({})
    extensions = jvm.org.apache.spark.sql.SparkSessionExtensions()
    java = jvm.org.apache.spark.sql.classic.SparkSession
    return SparkSession(context, java(context._jsc.sc(), none, none, extensions, empty, empty))


def warm_up(spark: SparkSession, machines: int, wait_s: float = 0.0) -> None:
    """Have Spark start its daemons of Python workers, and load its classes, on so many machines:
    each of them that has a free slot gets a task. Waits for that only so long."""
    thread = threading.Thread(target=_run_tasks, args=(spark, machines), daemon=True)
    thread.start()
    thread.join(wait_s)


def _run_tasks(spark: SparkSession, tasks: int) -> None:
    try:
        spark.range(0, tasks, 1, tasks).mapInArrow(lambda batches: batches, "id long").collect()
    except Exception:  # noqa: BLE001  # it only saves time, and the session may have been stopped
        _log.debug("the session was not warmed up", exc_info=True)


@contextlib.contextmanager
def _java_options(options: str) -> Iterator[None]:
    """The options that the driver's Java gets if it starts within this block. A user's own options
    come after them."""
    given = os.environ.get(_OPTIONS)
    os.environ[_OPTIONS] = f"{options} {given or ''}".strip()
    try:
        yield
    finally:
        if given is None:
            del os.environ[_OPTIONS]
        else:
            os.environ[_OPTIONS] = given


def submitted() -> dict[str, str]:
    """The settings given to spark-submit, if it runs this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def is_local(master: str) -> bool:
    """Whether all of Spark runs in this process."""
    return re.match(r"local\b(?!-cluster)", master) is not None


def is_here(master: str) -> bool:
    """Whether all of Spark runs on this machine: a master on loopback has no Workers elsewhere."""
    return is_local(master) or re.match(r"spark://(127\.|localhost[:,])", master) is not None


def keep_jobs_on_interrupt() -> None:
    """From here on, Ctrl-C only raises KeyboardInterrupt. PySpark would cancel all jobs, and so cut
    short a running batch before it can end."""
    found = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if main and getattr(found, "__module__", "").startswith("pyspark."):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for_slots(
    spark: SparkSession, slots: int, timeout_s: float, given_up: Callable[[], bool]
) -> None:
    """Wait until the cluster has that many task slots. A query started earlier would fail."""
    context = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + timeout_s
    while (found := context.defaultParallelism()) < slots:
        if time.monotonic() > deadline or given_up():
            raise InputError(
                f"the topology needs {slots} task slots at once, but Spark has {found} after "
                f"{timeout_s:.0f} s; give the master more cores, or the operators fewer executors"
            )
        time.sleep(0.05)
