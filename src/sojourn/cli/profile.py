"""`sojourn profile`: how many processors each operator needs on a platform, found by measuring."""

import contextlib
import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.chains import contracted
from sojourn.cli.app import load_topology
from sojourn.cli.experiment import make_directory
from sojourn.cli.sweep import check_plot
from sojourn.errors import InputError
from sojourn.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from sojourn.cli.profile_view import LineView, LiveView
    from sojourn.ports import Platform
    from sojourn.profile import Profiling
    from sojourn.profiler.rounds import Round
    from sojourn.profiler.stepwise import Shape
    from sojourn.profiler.trial import Measured, Progress, Proposal
    from sojourn.simulate import Settings
    from sojourn.topology import Topology

_KINDS = ("proportional", "workload", "logic")
_MOST_MACHINES = 1000


def profile(
    apps: Annotated[list[str], typer.Argument(help="APP.py[:name], one or several to compare.")],
    max_latency: Annotated[str, typer.Option(help="Tuples may take so long on average.")] = "500ms",
    method: Annotated[
        str, typer.Option(help="guided (led by the model) or stepwise (as in the paper).")
    ] = "guided",
    compare: Annotated[
        str | None,
        typer.Option(help="Methods to compare with: guided,stepwise,threshold,stela."),
    ] = None,
    small: Annotated[
        float, typer.Option(help="Messages a second with which nothing waits.")
    ] = 20.0,
    slice_: Annotated[float, typer.Option("--slice", help="Finer ratios the smaller it is.")] = 0.3,
    factor: Annotated[
        float, typer.Option(help="Operators that take this times their least are ample.")
    ] = 2.0,
    alpha: Annotated[
        float, typer.Option(help="Go back if less than this share of the best is carried.")
    ] = 0.9,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="OPERATOR=proportional, workload or logic; may be repeated."),
    ] = None,
    engine: Annotated[str, typer.Option(help="spark or simulator.")] = "spark",
    service: Annotated[Path | None, typer.Option(help="Service times, for the simulator.")] = None,
    machines: Annotated[
        str, typer.Option(help="Machines; 2..14 or 2,4,8 shows how much each number carries.")
    ] = "1",
    cores: Annotated[
        int | None, typer.Option(help="Cores of each; default: those of this machine.")
    ] = None,
    placement: Annotated[
        str, typer.Option(help="Where tasks go in the simulator: round-robin or packed.")
    ] = "round-robin",
    target: Annotated[
        str | None, typer.Option(help="Say how many machines this takes, such as 6000/s.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master; local unless given.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Sample what comes where a run with this checkpoint is.")
    ] = None,
    reading: Annotated[str, typer.Option(help="How long a reading lasts at least.")] = "1s",
    seed: Annotated[int, typer.Option(help="Of the simulator.", min=0)] = 0,
    config: Annotated[Path | None, typer.Option(help="Settings, YAML or properties.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="One setting, key=value; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory; the same command goes on there.")] = Path(
        "out/profile"
    ),
    plot: Annotated[Path | None, typer.Option(help="Plot throughput per round here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Find how many processors each operator needs to carry the most load within a limit."""
    from sojourn.cli.profile_view import LineView, LiveView, draw_required, draw_rounds
    from sojourn.profile import Profiling
    from sojourn.profiler.capability import Limits
    from sojourn.profiler.readings import Reading
    from sojourn.simulate import layered

    methods = _methods(method, compare)
    cores = os.cpu_count() or 1 if cores is None else cores
    counts = _machines(machines)
    on_spark = master is not None or checkpoint is not None
    _check(engine, service, machines if len(counts) > 1 else "", placement, on_spark)
    limit_s = parse_duration(max_latency, "--max-latency")
    how = Reading(seconds=parse_duration(reading, "--reading"))
    aim = None if target is None else parse_rate(target, "--target")
    _check_numbers(
        {
            "--max-latency": limit_s,
            "--small": small,
            "--reading": how.seconds,
            "--target": 1.0 if aim is None else aim,
        },
        {"--alpha": alpha, "--slice": slice_},
        {"--factor": factor, "--cores": cores},
    )
    if aim is not None and len(apps) > 1:
        raise InputError("--target is for one application; got several")
    if plot is not None:
        check_plot(plot)
    designs = [(app, *_shaped(app, kind or [])) for app in apps]  # mistakes are told first
    settings = layered(config, conf or [])
    make_directory(out)
    options: dict[str, Any] = {"method": method, "slice": slice_, "factor": factor, "alpha": alpha}
    options |= {"reading": reading, "kind": list(kind or [])}
    shown = LiveView() if sys.stderr.isatty() and not as_json else LineView()
    drawn: dict[str, Profiling] = {}
    grid: dict[int, dict[str, Profiling]] = {count: {} for count in counts}
    for app, topology, shape in designs:
        for count in counts:
            name = topology.name if len(counts) == 1 else f"{topology.name}-{count}"
            while name in drawn:  # two designs may have the same name
                name += "-b"
            where = _Where(service, count, cores, limit_s, master, checkpoint, seed, placement)
            with contextlib.closing(where.platform(topology, settings, out)) as platform:
                limits = Limits(limit_s, alpha, factor, slice_, count * cores)
                memo: dict[str, Measured] | None = None if service is None else {}
                profiling = Profiling(shape, platform, limits, how, small, memo)
                of = _fingerprint(app, topology, where, (reading, settings))
                shown.begin(name)
                _run(profiling, methods, topology, out / name, of, options, shown, as_json)
            drawn[name] = grid[count][name] = profiling
    if as_json:
        typer.echo(json.dumps(_as_json(drawn, grid, aim), indent=2))
    else:
        _tell(grid, aim)
    if plot is not None:
        if len(counts) > 1 and len(apps) == 1:
            draw_required(_only(grid), plot)
        else:
            draw_rounds(drawn, plot)


def _shaped(app: str, kinds: Sequence[str]) -> "tuple[Topology, Shape]":
    from sojourn.profiler.stepwise import Shape

    topology = load_topology(app)
    topology.check()
    shape = Shape.of(contracted(topology), _kinds(kinds))
    if not shape.operators:
        raise InputError(f"topology {topology.name!r}: has no operators, so none needs processors")
    return topology, shape


Grid = Mapping[int, Mapping[str, "Profiling"]]
"""By number of machines, and by name."""


def _only(grid: Grid) -> "dict[int, Profiling]":
    """Of the only application."""
    return {count: next(iter(of.values())) for count, of in grid.items()}


def _tell(grid: Grid, target: float | None) -> None:
    """Compare platforms, or applications on the same, if there are several."""
    from rich.console import Console

    from sojourn.cli.profile_view import required

    several = len(next(iter(grid.values()))) > 1
    if not several and (len(grid) > 1 or target is not None):
        table, words = required(_only(grid), target)
        Console().print(table)
        if words:
            typer.echo(words)
    for count, found in grid.items() if several else ():
        shares = _shares(found)
        most = max(shares, key=shares.__getitem__)
        where = f"on {count} machine{'s' if count > 1 else ''}, " if len(grid) > 1 else ""
        words = "; ".join(f"{n} reaches {s:.1%} of {most}" for n, s in shares.items() if n != most)
        typer.echo(f"{where}{words}.")


def _shares(found: "Mapping[str, Profiling]") -> dict[str, float]:
    """What each carries, of the most that any does."""
    rates = {n: next(iter(of.best.values())).measured.throughput for n, of in found.items()}
    most = max(rates.values())
    return {name: rate / most for name, rate in rates.items()}


def _as_json(drawn: "Mapping[str, Profiling]", grid: Grid, target: float | None) -> dict[str, Any]:
    """All that was found, and what the words say of it."""
    from sojourn.cli.profile_view import enough

    found: dict[str, Any] = {
        name: {
            "best": asdict(next(iter(of.best.values()))),
            "rounds": {method: [asdict(r) for r in rounds] for method, rounds in of.rounds.items()},
        }
        for name, of in drawn.items()
    }
    told: dict[str, Any] = {"profiles": found}
    if len(next(iter(grid.values()))) > 1:
        told["shares"] = {str(count): _shares(of) for count, of in grid.items()}
    if target is not None:
        needed = enough(_only(grid), target)
        names = ("machines", "processors")
        told["target"] = {"rate": target} | dict(zip(names, needed or (None, None), strict=True))
    return told


def _check_numbers(
    positive: Mapping[str, float], shares: Mapping[str, float], ones: Mapping[str, float]
) -> None:
    """Refuse numbers that make no sense."""
    for option, value in positive.items():
        if not 0 < value < math.inf:
            raise InputError(f"{option}: must be above 0; got {value:g}")
    for option, value in shares.items():
        if not 0 < value <= 1:
            raise InputError(f"{option}: must be above 0 and at most 1; got {value:g}")
    for option, value in ones.items():
        if not 1 <= value < math.inf:
            raise InputError(f"{option}: must be at least 1; got {value:g}")


def _check(engine: str, service: Path | None, several: str, placement: str, on_spark: bool) -> None:
    """Refuse what does not go together."""
    from sojourn.placement.tasks import PLACEMENTS

    if engine not in ("spark", "simulator"):
        raise InputError(f"--engine must be spark or simulator; got {engine!r}")
    if (engine == "simulator") != (service is not None):
        raise InputError("--service FILE is needed with --engine simulator, and only there")
    if placement not in PLACEMENTS:
        raise InputError(f"--placement must be {' or '.join(PLACEMENTS)}; got {placement!r}")
    if engine == "simulator" and on_spark:
        raise InputError("--master and --checkpoint are for --engine spark; leave them out")
    if engine == "spark" and (several or placement != "round-robin"):
        raise InputError(
            "several numbers of machines and --placement are for --engine simulator; on Spark "
            f"there are those of the master; got {several or placement}"
        )


def _run(
    profiling: "Profiling",
    methods: Sequence[str],
    topology: "Topology",
    out: Path,
    of: str,
    options: Mapping[str, Any],
    shown: "LineView | LiveView",
    quiet: bool,
) -> None:
    """Run all methods of one application on one platform, and keep what they find. Rounds `of` the
    same are gone on with."""
    from sojourn.cli.profile_view import recommended
    from sojourn.cli.profilefile import kept, read_rounds, written
    from sojourn.profiler.rounds import Round

    known = {name: list(read_rounds(out / f"{name}.jsonl", of)) for name in methods}
    so_far: dict[str, list[Round]] = {name: [] for name in methods}

    def told(name: str, event: "Proposal | Progress | Round") -> None:
        if isinstance(event, Round):
            so_far[name].append(event)
            if so_far[name] != known[name][: len(so_far[name])]:
                kept(out / f"{name}.jsonl", of, so_far[name])
        shown(name, event, profiling)

    with shown:
        profiling.run(methods, known.__getitem__, told)
    path = out / "profile.yaml"
    written(path, topology, profiling, options)
    if not quiet:
        typer.echo(recommended(topology.name, profiling, path))


@dataclass(frozen=True)
class _Where:
    """A platform, as it was asked for."""

    service: Path | None
    machines: int
    cores: int
    latency_s: float
    master: str | None
    checkpoint: Path | None
    seed: int
    placement: str

    def platform(self, topology: "Topology", settings: "Settings", out: Path) -> "Platform":
        """Spark, or machines in virtual time. On a cluster, trials write below `out`."""
        of_engine, _, of_simulator = settings
        if self.service is None:
            from sojourn.profile import SparkPlatform

            typer.echo(f"taking a sample of what comes to {topology.name} …", err=True)
            platform = SparkPlatform(
                topology,
                self.machines,
                self.cores,
                self.latency_s,
                self.master,
                settings=of_engine,
                checkpoint=self.checkpoint,
                folder=None if self.master is None else out,
            )
            platform.started()  # Java has its say before the view begins
            return platform
        from sojourn.cli.servicefile import read_service_file
        from sojourn.placement.tasks import PLACEMENTS
        from sojourn.simulator.trials import SimulatedPlatform

        workload = read_service_file(self.service)
        workload.check_operators(contracted(topology))
        return SimulatedPlatform(
            topology,
            workload,
            of_simulator,
            self.machines,
            self.cores,
            seed=self.seed,
            place=PLACEMENTS[self.placement],
        )


def _fingerprint(app: str, topology: "Topology", where: _Where, more: object) -> str:
    """Of all that rounds depend on, but what each proposes."""
    from sojourn.cli.profilefile import edges_of

    code = Path(app.partition(":")[0])
    files = [path for path in (code, where.service) if path is not None]
    told = (where, more, sorted(edges_of(topology)))
    digest = hashlib.sha256(repr(told).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _methods(method: str, compare: str | None) -> list[str]:
    from sojourn.profile import BASELINES, METHODS

    if method not in METHODS:
        raise InputError(f"--method must be {' or '.join(METHODS)}; got {method!r}")
    found = [method]
    for name in () if compare is None else (one.strip() for one in compare.split(",")):
        if name not in (*METHODS, *BASELINES):
            known = ", ".join((*METHODS, *BASELINES))
            raise InputError(f"--compare must name some of {known}; got {name!r}")
        if name not in found:
            found.append(name)
    return found


def _machines(given: str) -> list[int]:
    """Such as 6, 2,4,8 or 2..14."""
    low, dots, high = given.partition("..")
    try:
        ends = [int(low), int(high)] if dots else [*map(int, given.split(","))]
    except ValueError:
        ends = []
    good = bool(ends) and all(1 <= count <= _MOST_MACHINES for count in ends)
    if not good or (dots and ends[0] > ends[1]):
        raise InputError(
            f"--machines must be whole numbers from 1 to {_MOST_MACHINES}, such as 6, 2..14 or "
            f"2,4,8; got {given!r}"
        )
    return list(range(ends[0], ends[1] + 1)) if dots else sorted(set(ends))


def _kinds(given: Sequence[str]) -> dict[str, Any]:
    found = {}
    for one in given:
        name, equals, kind = one.partition("=")
        if not equals or kind not in _KINDS:
            raise InputError(f"--kind must be OPERATOR=KIND, of {', '.join(_KINDS)}; got {one!r}")
        found[name] = kind
    return found
