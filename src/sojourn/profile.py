"""The composition root of profiling: methods one after the other on a platform, which is Spark or
machines in virtual time. Called by `sojourn profile` and by experiments.

On Spark, a trial is a run of its own, with a sample of what the sources give and with sinks that
keep nothing, so that no result of a trial is taken for one. The sample is repeated for as long as
the trial lasts."""

import contextlib
import itertools
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn import durable, sinks, sources
from sojourn.chains import contracted
from sojourn.engine.wire.layout import layout
from sojourn.errors import InputError, TopologyFailed
from sojourn.graph import groups
from sojourn.ports import Parallelism, Platform, Sample, Samples
from sojourn.profiler.baselines import stela, threshold
from sojourn.profiler.capability import Best, Limits
from sojourn.profiler.guided import guided
from sojourn.profiler.readings import Reading
from sojourn.profiler.rounds import Round, run
from sojourn.profiler.stepwise import STEP as APPLICATION
from sojourn.profiler.stepwise import Found, Shape, stepwise
from sojourn.profiler.trial import Measured, Method, Progress, Proposal
from sojourn.settings import ControlSettings, EngineSettings
from sojourn.sources import Pace, Source
from sojourn.topology import OperatorSpec, SinkSpec, SourceSpec, Topology
from sojourn.wiring import Running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE, SAMPLE_S = 10_000, 10.0  # values of each source that are recorded, and for how long
METHODS = ("guided", "stepwise")
BASELINES = ("threshold", "stela")
_SLOTS = 100  # of a session on this machine; those that are free cost nothing
_MOST_ROUNDS = 17  # where a method does not say how many it takes


@dataclass
class Profiling:
    """Methods on a platform, one after the other, and what they found."""

    shape: Shape
    platform: Platform
    limits: Limits
    how: Reading
    small: float  # messages a second in the first step
    memo: dict[str, Measured] | None = None  # of trials, where the same always measure the same
    found: dict[str, Found] = field(default_factory=dict)
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    best: dict[str, Best] = field(default_factory=dict)

    def run(
        self,
        methods: Sequence[str],
        known: Callable[[str], Iterable[Round]] = lambda _method: (),
        told: Callable[[str, "Proposal | Progress | Round"], None] = lambda _method, _event: None,
    ) -> None:
        """Run these methods. Threshold and Stela get as many rounds as the first one took to try
        parallelisms."""
        for name in methods:
            before = [(of.proposal, of.measured) for of in known(name)]

            def heard(event: "Proposal | Progress | Round", name: str = name) -> None:
                told(name, event)

            method = self._method(name, self.most_rounds(name))
            _, self.rounds[name] = run(
                method, self.platform, self.shape.sources, self.how, before, heard, self.memo
            )
            last = self.rounds[name][-1]
            self.best[name] = (
                self.found[name].best[-1]
                if name in self.found
                else Best(last.proposal.parallelism, last.measured)
            )

    def tried(self, name: str) -> list[Round]:
        """The rounds that try a parallelism; others look at the application."""
        return [of for of in self.rounds[name] if of.proposal.step != APPLICATION]

    def most_rounds(self, name: str) -> int:
        """About the most rounds that a method takes."""
        first = next(iter(self.rounds), None)
        if name in METHODS or first is None:
            return _MOST_ROUNDS
        return max(1, len(self.tried(first)))

    def _method(self, name: str, rounds: int) -> Method:
        shape = self.shape
        limits = replace(self.limits, most=self.shape.most, most_parts=self.platform.most_parts)
        scalable = [operator for operator in shape.operators if operator not in shape.single]
        match name:
            case "stepwise":
                self.found[name] = Found()
                return stepwise(shape, limits, self.small, self.found[name])
            case "guided":
                self.found[name] = Found()
                return guided(shape, limits, self.small, self.found[name])
            case "threshold":
                return threshold(shape.ones(), rounds, scalable, shape.most)
            case "stela":
                machines = self.platform.machines
                return stela(shape.ones(), rounds, scalable, shape.receivers, machines, shape.most)
        raise InputError(f"there is no method {name!r}; known: {', '.join((*METHODS, *BASELINES))}")


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


