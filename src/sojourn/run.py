"""The composition root: wires engines to what drives them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.settings import EngineSettings
from sojourn.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sojourn.engine.running import Running


def start(
    topology: Topology,
    *,
    checkpoint: str | Path | None = None,
    master: str | None = None,
    spark: "SparkSession | None" = None,
    **settings: Any,
) -> "Running":
    """Start a topology on Spark and return once all its parts are up.

    `checkpoint` is a directory that all machines see; a topology started again with it goes on
    where it was. Without one, nothing outlives the run. `settings` are those of EngineSettings."""
    from sojourn.engine.running import Running

    return Running(topology, checkpoint, master, spark, EngineSettings(**settings))
