"""`sojourn simulate`: the same topology and the same control loop in virtual time."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli.app import load_topology
from sojourn.cli.progress import bar, busy
from sojourn.cli.run_view import print_summary
from sojourn.errors import InputError
from sojourn.units import format_duration, parse_duration

if TYPE_CHECKING:
    from sojourn.cli.sweep import Axis
    from sojourn.control.summary import Summary
    from sojourn.dashboard.board import Board
    from sojourn.simulate import Progress as Told
    from sojourn.simulate import Simulation
    from sojourn.simulator import Workload
    from sojourn.topology import Topology

_DEFAULT_S = 600.0


def simulate(
    app: Annotated[str, typer.Argument(help="APP.py[:name]: a Python file with a Topology.")],
    service: Annotated[
        Path,
        typer.Option(help="Service times of the operators: YAML, a plan, or a run's journal."),
    ],
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
    trace: Annotated[
        Path | None, typer.Option(help="Arrival rates over time: CSV with the header time,rate.")
    ] = None,
    machines: Annotated[
        int | None, typer.Option(help="Machines to start with; default: one of unlimited size.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same simulation.")] = 0,
    replications: Annotated[int, typer.Option(help="Repeat this often, with new seeds.")] = 1,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="processors=10..40, rate=1x..3x or any setting=a,b,c; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File that keeps a sweep's results; the same command resumes it."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot a sweep: .png, .svg or .pdf.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings, YAML or properties.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="One setting, key=value; may be repeated.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option(help="Virtual time; default: the trace's length, or 10 minutes.")
    ] = None,
    journal: Annotated[Path | None, typer.Option(help="Write decisions to this file.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report to this .html or .png at the end.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Simulate a topology under control, without Spark. Try a target, a policy or a cluster."""
    from sojourn.cli.servicefile import read_service_file, read_trace
    from sojourn.cli.sweep import Sweep, check_plot, parse_axis
    from sojourn.simulate import Simulation, outlined, replicated, settings_for

    topology = load_topology(app)
    topology.check()
    topology = outlined(topology)
    workload = read_service_file(service)
    if trace is not None:
        workload = read_trace(trace, topology, workload)
    workload = workload.checked(topology)
    targets = {
        "max_sojourn": max_sojourn,
        "min_sojourn": min_sojourn,
        "max_processors": max_processors,
        "percentile": percentile,
    }
    axes = [parse_axis(text) for text in sweep or ()]
    if any(axis.name == "processors" for axis in axes) and max_processors is None:
        targets["max_processors"] = "1000000"  # set anew at every point
    _check(machines, replications, axes, journal, out, plot)
    if report is not None:
        from sojourn.dashboard.report import check

        if axes or replications > 1:
            raise InputError("--report shows one simulation; leave out --sweep and --replications")
        check(report)
    simulation = Simulation(
        topology,
        workload,
        settings_for(config, conf or [], **targets),
        _seconds(duration, workload),
        seed,
        machines,
        advise,
    )
    simulation.check()
    if plot is not None:
        check_plot(plot)
    if axes:

        def at(point: dict[str, Any]) -> Simulation:
            return _at(simulation, topology, workload, point, config, conf or [], targets)

        made = Sweep(axes, simulation, at, out)
        try:
            with bar("sweep") as told:
                made.run(told)
        except KeyboardInterrupt:
            kept = f"; the same command resumes from {out}" if out is not None else ""
            typer.echo(f"interrupted{kept}", err=True)
            raise typer.Exit(130) from None
        made.show(as_json, plot)
        return
    if replications > 1:
        try:
            with bar(f"{replications} simulations") as told:
                found = replicated(simulation, replications, told)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        _show_replications(found, as_json)
        return
    _once(simulation, journal, report, as_json)


