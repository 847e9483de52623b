"""Sojourn keeps a topology's sojourn time under a target with the fewest processors."""

from sojourn import sinks, sources
from sojourn.control.summary import Summary
from sojourn.errors import InputError, TopologyFailed
from sojourn.ports import Sample, Samples, Sojourn
from sojourn.run import ControlledRun, controlled, run, start
from sojourn.sinks import Sink
from sojourn.sources import Source
from sojourn.topology import Operator, Output, Topology

__version__ = "0.1.0"

__all__ = [
    "ControlledRun",
    "InputError",
    "Operator",
    "Output",
    "Sample",
    "Samples",
    "Sink",
    "Sojourn",
    "Source",
    "Summary",
    "Topology",
    "TopologyFailed",
    "controlled",
    "run",
    "sinks",
    "sources",
    "start",
]
