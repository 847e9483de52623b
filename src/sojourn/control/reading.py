"""Sources whose number of processes may change, as control sees them: each has an operator right
behind it, whose processors are the processes that read. So control decides about them as about all
others, and knows nothing else of them. Stands between the loop and an engine."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from sojourn.control.controller import Shape
from sojourn.ports import Allocation, Engine, Pressure, Sample, Samples
from sojourn.topology import Edge


def station_of(source: str) -> str:
    """How control calls the processes that read a source."""
    return f"{source}.readers"


def with_readers(shape: Shape, readers: Mapping[str, tuple[int, int]]) -> Shape:
    """The shape with the processes that read these sources: at least and at most so many."""
    stations = {station_of(source): bounds for source, bounds in readers.items()}
    least = {name: fewest for name, (fewest, _) in stations.items()}
    limits = replace(
        shape.limits,
        minimum={**least, **shape.limits.minimum},
        maximum={**{name: most for name, (_, most) in stations.items()}, **shape.limits.maximum},
    )
    known = {**shape.known, **dict.fromkeys(stations, "operator")}
    sent = {source: station_of(source) for source in readers}
    edges = tuple(replace(e, sender=sent.get(e.sender, e.sender)) for e in shape.edges)
    if edges:
        edges = (*(Edge(source, station) for source, station in sent.items()), *edges)
    return replace(shape, known=known, limits=limits, start={**least, **shape.start}, edges=edges)


class ReadingEngine:
    """An engine with the processes that read its sources as operators."""

    def __init__(self, engine: Engine, sources: Mapping[str, tuple[int, int]]) -> None:
        self.engine = engine
        self.sources = {station_of(source): source for source in sources}

    @property
    def on_pressure(self) -> Callable[[Pressure], None] | None:
        """Who is told what cannot wait."""
        return self.engine.on_pressure

    @on_pressure.setter
    def on_pressure(self, told: Callable[[Pressure], None] | None) -> None:
        self.engine.on_pressure = told

    def samples(self, peek: bool = False) -> Samples:
        """What happened since the last call."""
        found = self.engine.samples(peek)
        vertices = dict(found.vertices)
        for station, source in self.sources.items():
            if (sample := vertices.get(source)) is not None:
                vertices[source], vertices[station] = parted(sample)
        return replace(found, vertices=vertices)

    def allocation(self) -> dict[str, int]:
        """Processors each operator has now."""
        stations = {source: station for station, source in self.sources.items()}
        return {stations.get(name, name): k for name, k in self.engine.allocation().items()}

    def resize(self, allocation: Allocation) -> None:
        """Change the processors of some operators."""
        self.engine.resize({self.sources.get(name, name): k for name, k in allocation.items()})


def parted(sample: Sample) -> tuple[Sample, Sample]:
    """A source's sample as that of where tuples come from, and that of those who read them. What
    waits in its splits stays with the source, which is behind by that much."""
    station, came = station_of(sample.name), sample.arrivals
    readers = replace(sample, name=station, lag_s=None, shed=0, shed_by={}, backlog=None, parts=())
    source = replace(
        sample,
        processors=0,
        wanted=0,
        service_s=None,
        service_scv=None,
        busy=0.0,
        emitted={station: came},
        together={station: {station: came}},
        dropped=0,
        parts=(),
    )
    return source, readers
