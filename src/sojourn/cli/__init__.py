"""The command line: one module per command. Mistakes of the user end with one line and code 2."""

import re
import sys
from typing import NoReturn

import typer
from typer.exceptions import TyperException

from sojourn import __version__
from sojourn.cli.broker import broker
from sojourn.cli.conf import conf
from sojourn.cli.dashboard import dashboard
from sojourn.cli.doctor import doctor
from sojourn.cli.experiment import experiment
from sojourn.cli.init import init
from sojourn.cli.measure import measure
from sojourn.cli.plan import plan
from sojourn.cli.profile import profile
from sojourn.cli.replay import replay
from sojourn.cli.run import run
from sojourn.cli.simulate import simulate
from sojourn.cli.watch import watch
from sojourn.errors import InputError, TopologyFailed

app = typer.Typer(
    name="sojourn",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_ADDRESS = re.compile(r"on|off|\d+|[^\s/]*:\d*|[\w.-]+\.\d+|localhost")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sojourn {__version__}")
        raise typer.Exit


@app.callback()
def sojourn(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Keep a stream topology's sojourn time under a target with the fewest processors."""


app.command()(init)
app.command()(run)
app.command()(simulate)
app.command()(plan)
app.command()(profile)
app.command()(replay)
app.command()(dashboard)
app.command()(watch)
app.command()(measure)
app.command()(experiment)
app.command()(broker)
app.command()(conf)
app.command()(doctor)


def main() -> None:
    """What the `sojourn` script calls."""
    arguments = with_address(sys.argv[1:]) or ["--help"]
    try:
        sys.exit(app(arguments, prog_name="sojourn", standalone_mode=False) or 0)
    except InputError as error:
        _refuse(str(error))
    except TopologyFailed as error:
        typer.echo(f"error: the topology failed: {error}", err=True)
        sys.exit(1)
    except TyperException as error:
        _refuse(f"{error.format_message()} (see sojourn --help)")


def with_address(arguments: list[str]) -> list[str]:
    """The same, with "on" behind a `--dashboard` that no address follows."""
    found: list[str] = []
    for place, argument in enumerate(arguments):
        found.append(argument)
        after = arguments[place + 1] if place + 1 < len(arguments) else ""
        if argument == "--dashboard" and not _ADDRESS.fullmatch(after):
            found.append("on")
    return found


def _refuse(message: str) -> NoReturn:
    """One line on standard error, whatever the user's own text has in it, and code 2."""
    line = " ".join(part.strip() for part in message.splitlines())
    typer.echo(f"error: {line}", err=True)
    sys.exit(2)
