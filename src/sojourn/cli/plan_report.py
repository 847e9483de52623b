"""What `sojourn plan` shows: the plan as a table, what limits it in words, comparisons, the sweep
as a table and a plot, and all of it as JSON. Fed by the command; read by the user."""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from sojourn.errors import InputError
from sojourn.queueing import Network, Plan, Station, Step
from sojourn.units import format_duration

_SWEEP_ROWS = 40


class Model(StrEnum):
    """Which queueing formula stands for an operator."""

    MMK = "mmk"
    GIGK = "gigk"


@dataclass(frozen=True)
class Goal:
    """What is asked for: the least sojourn with K processors, or the fewest for a target."""

    max_processors: int | None
    max_sojourn: float | None
    percentile: float | None


def limit_in_words(network: Network, best: Plan, maximum: Mapping[str, int]) -> str:
    """What keeps E[T] from being lower, and what one more processor would change."""
    waits = {name: _wait_share(network, best, name) for name in network.stations}
    total_wait = math.fsum(waits.values())
    bound = network.lower_bound()
    if total_wait < 0.1 * best.mean_sojourn:
        slowest = max(network.stations, key=lambda n: network.stations[n].offered_load)
        share = network.stations[slowest].offered_load / network.external_rate / bound
        return (
            f"Service time limits this topology, not waiting: {slowest!r} alone is {share:.0%} of "
            f"it, and more processors save {format_duration(best.mean_sojourn - bound)} at most."
        )
    worst = max(waits, key=lambda n: waits[n])
    start = (
        f"{worst!r} limits this topology: its processors are {best.utilization[worst]:.0%} busy "
        f"and it causes {waits[worst] / total_wait:.0%} of all waiting; "
    )
    if best.allocation[worst] >= maximum.get(worst, math.inf):
        return f"{start}it already has its maximum of {maximum[worst]} processors."
    more = network.stations[worst].mean_wait(best.allocation[worst] + 1)
    saved = waits[worst] - network.visits(worst) * more
    return f"{start}one more there would save {format_duration(saved)}."


def _wait_share(network: Network, best: Plan, name: str) -> float:
    """Seconds of E[T] that are spent waiting at this operator."""
    return network.visits(name) * network.stations[name].mean_wait(best.allocation[name])


def given(name: str, station: Station) -> dict[str, Any]:
    """What is known of an operator before anything is planned, for JSON."""
    return {
        "name": name,
        "arrival_rate": station.arrival_rate,
        "service_rate": station.service_rate,
        "arrival_scv": station.arrival_scv,
        "service_scv": station.service_scv,
    }


def record(
    name: str, model: Model, network: Network, goal: Goal, best: Plan, maximum: Mapping[str, int]
) -> dict[str, Any]:
    """The whole plan for JSON."""
    return {
        "topology": name,
        "model": model.value,
        "max_processors": goal.max_processors,
        "max_sojourn_s": goal.max_sojourn,
        "external_rate": network.external_rate,
        "lower_bound_s": network.lower_bound(),
        **comparison(network, goal, best.allocation),
        "operators": [
            {
                **given(name, station),
                "processors": best.allocation[name],
                "utilization": best.utilization[name],
                "wait_s": station.mean_wait(best.allocation[name]),
                "sojourn_s": best.sojourn[name],
                "visits": network.visits(name),
                "share": _share(network, best, name),
            }
            for name, station in network.stations.items()
        ],
        "limit": limit_in_words(network, best, maximum),
    }


def comparison(network: Network, goal: Goal, allocation: Mapping[str, int]) -> dict[str, Any]:
    """What the model expects of one allocation, for JSON; null where it is unstable."""
    mean = network.mean_sojourn(allocation)
    shown: dict[str, Any] = {
        "allocation": dict(allocation),
        "processors": sum(allocation.values()),
        "mean_sojourn_s": mean if math.isfinite(mean) else None,
    }
    if goal.percentile:
        tail = network.percentile(allocation, goal.percentile)
        shown["percentile"] = goal.percentile
        shown["percentile_sojourn_s"] = tail if math.isfinite(tail) else None
    return shown


def _share(network: Network, best: Plan, name: str) -> float:
    return network.visits(name) * best.sojourn[name] / best.mean_sojourn


