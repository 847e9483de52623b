"""Spark's daemon of Python workers, as a module that Spark starts in place of its own: with all
loaded that a task needs, so that a worker it forks is ready at once. A topology needs a worker for
every task, all at the same time, and each would take a second of CPU to load that by itself."""

import pandas  # noqa: F401  # Spark's Arrow serializer asks for it with the first row
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import sojourn.engine.spark.task  # noqa: F401

if __name__ == "__main__":
    manager()
