"""Says on standard error that something goes on: on a terminal with the time it has taken or takes
still, elsewhere in plain lines. Nothing is said of what is soon done."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SOON_S = 2.0


@contextmanager
def busy(what: str, after_s: float = SOON_S, console: Console | None = None) -> Iterator[None]:
    """Say so if this takes longer: on a terminal for as long as it takes, elsewhere once."""
    screen = console or Console(stderr=True)
    text = TextColumn("{task.description} …", markup=False)
    shown = Progress(
        SpinnerColumn("line"), text, TimeElapsedColumn(), console=screen, transient=True
    )
    shown.add_task(what)
    over, lock = False, threading.Lock()

    def begin() -> None:
        with lock:
            if over:
                return
            if screen.is_terminal:
                shown.start()
            else:
                typer.echo(f"{what} …", err=True)

    timer = threading.Timer(after_s, begin)
    timer.daemon = True
    if after_s > 0:
        timer.start()
    else:
        begin()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            over = True
            if shown.live.is_started:
                shown.stop()


@contextmanager
def bar(what: str) -> Iterator[Callable[[float], None]]:
    """A bar with the time left on a terminal, a line every tenth elsewhere. It is told the share
    that is done."""
    if not sys.stderr.isatty():
        told = 0

        def line(share: float) -> None:
            nonlocal told
            if int(share * 10) > told:
                told = int(share * 10)
                typer.echo(f"{what}: {told * 10} %", err=True)

        yield line
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda share: progress.update(task, completed=share)
