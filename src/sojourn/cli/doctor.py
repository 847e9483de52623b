"""`sojourn doctor`: is this machine, or this cluster, ready to run topologies? One line for each
thing looked at, with how to mend it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli import checks
from sojourn.cli.checks import NOTE, OK, WRONG, Finding
from sojourn.cli.progress import busy
from sojourn.errors import InputError
from sojourn.units import format_duration

if TYPE_CHECKING:
    from sojourn.topology import Topology

_SLOTS = 6
_TUPLES = 20
_WAIT_S = 60.0
_LEAST_OFF_S = 1.0
_SEE = "sojourn run --verbose shows what Spark says"


def doctor(
    master: Annotated[
        str | None, typer.Option(help="Look at the cluster of this Spark master, too.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Directory that all its machines see, to try a topology on it."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what needs Spark to be started.")
    ] = False,
) -> None:
    """Check whether this machine, or a cluster, can run topologies. Says what is wrong and how to
    mend it; ends with code 1 if something is."""
    if checkpoint is not None and master is None:
        raise InputError("--checkpoint is for --master; this machine needs none")
    if master is not None and master.startswith("local"):
        raise InputError(f"--master {master}: is this machine; leave it out")
    wrong = 0
    for finding in _findings(master, checkpoint, quick):
        typer.echo(str(finding))
        wrong += finding.state == WRONG
    if wrong:
        typer.echo(f"{wrong} of these {'is' if wrong == 1 else 'are'} wrong", err=True)
        raise typer.Exit(1)


def _findings(master: str | None, checkpoint: Path | None, quick: bool) -> Iterator[Finding]:
    from sojourn.engine.spark.archive import spark_home

    well = True
    for finding in checks.of_this_machine(os.environ, spark_home()):
        yield finding
        well = well and finding.state != WRONG
    if master is not None:
        with busy(f"asking {master}"):
            finding = checks.reachable(master, os.environ)
        yield finding
        well = well and finding.state != WRONG
    if quick:
        return
    if not well:
        yield Finding(
            "facts", NOTE, "not looked at, as Spark could not run", "mend the above first"
        )
        return
    yield from _with_spark(master, checkpoint)


def _with_spark(master: str | None, checkpoint: Path | None) -> Iterator[Finding]:
    """What only a session tells."""
    from sojourn.engine.spark.session import session

    try:
        with busy("starting Spark", after_s=0.0):
            spark = session(None, master, _SLOTS, "sojourn doctor", 600.0)
    except Exception as error:  # noqa: BLE001  # whatever keeps Spark from starting is what is wrong
        yield Finding("facts", WRONG, f"Spark does not start: {_short(error)}", _SEE)
        return
    try:
        yield from _of_session(spark, master, checkpoint)
    finally:
        spark.stop()


def _of_session(spark: Any, master: str | None, checkpoint: Path | None) -> Iterator[Finding]:
    """The facts of Spark, a cluster's machines, and a topology."""
    from sojourn.engine.spark.facts import lacking

    if unknown := lacking(spark):
        told = f"this Spark lacks {', '.join(unknown)}"
        yield Finding("facts", WRONG, told, "use the Spark that Sojourn asks for")
        return
    yield Finding("facts", OK, "Spark has every setting and class that the engine uses")
    if master is not None:
        finding = _machines(spark)
        yield finding
        if finding.state == WRONG:
            return
        if checkpoint is None:
            yield Finding("topology", NOTE, "not tried on the cluster", "give --checkpoint")
            return
    yield _trial(spark, checkpoint)


def _machines(spark: Any) -> Finding:
    """Whether the machines of a cluster run tasks, and are as this one."""
    from sojourn.engine.spark.facts import slots, version

    try:
        with busy("waiting for a machine", after_s=0.0):
            found = slots(spark, _WAIT_S)
    except Exception as error:  # noqa: BLE001  # whatever keeps tasks from running is what is wrong
        mend = "install this Sojourn for the same Python on every machine, and see PYSPARK_PYTHON"
        return Finding("machines", WRONG, f"a task fails: {_short(error)}", mend)
    if not found:
        mend = "see in its own UI whether it has workers with free cores and memory"
        return Finding("machines", WRONG, f"none came within {_WAIT_S:.0f} s", mend)
    for one in found:
        if one.sojourn != version():
            told = f"{one.host} has Sojourn {one.sojourn}, and this machine {version()}"
            return Finding("machines", WRONG, told, "install the same on all")
    worst = max(found, key=lambda one: one.off_s)
    hosts = len({one.host for one in found})
    told = f"{hosts} with {len(found)} task slots, Python {worst.python}"
    if worst.off_s > _LEAST_OFF_S:
        off = f"the clock of {worst.host} is off by at least {format_duration(worst.off_s)}"
        mend = "have a time server keep it: timers and windows go by it"
        return Finding("machines", WRONG, f"{told}; {off}", mend)
    return Finding("machines", OK, told)


def _trial(spark: Any, checkpoint: Path | None) -> Finding:
    """Some tuples on their way through a topology, which needs all the facts of Spark at once."""
    from sojourn.wiring import start

    began_s = time.monotonic()
    try:
        with (
            busy("trying a topology", after_s=0.0),
            start(_topology(), spark=spark, checkpoint=checkpoint) as running,
        ):
            up_s = time.monotonic() - began_s
            done = running.await_idle(_WAIT_S)
            sojourn = running.samples().sojourn
    except Exception as error:  # noqa: BLE001  # whatever keeps tuples from coming is what is wrong
        return Finding("topology", WRONG, f"fails: {_short(error)}", _SEE)
    if not done or sojourn is None:
        told = f"{_TUPLES} tuples did not come through within {_WAIT_S:.0f} s"
        return Finding("topology", WRONG, told, _SEE)
    return Finding(
        "topology",
        OK,
        f"up after {format_duration(up_s)}; {sojourn.count} tuples came through, "
        f"after {format_duration(sojourn.mean_s)} on average",
    )


def _topology() -> "Topology":
    """A source, an operator and a sink."""
    from sojourn import sinks, sources
    from sojourn.topology import Topology

    t = Topology("doctor")
    numbers = t.source("numbers", sources.iterable(lambda: range(_TUPLES), rate=20))
    t.sink("out", sinks.call(lambda _: None), t.map("same", lambda n: n, numbers))
    return t


def _short(error: Exception) -> str:
    """The first line of what went wrong that names an error; without one, the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (named or lines or [repr(error)])[0][:300]
