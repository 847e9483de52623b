"""`sojourn broker`: a real Kafka broker on this machine, for trying topologies out."""

import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.progress import busy
from sojourn.errors import InputError
from sojourn.kafka.client import checked_topic, confluent


def broker(
    port: Annotated[int, typer.Option(help="Where it listens; 0 finds a free port.")] = 9092,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic to make, NAME or NAME:PARTITIONS; may be given often."),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where its data is kept; without, it is not kept.")
    ] = None,
) -> None:
    """Run a Kafka broker on loopback until Ctrl-C. Its jars are fetched once from Maven Central."""
    wanted = dict(map(_topic, topic or ()))
    confluent()
    from sojourn.engine.spark.broker import Broker

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    with ExitStack() as stack:
        try:
            if directory is None:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-")))
            with busy("starting Kafka"):
                running = stack.enter_context(Broker(directory, port or None))
            typer.echo(f"Kafka listens on {running.servers}; Ctrl-C ends it")
            running.make_topics(wanted)
            for name, partitions in wanted.items():
                typer.echo(f"topic {name} ({partitions} partitions)")
            running.process.process.wait()
            typer.echo(f"error: the broker has ended; see {running.process.log}", err=True)
            raise typer.Exit(1)
        except KeyboardInterrupt:
            pass


def _topic(given: str) -> tuple[str, int]:
    name, _, partitions = given.partition(":")
    if not name or not (partitions or "1").isdecimal() or int(partitions or 1) < 1:
        raise InputError(f"--topic {given!r}: must be NAME or NAME:PARTITIONS, such as orders:3")
    return checked_topic(name, f"--topic {given!r}"), int(partitions or 1)
