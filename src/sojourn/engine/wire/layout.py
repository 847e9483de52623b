"""From a topology to numbers: which stage and partition each elastic executor owns, and where each
vertex sends what. Pure; fed by the topology, used by the driver and carried to every executor."""

from dataclasses import dataclass

from sojourn.engine.wire.bundle import MAX_SENDER
from sojourn.errors import InputError
from sojourn.topology import Edge, Key, OperatorSpec, SinkSpec, SourceSpec, Topology

MAX_LEVEL = 255
MAX_PARTITION = 65_535
_SINK_SHARDS = 4096


@dataclass(frozen=True)
class Route:
    """An edge as its sender needs it. The receiver's executors own the partitions of `level` from
    `first_partition` on."""

    receiver: str
    output: str | None
    feedback: bool
    level: int
    first_partition: int
    executors: int
    key: Key | None
    shards: int
    broadcast: bool = False

    @property
    def edge(self) -> str:
        """How samples name this edge."""
        return Edge("", self.receiver, self.output).name


@dataclass(frozen=True)
class Place:
    """An elastic executor: the `executor`-th of a vertex, at a partition of a level."""

    vertex: str
    executor: int
    level: int
    partition: int


@dataclass(frozen=True)
class Layout:
    """All places in the order of levels and partitions, every vertex's routes, and each level's
    lane. The lane is the partition through which bundles for later levels pass the level, or -1 if
    none do. It has no executor, so bundles that only pass wait behind no operator."""

    places: tuple[Place, ...]
    routes: dict[str, tuple[Route, ...]]
    lanes: tuple[int, ...]

    @property
    def partitions(self) -> list[int]:
        """How many partitions each level has."""
        counts = [int(lane >= 0) for lane in self.lanes]
        for place in self.places:
            counts[place.level] += 1
        return counts

    @property
    def slots(self) -> int:
        """Task slots the query holds: every partition of every level, and the clock's one."""
        return sum(self.partitions) + 1

    def of(self, vertex: str) -> list[Place]:
        """The executors of one vertex."""
        return [place for place in self.places if place.vertex == vertex]


def senders_of(layout: Layout, broadcasts: bool = False) -> dict[str, set[str]]:
    """Of each vertex, those that send it tuples, or also broadcasts."""
    senders: dict[str, set[str]] = {}
    for name, routes in layout.routes.items():
        for route in routes:
            if broadcasts or not route.broadcast:
                senders.setdefault(route.receiver, set()).add(name)
    return senders


def executors_of(spec: SourceSpec | OperatorSpec | SinkSpec) -> int:
    """How many a vertex has."""
    return spec.executors


def layout(topology: Topology) -> Layout:
    """Number everything, in the order of declaration within a level."""
    levels = topology.levels()
    places: list[Place] = []
    first: dict[str, int] = {}
    for level in range(max(levels.values()) + 1):
        partition = 0
        for name, spec in topology.vertices.items():
            if levels[name] == level:
                first[name] = partition
                for executor in range(executors_of(spec)):
                    places.append(Place(name, executor, level, partition))
                    partition += 1
    _check_addresses(topology, places)
    routes: dict[str, tuple[Route, ...]] = {}
    for name in topology.vertices:
        found = []
        for edge in topology.edges:
            if edge.sender == name:
                spec = topology.vertices[edge.receiver]
                key, shards = _key_of(spec)
                found.append(
                    Route(
                        edge.receiver,
                        edge.output,
                        edge.feedback,
                        levels[edge.receiver],
                        first[edge.receiver],
                        executors_of(spec),
                        key,
                        shards,
                        edge.broadcast,
                    )
                )
        routes[name] = tuple(found)
    return Layout(tuple(places), routes, _lanes(topology, levels, places))


def _key_of(spec: SourceSpec | OperatorSpec | SinkSpec) -> tuple[Key | None, int]:
    """By which key tuples are sent to a vertex, and the number of its shards. A sink has no shards;
    its keys are only spread over its executors."""
    if isinstance(spec, OperatorSpec):
        return spec.key, 0 if spec.key is None else spec.shards
    if isinstance(spec, SinkSpec) and spec.executors > 1 and spec.sink.key is not None:
        return spec.sink.key, _SINK_SHARDS
    return None, 0


def _lanes(topology: Topology, levels: dict[str, int], places: list[Place]) -> tuple[int, ...]:
    """For each level that an edge passes, a partition after those of the executors. Feedback starts
    at the source level."""
    crossed: set[int] = set()
    for edge in topology.edges:
        start = 0 if edge.feedback else levels[edge.sender]
        crossed.update(range(start + 1, levels[edge.receiver]))
    counts = [0] * (1 + max(levels.values()))
    for place in places:
        counts[place.level] += 1
    return tuple(count if level in crossed else -1 for level, count in enumerate(counts))


def next_partition(lanes: tuple[int, ...], level: int, target: int, partition: int) -> int:
    """The partition that a row at `level` goes to next on its way to a partition of `target`."""
    return partition if target == level + 1 else lanes[level + 1]


def _check_addresses(topology: Topology, places: list[Place]) -> None:
    """Refuse more than a row can address: it has one byte for its level, two for its partition, and
    fifteen bits for its sender."""
    if len(places) > MAX_SENDER + 1:
        raise InputError(
            f"topology {topology.name!r}: has {len(places)} executors; at most {MAX_SENDER + 1} "
            "are possible"
        )
    if (deepest := max(place.level for place in places)) > MAX_LEVEL:
        raise InputError(
            f"topology {topology.name!r}: the longest path has {deepest} edges; "
            f"at most {MAX_LEVEL} are possible: join some of its operators"
        )
    if (widest := max(place.partition for place in places)) >= MAX_PARTITION:
        raise InputError(
            f"topology {topology.name!r}: operators at the same distance from the sources have "
            f"{widest + 1} executors together; at most {MAX_PARTITION} are possible"
        )
