"""The composition root: wires the engine to what drives it."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn import configuration
from sojourn.control.controller import Controller, Record, shape_of
from sojourn.control.journal import Journal
from sojourn.control.loop import ControlLoop
from sojourn.control.negotiator import Negotiator
from sojourn.control.summary import Summary, Tally
from sojourn.errors import InputError, TopologyFailed
from sojourn.settings import PREFIX, ControlSettings, EngineSettings, knobs_of
from sojourn.topology import Topology

_log = logging.getLogger("sojourn")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sojourn.engine.driver.running import Running


def start(
    topology: Topology,
    *,
    checkpoint: str | Path | None = None,
    master: str | None = None,
    spark: "SparkSession | None" = None,
    **settings: Any,
) -> "Running":
    """Start a topology on Spark and return once all its parts are up.

    `checkpoint` is a directory that all machines see; a topology started again with it goes on
    where it was. Without one, nothing outlives the run. `settings` are those of EngineSettings."""
    from sojourn.engine.driver.running import Running

    return Running(topology, checkpoint, master, spark, EngineSettings(**settings))


class ControlledRun:
    """A topology and the loop that keeps its promise. Use it in a `with` block, or call `stop`."""

    def __init__(
        self,
        topology: Topology,
        engine_settings: EngineSettings,
        settings: ControlSettings,
        *,
        checkpoint: str | Path | None = None,
        master: str | None = None,
        spark: "SparkSession | None" = None,
        journal: str | Path | None = None,
        advise: bool = False,
        config: Path | None = None,
        reread: Callable[[], ControlSettings] | None = None,
        on_tick: Callable[[Record], None] | None = None,
    ) -> None:
        from sojourn.engine.driver.machines import pool_for
        from sojourn.engine.driver.running import Running

        check_room(topology, settings)
        _check_pool(settings, master, spark)
        shape = shape_of(topology)
        self.reread = reread
        self.tally = Tally()
        listeners: list[Callable[[Record], None]] = [self.tally]
        self.journal = Journal(Path(journal), shape) if journal is not None else None
        if self.journal is not None:
            listeners.append(self.journal)
        if on_tick is not None:
            listeners.append(on_tick)
        if config is not None:
            self.config_seen = config.stat().st_mtime_ns
            listeners.append(lambda _record: self._look_at(config))
        self.topology = topology
        self.thread: threading.Thread | None = None
        self.closing = contextlib.ExitStack()
        with contextlib.ExitStack() as failing:
            failing.callback(self.closing.close)
            make_pool, own_master = pool_for(topology, settings, self.closing)
            self.running = Running(
                topology,
                checkpoint,
                own_master or master,
                spark,
                engine_settings,
                settings.max_sojourn_s,
            )
            failing.pop_all()
        self.loop = ControlLoop(
            self.running,
            Controller(shape, settings),
            Negotiator(make_pool(self.running)),
            listeners,
            advise,
        )

    def wait(self, seconds: float | None = None) -> None:
        """Keep the promise until finite sources are exhausted, for so long, or until stopped."""
        self.loop.run(seconds, finished=lambda: self.running.await_idle(0.1))

    def start(self) -> "ControlledRun":
        """Keep it in the background, until `stop`; should it fail there, `stop` tells."""
        self.thread = threading.Thread(target=self._keep, name="sojourn-control", daemon=True)
        self.thread.start()
        return self

    def _keep(self) -> None:
        try:
            self.wait()
        except TopologyFailed as error:
            _log.error("the topology failed: %s", error)

    def submit(self, **changes: Any) -> None:
        """Go by another max_sojourn, min_sojourn or max_processors from the next tick on."""
        new = _with_keys(self.loop.settings, _keys(changes), "submitted")
        configuration.changed_live(self.loop.settings, new)
        check_room(self.topology, new)
        self.loop.submit(new)

    def stop(self) -> Summary:
        """Stop gracefully and say what it was like."""
        self.loop.stopping.set()
        if self.thread is not None:
            self.thread.join()
        try:
            self.running.stop()
        finally:
            self._close()
        return self.tally.summary(self.topology.name, self.running.restarts)

    def __enter__(self) -> "ControlledRun":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.stop()
            return
        self.loop.stopping.set()
        try:
            self.running.__exit__(kind, error, trace)
        finally:
            self._close()

    def _close(self) -> None:
        self.loop.negotiator.close()
        self.closing.close()
        if self.journal is not None:
            self.journal.close()

    def _look_at(self, config: Path) -> None:
        """Take up what was changed in the file since it was last read, under all that goes over
        it."""
        assert self.reread is not None
        try:
            changed = config.stat().st_mtime_ns
        except OSError:
            return  # it is being replaced, or gone: what was read of it stays in force
        if changed == self.config_seen:
            return
        self.config_seen = changed
        try:
            new = self.reread()
            check_room(self.topology, new)
            keys = configuration.changed_live(self.loop.settings, new)
        except InputError as error:
            _log.warning("the changed settings are not taken up: %s", error)
            return
        self.loop.submit(new)
        _log.info("taken up from %s: %s", config, ", ".join(keys))


def controlled(
    topology: Topology,
    *,
    config: str | Path | None = None,
    conf: Iterable[str] = (),
    spark: "SparkSession | None" = None,
    checkpoint: str | Path | None = None,
    master: str | None = None,
    journal: str | Path | None = None,
    advise: bool = False,
    on_tick: Callable[[Record], None] | None = None,
    **targets: Any,
) -> ControlledRun:
    """Start a topology under control: see `run`."""
    conf = list(conf)
    engine_settings, settings = settings_for(config, conf, spark, **targets)
    return ControlledRun(
        topology,
        engine_settings,
        settings,
        checkpoint=checkpoint,
        master=master,
        spark=spark,
        journal=journal,
        advise=advise,
        config=None if config is None else Path(config),
        reread=lambda: settings_for(config, conf, spark, **targets)[1],
        on_tick=on_tick,
    )


def settings_for(
    config: str | Path | None,
    conf: Iterable[str],
    spark: "SparkSession | None" = None,
    **targets: Any,
) -> tuple[EngineSettings, ControlSettings]:
    """Settings from the file, SparkConf, the environment, `conf` and the arguments, each over the
    one before."""
    from sojourn.engine.spark.session import submitted

    layers = [] if config is None else [configuration.read_file(Path(config))]
    given = submitted() if spark is None else dict(spark.sparkContext.getConf().getAll())
    layers.append(("SparkConf", configuration.ours(given)))
    layers.append(configuration.from_environment(os.environ))
    layers.append(configuration.from_options(conf))
    layers.append(argument_layer(targets))
    engine_settings, settings, _ = configuration.settings_from(layers)
    check_goal(settings)
    return engine_settings, settings


def run(topology: Topology, *, duration_s: float | None = None, **options: Any) -> Summary:
    """Run a topology and keep its promise with the fewest processors, until its sources are
    exhausted, for `duration_s`, or until Ctrl-C; then stop gracefully.

    Give `max_sojourn="500ms"` (with `min_sojourn`, `percentile=99`) or `max_processors=22`. Other
    options: `checkpoint`, `master` or an existing `spark` session, `config` (a file of settings),
    `conf` (a list of key=value), `journal` (a file), `advise=True` to change nothing, `on_tick`."""
    made = controlled(topology, **options)
    try:
        made.wait(duration_s)
    except KeyboardInterrupt:
        return made.stop()
    except BaseException:
        made.__exit__(Exception, None, None)
        raise
    return made.stop()


def check_goal(settings: ControlSettings) -> None:
    """There must be something to keep."""
    if settings.max_sojourn_s is None and settings.max_processors is None:
        raise InputError(
            f"what is to be kept? Give a target ({PREFIX}maxSojourn, --max-sojourn 500ms) or a "
            f"number of processors ({PREFIX}maxProcessors, --max-processors 22)"
        )


def check_room(topology: Topology, settings: ControlSettings) -> None:
    """K_max must leave every operator what it cannot do without."""
    operators = topology.operators.values()
    least = sum(spec.executors for spec in operators if not spec.chained)
    if settings.max_processors is not None and settings.max_processors < least:
        raise InputError(
            f"{PREFIX}maxProcessors must be at least {least}, one for each executor of every "
            f"operator of {topology.name!r}; got {settings.max_processors}"
        )


def _check_pool(
    settings: ControlSettings, master: str | None, spark: "SparkSession | None"
) -> None:
    """Where machines come from must fit where the topology runs."""
    given = master if spark is None else str(spark.sparkContext.master)
    if settings.pool == "standalone" and given is not None:
        raise InputError(
            f"{PREFIX}machines.pool=standalone starts a cluster of its own, and the topology "
            f"cannot run on {given}: leave the master out, or take the pool 'spark'"
        )
    if settings.pool == "spark" and (given is None or given.startswith("local")):
        raise InputError(
            f"{PREFIX}machines.pool=spark needs a cluster to ask for machines; the master is "
            f"{given or 'local'}"
        )


def argument_layer(targets: Mapping[str, Any]) -> configuration.Layer:
    """What was given by name, over all else."""
    return "argument", _keys(targets)


def _keys(targets: Mapping[str, Any]) -> dict[str, object]:
    """Arguments such as max_sojourn as settings' keys."""
    by_name = {name.removesuffix("_s"): knob for name, knob in knobs_of(ControlSettings).items()}
    found: dict[str, object] = {}
    for name, value in targets.items():
        if name not in by_name:
            raise InputError(f"run: there is no option {name!r}; known are {', '.join(by_name)}")
        if value is not None:
            found[by_name[name].name] = value
    return found


def _with_keys(
    settings: ControlSettings, values: Mapping[str, object], where: str
) -> ControlSettings:
    """Settings with some of them set anew; those of the engine are not control's."""
    by_key = {knob.name: (name, knob) for name, knob in knobs_of(ControlSettings).items()}
    known = {key: value for key, value in values.items() if key in by_key}
    return replace(
        settings, **{by_key[k][0]: by_key[k][1].parse(v, where) for k, v in known.items()}
    )
