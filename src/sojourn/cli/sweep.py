"""A grid of simulations over settings. It runs on all cores and keeps results in a file, from which
it can resume. It shows a table, and a plot of cost against sojourn with its knee."""

import hashlib
import importlib.util
import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from sojourn import __version__
from sojourn.errors import InputError
from sojourn.settings import PREFIX
from sojourn.simulate import Progress, Simulation, in_parallel
from sojourn.units import format_duration

Point = tuple[Any, ...]
_MOST_POINTS = 10_000
_KNEE = 0.1  # a knee lies at least this far below the line


@dataclass(frozen=True)
class Axis:
    """One thing that varies."""

    name: str
    values: tuple[Any, ...]


def parse_axis(text: str) -> Axis:
    """`processors=10..40`, `processors=10..40:5`, `rate=1x..3x:0.5x`, `change.quiet=10s,30s`."""
    name, equals, values = text.partition("=")
    name = name.strip().removeprefix(PREFIX)
    if not equals or not name or not values:
        raise InputError(f"--sweep {text!r}: must be name=values, such as processors=10..40")
    if name not in ("processors", "rate"):
        return Axis(name, tuple(value.strip() for value in values.split(",")))
    read = _processors if name == "processors" else _factor
    match = re.fullmatch(r"([^.,:]+(?:\.\d+)?x?)\.\.([^:]+)(?::(.+))?", values.strip())
    if match is None:
        return Axis(name, tuple(read(text, value) for value in values.split(",")))
    low, high = read(text, match[1]), read(text, match[2])
    step = read(text, match[3]) if match[3] else (1 if name == "processors" else 0.5)
    if low > high:
        raise InputError(f"--sweep {text!r}: the first value is above the last")
    if (high - low) / step >= _MOST_POINTS:
        raise InputError(f"--sweep {text!r}: has too many values; at most {_MOST_POINTS}")
    count = math.floor((high - low) / step + 1e-9) + 1
    return Axis(name, tuple(low + i * step for i in range(count)))


def _processors(text: str, value: str) -> int:
    digits = value.strip()
    if not digits.isdecimal() or len(digits) > 9 or int(digits) < 1:
        raise InputError(f"--sweep {text[:60]!r}: {value[:20]!r} is not a whole number above zero")
    return int(digits)


def _factor(text: str, value: str) -> float:
    try:
        factor = float(value.strip().removesuffix("x"))
    except ValueError:
        factor = math.nan
    if not 1e-6 <= factor <= 1e6:
        raise InputError(f"--sweep {text!r}: {value!r} is not a factor such as 1x or 2.5x")
    return factor


@dataclass(frozen=True)
class Result:
    """What came out at one point."""

    point: Point
    mean_sojourn_s: float | None
    used: float
    most: int
    within_target: float | None
    changes: int


