"""`sojourn experiment`: the papers' figures and tables, made again. The experiments themselves are
in the project's folder `experiments/`, one file for each."""

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from sojourn.errors import InputError


def experiment(
    names: Annotated[list[str] | None, typer.Argument(help="Such as drs_fig6.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    full: Annotated[bool, typer.Option("--full/--quick", help="Long runs, or short ones.")] = False,
    engine: Annotated[str, typer.Option(help="spark or simulator.")] = "spark",
    out: Annotated[Path, typer.Option(help="Where figures and plots go.")] = Path(
        "out/experiments"
    ),
    folder: Annotated[Path, typer.Option(help="Where the experiments are.")] = Path("experiments"),
    table: Annotated[
        Path | None,
        typer.Option(
            help="Write a page here with all rows beside the papers', also of what is in --out."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures.")] = False,
) -> None:
    """Make figures and tables of the papers again, and compare them with what was claimed."""
    known = sorted(p.stem for p in folder.glob("*.py") if p.stem.startswith(("drs_", "icdcs_")))
    if not known:
        raise InputError(
            f"{folder}: has no experiments; run this in a clone of the project, or give --folder"
        )
    if engine not in ("spark", "simulator"):
        raise InputError(f"--engine must be spark or simulator; got {engine!r}")
    wanted = known if everything else names or []
    for name in wanted:
        if name not in known:
            raise InputError(f"there is no experiment {name!r}; known are {', '.join(known)}")
    if not wanted:
        raise InputError(f"name an experiment, or give --all; known are {', '.join(known)}")
    _check_writable(out, table)
    sys.path.insert(0, str(folder.resolve()))
    lab: Any = importlib.import_module("lab")
    bench = lab.Lab(engine, not full)
    results = {}
    try:
        for name in wanted:
            typer.echo(f"{name} …", err=True)
            began = time.monotonic()
            module = importlib.import_module(name)
            if engine not in getattr(module, "ENGINES", (engine,)):
                typer.echo(f"{name}: only on {module.ENGINES[0]}; left out", err=True)
                continue
            finding = module.run(bench)
            about = {
                "engine": engine,
                "length": "full" if full else "quick",
                "seconds": round(time.monotonic() - began, 1),
                "notes": module.NOTES,
            }
            lab.written(finding, name, about, out)
            results[name] = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
            _tell(name, finding, about, as_json)
    finally:
        bench.close()
        sys.path.remove(str(folder.resolve()))
    if table is not None:
        made = {name: out / f"{name}.json" for name in known}
        lab.tabled({n: _read(path) for n, path in made.items() if path.is_file()}, table)
    if as_json:
        typer.echo(json.dumps(results, indent=2))


def _check_writable(out: Path, table: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be a folder: {error.strerror}") from None
    if table is not None and not table.parent.is_dir():
        raise InputError(f"--table {table}: there is no folder {table.parent}")


def _read(path: Path) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found["rows"], found["notes"]
    except (ValueError, LookupError, TypeError):
        raise InputError(f"{path}: is no result of an experiment; remove it") from None
    return found


def _tell(name: str, finding: Any, about: dict[str, Any], as_json: bool) -> None:
    typer.echo(
        f"{name} ({about['engine']}, {about['length']}, {about['seconds']:.0f} s): "
        f"{'holds' if finding.holds else 'DOES NOT HOLD'}: {finding.verdict}",
        err=as_json,
    )
    typer.echo(f"    ({about['notes']})", err=as_json)
    for what, theirs, ours in finding.rows:
        beside = f"paper {theirs}, here {ours}" if theirs else ours
        typer.echo(f"    {what}: {beside}", err=as_json)