def recorded(
    name: str,
    source: Source[Any],
    position: Any = None,
    most: int = SAMPLE,
    seconds: float = SAMPLE_S,
) -> list[Any]:
    """The first values of a source from a position on, as many as it gives in a while."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def read() -> None:
        try:
            for value, _ in itertools.islice(source.read(position), most):
                if ended.is_set():
                    break
                found.append(value)
        except Exception as error:  # noqa: BLE001  # a thread has nobody above it: raised below
            failed.append(error)

    # A source may have nothing to give for long, and then cannot be asked to stop.
    ended = threading.Event()
    reader = threading.Thread(target=read, name="sojourn-sample", daemon=True)
    reader.start()
    reader.join(seconds)
    ended.set()
    if failed:
        raise InputError(
            f"source {name!r}: cannot be read for a sample: {type(failed[0]).__name__}: {failed[0]}"
        ) from failed[0]
    return found[:most]


def in_parts(
    topology: Topology,
    samples: Mapping[str, Sequence[Any]],
    parallelism: Parallelism,
    rate: float | None,
) -> Topology:
    """A topology to be tried: with so many tasks of each operator, sources in parts that repeat
    their samples, and sinks that keep nothing."""
    found = Topology(topology.name)
    flowing = topology.without_broadcasts().sources
    each = None if rate is None else rate / max(1, sum(parallelism.parts.values()))
    for name, spec in topology.vertices.items():
        match spec:
            case SourceSpec() if name not in flowing:  # what all workers are told, once
                found.vertices[name] = SourceSpec(
                    name, sources.iterable(partial(list, samples[name]))
                )
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


def positions_in(checkpoint: Path) -> dict[str, Any]:
    """Where the sources of a run stand, by its last commit. The run may go on meanwhile."""
    from sojourn.engine.driver.record import last_record
    from sojourn.engine.worker import values

    if not (checkpoint / "sojourn").is_dir():
        raise InputError(f"checkpoint {checkpoint}: is none; give that of a run")
    durable.private_directory(checkpoint / "sojourn")  # nobody else can have written it
    parts = last_record(checkpoint).parts
    return {part.vertex: values.loads(part.position)[0] for part in parts if part.position}


def _nothing(_value: Any) -> None:
    """Keep nothing."""


@dataclass
class SparkTrial:
    """An application that runs on Spark to be measured."""

    running: Running
    topology: Topology
    parts: Mapping[str, int]
    late: float = 0.0  # messages that are due and were not taken
    starts: int | None = None

    def __post_init__(self) -> None:
        """Find what each vertex gets, senders before receivers."""
        edges = self.topology.edges
        onward: dict[str, list[str]] = {name: [] for name in self.topology.vertices}
        for edge in edges:
            if not edge.feedback:
                onward[edge.sender].append(edge.receiver)
        order = [name for (name,) in groups(onward)]
        self.come = {name: [edge for edge in edges if edge.receiver == name] for name in order}
        self.served: Counter[str] = Counter()  # by vertex, since the trial began
        self.sent: Counter[str] = Counter()  # by edge
        self.done = 0.0  # source tuples that were completed in all that time
        self.rates: dict[float, float] = {}  # by when a reading ended

    def read(self, seconds: float) -> Samples:
        """Let so much time pass. Parts of a source count as one."""
        self.running.wait(seconds)
        found = self.running.samples()
        if self.starts not in (None, found.starts) or self.running.restarts:
            raise TopologyFailed(
                "the topology has restarted in a trial, so it was not measured; the same command "
                "goes on with the rounds before"
            )
        self.starts = found.starts
        vertices = dict(found.vertices)
        self.late = 0.0
        for name, parts in self.parts.items():
            some = [vertices.pop(part_of(name, part)) for part in range(parts)]
            self.late += sum((s.lag_s or 0.0) * (s.arrival_rate or 0.0) for s in some)
            vertices[name] = _together(name, some)
        found = replace(found, vertices=vertices)
        self.count(found)
        return found

    def count(self, samples: Samples) -> None:
        """Only some trees are followed. So what is completed is what sources have sent, less the
        share that waits on the worst way through the topology. All that since the trial began:
        sources send in bursts where much waits, and what is completed then comes of earlier
        ones."""
        seen = samples.vertices
        for name, of in seen.items():
            self.served[name] += of.served
            self.sent.update({f"{name} {edge}": count for edge, count in of.emitted.items()})
        done = dict.fromkeys(self.parts, 1.0)
        for name, edges in self.come.items():
            come = [edge for edge in edges if edge.sender in done and not edge.feedback]
            if come and name in seen:
                back = [edge for edge in edges if edge.feedback]
                sent = sum(self.sent[f"{edge.sender} {edge.name}"] for edge in (*come, *back))
                share = self.served[name] / sent if sent else 1.0
                done[name] = share * min(done[edge.sender] for edge in come)
        before, self.done = self.done, sum(self.served[n] for n in self.parts) * min(done.values())
        interval_s = seen[next(iter(self.parts))].interval_s
        self.rates[samples.time_s] = (self.done - before) / interval_s

    def completed(self, samples: Samples) -> float:
        """Of a reading that was taken."""
        return self.rates[samples.time_s]

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
    """Trials on Spark, in a session; without one, in a session of its own on a master, until it is
    closed. `samples` are recorded once: with the `checkpoint` of a run, from where that stands, and
    else from the beginning. On a cluster, trials keep what they must in a `folder` that all its
    machines see."""

    topology: Topology
    machines: int
    cores: int
    latency_s: float = 0.5  # that tuples may take
    master: str | None = None
    spark: "SparkSession | None" = None
    settings: EngineSettings = field(default_factory=EngineSettings)
    samples: dict[str, list[Any]] = field(default_factory=dict)
    checkpoint: Path | None = None
    folder: Path | None = None
    closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __post_init__(self) -> None:
        positions = {} if self.checkpoint is None else positions_in(self.checkpoint)
        for name, spec in self.topology.sources.items():
            if name not in self.samples:
                at = positions.get(name)
                found = recorded(name, spec.source, at)
                self.samples[name] = found or recorded(name, spec.source)
            if not self.samples[name]:
                raise InputError(f"source {name!r}: gives nothing, so there is nothing to try")

    def started(self) -> "SparkSession":
        """The session."""
        if self.spark is None:
            from sojourn.engine.spark.session import session

            master = self.master or f"local[{_SLOTS}]"
            self.spark = session(None, master, _SLOTS, self.topology.name, self.settings.batch_s)
            self.closing.callback(self.spark.stop)
        return self.spark

    @property
    def most_parts(self) -> int:
        """Parts of each source for which there are task slots."""
        slots = self.started().sparkContext.defaultParallelism
        taken = layout(contracted(self.topology)).slots
        return 1 + max(0, slots - taken) // max(1, len(self.topology.sources))

    @contextlib.contextmanager
    def trial(self, parallelism: Parallelism, rate: float | None) -> Iterator[SparkTrial]:
        """Run the application until the context ends."""
        spark = self.started()
        if rate is None and parallelism.in_flight is not None:
            # Spark's own buffers hold more than executors' queues do, so sources are paced: by
            # Little's law, so many are under way where they take as long as they may.
            rate = parallelism.in_flight / self.latency_s
        made = in_parts(self.topology, self.samples, parallelism, rate)
        settings = replace(self.settings, batch_s=3600.0, drain_s=0.0)
        with contextlib.ExitStack() as after:
            checkpoint = None
            if self.folder is not None:
                made_here = tempfile.TemporaryDirectory(prefix="trial-", dir=self.folder)
                checkpoint = after.enter_context(made_here)
            of_control = ControlSettings()
            running = after.enter_context(
                Running(made, settings, of_control, spark=spark, checkpoint=checkpoint)
            )
            flowing = contracted(self.topology).without_broadcasts()
            yield SparkTrial(running, flowing, parallelism.parts)

    def close(self) -> None:
        """End the session, if it is the platform's own."""
        self.closing.close()
