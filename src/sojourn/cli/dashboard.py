"""`sojourn dashboard`: a run that is over, or a simulation, a profile or an attached query, on the
same page as one that is going on."""

import itertools
import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.progress import busy
from sojourn.errors import InputError
from sojourn.units import parse_address

if TYPE_CHECKING:
    from sojourn.dashboard.board import Board

_LONG_AGO_S = 1e9  # in 2001


def dashboard(
    journal: Annotated[
        Path,
        typer.Argument(
            help="Journal of sojourn run, simulate or attach, or the rounds of sojourn profile."
        ),
    ],
    address: Annotated[
        str, typer.Option(help="Serve at HOST:PORT; port 0 takes any that is free.")
    ] = "on",
    report: Annotated[
        Path | None, typer.Option(help="Write a report to this .html or .png, and serve nothing.")
    ] = None,
) -> None:
    """Show a journal in the browser, until Ctrl-C."""
    at = parse_address(address, "--address")
    if at == "off":
        raise InputError("--address: must be HOST:PORT; got 'off'")
    if report is not None:
        from sojourn.dashboard.report import check, write

        check(report)
        board = _read(journal)
        with busy("writing the report"):
            write(board, report)
        return
    from sojourn.dashboard.server import Server

    board = _read(journal)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with Server(board, at, option="--address") as server:
        typer.echo(f"{board.about.name} is shown at {server.url}; Ctrl-C ends it")
        try:
            ended.wait()
        except KeyboardInterrupt:
            typer.echo("")


def _read(journal: Path) -> "Board":
    with busy(f"reading {journal}"):
        return read_board(journal)


def read_board(path: Path) -> "Board":
    """What a journal or a file of rounds shows."""
    from sojourn.attached import journal as attached
    from sojourn.control.journal import read_journal
    from sojourn.dashboard.board import Board
    from sojourn.views import periods, rounds
    from sojourn.views.records import Follower, about_of

    of = _profiled(path)
    if attached.is_attached(path):
        board = periods.board_of(*attached.read(path))
    elif of is not None:
        from sojourn.cli.profilefile import read_rounds

        board = rounds.board_of(path.stem, list(read_rounds(path, of)))
    else:
        shape, records = read_journal(path)
        first = next(records, None)
        # Those of a run have the time of day, those of a simulation begin at zero.
        is_run = first is None or first.time_s > _LONG_AGO_S
        board = Board(about_of(shape, "journal" if is_run else "simulation"))
        if first is not None:
            if is_run:
                board.begin(first.time_s - first.settings.interval_s)
            follower = Follower(board, shape)
            for record in itertools.chain((first,), records):
                follower(record)
    board.end()
    return board


def _profiled(path: Path) -> str | None:
    """What a file of rounds is of; None if it is no such file."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.readline(10_000_000))
    except (OSError, ValueError):
        return None
    of = found.get("of") if isinstance(found, dict) else None
    return of if isinstance(of, str) else None
