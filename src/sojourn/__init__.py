"""Sojourn keeps a topology's sojourn time under a target with the fewest processors."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sojourn import sinks, sources, testing, windows
    from sojourn.attached.loop import Attached, attach
    from sojourn.control.summary import Summary
    from sojourn.engine.driver.states import read_state
    from sojourn.engine.spark.session import configure
    from sojourn.errors import InputError, TopologyFailed
    from sojourn.operators import Operator, Output, Timers
    from sojourn.ports import Sample, Samples, Sojourn
    from sojourn.sinks import Sink
    from sojourn.sources import Source
    from sojourn.streams import OnError, OperatorOptions, Vertex
    from sojourn.topology import Topology
    from sojourn.wiring import Running, StartOptions, run, start

__version__ = "0.1.0"

__all__ = [
    "Attached",
    "InputError",
    "OnError",
    "Operator",
    "OperatorOptions",
    "Output",
    "Running",
    "Sample",
    "Samples",
    "Sink",
    "Sojourn",
    "Source",
    "StartOptions",
    "Summary",
    "Timers",
    "Topology",
    "TopologyFailed",
    "Vertex",
    "attach",
    "configure",
    "read_state",
    "run",
    "sinks",
    "sources",
    "start",
    "testing",
    "windows",
]

# Loaded on first use: every process of the engine imports this package, and most need little of it.
_HOMES = {
    "sojourn.attached.loop": ("Attached", "attach"),
    "sojourn.control.summary": ("Summary",),
    "sojourn.engine.driver.states": ("read_state",),
    "sojourn.engine.spark.session": ("configure",),
    "sojourn.errors": ("InputError", "TopologyFailed"),
    "sojourn.ports": ("Sample", "Samples", "Sojourn"),
    "sojourn.wiring": ("Running", "StartOptions", "run", "start"),
    "sojourn.sinks": ("Sink",),
    "sojourn.sources": ("Source",),
    "sojourn.operators": ("Operator", "Output", "Timers"),
    "sojourn.streams": ("OnError", "OperatorOptions", "Vertex"),
    "sojourn.topology": ("Topology",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in ("sinks", "sources", "testing", "windows"):
        return import_module(f"sojourn.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'sojourn' has no attribute {name!r}")
    found = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found
