"""What `sojourn run` shows: a live table on a terminal, plain lines elsewhere, and a summary.
Fed with tick records, and knows nothing else."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sojourn.cli import sparkline
from sojourn.control.controller import Record
from sojourn.control.summary import Summary
from sojourn.queueing.network import what_of
from sojourn.units import format_duration as told

_MOST_COLUMNS = 240
_LABEL = 18
_METER = 10
_WIDE = 70
_CHANGES = 5
_HIGH, _FULL = 0.75, 0.9
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # of a synchronized update


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
    """A screen that changes in place: the sojourn against its target and the processors over time,
    a table of operators, the last decision, and the last changes."""

    def __init__(self, console: Console | None = None) -> None:
        self.screen: Group | Text = Text("waiting for the first interval …")
        self.live = Live(self.screen, console=console, auto_refresh=False)
        self.changes: deque[str] = deque(maxlen=_CHANGES)
        self.last: Record | None = None
        self.first_s: float | None = None
        self.sojourns: deque[float | None] = deque(maxlen=_MOST_COLUMNS)
        self.processors: deque[float | None] = deque(maxlen=_MOST_COLUMNS)

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
            self.sojourns.append(record.metric)
            self.processors.append(_processors(record))
        self.screen = self.render(record, since)
        self._refresh()

    def _refresh(self) -> None:
        """Show the screen. A terminal that understands it holds back what it draws until all of it
        is there; others ignore that."""
        console = self.live.console
        if console.is_terminal:
            console.file.write(_BEGIN)
        self.live.update(self.screen, refresh=True)
        if console.is_terminal:
            console.file.write(_END)
            console.file.flush()

    def save(self, path: Path) -> None:
        """The screen as it is now, as a picture."""
        console = self.live.console
        console.print(self.screen)
        console.save_svg(str(path), title="sojourn run")

    def render(self, record: Record, since_s: float) -> Group:
        """The whole screen."""
        title = Text(f"{_sojourn_line(record)}   after {since_s:.0f} s", style="italic")
        decision = Text(f"{record.decision.action}: {record.decision.reason}")
        changes = (Text(line, style="dim") for line in self.changes)
        return Group(title, *self._charts(record), self._table(record), decision, *changes)

    def _charts(self, record: Record) -> list[Text]:
        """The last intervals, a column each."""
        columns = max(1, min(_MOST_COLUMNS, self.live.console.width - _LABEL))
        sojourns = list(self.sojourns)[-columns:]
        processors = list(self.processors)[-columns:]
        target = record.settings.max_sojourn_s
        known = [value for value in sojourns if value is not None]
        lines: list[tuple[str, Text]] = []
        if target is not None:
            over, under = sparkline.against(sojourns, target)
            missed = [value is not None and value > target for value in sojourns]
            lines.append((told(2 * target), Text(over, style="red")))
            lines.append((f"target {told(target)}", _coloured(under, missed)))
        else:
            most = max(known, default=0.0)
            lines.append((told(most) if known else "sojourn", Text(sparkline.bars(sojourns, most))))
        now = next((value for value in reversed(processors) if value is not None), None)
        most = max((value for value in processors if value is not None), default=0.0)
        most *= 4 / 3  # so that they do not touch the row above
        count = "processors" if now is None else f"{now:.0f} processors"
        lines.append((count, Text(sparkline.bars(processors, most), style="cyan")))
        return [Text.assemble(f"{label:>{_LABEL - 2}} ┤", line) for label, line in lines]

    def _table(self, record: Record) -> Table:
        """What every operator does. Its columns keep their width while numbers change."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        wide = self.live.console.width >= _WIDE
        for column, width in (
            ("operator", 8),
            ("λ /s", 7),
            ("μ /s", 7),
            ("utilization", _METER + 5 if wide else 5),
            ("processors", 10),
            ("queue", 6),
        ):
            left = column in ("operator", "utilization") and (wide or column == "operator")
            table.add_column(column, justify="left" if left else "right", min_width=width)
        for name, operator in () if record.measure is None else record.measure.operators.items():
            rate = f"{1 / operator.service_s:.1f}" if operator.service_s else "–"
            wanted = record.wanted.get(name)
            have = str(operator.processors)
            if wanted is not None and wanted != operator.processors:
                have += f" → {wanted}"
            busy = f"{operator.busy:4.0%}"
            if wide:
                busy += f" {sparkline.meter(operator.busy, _METER)}"
            table.add_row(
                Text(name),
                f"{operator.arrival_rate:.1f}",
                rate,
                Text(busy, style=_colour(operator.busy)),
                have,
                str(operator.queue),
            )
        return table

    def __enter__(self) -> "LiveView":
        self.live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()


def _processors(record: Record) -> float | None:
    """How many all operators had in the interval."""
    if record.measure is None:
        return None
    return sum(record.measure.operators[name].processors for name in record.wanted)


def _colour(busy: float) -> str:
    """Of a utilization: at which the queue is long, at which it grows soon, or else."""
    if busy >= _FULL:
        return "red"
    return "yellow" if busy >= _HIGH else "green"


def _coloured(blocks: str, missed: Iterable[bool]) -> Text:
    """Green where the target was kept, and red where it was not."""
    text = Text()
    for block, bad in zip(blocks, missed, strict=True):
        text.append(block, style="red" if bad else "green")
    return text


def print_summary(summary: Summary, as_json: bool = False) -> None:
    """The run in words, or for other programs."""
    if as_json:
        typer.echo(summary.as_json())
        return
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
    if summary.ui is not None:
        typer.echo(f"  Spark's UI was at {summary.ui}")
    if summary.restarts:
        typer.echo(f"  restarts after failures: {summary.restarts}")
    typer.echo(f"  changes: {len(summary.changes) or 'none'}")
    for change in summary.changes:
        typer.echo(f"    {change.at_s:6.1f} s  {change.action}: {change.reason}")
