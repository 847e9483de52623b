"""From a topology to Spark tasks: pickles the user's code and writes every executor's spec."""

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from sojourn.engine.host import HostSpec
from sojourn.engine.layout import Place, executors_of
from sojourn.engine.spec import ExecutorSpec
from sojourn.engine.task import Task
from sojourn.errors import InputError
from sojourn.topology import OperatorSpec, SinkSpec, SourceSpec, Topology, kind_of

if TYPE_CHECKING:
    from sojourn.engine.running import Running

_PACKAGE = Path(__file__).parents[1]


def pickled(topology: Topology) -> dict[str, bytes]:
    """Every vertex's code; what cannot be sent to another process is refused by name."""
    with _own_modules_by_value():
        for name, operator in topology.operators.items():
            _pickle(name, operator.key)
        return {name: _pickle(name, _code(spec)) for name, spec in topology.vertices.items()}


@contextmanager
def _own_modules_by_value() -> Iterator[None]:
    """Send along what the user wrote: modules that are not installed, as a package would be, may
    not be found by the processes that run them."""
    installed = [Path(path) for path in {*sysconfig.get_paths().values(), str(_PACKAGE)}]
    own = {}  # by name: some modules stand in sys.modules under two
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and not any(Path(file).is_relative_to(path) for path in installed):
            own[module.__name__] = module
    for module in own.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in own.values():
            cloudpickle.unregister_pickle_by_value(module)


def build_tasks(running: "Running", epoch: int) -> list[Task]:
    """One task per level."""
    layout = running.layout
    levels: list[list[Place]] = [[] for _ in layout.partitions]
    for place in layout.places:
        levels[place.level].append(place)
    with _own_modules_by_value():
        return [
            Task(
                tuple(cloudpickle.dumps(_spec(running, place, epoch)) for place in places),
                tuple(places),
                f"{running.run_name}-{epoch}",
                running.secret,
            )
            for places in levels
        ]


def _spec(running: "Running", place: Place, epoch: int) -> ExecutorSpec:
    spec = running.topology.vertices[place.vertex]
    settings = running.settings
    operator = spec if isinstance(spec, OperatorSpec) else None
    keyed = operator is not None and operator.key is not None
    bundle = 1 if place.vertex in running.careful else settings.max_bundle
    guilty = {s for (v, s), deaths in running.deaths.items() if v == place.vertex and deaths > 1}
    return ExecutorSpec(
        place=place,
        host=HostSpec(
            vertex=place.vertex,
            executor=place.executor,
            code=running.code[place.vertex],
            routes=running.layout.routes[place.vertex],
            threads=operator is not None and operator.concurrency == "thread",
            keep_going=operator is not None and operator.on_error != "fail",
            tracked_per_s=settings.tracked_per_s,
        ),
        kind=kind_of(spec),
        keyed=keyed,
        shards=operator.shards if operator is not None and keyed else 0,
        executors=executors_of(spec),
        processors=running._shares(place.vertex)[place.executor] if operator else 1,
        on_error=operator.on_error if operator else "fail",
        partitions=tuple(running.layout.partitions),
        checkpoint=running.checkpoint,
        epoch=epoch,
        max_bundle=bundle,
        max_queue=settings.max_queue,
        secret=running.secret,
        keys=running.driver.channel.keys,
        guilty=frozenset(guilty),
    )


def _code(spec: SourceSpec | OperatorSpec | SinkSpec) -> Any:
    if isinstance(spec, OperatorSpec):
        return spec.code
    return spec.source if isinstance(spec, SourceSpec) else spec.sink


def _pickle(name: str, code: Any) -> bytes:
    try:
        return bytes(cloudpickle.dumps(code))
    except Exception as error:  # an object may refuse in any way it likes
        raise InputError(
            f"{name!r} cannot be sent to another process: {error}; "
            "open what cannot be pickled in open(), not before"
        ) from error
