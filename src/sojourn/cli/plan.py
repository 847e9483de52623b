"""`sojourn plan FILE.yaml`: how many processors each operator needs, before anything runs.
Fed by a plan file and the options; solves the program asked for and hands it to the report."""

import json
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sojourn.cli.plan_report import (
    Goal,
    Model,
    comparison,
    draw,
    print_comparison,
    print_plan,
    print_sweep,
    record,
)
from sojourn.cli.planfile import PlanFile, read_plan_file
from sojourn.cli.progress import busy
from sojourn.cli.unequal_report import print_unequal, unequal_record
from sojourn.errors import InputError
from sojourn.queueing import (
    Network,
    Plan,
    Step,
    UnequalPlan,
    assign_processors,
    assign_unequal,
    cheapest_unequal,
    min_processors,
    sweep,
)
from sojourn.units import parse_duration, parse_number, parse_whole

_EQUAL = "this is only known for equal ones"
_WIDE = 1000  # figures are never cut off; a narrow terminal wraps the line


def plan(
    file: Annotated[Path, typer.Argument(help="YAML file of sources, operators and edges.")],
    max_processors: Annotated[
        str | None, typer.Option(help="Place at most this many processors for the lowest sojourn.")
    ] = None,
    max_sojourn: Annotated[
        str | None, typer.Option(help="Find the fewest processors for this target, e.g. 500ms.")
    ] = None,
    percentile: Annotated[
        str | None, typer.Option(help="Apply the target to this percentile, not the mean.")
    ] = None,
    model: Annotated[
        Model, typer.Option(help="gigk uses the file's SCVs; mmk sets them all to 1.")
    ] = Model.GIGK,
    compare: Annotated[
        str | None,
        typer.Option(help="Your own allocations, operators in the file's order: 8:12:2,10:11:1"),
    ] = None,
    show_sweep: Annotated[
        bool, typer.Option("--sweep", help="Show the mean sojourn for every number of processors.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Plot the sweep to this .png or .svg file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Say how many processors each operator needs. Also says what limits the topology."""
    contents = read_plan_file(file)
    if contents.kinds:
        for option, given in (("--compare", compare), ("--sweep", show_sweep), ("--plot", plot)):
            if given:
                raise InputError(f"{option}: {file} has processors of different kinds; {_EQUAL}")
    goal = _goal(contents, max_processors, max_sojourn, percentile)
    try:
        network = contents.network(model.value)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=_WIDE)
    if contents.kinds:
        with busy("solving"):
            dealt = _solve_unequal(network, contents, goal)
        if not dealt.feasible:
            raise InputError(f"{file}: {dealt.reason}")
        if as_json:
            shown = unequal_record(contents.name, model, network, goal, dealt, contents.kinds)
            typer.echo(json.dumps(shown, indent=2, allow_nan=False))
        else:
            print_unequal(console, contents.name, network, dealt, contents.kinds)
        return
    with busy("solving"):
        best = _solve(network, contents, goal)
    if not best.feasible:
        raise InputError(f"{file}: {best.reason}")
    allocations = _allocations(compare, network) if compare is not None else []
    if plot and not show_sweep:
        raise InputError("--plot: draws the sweep; add --sweep")
    with busy("sweeping"):
        steps = _steps(network, contents, goal, best) if show_sweep else []
    if plot:
        draw(plot, contents.name, network, goal, best, steps)
    if as_json:
        shown = record(contents.name, model, network, goal, best, contents.maximum)
        if compare:
            shown["compare"] = [comparison(network, goal, a) for a in allocations]
        if show_sweep:
            shown["sweep"] = [
                {"processors": s.processors, "added": s.added, "mean_sojourn_s": s.mean_sojourn}
                for s in steps
            ]
        typer.echo(json.dumps(shown, indent=2, allow_nan=False))
        return
    print_plan(console, contents.name, network, goal, best, contents.maximum)
    if compare:
        print_comparison(console, network, goal, best, allocations)
    if show_sweep:
        print_sweep(console, best, steps)
    if plot:
        console.print(f"The sweep is plotted in {plot}.")


def _goal(
    contents: PlanFile,
    max_processors: str | None,
    max_sojourn: str | None,
    percentile: str | None,
) -> Goal:
    """The options' limit, or else the file's; exactly one of the two kinds."""
    if max_processors is not None and max_sojourn is not None:
        raise InputError("--max-processors and --max-sojourn: give one of the two, not both")
    processors, sojourn, p = contents.max_processors, contents.max_sojourn, contents.percentile
    if max_processors is not None:
        processors, sojourn = parse_whole(max_processors, "--max-processors"), None
    if max_sojourn is not None:
        processors, sojourn = None, parse_duration(max_sojourn, "--max-sojourn")
        if sojourn <= 0:
            raise InputError(f"--max-sojourn: must be above zero; got {max_sojourn!r}")
    if contents.kinds:
        if processors is not None:
            raise InputError(
                "max_processors: the file's processors say how many there are; leave one out"
            )
        if p is not None or percentile is not None:
            raise InputError(f"percentile: the file has processors of different kinds; {_EQUAL}")
    elif processors is None and sojourn is None:
        raise InputError(
            "no limit: give --max-processors K or --max-sojourn T, or limits in the file"
        )
    if percentile is not None:
        p = parse_number(percentile, "--percentile")
        if not 0 < p < 100:
            raise InputError(f"--percentile: must lie between 0 and 100, such as 99; got {p:g}")
    return Goal(processors, sojourn, p)


def _solve(network: Network, contents: PlanFile, goal: Goal) -> Plan:
    if goal.max_processors is not None:
        return assign_processors(network, goal.max_processors, contents.minimum, contents.maximum)
    assert goal.max_sojourn is not None
    return min_processors(
        network, goal.max_sojourn, goal.percentile, contents.minimum, contents.maximum
    )


def _solve_unequal(network: Network, contents: PlanFile, goal: Goal) -> UnequalPlan:
    limits = contents.minimum, contents.maximum
    if goal.max_sojourn is None:
        return assign_unequal(network, contents.kinds, *limits)
    return cheapest_unequal(network, contents.kinds, goal.max_sojourn, *limits)


def _allocations(text: str, network: Network) -> list[dict[str, int]]:
    names = list(network.stations)
    found = []
    for part in text.split(","):
        numbers = part.strip().split(":")
        try:
            if len(numbers) != len(names):
                raise InputError("")
            found.append({n: parse_whole(k, "") for n, k in zip(names, numbers, strict=True)})
        except InputError as error:
            raise InputError(
                f"--compare: {part.strip()[:60]!r} must be {len(names)} whole numbers of at least "
                f"1, for {':'.join(names)}"
            ) from error
    return found


def _steps(network: Network, contents: PlanFile, goal: Goal, best: Plan) -> list[Step]:
    """The sweep up to K_max, or somewhat past the plan that meets the target."""
    last = goal.max_processors or best.processors + max(5, best.processors // 4)
    points = sweep(network, contents.minimum, contents.maximum)
    return list(takewhile(lambda step: step.processors <= last, points))
