"""`sojourn doctor`: is this machine ready to run topologies?"""

import os
import platform
from pathlib import Path

import typer

from sojourn.engine.spark.java import find_java


def doctor() -> None:
    """Check whether this machine can run topologies. Says what to install if not."""
    typer.echo(f"Python {platform.python_version()}")
    java = find_java(os.environ, Path.home() / ".cache" / "sojourn")
    typer.echo(f"Java {java.version} in {java.home}")
