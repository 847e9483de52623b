"""`sojourn replay`: decides a journal anew, offline, and says where it would differ."""

import io
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sojourn.cli.run_view import LiveView
from sojourn.configuration import from_options
from sojourn.control.journal import read_journal
from sojourn.control.journal import replay as decide_again
from sojourn.errors import InputError
from sojourn.settings import PREFIX, ControlSettings, knobs_of


def replay(
    journal: Annotated[Path, typer.Argument(help="Journal that sojourn run --journal wrote.")],
    max_sojourn: Annotated[str | None, typer.Option(help="Use this target instead.")] = None,
    min_sojourn: Annotated[str | None, typer.Option(help="Use this T_min instead.")] = None,
    max_processors: Annotated[str | None, typer.Option(help="Use this K_max instead.")] = None,
    percentile: Annotated[str | None, typer.Option(help="Use this percentile instead.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="Use this setting instead, key=value.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Write the run's last screen to this SVG file.")
    ] = None,
) -> None:
    """Decide every interval of a journal again. Prints the decisions that differ; the options
    replace settings of the run."""
    _, values = from_options(conf or [])
    for key, value in (
        ("maxSojourn", max_sojourn),
        ("minSojourn", min_sojourn),
        ("maxProcessors", max_processors),
        ("percentile", percentile),
    ):
        if value is not None:
            values = {**values, PREFIX + key: value}
    by_key = {knob.name: (name, knob) for name, knob in knobs_of(ControlSettings).items()}
    changes: dict[str, Any] = {}
    for key, text in values.items():
        if key not in by_key:
            raise InputError(f"{key}: is not a control setting; docs/settings.md lists them")
        name, knob = by_key[key]
        changes[name] = knob.parse(text, "argument")
    shape, records = read_journal(journal)
    ticks = differing = warm_up = 0
    first_s: float | None = None
    screen = LiveView(Console(file=io.StringIO(), record=True, width=100))
    for replayed in decide_again(shape, records, changes):
        record = replayed.record
        first_s = record.time_s if first_s is None else first_s
        ticks += 1
        if picture is not None:
            screen(record)
        warm_up += replayed.warm_up
        if replayed.differs:
            differing += 1
            typer.echo(f"{record.time_s - first_s:7.1f} s")
            typer.echo(f"    then  {record.decision.action}: {record.decision.reason}")
            typer.echo(f"    now   {replayed.decision.action}: {replayed.decision.reason}")
    if picture is not None:
        try:
            screen.save(picture)
        except OSError as error:
            raise InputError(f"{picture}: cannot be written: {error.strerror}") from None
    typer.echo(f"{shape.name}: {ticks} intervals, {differing or 'none'} decided differently")
    if warm_up:
        typer.echo(
            f"  the first {warm_up} are not compared: the journal lacks what came before them"
        )
