"""From a topology to Spark tasks: pickles the user's code and writes every executor's spec."""

import functools
import io
import logging
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from sojourn.chains import behind
from sojourn.engine.driver.record import rooms, state_root
from sojourn.engine.spark.task import Task
from sojourn.engine.wire.channel import ChannelKeys
from sojourn.engine.wire.layout import Layout, Place, executors_of
from sojourn.engine.wire.messages import Suspect
from sojourn.engine.wire.spec import ExecutorSpec, HostSpec
from sojourn.errors import InputError
from sojourn.operators import takes_bundles
from sojourn.settings import EngineSettings
from sojourn.shards import shares
from sojourn.topology import OperatorSpec, SinkSpec, SourceSpec, Topology, kind_of

_log = logging.getLogger("sojourn")
_PACKAGE = Path(__file__).parents[2]
_INSTALLED = {"site-packages", "dist-packages"}  # folders of installed packages, anywhere
_CACHED = type(functools.cache(len))  # which has no name
_registering = threading.Lock()


def pickled(topology: Topology) -> dict[str, bytes]:
    """Every vertex's code, pickled. Code that cannot be sent to another process is refused by
    name."""
    with own_modules_by_value():
        for name, operator in topology.operators.items():
            _pickle(name, operator.key)
        return {name: _pickle(name, _code(spec)) for name, spec in topology.vertices.items()}


def own_classes() -> tuple[tuple[str, str, bytes], ...]:
    """The classes that the user's modules define: module, name and the pickled class. Values may be
    instances of them."""
    found = []
    with own_modules_by_value() as modules:
        for module in modules:
            for name, thing in list(vars(module).items()):
                if isinstance(thing, type) and thing.__module__ == module.__name__:
                    try:
                        found.append((module.__name__, name, bytes(cloudpickle.dumps(thing))))
                    except Exception as error:  # noqa: BLE001  # few are values, and those tell
                        _log.debug("class %s of %s cannot be sent: %s", name, module, error)
    return tuple(found)


@contextmanager
def own_modules_by_value() -> Iterator[list[ModuleType]]:
    """Send along the user's own modules: processes that run them may not find modules that are not
    installed as a package."""
    installed = [Path(path) for path in {*sysconfig.get_paths().values(), str(_PACKAGE)}]
    own = {"__main__": sys.modules["__main__"]}  # by name: some modules stand there under two
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and not (
            _INSTALLED.intersection(Path(file).parts)
            or any(Path(file).is_relative_to(path) for path in installed)
        ):
            own[module.__name__] = module
    with _registering:  # all threads share one register
        known = cloudpickle.list_registry_pickle_by_value()
        new = [module for module in own.values() if module.__name__ not in known]
        for module in new:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield list(own.values())
        finally:
            for module in new:
                cloudpickle.unregister_pickle_by_value(module)


@dataclass(frozen=True)
class Plan:
    """What stays the same from one start of a running topology to the next."""

    topology: Topology
    layout: Layout
    settings: EngineSettings
    code: Mapping[str, bytes]
    classes: tuple[tuple[str, str, bytes], ...]
    checkpoint: Path
    name: str  # of the checkpoint
    run: str
    secret: bytes
    lasts: bool = True  # the checkpoint, beyond the run


