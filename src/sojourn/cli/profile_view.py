"""What `sojourn profile` shows: every trial as it goes on, a recommendation in words, how many
machines a throughput takes, and plots. Fed with the events of profiling, and knows nothing else."""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sojourn.errors import InputError
from sojourn.ports import Parallelism
from sojourn.profiler.rounds import Round
from sojourn.profiler.trial import Progress, Proposal
from sojourn.units import format_duration, format_rate, format_wait

if TYPE_CHECKING:
    from sojourn.profile import Profiling

Event = Proposal | Progress | Round
_SHOWN = 12  # rounds


def tasks(parallelism: Parallelism) -> str:
    """How many tasks there are of what."""
    counts = {**parallelism.parts, **parallelism.processors}
    words = ", ".join(f"{name} {count}" for name, count in counts.items())
    most = parallelism.in_flight
    return words if most is None else f"{words}, at most {most} under way"


def spread(readings: Sequence[float]) -> str:
    """Mean and deviation of some readings."""
    deviation = statistics.stdev(readings) if len(readings) > 1 else 0.0
    return f"{format_rate(statistics.fmean(readings))} ± {format_rate(deviation, 2)}/s"


class LineView:
    """A line when a trial begins and one when it ends."""

    def begin(self, name: str) -> None:
        """Profile this now."""
        typer.echo(f"profiling {name} …", err=True)

    def __call__(self, method: str, event: Event, _profiling: "Profiling") -> None:
        if isinstance(event, Proposal):
            typer.echo(f"{method}: {tasks(event.parallelism)}: {event.why} …", err=True)
        elif isinstance(event, Round):
            typer.echo(
                f"{method}: {event.number}: {spread(event.measured.readings)}, "
                f"{format_duration(event.measured.latency_s)}{_waiting(event)}: {_judged(event)}",
                err=True,
            )

    def __enter__(self) -> "LineView":
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to clean up."""


class LiveView:
    """A table of rounds that changes in place, with the trial that runs and the time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.live = Live(
            Text("starting …"), console=console or Console(stderr=True), auto_refresh=False
        )
        self.name = self.method = ""
        self.rounds: list[Round] = []
        self.proposal: Proposal | None = None
        self.progress: Progress | None = None
        self.began_s = time.monotonic()
        self.took_s: list[float] = []  # by each trial of this run

    def begin(self, name: str) -> None:
        """Profile this now."""
        self.name, self.method, self.took_s = name, "", []

    def __call__(self, method: str, event: Event, profiling: "Profiling") -> None:
        if method != self.method:
            self.method, self.rounds = method, []
        match event:
            case Proposal():
                self.proposal, self.progress, self.began_s = event, None, time.monotonic()
            case Progress():
                self.progress = event
            case Round():
                if self.proposal is not None:
                    self.took_s.append(time.monotonic() - self.began_s)
                self.rounds.append(event)
                self.proposal = self.progress = None
        self.live.update(self.render(profiling.most_rounds(method)), refresh=True)

    def render(self, most: int) -> Group:
        """The whole screen, of a method that takes about so many rounds at most."""
        title = f"profiling {self.name}: {self.method}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        for name in ("round", "step", "tasks", "throughput", "latency", "", "why"):
            right = name in ("round", "throughput", "latency")
            table.add_column(name, justify="right" if right else "left")
        for of in self.rounds[-_SHOWN:]:
            kept = of.verdict.kept
            table.add_row(
                str(of.number),
                of.proposal.step,
                Text(tasks(of.proposal.parallelism)),
                spread(of.measured.readings),
                format_duration(of.measured.latency_s) + _waiting(of),
                Text("kept" if kept else "revoked", style="green" if kept else "yellow"),
                Text(of.verdict.why),
            )
        lines = [Text(self._now())] if self.proposal is not None else []
        return Group(table, *lines, Text(self._left(most), style="dim"))

    def _now(self) -> str:
        assert self.proposal is not None
        told = f"now: {tasks(self.proposal.parallelism)} ({self.proposal.why})"
        if self.progress is None:
            return f"{told}: starts"
        of = self.progress
        what = f"reading {of.done} of {of.of}" if of.steady else "not steady yet"
        return f"{told}: {what}, {format_rate(of.throughput)}/s"

    def _left(self, most: int) -> str:
        trial_s = 0.0 if self.progress is None else self.progress.left_s
        left = max(0, most - len(self.rounds) - 1)
        if not self.took_s:
            return f"at least {format_wait(trial_s)} left of this trial"
        each_s = statistics.fmean(self.took_s)
        all_s = trial_s + left * each_s
        return (
            f"about {format_wait(trial_s)} left of this trial; a trial takes "
            f"{format_wait(each_s)}, so with {most} rounds about {format_wait(all_s)} "
            "left of this method"
        )

    def __enter__(self) -> "LiveView":
        self.live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()


def _waiting(of: Round) -> str:
    """What was in the queue before the sources at the end, if that says something."""
    return f", {of.measured.waiting:.0f} waiting" if of.measured.waiting >= 1 else ""


