"""`sojourn watch`: advises how many Spark executors a streaming query needs, from outside: of one
that runs, by its driver's REST API; of one that is over, by its event log."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.errors import InputError
from sojourn.units import parse_duration

if TYPE_CHECKING:
    from sojourn.attached.decide import Wish
    from sojourn.attached.eventlog import Advised


def watch(
    app: Annotated[
        str | None, typer.Option(help="UI of the driver, such as http://localhost:4040.")
    ] = None,
    event_log: Annotated[
        Path | None, typer.Option(help="Event log of a query that is over: a file or directory.")
    ] = None,
    max_latency: Annotated[
        str | None, typer.Option(help="Rows may take so long, such as 10s.")
    ] = None,
    policy: Annotated[str, typer.Option(help="model, mended or printed.")] = "model",
    period: Annotated[str, typer.Option(help="Time between two pieces of advice.")] = "30s",
    periods: Annotated[int | None, typer.Option(help="End after so many.")] = None,
    min_executors: Annotated[int, typer.Option(help="The fewest to advise.")] = 1,
    max_executors: Annotated[int | None, typer.Option(help="The most to advise.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Advise how many Spark executors a query needs, and say why. Nothing is changed."""
    from sojourn.attached.decide import wished

    if (app is None) == (event_log is None):
        raise InputError("watch needs either --app or --event-log; give one of them")
    limit_s = None if max_latency is None else parse_duration(max_latency, "--max-latency")
    period_s = parse_duration(period, "--period")
    wish = wished(policy, limit_s, min_executors, max_executors, period_s)
    if event_log is not None:
        _told_afterwards(event_log, wish, as_json)
        return
    assert app is not None
    for number, one in enumerate(_live(app, wish), 1):
        _tell(one, as_json)
        if number == periods:
            return


def _live(address: str, wish: "Wish") -> "Iterator[Advised]":
    """Once a period, until the driver is gone."""
    from sojourn.attached import status as st
    from sojourn.attached.decide import Memory, decided
    from sojourn.attached.eventlog import Advised
    from sojourn.attached.observer import Observer
    from sojourn.attached.outside import batches

    rest = st.Rest(address)
    observer, memory = Observer(rest), Memory()
    observer.before = st.executors(rest)
    typer.echo(f"watching {rest.application} …", err=True)
    ticked_s = time.time()
    while True:
        time.sleep(max(0.0, ticked_s + wish.options.period_s - time.time()))
        for one in batches(rest, observer.batches[-1] if observer.batches else None):
            observer.add(one)
        executors = st.executors(rest)
        now_s = time.time()
        seen = observer.seen(now_s, ticked_s, executors, None)
        decision = decided(seen, memory, wish)
        memory, ticked_s = decision.memory, now_s
        yield Advised(now_s, len(executors), decision.executors or len(executors), decision.why)


def _told_afterwards(path: Path, wish: "Wish", as_json: bool) -> None:
    from sojourn.attached.eventlog import advised

    before: Advised | None = None
    used_s = would_s = 0.0
    for one in advised(path, wish):
        _tell(one, as_json)
        if before is not None:
            passed_s = one.time_s - before.time_s
            used_s += before.executors * passed_s
            would_s += before.advised * passed_s
        before = one
    if before is None:
        raise InputError(f"{path}: has no streaming query that ran for two periods")
    saved = 1 - would_s / used_s if used_s else 0.0
    if as_json:
        typer.echo(json.dumps({"used_s": used_s, "advised_s": would_s, "saved": saved}))
        return
    more = f"{saved:.0%} fewer" if saved >= 0 else f"{-saved:.0%} more"
    typer.echo(
        f"{used_s:.0f} executor-seconds were used; advised were {would_s:.0f}, which is {more}"
    )


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