class Sweep:
    """All points of some axes. With a file, points found in it are not simulated again."""

    def __init__(
        self,
        axes: list[Axis],
        simulation: Simulation,
        at: Callable[[dict[str, Any]], Simulation],
        file: Path | None,
    ) -> None:
        names = [axis.name for axis in axes]
        if len(set(names)) < len(names):
            raise InputError(f"--sweep: {' and '.join(names)}: give each name once")
        self.axes, self.at, self.file = axes, at, file
        points = math.prod(len(axis.values) for axis in axes)
        if points > _MOST_POINTS:
            raise InputError(f"--sweep: {points} points; at most {_MOST_POINTS}")
        self.points = list(itertools.product(*(axis.values for axis in axes)))
        self.fingerprint = _fingerprint(simulation, names)
        self.results: dict[Point, Result] = {}

    def run(self, progress: Progress) -> None:
        """Simulate what is not known yet."""
        if self.file is not None:
            self._read(self.file)
        names = [axis.name for axis in self.axes]
        jobs = {
            point: self.at(dict(zip(names, point, strict=True)))
            for point in self.points
            if point not in self.results
        }
        for point, summary in in_parallel(jobs, progress) if jobs else ():
            intervals = summary.intervals or 1
            within = None if summary.within_target is None else summary.within_target / intervals
            self.results[point] = found = Result(
                point,
                summary.mean_sojourn_s,
                summary.mean_processors,
                summary.most_processors,
                within,
                len(summary.changes),
            )
            if self.file is not None:
                self._append(json.dumps(asdict(found)))

    def _append(self, line: str) -> None:
        assert self.file is not None
        try:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise InputError(f"{self.file}: cannot be written: {error.strerror}") from None

    def _read(self, path: Path) -> None:
        """Read results of the same sweep, or of a sweep over other values of the same axes."""
        head = {"sojourn_sweep": 1, "of": self.fingerprint}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            if not lines:
                path.write_text(json.dumps(head) + "\n", encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be used: {error}") from None
        try:
            found = json.loads(lines[0]) if lines else head
        except ValueError:
            raise InputError(f"{path}: is not the file of a sweep; name another") from None
        if found != head:
            raise InputError(
                f"{path}: holds results of another topology, workload or settings; name "
                "another file, or delete it"
            )
        for line in lines[1:]:
            try:
                kept = json.loads(line)
                result = Result(**{**kept, "point": tuple(kept["point"])})
            except (ValueError, TypeError, KeyError):
                continue  # cut short when it was written: simulated again
            self.results[result.point] = result
        if lines and not path.read_bytes().endswith(b"\n"):
            self._append("")

    def show(self, as_json: bool, plot: Path | None) -> None:
        """Show everything, for people or as JSON for other programs."""
        rows = [self.results[point] for point in self.points]
        knees = {group: knee(found) for group, found in self._groups().items()}
        if as_json:
            told = [
                dict(zip([a.name for a in self.axes], r.point, strict=True))
                | {k: v for k, v in asdict(r).items() if k != "point"}
                | {"knee": r in knees.values()}
                for r in rows
            ]
            typer.echo(json.dumps(told, indent=2))
        else:
            Console().print(self._table(rows, list(knees.values())))
        if plot is not None:
            self._draw(plot, knees)

    def _groups(self) -> dict[Point, list[Result]]:
        """Results grouped by everything that varies except processors, and ordered by those."""
        places = [i for i, axis in enumerate(self.axes) if axis.name != "processors"]
        found: dict[Point, list[Result]] = {}
        for point in self.points:
            found.setdefault(tuple(point[i] for i in places), []).append(self.results[point])
        return found

    def _table(self, rows: list[Result], knees: list[Result | None]) -> Table:
        table = Table(box=box.SIMPLE_HEAD)
        for axis in self.axes:
            table.add_column(axis.name, justify="right")
        for name in ("sojourn", "used", "most", "in target", "changes", ""):
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(
                *map(_shown, (a.name for a in self.axes), row.point),
                "none" if row.mean_sojourn_s is None else format_duration(row.mean_sojourn_s),
                f"{row.used:.1f}",
                str(row.most),
                "" if row.within_target is None else f"{row.within_target:.0%}",
                str(row.changes),
                "← knee" if row in knees else "",
            )
        return table

    def _draw(self, path: Path, knees: dict[Point, Result | None]) -> None:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt

        names = [axis.name for axis in self.axes if axis.name != "processors"]
        figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
        for group, found in self._groups().items():
            points = [(r.used, r.mean_sojourn_s) for r in found if r.mean_sojourn_s]
            label = ", ".join(f"{n} {_shown(n, v)}" for n, v in zip(names, group, strict=True))
            (line,) = axes.plot(*zip(*sorted(points), strict=True), ".-", label=label or None)
            best = knees[group]
            if best is not None and best.mean_sojourn_s is not None:
                axes.plot(
                    best.used, best.mean_sojourn_s, "o", ms=11, mfc="none",
                    mec=line.get_color(), mew=2,
                )  # fmt: skip
        axes.set(xlabel="processors, mean", ylabel="mean sojourn, s", yscale="log")
        axes.set_title("cost against sojourn; circles mark the knees")
        axes.grid(alpha=0.3)
        if names:
            axes.legend()
        try:
            figure.savefig(path, dpi=150)
        except (OSError, ValueError) as error:
            raise InputError(f"--plot {path}: cannot be drawn: {error}") from None
        finally:
            plt.close(figure)


def check_plot(path: Path) -> None:
    """Refuse, before hours of work, a plot that could not be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("--plot: needs matplotlib; pip install 'sojourn[plot]'")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: must end in .png, .svg or .pdf")
    if not path.resolve().parent.is_dir():
        raise InputError(f"--plot {path}: there is no such directory")


def knee(results: list[Result]) -> Result | None:
    """The point where more processors begin to gain little: the one furthest below the straight
    line from the first point to the last, with cost and the logarithm of sojourn scaled to [0, 1].
    None for fewer than three points, or if the curve is nearly straight."""
    known = [r for r in results if r.mean_sojourn_s]
    costs = [r.used for r in known]
    waits = [math.log(r.mean_sojourn_s or 1.0) for r in known]
    if len(known) < 3 or max(costs) == min(costs) or max(waits) == min(waits):
        return None

    def below(number: int) -> float:
        x = (costs[number] - min(costs)) / (max(costs) - min(costs))
        y = (waits[number] - min(waits)) / (max(waits) - min(waits))
        return 1 - x - y

    best = max(range(len(known)), key=below)
    return known[best] if below(best) > _KNEE else None


def _shown(name: str, value: Any) -> str:
    return f"{value:g}x" if name == "rate" else str(value)


def _fingerprint(simulation: Simulation, names: list[str]) -> str:
    """A fingerprint of everything that a result depends on, except what varies."""
    topology = simulation.topology
    engine, control, simulator = (asdict(settings) for settings in simulation.settings)
    if "processors" in names:
        control.pop("max_processors")
    told = {
        "axes": names,
        "topology": topology.name,
        "edges": sorted(map(str, topology.edges)),
        "operators": [
            (o.name, o.key is not None, o.executors, o.processors, o.shards)
            for o in topology.operators.values()
        ],
        "shed": [s.source.shed_after for s in topology.sources.values()],
        "version": __version__,
        "workload": repr(simulation.workload),
        "settings": (engine, control, simulator),
        "rest": (
            simulation.duration_s,
            simulation.seed,
            simulation.machines,
            simulation.advise,
            simulation.act_after_s,
        ),
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
