"""The mathematics of DRS (ToN 2017 §III): stations, open networks of them, and the two programs
that hand out processors. Pure: no Spark, no clock, no input or output."""

from sojourn.queueing.allocation import Plan, Step, assign_processors, min_processors, sweep
from sojourn.queueing.branching import spreads
from sojourn.queueing.network import Network, traffic
from sojourn.queueing.station import Station

__all__ = [
    "Network",
    "Plan",
    "Station",
    "Step",
    "assign_processors",
    "min_processors",
    "spreads",
    "sweep",
    "traffic",
]
