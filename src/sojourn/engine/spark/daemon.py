"""Spark's daemon of Python workers, as a module that Spark starts in place of its own. It has
loaded everything a task needs, so a worker that it forks is ready at once. A topology needs a
worker for every task, all at the same time, and each would take a second of CPU to load that by
itself.

Spark also puts archives of itself on the path, and has every task read their directories anew.
Where Spark is installed as a package, the archives are taken off the path."""

import importlib.util
import sys


def _leave_out_archives() -> None:
    path = list(sys.path)
    sys.path[:] = [entry for entry in path if not entry.endswith(".zip")]
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("py4j") is None:
        sys.path[:] = path
        return
    for entry in list(sys.path_importer_cache):
        if ".zip" in entry:
            del sys.path_importer_cache[entry]


def main() -> None:
    """Load what tasks need, and do as Spark's own daemon does."""
    _leave_out_archives()
    from sojourn.engine.spark import nursery

    nursery.begin()  # it loads what executors need while this process loads what tasks need
    import pyarrow  # noqa: F401
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import sojourn.engine.spark.task  # noqa: F401

    manager()


if __name__ == "__main__":
    main()
