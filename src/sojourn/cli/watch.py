"""`sojourn watch`: advises how many Spark executors a streaming query needs, from outside: of one
that runs, by its driver's REST API; of one that is over, by its event log."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.progress import busy
from sojourn.errors import InputError
from sojourn.units import parse_duration

if TYPE_CHECKING:
    from sojourn.attached.advice import Advised
    from sojourn.attached.decide import Wish


def watch(
    app: Annotated[
        str | None, typer.Option(help="UI of the driver, such as http://localhost:4040.")
    ] = None,
    event_log: Annotated[
        Path | None, typer.Option(help="Event log of a query that is over: a file or directory.")
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Name or id of the query, where there are several.")
    ] = None,
    max_latency: Annotated[
        str | None, typer.Option(help="Rows may take so long, such as 10s.")
    ] = None,
    policy: Annotated[str, typer.Option(help="model, mended or printed.")] = "model",
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the policy, such as predict=true.")
    ] = None,
    period: Annotated[str, typer.Option(help="Time between two pieces of advice.")] = "30s",
    periods: Annotated[
        int | None, typer.Option(min=1, help="End after so many; with --app.")
    ] = None,
    min_executors: Annotated[int, typer.Option(help="The fewest to advise.")] = 1,
    max_executors: Annotated[int | None, typer.Option(help="The most to advise.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Advise how many Spark executors a query needs, and say why. Nothing is changed."""
    from sojourn.attached.decide import options_of, wished

    if (app is None) == (event_log is None):
        raise InputError("watch needs either --app or --event-log; give one of them")
    if event_log is not None and periods is not None:
        raise InputError(f"--periods goes with --app; got {periods} with --event-log; leave it out")
    limit_s = None if max_latency is None else parse_duration(max_latency, "--max-latency")
    period_s = parse_duration(period, "--period")
    options = options_of(option or [])
    wish = wished(policy, limit_s, min_executors, max_executors, period_s, options)
    if event_log is not None:
        _told_afterwards(event_log, wish, query, as_json)
        return
    assert app is not None
    from sojourn.attached import outside
    from sojourn.attached.status import Rest

    rest = Rest(app)
    _note(f"watching {rest.application} …")
    for number, one in enumerate(outside.advised(rest, wish, query, _note), 1):
        _tell(one, as_json)
        if number == periods:
            return


def _told_afterwards(path: Path, wish: "Wish", query: str | None, as_json: bool) -> None:
    from sojourn.attached.eventlog import Afterwards

    log = Afterwards(path, wish, query, _note)
    advised = False
    with busy(f"reading {path}"):
        for one in log.periods():
            _tell(one, as_json)
            advised = True
    if not advised:
        period_s = wish.options.period_s
        raise InputError(
            f"{path}: has no query that ran for a period of {period_s:g} s; give a shorter --period"
        )
    saved = 1 - log.advised_s / log.used_s if log.used_s else 0.0
    if as_json:
        told = {"used_s": log.used_s, "advised_s": log.advised_s, "saved": saved}
        typer.echo(json.dumps(told))
        return
    more = f"{saved:.0%} fewer" if saved >= 0 else f"{-saved:.0%} more"
    typer.echo(
        f"{log.used_s:.0f} executor-seconds were used; advised were {log.advised_s:.0f}, "
        f"which is {more}"
    )


def _note(words: str) -> None:
    typer.echo(words, err=True)


def _tell(one: "Advised", as_json: bool) -> None:
    if as_json:
        told = {
            "time_s": one.time_s,
            "executors": one.executors,
            "advised": one.advised,
            "why": one.why,
        }
        typer.echo(json.dumps(told))
        return
    at = time.strftime("%H:%M:%S", time.localtime(one.time_s))
    change = "keep" if one.advised == one.executors else f"better {one.advised}"
    typer.echo(f"{at}  {one.executors} executors, {change}: {one.why}")
