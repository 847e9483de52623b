"""The composition root of profiling: methods on Spark, or on machines in virtual time. Called by
`sojourn profile`.

On Spark, a trial is a run of its own, with a sample of what the sources give and with sinks that
keep nothing, so that no result of a trial is taken for one. The sample is repeated for as long as
the trial lasts."""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sojourn import sinks
from sojourn.errors import InputError
from sojourn.ports import Parallelism, Sample, Samples
from sojourn.settings import ControlSettings, EngineSettings
from sojourn.sources import Pace, Source
from sojourn.topology import OperatorSpec, SinkSpec, SourceSpec, Topology
from sojourn.wiring import Running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE, SAMPLE_S = 10_000, 10.0  # values of each source that are recorded, and for how long
_LOOK_S = 0.1


class Repeated(Source[Any]):
    """A part of a source: every so many messages of a recorded sample, over and over. With a pace,
    they come as a generator makes them: what is due and not taken yet waits in the queue."""

    def __init__(self, values: Sequence[Any], part: int, parts: int, rate: float | None) -> None:
        self.values, self.part, self.parts = values, part, parts
        self.pace = None if rate is None else Pace(rate)

    def read(self, position: Any, /) -> Iterator[tuple[Any, Any]]:
        """From the last committed message on."""
        first = self.part if position is None else position
        for number in itertools.count(first, self.parts):
            yield self.values[number % len(self.values)], number + self.parts


def recorded(source: Source[Any], most: int = SAMPLE, seconds: float = SAMPLE_S) -> list[Any]:
    """The first values of a source, as many as it gives in a while."""
    until_s = time.monotonic() + seconds
    found = []
    for value, _ in source.read(None):
        found.append(value)
        if len(found) == most or time.monotonic() > until_s:
            break
    return found


def in_parts(
    topology: Topology,
    samples: Mapping[str, Sequence[Any]],
    parallelism: Parallelism,
    rate: float | None,
) -> Topology:
    """A topology to be tried: with so many tasks of each operator, sources in parts that repeat
    their samples, and sinks that keep nothing."""
    found = Topology(topology.name)
    each = None if rate is None else rate / max(1, sum(parallelism.parts.values()))
    for name, spec in topology.vertices.items():
        match spec:
            case SourceSpec():
                parts = parallelism.parts.get(name, 1)
                for part in range(parts):
                    source = Repeated(samples[name], part, parts, each)
                    found.vertices[part_of(name, part)] = SourceSpec(part_of(name, part), source)
            case OperatorSpec():
                tasks = parallelism.processors.get(name, spec.processors)
                executors = min(spec.executors, tasks)
                found.vertices[name] = replace(spec, processors=tasks, executors=executors)
            case SinkSpec():
                found.vertices[name] = replace(spec, sink=sinks.call(_nothing))
    for edge in topology.edges:
        parts = parallelism.parts.get(edge.sender, 1) if edge.sender in topology.sources else 1
        for part in range(parts):
            found.edges.append(replace(edge, sender=part_of(edge.sender, part)))
    return found


def part_of(name: str, part: int) -> str:
    """The vertex that a part of a source is."""
    return name if part == 0 else f"{name}.part{part + 1}"


def _nothing(_value: Any) -> None:
    """Keep nothing."""


@dataclass
class SparkTrial:
    """An application that runs on Spark to be measured."""

    running: Running
    parts: Mapping[str, int]
    late: float = 0.0  # messages that are due and were not taken

    def read(self, seconds: float) -> Samples:
        """Let so much time pass. Parts of a source count as one."""
        self.running.wait(seconds)
        found = self.running.samples()
        vertices = dict(found.vertices)
        self.late = 0.0
        for name, parts in self.parts.items():
            some = [vertices.pop(part_of(name, part)) for part in range(parts)]
            self.late += sum((s.lag_s or 0.0) * (s.arrival_rate or 0.0) for s in some)
            vertices[name] = _together(name, some)
        return replace(found, vertices=vertices)

    def completed(self, samples: Samples) -> float:
        """Only some trees are followed. In a steady state as many are completed as are sent."""
        some = [samples.vertices[name] for name in self.parts]
        return sum(sample.served / sample.interval_s for sample in some)

    def waiting(self) -> float:
        """Messages that are due and were not taken, as of the last reading."""
        return self.late


def _together(name: str, parts: Sequence[Sample]) -> Sample:
    """The parts of a source as one."""
    emitted: dict[str, int] = {}
    for part in parts:
        for edge, count in part.emitted.items():
            emitted[edge] = emitted.get(edge, 0) + count
    return replace(
        parts[0],
        name=name,
        processors=len(parts),
        wanted=len(parts),
        queue=sum(part.queue for part in parts),
        arrivals=sum(part.arrivals for part in parts),
        served=sum(part.served for part in parts),
        arrival_rate=sum(part.arrival_rate or 0.0 for part in parts),
        emitted=emitted,
    )


@dataclass
class SparkPlatform:
    """Trials on Spark, on a master or in a session; `samples` are recorded once."""

    topology: Topology
    machines: int
    cores: int
    master: str | None = None
    spark: "SparkSession | None" = None
    settings: EngineSettings = field(default_factory=EngineSettings)
    samples: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, spec in self.topology.sources.items():
            if name not in self.samples:
                self.samples[name] = recorded(spec.source)
            if not self.samples[name]:
                raise InputError(f"source {name!r}: gives nothing, so there is nothing to try")

    @contextmanager
    def trial(self, parallelism: Parallelism, rate: float | None) -> Iterator[SparkTrial]:
        """Run the application until the context ends."""
        made = in_parts(self.topology, self.samples, parallelism, rate)
        settings = replace(self.settings, batch_s=3600.0, drain_s=_LOOK_S)
        if parallelism.in_flight is not None:
            # Tuples wait before executors; how many may do so is set for each of them.
            executors = sum(spec.executors for spec in made.operators.values())
            each = max(1, parallelism.in_flight // max(1, executors))
            settings = replace(settings, max_queue=each, max_bundle=min(each, settings.max_bundle))
        with Running(
            made, settings, ControlSettings(), master=self.master, spark=self.spark
        ) as running:
            yield SparkTrial(running, parallelism.parts)
