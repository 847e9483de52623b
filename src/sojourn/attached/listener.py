"""Hears of a query's batches, of triggers that found no rows, and of runs that end. It runs in a
thread of Spark's, so it only passes on what it hears. Spark's own Python listener asks Java for
every field of an event; this one asks for those that are needed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started

from sojourn.attached.progress import moment_s


@dataclass(frozen=True)
class Idle:
    """That a run of a query has had no rows up to some time."""

    query: str
    run: str
    time_s: float


@dataclass(frozen=True)
class Ended:
    """That a run of a query is over, with its error, if that was why."""

    query: str
    error: str | None


Heard = str | Idle | Ended  # text is the progress of a batch, as JSON


class Listener:
    """Of all queries of a session. Java calls it by the names of its interface."""

    def __init__(self, hears: Callable[[Heard], None]) -> None:
        self.hears = hears
        self.busy_s = 0.0
        self.java: Any = None

    def begin(self, spark: Any) -> None:
        """Listen from now on."""
        ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        wrapper = spark._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        self.java = wrapper(self)
        spark.streams._jsqm.addListener(self.java)

    def end(self, spark: Any) -> None:
        """Listen no more."""
        if self.java is not None:
            spark.streams._jsqm.removeListener(self.java)
            self.java = None

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing is known of it yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch is done."""
        self._pass_on(lambda: str(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing came."""
        self._pass_on(
            lambda: Idle(
                event.id().toString(), event.runId().toString(), moment_s(event.timestamp())
            )
        )

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """A run is over."""
        error = event.exception()
        self._pass_on(
            lambda: Ended(event.id().toString(), error.get() if error.isDefined() else None)
        )

    def _pass_on(self, heard: Callable[[], Heard]) -> None:
        began_s = time.thread_time()
        self.hears(heard())
        self.busy_s += time.thread_time() - began_s

    class Java:
        """For py4j."""

        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]  # noqa: RUF012
