"""`sojourn init`: a small topology with its test and its settings, to begin with."""

import os
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from sojourn.errors import InputError

FILES = ("app.py", "test_app.py", "sojourn.yaml")


def init(
    directory: Annotated[Path, typer.Argument(help="Directory to write to; made if missing.")],
) -> None:
    """Write a small topology, its test and its settings, which run at once."""
    there = [name for name in FILES if os.path.lexists(directory / name)]
    if there:
        raise InputError(
            f"{directory}: has {there[0]} already, which is not overwritten; give another directory"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = (files("sojourn.cli") / "sample" / name).read_text(encoding="utf-8")
            with (directory / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written to: {error.strerror}") from None
    typer.echo(f"{directory} has {', '.join(FILES)}. Now type:")
    for command in (
        f"cd {shlex.quote(str(directory))}",
        "python -m unittest",
        "sojourn run app.py --config sojourn.yaml",
    ):
        typer.echo(f"    {command}")
