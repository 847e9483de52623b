"""`sojourn measure`: what the machines of a cluster and the links between them can do."""

import contextlib
import json
import signal
import socket
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.experiment import make_directory
from sojourn.errors import InputError

if TYPE_CHECKING:
    from sojourn.probing.figures import Report
    from sojourn.probing.probes import Plan


def measure(
    master: Annotated[
        str | None, typer.Option(help="Between the executors of this Spark master, spark://….")
    ] = None,
    machines: Annotated[
        int | None,
        typer.Option(help="Wait for so many executors; default: until no more come.", min=2),
    ] = None,
    serve: Annotated[
        str | None, typer.Option(help="Answer --to of another machine here, ADDRESS:PORT.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="From here to where --serve listens, ADDRESS:PORT.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="What --serve has printed, for --to.")] = None,
    seconds: Annotated[float, typer.Option(help="How long each measurement takes.")] = 10.0,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the figures as JSON, and for plots.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure round trips, jitter and throughput between machines, and how fast they work."""
    from sojourn.probing.probes import Plan

    _check(master, machines, serve, to, token, seconds)
    if serve is not None:
        _serve(serve)
        return
    if out is not None:
        make_directory(out)
    plan = Plan(seconds)
    if master is not None:
        report = _between_machines(master, machines, plan)
    else:
        assert to is not None
        assert token is not None
        report = _from_here(to, token, plan)
    _show(report, out, as_json)


def _check(
    master: str | None,
    machines: int | None,
    serve: str | None,
    to: str | None,
    token: str | None,
    seconds: float,
) -> None:
    if sum(one is not None for one in (master, serve, to)) != 1:
        raise InputError("measure needs one of --master, --serve and --to; give one of them")
    if machines is not None and master is None:
        raise InputError("--machines is for --master; leave it out")
    if (token is None) != (to is None):
        raise InputError("--to needs the --token that --serve has printed; give both or neither")
    if not 0 < seconds <= 3600:
        raise InputError(f"--seconds must be above 0 and at most 3600; got {seconds:g}")
    if master is not None and master.startswith("local"):
        raise InputError(
            f"--master {master}: must have several machines; this is one process; use spark://…, "
            "yarn or k8s://…"
        )


def _tell(what: str) -> None:
    typer.echo(what, err=True)


def _serve(address: str) -> None:
    """Until Ctrl-C."""
    from sojourn.probing.echo import Echo
    from sojourn.probing.packets import new_token, parse_address

    token = new_token()
    with Echo(token, *parse_address(address, "--serve")) as echo:
        host, port = echo.address
        host = socket.gethostname() if host == "0.0.0.0" else host  # that is no address to go to
        typer.echo(f"sojourn measure --to {host}:{port} --token {token.hex()}")
        _tell("type this on the other machine; Ctrl-C ends this one")
        # A shell has commands in the background ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


def _from_here(to: str, token: str, plan: "Plan") -> "Report":
    """To another machine. How fast that one works is for it to say."""
    from sojourn.probing import probes, work
    from sojourn.probing.figures import Machine, Report
    from sojourn.probing.packets import TOKEN_BYTES, parse_address

    try:
        known = bytes.fromhex(token)
    except ValueError:
        known = b""
    if len(known) != TOKEN_BYTES:
        raise InputError(f"--token: must be the one that --serve has printed; got {token!r}")
    target = probes.Target(*parse_address(to, "--to"), known)
    link = probes.link("here", to, target, plan, _tell)
    _tell("capacity …")
    rates = work.capacity(plan.seconds)
    times_s = tuple(place * plan.seconds / len(rates) for place in range(len(rates)))
    return Report((link,), (Machine("here", 1, times_s, rates),))


def _between_machines(master: str, machines: int | None, plan: "Plan") -> "Report":
    from sojourn.engine.spark.session import session
    from sojourn.probing.cluster import measured

    _tell(f"starting on {master} …")
    spark = session(None, master, 0, "sojourn measure", 600.0)
    try:
        return measured(spark, plan, machines, _tell)
    finally:
        spark.stop()


def _show(report: "Report", out: Path | None, as_json: bool) -> None:
    from sojourn.cli import measure_view as view

    text = json.dumps(asdict(report), indent=2)
    if as_json:
        typer.echo(text)
    else:
        view.show(report)
    if out is None:
        return
    (out / "measure.json").write_text(text + "\n", encoding="utf-8")
    if view.can_draw():
        view.draw(report, out)
    else:
        _tell("no plots: they need matplotlib; pip install 'sojourn[plot]'")
