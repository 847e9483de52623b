"""`sojourn replay`: decides a journal anew, offline, and says where it would differ."""

import io
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sojourn.attached import journal as attached
from sojourn.attached.decide import Wish, changed, options_of
from sojourn.attached.journal import is_attached
from sojourn.cli.progress import busy
from sojourn.cli.run_view import LiveView
from sojourn.configuration import from_options
from sojourn.control.journal import read_journal
from sojourn.control.journal import replay as decide_again
from sojourn.errors import InputError
from sojourn.settings import PREFIX, ControlSettings, knobs_of
from sojourn.units import parse_duration


def replay(
    journal: Annotated[Path, typer.Argument(help="Journal of sojourn run, or of sojourn.attach.")],
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
    replace settings of the run. That of an attached query takes --max-sojourn for its latency, and
    --conf for policy, min_executors, max_executors and the options of `attach`."""
    if is_attached(journal):
        given = (min_sojourn, max_processors, percentile, picture)
        if any(value is not None for value in given):
            raise InputError(
                f"{journal}: is the journal of an attached query, for which only --max-sojourn and "
                "--conf are options"
            )
        _replay_attached(journal, max_sojourn, options_of(conf or []))
        return
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
    screen = LiveView(Console(file=io.StringIO(), record=True, width=110))
    with busy(f"deciding {shape.name} again"):
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


def _replay_attached(journal: Path, max_latency: str | None, values: dict[str, Any]) -> None:
    """Decide every period of an attached query again."""
    header, periods = attached.read(journal)
    if max_latency is not None:
        parse_duration(max_latency, "--max-sojourn")
        values = {**values, "max_latency": max_latency}
    wish = changed(header.wish, values)
    changes = {
        one.name: getattr(wish, one.name)
        for one in fields(Wish)
        if getattr(wish, one.name) != getattr(header.wish, one.name)
    }
    count = differing = 0
    first_s: float | None = None
    with busy(f"deciding {header.query} again"):
        for then, now in attached.replay(periods, header.wish, **changes):
            first_s = then.seen.time_s if first_s is None else first_s
            count += 1
            if then.decision.executors != now.executors:
                differing += 1
                typer.echo(f"{then.seen.time_s - first_s:7.1f} s")
                for when, decision in (("then", then.decision), ("now ", now)):
                    number = "as they are" if decision.executors is None else decision.executors
                    typer.echo(f"    {when}  executors {number}: {decision.why}")
    typer.echo(f"{header.query}: {count} periods, {differing or 'none'} decided differently")
