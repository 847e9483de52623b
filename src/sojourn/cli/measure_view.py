"""What `sojourn measure` shows: tables, and plots in the manner of Cervino's figures 2 and 3. Fed
with a report, and knows nothing else."""

import importlib.util
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from sojourn.probing.figures import Link, Machine, Report, RoundTrips, Stream
from sojourn.units import format_duration

_WIDE = 160


def show(report: Report) -> None:
    """Four tables, and what could not be measured."""
    console = Console(highlight=False, markup=False, emoji=False, width=_WIDE)
    for table in (
        _round_trips(report.links),
        _streams(report.links),
        _throughput(report.links),
        _machines(report.machines),
    ):
        console.print(table)
    for why in sorted({link.network for link in report.links if isinstance(link.network, str)}):
        typer.echo(f"no ICMP round trips: {why}")
    for sender, receiver, why in report.failed:
        typer.echo(f"{sender} → {receiver} could not be measured: {why}")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _round_trips(links: Sequence[Link]) -> Table:
    """Those of ICMP above those of the application."""
    table = _table("round trips", "of", "mean", "p50", "p95", "p99", "max", "lost")
    for link in links:
        table.add_row(_name(link), "ICMP", *_trips(link.network))
        table.add_row("", "application", *_trips(link.application))
    return table


def _name(link: Link) -> str:
    return f"{link.sender} → {link.receiver}"


def _trips(of: RoundTrips | str) -> list[str]:
    if isinstance(of, str):
        return ["–"] * 6
    times_s = (of.mean_s, of.p50_s, of.p95_s, of.p99_s, of.max_s)
    return [*map(format_duration, times_s), f"{of.lost:.1%}"]


def bits(rate_bps: float) -> str:
    """A rate as networks are told of."""
    for unit, size in (("Gbps", 1e9), ("Mbps", 1e6)):
        if rate_bps >= size:
            return f"{rate_bps / size:.3g} {unit}"
    return f"{rate_bps / 1e3:.3g} kbps"


def _streams(links: Sequence[Link]) -> Table:
    table = _table(*("jitter", "rate", "mean", "largest", "buffer needed", "late without", "lost"))
    for link in links:
        for stream in link.streams:
            table.add_row(
                _name(link), bits(stream.rate_bps), *_jitter(stream), f"{stream.lost:.1%}"
            )
    return table


def _jitter(stream: Stream) -> list[str]:
    of = stream.jitter
    if of is None:
        return ["–"] * 4
    told = [format_duration(s) for s in (of.mean_s, of.largest_s, of.buffer_s)]
    return [*told, f"{of.late:.1%}"]


def _throughput(links: Sequence[Link]) -> Table:
    table = _table("throughput", "")
    for link in links:
        table.add_row(_name(link), bits(link.throughput_bps))
    return table


def _machines(machines: Sequence[Machine]) -> Table:
    table = _table("capacity", "slots", "mean", "lowest", "highest")
    for machine in machines:
        rates = machine.capacity
        told = [f"{rate:.1f}/s" for rate in (statistics.fmean(rates), min(rates), max(rates))]
        table.add_row(machine.name, str(machine.slots), *told)
    return table


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(report: Report, out: Path) -> None:
    """Three plots."""
    from matplotlib.figure import Figure

    for name in ("jitter", "round_trips", "capacity"):
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.subplots()
        match name:
            case "jitter":
                draw_jitter(axes, report.links)
            case "round_trips":
                draw_round_trips(axes, report.links)
            case _:
                draw_capacity(axes, report.machines)
        figure.savefig(out / f"{name}.png", dpi=120)


def draw_jitter(axes: Any, links: Sequence[Link]) -> None:
    """As in figure 2: by sender and rate, a point for each of its links. It also has the largest
    jitter of each."""
    senders = list(dict.fromkeys(link.sender for link in links))
    rates = list(dict.fromkeys(stream.rate_bps for link in links for stream in link.streams))
    for number, rate_bps in enumerate(rates):
        found = [
            (senders.index(link.sender) + 0.25 * (number - (len(rates) - 1) / 2), stream.jitter)
            for link in links
            for stream in link.streams
            if stream.rate_bps == rate_bps and stream.jitter is not None
        ]
        at, color = [place for place, _ in found], f"C{number}"
        means = [of.mean_s * 1e3 for _, of in found]
        axes.plot(at, means, "o", color=color, label=f"{bits(rate_bps)}, mean")
        axes.plot(at, [of.largest_s * 1e3 for _, of in found], "_", color=color, markersize=16)
    axes.plot([], [], "_", color="grey", markersize=16, label="largest")
    axes.set_xticks(range(len(senders)), senders)
    wide = max(1, len(senders)) - 0.5
    axes.set(xlabel="sender", ylabel="jitter, ms", yscale="log", xlim=(-0.5, wide))
    axes.grid(alpha=0.3)
    axes.legend()


def draw_round_trips(axes: Any, links: Sequence[Link]) -> None:
    """As in figure 3: mean round trips of the application against those of the network, a point for
    each link."""
    points: dict[str, list[tuple[float, float]]] = {}
    for link in links:
        if isinstance(link.network, RoundTrips):
            point = link.network.mean_s * 1e3, link.application.mean_s * 1e3
            points.setdefault(link.sender, []).append(point)
    most = max((max(point) for of in points.values() for point in of), default=1.0)
    for sender, of in points.items():
        axes.plot(*zip(*of, strict=True), "o", label=sender)
    axes.plot([0, most], [0, most], ":", color="grey", label="the same")
    if not points:
        axes.text(0.5, 0.5, "no ICMP round trips", ha="center", transform=axes.transAxes)
    axes.set(xlabel="ICMP round trip, ms", ylabel="application round trip, ms")
    axes.grid(alpha=0.3)
    axes.legend()


def draw_capacity(axes: Any, machines: Sequence[Machine]) -> None:
    """How many pieces of work each machine did, over time."""
    for machine in machines:
        axes.plot(machine.times_s, machine.capacity, "o-", label=machine.name)
    most = max(rate for machine in machines for rate in machine.capacity)
    axes.set(xlabel="seconds", ylabel="pieces of work a second", ylim=(0, 1.1 * most))
    axes.grid(alpha=0.3)
    axes.legend()
