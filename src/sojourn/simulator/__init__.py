"""The engine port in virtual time: the same topologies and the same control loop, without Spark."""

from sojourn.simulator.draws import Distribution
from sojourn.simulator.engine import SimulatedEngine
from sojourn.simulator.workload import OperatorLoad, SourceLoad, Workload

__all__ = ["Distribution", "OperatorLoad", "SimulatedEngine", "SourceLoad", "Workload"]