def print_plan(
    console: Console,
    title: str,
    network: Network,
    goal: Goal,
    best: Plan,
    maximum: Mapping[str, int],
) -> None:
    """The table of operators, the totals, and what limits them."""
    table = plan_table(
        "operator",
        "arrivals/s",
        "each serves/s",
        "processors",
        "busy",
        "wait",
        "sojourn",
        "of E[T]",
    )
    for name, station in network.stations.items():
        k = best.allocation[name]
        table.add_row(
            name,
            f"{station.arrival_rate:.4g}",
            f"{station.service_rate:.4g}",
            str(k),
            f"{best.utilization[name]:.0%}",
            format_duration(station.mean_wait(k)),
            format_duration(best.sojourn[name]),
            f"{_share(network, best, name):.0%}",
        )
    console.print(f"{title}: {network.external_rate:.4g} tuples/s from outside")
    console.print(table)
    tail = ""
    if goal.percentile:
        reached = network.percentile(best.allocation, goal.percentile)
        tail = f", p{goal.percentile:.10g} about {format_duration(reached)}"
    console.print(
        f"{best.processors} processors: mean sojourn {format_duration(best.mean_sojourn)}{tail} "
        f"(without any waiting {format_duration(network.lower_bound())})."
    )
    console.print(limit_in_words(network, best, maximum))


def print_comparison(
    console: Console,
    network: Network,
    goal: Goal,
    best: Plan,
    allocations: Iterable[Mapping[str, int]],
) -> None:
    """The user's own allocations beside the plan."""
    columns = [":".join(network.stations), "processors", "mean sojourn", "against plan"]
    if goal.percentile:
        columns.append(f"p{goal.percentile:.10g}")
    table = plan_table(*columns)
    for allocation, label in [(best.allocation, " plan"), *((a, "") for a in allocations)]:
        mean = network.mean_sojourn(allocation)
        difference = mean / best.mean_sojourn - 1
        row = [
            ":".join(str(allocation[name]) for name in network.stations) + label,
            str(sum(allocation.values())),
            format_duration(mean),
            f"{difference:+.1%}"
            if math.isfinite(difference)
            else _falling_behind(network, allocation),
        ]
        if goal.percentile:
            row.append(format_duration(network.percentile(allocation, goal.percentile)))
        table.add_row(*row)
    console.print(table)


def _falling_behind(network: Network, allocation: Mapping[str, int]) -> str:
    short = [n for n, s in network.stations.items() if not s.is_stable(allocation[n])]
    return f"{', '.join(short)} cannot keep up"


def print_sweep(console: Console, best: Plan, steps: list[Step]) -> None:
    """E[T] against the number of processors, thinned out if there are many."""
    table = plan_table("processors", "mean sojourn", "last one to")
    every = math.ceil(len(steps) / _SWEEP_ROWS)
    for index, step in enumerate(steps):
        same = math.isclose(step.mean_sojourn, best.mean_sojourn, rel_tol=1e-6)
        chosen = same and step.processors == best.processors
        if chosen or index % every == 0 or index == len(steps) - 1:
            mark = " ← plan" if chosen else ""
            table.add_row(
                str(step.processors),
                format_duration(step.mean_sojourn),
                f"{step.added or ''}{mark}",
            )
    console.print(table)
    if not any(math.isclose(s.mean_sojourn, best.mean_sojourn, rel_tol=1e-6) for s in steps):
        console.print("The sweep places processors for the mean, the plan for its percentile.")
    if every > 1:
        console.print(f"Every {every}th of {len(steps)} points is shown; --json has them all.")


def plan_table(*columns: str) -> Table:
    """A table of names in the first column and figures in the others."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def draw(
    path: Path, name: str, network: Network, goal: Goal, best: Plan, steps: list[Step]
) -> None:
    """E[T] against K, with the plan, the bound and the target."""
    if path.suffix not in (".png", ".svg"):
        raise InputError(f"--plot: the file must end in .png or .svg; got {path}")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise InputError("--plot: needs matplotlib; pip install 'sojourn[plot]'") from error
    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    unit, scale = ("ms", 1e3) if best.mean_sojourn < 1 else ("s", 1.0)
    # The first few points can be so near saturation that they would flatten all the others.
    shown = [s for s in steps if s.mean_sojourn <= 8 * best.mean_sojourn]
    axes.plot(
        [s.processors for s in shown],
        [s.mean_sojourn * scale for s in shown],
        marker="o" if len(shown) <= 60 else None,
        markersize=3,
        label="mean sojourn E[T]",
    )
    bound = network.lower_bound() * scale
    axes.axhline(bound, color="gray", linestyle=":", label="without any waiting")
    if goal.max_sojourn is not None and goal.percentile is None:
        axes.axhline(goal.max_sojourn * scale, color="tab:red", linestyle="--", label="target")
    axes.plot(
        [best.processors],
        [best.mean_sojourn * scale],
        marker="*",
        markersize=14,
        linestyle="none",
        color="tab:orange",
        label="plan "
        + ":".join(map(str, islice(best.allocation.values(), 8)))
        + (":…" if len(best.allocation) > 8 else ""),
    )
    axes.set_title(name, parse_math=False)
    axes.set(xlabel="processors", ylabel=f"E[T] in {unit}", ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    axes.grid(alpha=0.3)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # a box is shown instead
            figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"--plot: {path} cannot be written: {error.strerror}") from error
    finally:
        plt.close(figure)
