"""What `sojourn run` shows: a live table on a terminal, plain lines elsewhere, and a summary.
Fed with tick records, and knows nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import IO

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sojourn.control.controller import Record
from sojourn.control.summary import Summary
from sojourn.queueing.network import what_of
from sojourn.units import format_duration as told


def _sojourn_line(record: Record) -> str:
    """Measured against the target, in words."""
    settings, value = record.settings, record.metric
    what = what_of(settings.percentile)
    text = f"{what} {'unknown' if value is None else told(value)}"
    if settings.max_sojourn_s is not None:
        text += f" of {told(settings.max_sojourn_s)}"
    if record.estimate_s is not None:
        text += f" (model: {told(record.estimate_s)})"
    return text


class LineView:
    """One line per tick."""

    def __init__(self, out: IO[str]) -> None:
        self.out = out
        self.first_s: float | None = None

    def __call__(self, record: Record) -> None:
        if self.first_s is None:
            self.first_s = record.time_s - record.settings.interval_s
        parts = [f"{record.time_s - self.first_s:6.1f} s"]
        if record.measure is not None and not record.pressures:
            parts.append(f"{record.measure.external_rate:7.1f}/s in")
            parts.append(_sojourn_line(record))
            parts.append(
                " ".join(
                    f"{name} {record.measure.operators[name].processors}" for name in record.wanted
                )
            )
        done = "" if record.applied or record.decision.allocation is None else " (advice)"
        parts.append(f"{record.decision.action}{done}: {record.decision.reason}")
        if record.stale is not None:
            parts.append(f"the profile holds no more: {record.stale}")
        typer.echo("  ".join(parts), file=self.out)

    def __enter__(self) -> "LineView":
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to clean up."""


class LiveView:
    """A table that changes in place."""

    def __init__(self, console: Console | None = None) -> None:
        self.screen: Group | Text = Text("waiting for the first interval …")
        self.live = Live(self.screen, console=console, auto_refresh=False)
        self.changes: list[str] = []
        self.last: Record | None = None
        self.first_s: float | None = None

    def __call__(self, record: Record) -> None:
        if self.first_s is None:
            self.first_s = record.time_s - record.settings.interval_s
        since = record.time_s - self.first_s
        if record.applied:
            self.changes.append(
                f"{since:.0f} s  {record.decision.action}: {record.decision.reason}"
            )
        if record.stale is not None:
            self.changes.append(f"{since:.0f} s  the profile holds no more: {record.stale}")
        if record.pressures and self.last is not None:  # it has measured no interval
            record = replace(self.last, decision=record.decision)
        else:
            self.last = record
        self.screen = self.render(record, since)
        self.live.update(self.screen, refresh=True)

    def save(self, path: Path) -> None:
        """The screen as it is now, as a picture."""
        console = self.live.console
        console.print(self.screen)
        console.save_svg(str(path), title="sojourn run")

    def render(self, record: Record, since_s: float) -> Group:
        """The whole screen."""
        table = Table(
            title=f"{_sojourn_line(record)}   after {since_s:.0f} s", title_justify="left"
        )
        for column in ("operator", "λ /s", "μ /s", "utilization", "processors", "queue"):
            table.add_column(column, justify="left" if column == "operator" else "right")
        if record.measure is not None:
            for name, operator in record.measure.operators.items():
                rate = f"{1 / operator.service_s:.1f}" if operator.service_s else "–"
                wanted = record.wanted.get(name)
                have = str(operator.processors)
                if wanted is not None and wanted != operator.processors:
                    have += f" → {wanted}"
                table.add_row(
                    Text(name),
                    f"{operator.arrival_rate:.1f}",
                    rate,
                    f"{operator.busy:.0%}",
                    have,
                    str(operator.queue),
                )
        decision = Text(f"{record.decision.action}: {record.decision.reason}")
        return Group(table, decision, *(Text(line, style="dim") for line in self.changes[-5:]))

    def __enter__(self) -> "LiveView":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()


def print_summary(summary: Summary) -> None:
    """The run in words."""
    typer.echo()
    typer.echo(
        f"{summary.topology}: {told(summary.seconds)} under control, {summary.intervals} intervals"
    )
    if summary.within_target is not None and summary.intervals:
        share = summary.within_target / summary.intervals
        typer.echo(
            f"  within the target in {summary.within_target} of {summary.intervals} ({share:.0%})"
        )
    if summary.mean_sojourn_s is not None:
        typer.echo(f"  mean sojourn {told(summary.mean_sojourn_s)}")
    typer.echo(
        f"  processors {summary.mean_processors:.1f} on average, {summary.most_processors} at most"
    )
    if summary.restarts:
        typer.echo(f"  restarts after failures: {summary.restarts}")
    typer.echo(f"  changes: {len(summary.changes) or 'none'}")
    for change in summary.changes:
        typer.echo(f"    {change.at_s:6.1f} s  {change.action}: {change.reason}")