def _once(
    simulation: "Simulation", journal: Path | None, report: Path | None, as_json: bool
) -> None:
    """One simulation and its summary, with a report if one is asked for."""
    with bar("simulating") as told:
        summary, board = _run(simulation, journal, report is not None, told)
    print_summary(summary, as_json)
    if board is not None and report is not None:
        from sojourn.dashboard.report import write

        with busy("writing the report"):
            write(board, report)


def _run(
    simulation: "Simulation", journal: Path | None, shown: bool, told: "Told"
) -> tuple["Summary", "Board | None"]:
    """One simulation, with a board of it if it is to be shown."""
    if not shown:
        return simulation.run(journal=journal, progress=told), None
    from sojourn.control.controller import shape_of
    from sojourn.dashboard.board import Board
    from sojourn.views.records import Follower, about_of

    shape = shape_of(simulation.topology)
    board = Board(about_of(shape, "simulation"))
    summary = simulation.run(journal=journal, listeners=[Follower(board, shape)], progress=told)
    return summary, board


def _at(
    simulation: "Simulation",
    topology: "Topology",
    workload: "Workload",
    point: dict[str, Any],
    config: Path | None,
    conf: list[str],
    targets: dict[str, str | None],
) -> "Simulation":
    """The simulation at one point of a sweep."""
    from sojourn.cli.servicefile import at_rate
    from sojourn.simulate import settings_for

    targets, conf = dict(targets), list(conf)
    for name, value in point.items():
        if name == "processors":
            targets["max_processors"] = str(value)
        elif name == "rate":
            workload = at_rate(workload, topology, value)
        else:
            conf.append(f"{name}={value}")
    found = replace(simulation, workload=workload, settings=settings_for(config, conf, **targets))
    found.check()
    return found


def _check(
    machines: int | None,
    replications: int,
    axes: "list[Axis]",
    journal: Path | None,
    out: Path | None,
    plot: Path | None,
) -> None:
    for option, value in (("--machines", machines), ("--replications", replications)):
        if value is not None and value < 1:
            raise InputError(f"{option} must be at least 1; got {value}")
    if axes and replications > 1:
        raise InputError("--sweep and --replications: give one, not both")
    if journal is not None and (axes or replications > 1):
        raise InputError("--journal records one simulation; leave out --sweep and --replications")
    for option, path in (("--out", out), ("--plot", plot)):
        if path is not None and not axes:
            raise InputError(f"{option} needs a sweep: add --sweep processors=10..40, for example")


def _seconds(duration: str | None, workload: "Workload") -> float:
    if duration is not None:
        seconds = parse_duration(duration, "--duration")
        if not seconds > 0:
            raise InputError(f"--duration must be above zero; got {duration!r}")
        return seconds
    traced = [sum(s for s, _ in load.steps) for load in workload.sources.values() if load.ends]
    return max(traced, default=_DEFAULT_S)


def _show_replications(found: "dict[int, Summary]", as_json: bool) -> None:
    from sojourn.simulate import Spread

    values = {
        "mean sojourn": [s.mean_sojourn_s for s in found.values() if s.mean_sojourn_s is not None],
        "processors": [s.mean_processors for s in found.values()],
        "changes": [float(len(s.changes)) for s in found.values()],
        "within target": [
            s.within_target / s.intervals
            for s in found.values()
            if s.within_target is not None and s.intervals
        ],
    }
    spreads = {name: Spread.of(of) for name, of in values.items() if of}
    if as_json:
        told = {name.replace(" ", "_"): asdict(spread) for name, spread in spreads.items()}
        runs = [{"seed": seed, **asdict(summary)} for seed, summary in found.items()]
        typer.echo(json.dumps({"replications": len(found), **told, "runs": runs}, indent=2))
        return
    typer.echo(f"{len(found)} simulations; means with 95 % confidence intervals")
    for name, spread in spreads.items():
        show = {"mean sojourn": format_duration, "within target": "{:.1%}".format}.get(
            name, "{:.3g}".format
        )
        typer.echo(f"  {name} {show(spread.mean)} ± {show(spread.half)}")
