"""The mathematics of DRS (ToN 2017 §III): stations, open networks of them, and the two programs
that hand out processors. Pure: no Spark, no clock, no input or output."""

from sojourn.queueing.allocation import Plan, Step, assign_processors, min_processors, sweep
from sojourn.queueing.branching import spreads
from sojourn.queueing.network import Network, traffic
from sojourn.queueing.station import Station
from sojourn.queueing.unequal import Kind, UnequalPlan, assign_unequal, cheapest_unequal

__all__ = [
    "Kind",
    "Network",
    "Plan",
    "Station",
    "Step",
    "UnequalPlan",
    "assign_processors",
    "assign_unequal",
    "cheapest_unequal",
    "min_processors",
    "spreads",
    "sweep",
    "traffic",
]