def _judged(of: Round) -> str:
    doubt = "" if of.measured.sound else "; readings scatter"
    return f"{'kept' if of.verdict.kept else 'revoked'}, {of.verdict.why}{doubt}"


def recommended(name: str, profiling: "Profiling", path: Path) -> str:
    """The recommendation in words."""
    main, limit_s = next(iter(profiling.best)), profiling.limits.latency_s
    best = profiling.best[main]
    carried = best.measured.throughput
    lines = [
        f"{name}: {tasks(best.parallelism)} carries {format_rate(carried)} tuples a second, which "
        f"take {format_duration(best.measured.latency_s)} on average."
    ]
    if not best.is_met(profiling.limits):
        lines.append(
            f"No parallelism that was tried keeps {format_duration(limit_s)}; this is the one that "
            "carries most. Give a longer limit, or more or faster machines."
        )
    for other, of in profiling.best.items():
        if other != main:
            gain = carried / of.measured.throughput - 1
            rounds = len(profiling.tried(other))
            lines.append(f"That is {gain:+.1%} over {other}, which took {rounds} rounds.")
    lines.append(f"The profile is in {path}.")
    return "\n".join(lines)


def required(found: Mapping[int, "Profiling"], target: float | None) -> tuple[Table, str]:
    """How much each number of machines carries within the limit, and how many a target takes."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("machines", "processors", "throughput", "latency", "of which"):
        table.add_column(column, justify="left" if column == "of which" else "right")
    for machines, profiling in sorted(found.items()):
        best = next(iter(profiling.best.values()))
        count = sum(best.parallelism.processors.values())
        met = best.is_met(profiling.limits)
        table.add_row(
            str(machines),
            str(count),
            f"{format_rate(best.measured.throughput)}/s",
            format_duration(best.measured.latency_s) + ("" if met else " (too long)"),
            Text(tasks(best.parallelism)),
        )
    if target is None:
        return table, ""
    needed = enough(found, target)
    if needed is None:
        return (
            table,
            f"None of these carries {format_rate(target)} tuples a second within the limit.",
        )
    return table, (
        f"{format_rate(target)} tuples a second take {needed[0]} "
        f"machine{'s' if needed[0] > 1 else ''} and {needed[1]} processors."
    )


def enough(found: Mapping[int, "Profiling"], target: float) -> tuple[int, int] | None:
    """The fewest machines that carry so much within the limit, and their processors."""
    for machines, profiling in sorted(found.items()):
        best = next(iter(profiling.best.values()))
        if best.is_met(profiling.limits) and best.measured.throughput >= target:
            return machines, sum(best.parallelism.processors.values())
    return None


def draw_rounds(found: Mapping[str, "Profiling"], path: Path) -> None:
    """Throughput per round, for each application and method: boxes of the readings."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(8, 4.5 * len(found)), 5), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for axis, (name, profiling) in zip(axes, found.items(), strict=True):
        boxes(axis, profiling)
        axis.set_title(name)
    _saved(figure, path)


def boxes(axis: Any, profiling: "Profiling", legend: bool = True) -> None:
    """Boxes of the readings of every round that tries a parallelism."""
    methods = list(profiling.rounds)
    wide = 0.8 / len(methods)
    for number, name in enumerate(methods):
        color = f"C{number}"
        rounds = profiling.tried(name)
        at = [i + 1 + (number - (len(methods) - 1) / 2) * wide for i in range(len(rounds))]
        axis.boxplot(
            [of.measured.readings for of in rounds],
            positions=at,
            widths=wide * 0.8,
            manage_ticks=False,
            flierprops={"markersize": 3},
            boxprops={"color": color},
            medianprops={"color": color},
            whiskerprops={"color": color},
            capprops={"color": color},
        )
        means = [of.measured.throughput for of in rounds]
        axis.plot(at, means, "-", color=color, alpha=0.4, label=name)
    most = max(len(profiling.tried(name)) for name in methods)
    ticks = range(1, most + 1, 1 + most // 12)  # so that numbers stand apart
    axis.set(xlabel="round", ylabel="tuples a second", xticks=ticks, ylim=(0, None))
    axis.grid(alpha=0.3)
    if legend:
        axis.legend(loc="lower right", fontsize="small")


def draw_required(found: Mapping[int, "Profiling"], path: Path) -> None:
    """What so many machines carry, for each method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axis = figure.subplots()
    for name in next(iter(found.values())).best:
        points = [(of.best[name].measured.throughput, m) for m, of in sorted(found.items())]
        axis.step(*zip(*points, strict=True), "o-", where="pre", label=name)
    axis.set(xlabel="tuples a second", ylabel="machines", ylim=(0, None), xlim=(0, None))
    axis.grid(alpha=0.3)
    axis.legend()
    _saved(figure, path)


def _saved(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise InputError(f"--plot {path}: cannot be drawn: {error}") from None
