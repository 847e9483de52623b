"""The way in: starts a topology on Spark, with a control loop if there is a target. Puts the engine
and control together; used by Python programs and by the command line."""

import contextlib
import functools
import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar, Unpack

from sojourn import configuration
from sojourn.asked import (
    Duration,
    Targets,
    check_places,
    check_pool,
    check_room,
    has_goal,
    retargeted,
    settings_for,
)
from sojourn.control.controller import Record, shape_of
from sojourn.control.loop import ControlLoop, Listener, Stale
from sojourn.control.negotiator import Begin, KindsNegotiator, Negotiator, in_a_thread
from sojourn.control.reading import ReadingEngine, with_readers
from sojourn.control.summary import Summary
from sojourn.dashboard.board import Board
from sojourn.dashboard.controls import Controls
from sojourn.dashboard.server import Server, new_token
from sojourn.errors import InputError, TopologyFailed, check_options
from sojourn.linefile import check_new
from sojourn.ports import Allocation, Engine, LocalPool, MachinePool, Samples
from sojourn.settings import ControlSettings, EngineSettings
from sojourn.topology import Topology
from sojourn.units import parse_duration
from sojourn.views.records import Follower, about_of

_log = logging.getLogger("sojourn")
_LOOK_S = 0.5  # how often to check whether everything is done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StartOptions(Targets, total=False):
    """The options of `start`, which `run` takes too."""

    percentile: float | None
    checkpoint: str | Path | None
    master: str | None
    spark: "SparkSession | None"
    journal: str | Path | None
    advise: bool
    settings: Mapping[str, object] | None


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _told(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """With an option that there is not, the nearest that there is is told."""
    own = (name for name in inspect.signature(function).parameters if name != "options")
    known = [*dict.fromkeys((*own, *StartOptions.__annotations__))]

    @functools.wraps(function)
    def called(*given: _P.args, **options: _P.kwargs) -> _R:
        check_options(function.__name__, options, known)
        return function(*given, **options)

    return called


@_told
def start(
    topology: Topology,
    *,
    max_sojourn: Duration | None = None,
    min_sojourn: Duration | None = None,
    max_processors: int | None = None,
    percentile: float | None = None,
    checkpoint: str | Path | None = None,
    master: str | None = None,
    spark: "SparkSession | None" = None,
    journal: str | Path | None = None,
    advise: bool = False,
    settings: Mapping[str, object] | None = None,
) -> "Running":
    """Start a topology on Spark and return once all its parts are up.

    With `max_sojourn`, a control loop keeps the mean sojourn under it with the fewest processors.
    With `percentile`, it keeps that percentile under it instead. With `min_sojourn`, it gives
    processors back only while the sojourn is below that. `max_processors` is the most that it
    uses; without `max_sojourn`, it places that many for the lowest sojourn. It writes its decisions
    and reasons to `journal`. With `advise`, it changes nothing. Without `max_sojourn` and
    `max_processors`, nothing is controlled.

    `checkpoint` is a directory that all machines see. A topology that is started with it again goes
    on where it stopped. Without one, nothing outlives the run. The topology runs on `spark`, a
    session of your own, on a `master`, or on this machine. `settings` takes the keys of
    docs/settings.md, such as {"commit": "2s"}."""
    check_places(topology, checkpoint, master, spark, journal)
    targets = {
        "max_sojourn": max_sojourn,
        "min_sojourn": min_sojourn,
        "max_processors": max_processors,
        "percentile": percentile,
    }
    given = configuration.from_mapping({} if settings is None else settings)
    of_engine, of_control = settings_for(targets, over=[given], spark=spark)
    return Running(
        topology,
        of_engine,
        of_control,
        checkpoint=checkpoint,
        master=master,
        spark=spark,
        journal=journal,
        advise=advise,
    )


@_told
def run(
    topology: Topology, *, duration: Duration | None = None, **options: Unpack[StartOptions]
) -> Summary:
    """Start a topology and run it until its sources are exhausted, `duration` has passed, or Ctrl-C
    is pressed. Then stop it gracefully and return the summary. The other options are those of
    `start`."""
    seconds = None if duration is None else parse_duration(duration, "duration")
    if seconds is not None and not seconds > 0:
        raise InputError(f"duration must be above zero; got {duration!r}")
    with start(topology, **options) as running, contextlib.suppress(KeyboardInterrupt):
        running.wait(seconds)
    return running.summary


class Running:
    """A started topology, with its control loop if it has one. Use it in a `with` block, or call
    `stop`.

    The loop changes nothing before `act_after_s` and tells `listeners` of every tick. `watch` is a
    file of settings, whose changes it applies, and a function that reads all settings anew. `stale`
    may say of an interval why the profile that the topology started with holds no more. `board` is
    what the dashboard shows, `dashboard` where that is.
    `engine` and `loop` are its inner parts, for benchmarks; they may change with any version."""

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
        act_after_s: float = 0.0,
        listeners: Iterable[Listener] = (),
        watch: tuple[Path, Callable[[], ControlSettings]] | None = None,
        stale: Stale | None = None,
    ) -> None:
        from sojourn.engine.driver.engine import SparkEngine
        from sojourn.engine.driver.machines import pool_for

        topology.check()
        check_room(topology, settings)
        check_pool(settings, master, spark)
        alone = settings.percentile is not None or settings.min_sojourn_s is not None
        if not has_goal(settings) and (journal is not None or advise or alone):
            raise InputError(
                "percentile, min_sojourn, journal and advise are for the control loop, which "
                "needs a target; give max_sojourn or max_processors"
            )
        if not has_goal(settings) and engine_settings.dashboard != "off":
            raise InputError(
                "dashboard: shows what the control loop sees, which needs a target; give "
                "max_sojourn or max_processors"
            )
        if journal is not None:
            check_new(Path(journal))  # before Spark starts
        self.topology = topology
        self.loop: ControlLoop | None = None
        self._began_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self._failed: Exception | None = None
        self._advises = advise
        self._undo = contextlib.ExitStack()
        self.board: Board | None = None
        self.dashboard: str | None = None
        with contextlib.ExitStack() as failing:
            failing.callback(self._undo.close)
            failing.push(self._tell_failure)
            follower = self._shown(engine_settings) if has_goal(settings) else None
            make_pool, own_master = pool_for(topology, settings, self._undo)
            self.engine = SparkEngine(
                topology,
                checkpoint,
                own_master or master,
                spark,
                engine_settings,
                settings.max_sojourn_s,
            )
            failing.callback(self.engine.abandon)
            if follower is not None:
                watching = () if watch is None else (watched(self, *watch),)
                self.loop = control_loop(
                    self.engine,
                    topology,
                    settings,
                    make_pool(self.engine),
                    [*listeners, follower, *watching],
                    advise=advise,
                    act_after_s=act_after_s,
                    journal=None if journal is None else Path(journal),
                    paradigm=engine_settings.paradigm,
                    stale=stale,
                    readers=self.engine.readers,
                )
                follower.know(self.loop.shape)
                self._thread = threading.Thread(
                    target=self._control, name="sojourn-control", daemon=True
                )
                self._thread.start()
            failing.pop_all()

    def resize(self, allocation: Allocation) -> None:
        """Change the processors of some operators while the topology runs. A control loop would
        change them back, so this is for topologies without one, or with one that only advises."""
        if self.loop is not None and not self.loop.advise:
            raise InputError(
                "resize: the control loop decides how many processors there are; change its target "
                "with change(), or start with advise=True"
            )
        self.engine.resize(allocation)

    def samples(self) -> Samples:
        """What happened since the last call, or in the control loop's last interval if there is a
        loop, per vertex and for whole trees. While the topology restarts, vertices may be
        missing."""
        loop = self.loop
        if loop is None:
            return self.engine.samples()
        with loop.ticked:
            while True:
                self.engine.check()
                self._check()
                if loop.samples is not None:
                    return loop.samples
                loop.ticked.wait(_LOOK_S)

    def allocation(self) -> dict[str, int]:
        """The processors each operator has now. They are fewer than asked for, or none, while the
        topology starts or restarts."""
        return self.engine.allocation()

    def change(self, **targets: Unpack[Targets]) -> None:
        """Use another max_sojourn, min_sojourn or max_processors from the next tick on. None drops
        one; max_sojourn or max_processors must remain."""
        if self.loop is None:
            raise self._uncontrolled("change")
        self.engine.check()
        new = retargeted(self.loop.settings, targets)
        check_room(self.topology, new)
        self._submit(new)

    def pause(self, paused: bool = True) -> None:
        """Change nothing until told otherwise. Decisions go on, as advice."""
        if self.loop is None:
            raise self._uncontrolled("pause")
        self.engine.check()
        self.loop.advise = paused or self._advises
        if self.board is not None:
            self.board.pause(paused)

    def _uncontrolled(self, what: str) -> InputError:
        if self.board is not None:  # there is a target, and the dashboard can be asked already
            return InputError(f"{what}: the topology is starting; ask again once it runs")
        return InputError(
            f"{what}: nothing is controlled; start with max_sojourn or max_processors"
        )

    def _shown(self, settings: EngineSettings) -> Follower:
        """What follows the control loop for the dashboard, which is served from now on."""
        shape = shape_of(self.topology, settings.paradigm)
        self.board = Board(about_of(shape, "run"))
        if settings.dashboard != "off":
            token = new_token() if settings.dashboard_changes == "token" else None
            controls = None
            if token is not None:
                controls = Controls(token, lambda given: self.change(**given), self.pause)
            server = self._undo.enter_context(Server(self.board, settings.dashboard, controls))
            self._undo.callback(self.board.end)
            self.dashboard = server.url
            sys.stderr.write(f"dashboard: {server.url}\n")
            if token is not None:
                sys.stderr.write(f"token for changes: {token}\n")
        return Follower(self.board, shape, time.time)

    def _submit(self, settings: ControlSettings) -> None:
        """Use these settings from the next tick on."""
        assert self.loop is not None
        self.loop.submit(settings)
        self.engine.aim(settings.max_sojourn_s)

    def await_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until finite sources are exhausted and everything derived from them is processed.
        Returns False if the time was up, or the topology was told to stop, before that."""
        return self.engine.await_idle(timeout_s)

    def await_commit(self, timeout_s: float = 60.0) -> bool:
        """Wait until everything processed so far is committed: its results are visible, and no
        failure repeats it. Returns False if the time was up before that."""
        return self.engine.await_commit(timeout_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Like `await_idle`, for long waits: it looks only twice a second."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.engine.await_idle(0.1):
            self._check()
            left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
            if left <= 0 or self.engine.supervisor.stopping.wait(left):
                return False
        return True

    def stop(self, timeout_s: float = 60.0) -> Summary:
        """End gracefully and return the summary. Sources stop, and what is in flight is finished as
        far as the setting `drain` leaves time for it. Then everything is committed, and sinks
        publish. Safe to call twice. Raises TopologyFailed if the last commit could not be made."""
        with contextlib.ExitStack() as steps:  # last first; each runs even if another fails
            steps.callback(self._undo.close)
            steps.push(self._tell_failure)
            steps.callback(self.engine.stop, timeout_s)
            self._end_control()
        self._check()
        return self.summary

    @property
    def summary(self) -> Summary:
        """The summary so far. Without a control loop it holds no measurements."""
        if self.loop is not None:
            return replace(self.loop.summary(self.restarts), ui=self.engine.ui)
        processors = sum(self.engine.supervisor.wanted.values())
        return Summary(
            topology=self.topology.name,
            seconds=time.monotonic() - self._began_s,
            intervals=0,
            within_target=None,
            mean_sojourn_s=None,
            mean_processors=float(processors),
            most_processors=processors,
            restarts=self.restarts,
            changes=(),
            ui=self.engine.ui,
        )

    @property
    def committed(self) -> int:
        """The number of the last commit, or 0 before the first. Its results are published and its
        state is saved."""
        return self.engine.committed

    @property
    def restarts(self) -> int:
        """How often the topology was restarted after a failure."""
        return self.engine.restarts

    @property
    def ui(self) -> str | None:
        """The address of Spark's UI, if it has one."""
        return self.engine.ui

    @property
    def error(self) -> str | None:
        """Why the topology failed, or None if it has not."""
        return self.engine.error

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if kind in (None, KeyboardInterrupt):
            self.stop()
            return
        self._tell_failure(kind, error, trace)
        with contextlib.ExitStack() as steps:
            steps.callback(self._undo.close)
            steps.callback(self.engine.abandon)
            self._end_control()

    def _control(self) -> None:
        assert self.loop is not None
        try:
            self.loop.run()
        except TopologyFailed as error:
            _log.error("the topology failed: %s", error)
            self._tell_failure(type(error), error, None)
        except Exception as error:  # noqa: BLE001  # a thread has nobody above it: told by stop()
            _log.exception("the control loop failed")
            self._failed = error
            if self.board is not None:
                self.board.end(f"the control loop failed: {error!r}")

    def _tell_failure(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Have whoever looks on know why there are no more ticks."""
        if self.board is not None and isinstance(error, Exception):
            known = isinstance(error, (TopologyFailed, InputError))
            self.board.end(str(error) if known else f"its program ended with {error!r}")

    def _check(self) -> None:
        if self._failed is not None:
            raise TopologyFailed(f"the control loop failed: {self._failed!r}") from self._failed

    def _end_control(self) -> None:
        if self.loop is None or self._thread is None:
            return
        self.loop.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self.loop.close()


def control_loop(
    engine: Engine,
    topology: Topology,
    settings: ControlSettings,
    pool: MachinePool | KindsNegotiator | None = None,
    listeners: Iterable[Listener] = (),
    *,
    advise: bool = False,
    act_after_s: float = 0.0,
    journal: Path | None = None,
    begin: Begin = in_a_thread,
    clock: Callable[[], float] = time.monotonic,
    paradigm: str = "elastic",
    stale: Stale | None = None,
    readers: Mapping[str, tuple[int, int]] | None = None,
) -> ControlLoop:
    """The control loop of a topology on any engine, with the negotiator of its machines. Without a
    pool there is this machine alone. `begin` and `clock` are for engines in virtual time. `readers`
    are the fewest and the most processes of sources whose number it may change."""
    negotiator = (
        pool
        if isinstance(pool, KindsNegotiator)
        else Negotiator(LocalPool() if pool is None else pool, begin)
    )
    shape = shape_of(topology, paradigm)
    if readers:
        engine, shape = ReadingEngine(engine, readers), with_readers(shape, readers)
    return ControlLoop(
        engine,
        shape,
        settings,
        negotiator,
        listeners,
        advise=advise,
        act_after_s=act_after_s,
        journal=journal,
        clock=clock,
        stale=stale,
    )


def watched(running: Running, config: Path, reread: Callable[[], ControlSettings]) -> Listener:
    """A listener that applies changes to a settings file while the topology runs. `reread` returns
    the file's settings together with all that override them."""
    seen = config.stat().st_mtime_ns

    def look(_record: Record) -> None:
        nonlocal seen
        try:
            changed = config.stat().st_mtime_ns
        except OSError:
            return  # it is being replaced, or gone: the settings read before stay in force
        if changed == seen:
            return
        seen = changed
        assert running.loop is not None
        try:
            new = reread()
            check_room(running.topology, new)
            keys = configuration.changed_live(running.loop.settings, new)
        except InputError as error:
            _log.warning("the changed settings are ignored: %s", error)
            return
        running._submit(new)
        _log.info("changed by %s: %s", config, ", ".join(keys))

    return look
