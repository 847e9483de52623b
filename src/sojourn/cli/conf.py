"""`sojourn conf`: the settings that a Spark session of one's own needs."""

from typing import Annotated

import typer


def conf(
    properties: Annotated[
        bool, typer.Option("--properties", help="Print a file for spark-submit --properties-file.")
    ] = False,
) -> None:
    """Print the settings that your own Spark session needs. With spark-submit:
    spark-submit $(sojourn conf) APP.py"""
    from sojourn.engine.spark.session import AT_START, QUICK

    for key, value in {**AT_START, **QUICK}.items():
        typer.echo(f"{key} {value}" if properties else f"--conf {key}={value}")