def build_tasks(
    plan: Plan,
    epoch: int,
    keys: ChannelKeys,
    wanted: Mapping[str, int],
    suspects: Mapping[str, Collection[bytes]],
    guilty: Mapping[str, Collection[Suspect]],
    rest_s: float,
    max_sojourn_s: float | None,
    zero_s: float,
    tables: Mapping[str, list[int]],
) -> list[Task]:
    """One task per level, with the processors wanted and the longest rest. Executors give out
    suspected tuples one by one, and leave out those that are guilty of their workers' deaths.
    `tables` are of vertices whose shards were divided while the topology ran."""

    def spec_of(place: Place) -> ExecutorSpec:
        spec = plan.topology.vertices[place.vertex]
        operator = spec if isinstance(spec, OperatorSpec) else None
        keyed = operator is not None and operator.key is not None
        concurrency = "process" if operator is None else operator.concurrency
        executors = executors_of(spec)
        on_error = spec.on_error
        return ExecutorSpec(
            place=place,
            number=plan.layout.places.index(place),
            host=HostSpec(
                vertex=place.vertex,
                executor=place.executor,
                run=plan.name,
                code=plan.code[place.vertex],
                classes=plan.classes,
                routes=plan.layout.routes[place.vertex],
                threads=concurrency == "thread",
                emits="many" if operator is None else operator.emits,
                key=_pickle(place.vertex, operator.key) if operator is not None and keyed else b"",
                ttl_s=None if operator is None else operator.ttl_s,
                broadcast=operator is not None and operator.broadcast,
                zero_s=zero_s,
                keep_going=on_error != "fail",
                tracked_per_s=plan.settings.tracked_per_s,
                timed_every=plan.settings.timed_every,
                queue_bytes=plan.settings.max_queue_bytes,
                epoch=epoch,
                room=rooms(plan.checkpoint) / place.vertex,
            ),
            kind=kind_of(spec),
            keyed=keyed,
            shards=operator.shards if operator is not None and keyed else 0,
            executors=executors,
            senders=sum(bool(plan.layout.routes[place.vertex]) for place in plan.layout.places),
            # An executor without shards has a worker, too: it may get some.
            processors=max(1, shares(wanted.get(place.vertex, 1), executors)[place.executor]),
            on_error=on_error,
            lanes=plan.layout.lanes,
            directory=state_root(plan.checkpoint) / place.vertex / str(place.executor),
            letters=plan.checkpoint / "sojourn" / "dead-letters" / place.vertex,
            epoch=epoch,
            max_bundle=plan.settings.max_bundle,
            max_queue=plan.settings.max_queue,
            queue_bytes=plan.settings.max_queue_bytes,
            max_rest_s=rest_s,
            max_sojourn_s=max_sojourn_s,
            shed_after_s=None if operator is None else operator.shed_after_s,
            slots=concurrency if isinstance(concurrency, int) else 0,
            bundled=operator is not None and takes_bundles(operator.code),
            chain=behind(operator.code) if operator is not None else (),
            secret=plan.secret,
            keys=keys,
            suspects=frozenset(suspects.get(place.vertex, ())),
            guilty=tuple(guilty.get(place.vertex, ())),
            tables=tables,
        )

    levels: list[list[Place]] = [[] for _ in plan.layout.partitions]
    for place in plan.layout.places:
        levels[place.level].append(place)
    with own_modules_by_value():
        return [
            Task(
                tuple(_pickle(place.vertex, spec_of(place)) for place in places),
                tuple(places),
                plan.layout.lanes,
                level,
                f"{plan.run}-{epoch}",
                plan.secret,
                epoch,
                keys,
                (*plan.layout.partitions, 0)[level + 1],
            )
            for level, places in enumerate(levels)
        ]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Also sends the user's functions that have a cache, with an empty one. Python itself would
    send only their names."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, _CACHED):
            own = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
            if thing.__module__ in own or thing.__qualname__.count("<"):
                return cached_again, (thing.__wrapped__, thing.cache_parameters())
        return super().reducer_override(thing)


def cached_again(function: Any, parameters: dict[str, Any]) -> Any:
    """The function with a cache."""
    return functools.lru_cache(**parameters)(function)


def _code(spec: SourceSpec | OperatorSpec | SinkSpec) -> Any:
    if isinstance(spec, OperatorSpec):
        return spec.code
    return spec.source if isinstance(spec, SourceSpec) else spec.sink


def _pickle(name: str, code: Any) -> bytes:
    try:
        buffer = io.BytesIO()
        _Pickler(buffer).dump(code)
        return buffer.getvalue()
    except Exception as error:  # an object may refuse with any kind of error
        raise InputError(
            f"{name!r} cannot be sent to another process: {error}; "
            "make what cannot be pickled in open(), not before"
        ) from error
