"""Trials in virtual time, on machines that can be full."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sojourn.placement.tasks import Placement, round_robin
from sojourn.ports import Parallelism, Samples
from sojourn.settings import SimulatorSettings
from sojourn.simulator.crowded import CrowdedEngine
from sojourn.simulator.workload import Workload
from sojourn.topology import Topology


class SimulatedTrial:
    """An application that runs in virtual time."""

    def __init__(self, engine: CrowdedEngine) -> None:
        self.engine = engine

    def read(self, seconds: float) -> Samples:
        """Let so much time pass."""
        self.engine.advance(self.engine.now_s + seconds)
        return self.engine.samples()

    def completed(self, samples: Samples) -> float:
        """All trees are followed."""
        done = 0 if samples.sojourn is None else samples.sojourn.count
        return done / next(iter(samples.vertices.values())).interval_s

    def waiting(self) -> float:
        """Messages in the queue before its sources."""
        return self.engine.waiting()


@dataclass
class SimulatedPlatform:
    """Some machines with some cores each. Every parallelism and rate has draws of its own, whenever
    it is tried, so a run that was interrupted goes on as if it had not been."""

    topology: Topology
    workload: Workload
    settings: SimulatorSettings
    machines: int
    cores: int
    most_parts: int | None = None
    most: int = 10_000  # source tuples under way, unless fewer are asked for
    seed: int = 0
    place: Placement = round_robin

    def close(self) -> None:
        """There is nothing to end."""

    @contextmanager
    def trial(self, parallelism: Parallelism, rate: float | None) -> Iterator[SimulatedTrial]:
        """Run the application; messages are spread evenly over its sources."""
        sources = list(self.topology.without_broadcasts().sources)
        yield SimulatedTrial(
            CrowdedEngine(
                self.topology,
                self.workload,
                self.settings,
                machines=self.machines,
                cores=self.cores,
                processors=parallelism.processors,
                parts=parallelism.parts,
                rates=None if rate is None else dict.fromkeys(sources, rate / len(sources)),
                in_flight=min(self.most, parallelism.in_flight or self.most),
                place=self.place,
                seed=self.seed * 2**32 + zlib.crc32(repr((parallelism, rate)).encode()),
            )
        )
