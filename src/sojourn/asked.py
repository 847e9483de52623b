"""What is asked of a topology that is started: its targets, its settings from all layers, and where
it is to run. What does not fit together is refused before anything starts."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from sojourn import configuration
from sojourn.errors import InputError
from sojourn.settings import PREFIX, ControlSettings, EngineSettings, knobs_of
from sojourn.topology import Topology, checked_topology
from sojourn.units import parse_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Duration = str | float
"""Such as "500ms" or "2min"; a number is seconds."""


class Targets(TypedDict, total=False):
    """The targets of the control loop, which can be changed while it runs."""

    max_sojourn: Duration | None
    min_sojourn: Duration | None
    max_processors: int | None


def settings_for(
    targets: Mapping[str, Any],
    under: Iterable[configuration.Layer] = (),
    over: Iterable[configuration.Layer] = (),
    spark: "SparkSession | None" = None,
) -> tuple[EngineSettings, ControlSettings]:
    """Settings from these layers, each overriding the one before: `under`, SparkConf, the
    environment, `over`, and the targets."""
    from sojourn.engine.spark.session import submitted

    given = submitted() if spark is None else dict(spark.sparkContext.getConf().getAll())
    engine_settings, settings, _ = configuration.settings_from(
        [
            *under,
            ("SparkConf", configuration.ours(given)),
            configuration.from_environment(os.environ),
            *over,
            argument_layer(targets),
        ]
    )
    return engine_settings, settings


def retargeted(settings: ControlSettings, targets: Targets) -> ControlSettings:
    """Settings with other targets. None drops one, as long as another remains."""
    knobs = {name.removesuffix("_s"): (name, k) for name, k in knobs_of(ControlSettings).items()}
    found: dict[str, Any] = {}
    for option, value in targets.items():
        if option not in knobs:
            known = ", ".join(name for name, (_, knob) in knobs.items() if knob.live)
            raise InputError(f"change: there is no option {option!r}; known: {known}")
        name, knob = knobs[option]
        found[name] = None if value is None else knob.parse(value, "change")
    new = replace(settings, **found)
    configuration.changed_live(settings, new)
    if not has_goal(new):
        raise InputError(
            "change: max_sojourn or max_processors must remain; give one of them, or call stop()"
        )
    return new


def has_goal(settings: ControlSettings) -> bool:
    """Whether there is a target or a number of processors to control by."""
    return settings.max_sojourn_s is not None or settings.max_processors is not None


def check_goal(settings: ControlSettings) -> None:
    """Refuse settings that give control nothing to go by."""
    if not has_goal(settings):
        raise InputError(
            f"a target is missing; give a sojourn ({PREFIX}maxSojourn, --max-sojourn 500ms) or a "
            f"number of processors ({PREFIX}maxProcessors, --max-processors 22)"
        )


def check_room(topology: Topology, settings: ControlSettings) -> None:
    """Refuse a K_max that does not cover the least processors of every operator."""
    operators = topology.operators.values()
    least = sum(spec.least_processors for spec in operators if not spec.chained)
    if settings.max_processors is not None and settings.max_processors < least:
        raise InputError(
            f"{PREFIX}maxProcessors must be at least {least}, one for each executor of every "
            f"operator of {topology.name!r}; got {settings.max_processors}"
        )


def check_places(
    topology: object, checkpoint: object, master: object, spark: object, journal: object
) -> None:
    """What is to run, and where, must be what it is said to be."""
    checked_topology("start", topology)
    for what, path in (("checkpoint", checkpoint), ("journal", journal)):
        if path is not None:
            parse_path(path, what)
    if master is not None and not isinstance(master, str):
        raise InputError(f"master: must be text, such as 'local[4]'; got {master!r:.80}")
    if spark is not None and not hasattr(spark, "sparkContext"):
        raise InputError(
            f"spark: must be a SparkSession of this process; got {spark!r:.80}; a master is given "
            "as master="
        )


def check_pool(settings: ControlSettings, master: str | None, spark: "SparkSession | None") -> None:
    """Refuse a pool of machines that does not fit where the topology runs."""
    if settings.policy == "provision" and settings.provision_kinds:
        raise InputError(
            f"{PREFIX}provision.kinds is for simulations: machines of the pool {settings.pool!r} "
            "are all alike"
        )
    given = master if spark is None else str(spark.sparkContext.master)
    if settings.pool == "standalone" and given is not None:
        raise InputError(
            f"{PREFIX}machines.pool=standalone starts its own cluster, so the topology cannot run "
            f"on {given}; leave out the master, or use the pool 'spark'"
        )
    if settings.pool == "spark" and (given is None or given.startswith("local")):
        raise InputError(
            f"{PREFIX}machines.pool=spark needs a cluster to ask for machines; got the master "
            f"{given or 'local'}"
        )


def argument_layer(targets: Mapping[str, Any]) -> configuration.Layer:
    """The layer of the arguments given by name, which override all else."""
    return "argument", _keys(targets)


def _keys(targets: Mapping[str, Any]) -> dict[str, object]:
    """Arguments such as max_sojourn under the keys of their settings."""
    by_name = {name.removesuffix("_s"): knob for name, knob in knobs_of(ControlSettings).items()}
    found: dict[str, object] = {}
    for name, value in targets.items():
        if name not in by_name:
            raise InputError(f"there is no option {name!r}; known: {', '.join(by_name)}")
        if value is not None:
            found[by_name[name].name] = value
    return found
