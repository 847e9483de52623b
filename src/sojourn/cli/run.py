"""`sojourn run`: a topology kept under its target, with the fewest processors."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli.app import load_topology, speak_up
from sojourn.cli.progress import SOON_S, busy
from sojourn.cli.run_view import LineView, LiveView, print_summary
from sojourn.errors import InputError
from sojourn.units import parse_duration

if TYPE_CHECKING:
    from sojourn.wiring import Running


def run(
    app: Annotated[str, typer.Argument(help="APP.py[:name]: a Python file with a Topology.")],
    max_sojourn: Annotated[
        str | None, typer.Option(help="Target for the sojourn, such as 500ms.")
    ] = None,
    min_sojourn: Annotated[
        str | None, typer.Option(help="Give processors back only below this sojourn.")
    ] = None,
    max_processors: Annotated[
        str | None, typer.Option(help="Use at most this many processors.")
    ] = None,
    percentile: Annotated[
        str | None, typer.Option(help="Apply the target to this percentile, such as 99.")
    ] = None,
    advise: Annotated[bool, typer.Option("--advise", help="Decide, but change nothing.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark master; local unless given.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Directory to save to and resume from.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Settings, YAML or properties; targets may change while it runs."),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="One setting, key=value; may be repeated.")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(help="Start with the processors that sojourn profile has found."),
    ] = None,
    recalibrate: Annotated[
        bool, typer.Option("--recalibrate", help="Profile again when the profile holds no more.")
    ] = False,
    duration: Annotated[str | None, typer.Option(help="Stop after this long.")] = None,
    journal: Annotated[Path | None, typer.Option(help="Write decisions to this file.")] = None,
    dashboard: Annotated[
        str | None,
        typer.Option(help="Serve the dashboard, at 127.0.0.1:4190 unless HOST:PORT follows."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report to this .html or .png at the end.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show what Spark and Sojourn log.")
    ] = False,
) -> None:
    """Run a topology and keep its target with the fewest processors. Ctrl-C stops it cleanly."""
    from sojourn import configuration
    from sojourn.asked import check_goal, settings_for
    from sojourn.cli.recalibrate import Watch
    from sojourn.settings import ControlSettings, EngineSettings
    from sojourn.wiring import Running

    if verbose:
        speak_up()
    seconds = None if duration is None else parse_duration(duration, "--duration")
    if seconds is not None and not seconds > 0:
        raise InputError(f"--duration must be above zero; got {duration!r}")
    if recalibrate and profile is None:
        raise InputError("--recalibrate needs --profile FILE, which may come to hold no more")
    if report is not None:
        from sojourn.dashboard.report import check

        check(report)
    given_here = [] if dashboard is None else [f"dashboard={dashboard}"]
    topology = load_topology(app)
    view = (
        LiveView()
        if sys.stdout.isatty() and not (as_json or verbose)
        else LineView(sys.stderr if as_json else sys.stdout)
    )
    targets: dict[str, Any] = {
        "max_sojourn": max_sojourn,
        "min_sojourn": min_sojourn,
        "max_processors": max_processors,
        "percentile": percentile,
    }

    def read() -> tuple[EngineSettings, ControlSettings]:
        layers = [] if config is None else [configuration.read_file(config)]
        return settings_for(
            targets, layers, [configuration.from_options([*(conf or []), *given_here])]
        )

    of_engine, of_control = read()  # mistakes are told before Spark starts
    check_goal(of_control)
    stale = None
    if profile is not None:
        given = [] if config is None else ["--config", str(config)]
        given += [word for one in conf or [] for word in ("--conf", one)]
        stale = Watch(profile, topology, of_control, app, master, checkpoint, recalibrate, given)
        topology = stale.topology
    with (
        contextlib.ExitStack() as failing,
        stale or contextlib.nullcontext(),
        contextlib.ExitStack() as ending,
    ):
        with busy("starting Spark", after_s=0.0):
            running = Running(
                topology,
                of_engine,
                of_control,
                checkpoint=checkpoint,
                master=master,
                journal=journal,
                advise=advise,
                listeners=[view] if stale is None else [view, stale.heard],
                stale=stale,
                watch=None if config is None else (config, lambda: read()[1]),
            )
            ending.enter_context(_ended(running))
        if report is not None:
            failing.push(lambda kind, *_: _reported(running, report, kind))
        if running.ui is not None:
            typer.echo(f"Spark's UI: {running.ui}", err=True)
        soon_s = SOON_S
        try:
            with view:
                running.wait(seconds)
        except KeyboardInterrupt:
            soon_s = 0.0
        with busy("stopping", soon_s):
            running.stop()
    print_summary(running.summary, as_json)
    if report is not None:
        _write_report(running, report)


@contextlib.contextmanager
def _ended(running: contextlib.AbstractContextManager[object]) -> Iterator[None]:
    """A run that is ended here. After a failure that can take a while."""
    with contextlib.ExitStack() as words, running:
        try:
            yield
        except BaseException:
            words.enter_context(busy("ending the query"))
            raise


def _reported(running: "Running", report: Path, failure: type[BaseException] | None) -> None:
    """The report of a run that has failed. The failure is told, whatever becomes of the report."""
    if failure is None:
        return
    try:
        _write_report(running, report)
    except InputError as error:
        typer.echo(f"error: {error}", err=True)


def _write_report(running: "Running", report: Path) -> None:
    from sojourn.dashboard.report import write

    assert running.board is not None  # there is a target
    with busy("writing the report"):
        write(running.board, report)
