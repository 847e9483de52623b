"""`sojourn experiment`: the papers' figures and tables, made again. The experiments themselves are
in the project's folder `experiments/`, one file for each."""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sojourn.errors import InputError

_PAPERS = ("drs_", "elasticutor_", "icdcs_", "profiling_", "provisioning_")


def experiment(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments to run, such as drs_fig6.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run all of them.")] = False,
    full: Annotated[bool, typer.Option("--full/--quick", help="Long or short runs.")] = False,
    engine: Annotated[str, typer.Option(help="Where to run: spark or simulator.")] = "spark",
    out: Annotated[Path, typer.Option(help="Directory for figures and plots.")] = Path(
        "out/experiments"
    ),
    folder: Annotated[Path, typer.Option(help="Directory of the experiments.")] = Path(
        "experiments"
    ),
    table: Annotated[
        Path | None,
        typer.Option(
            help="Write a page to this file: all results in --out, beside the papers' figures."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Reproduce figures and tables of the papers. Says whether the papers' claims hold."""
    known = sorted(p.stem for p in folder.glob("*.py") if p.stem.startswith(_PAPERS))
    if not known:
        raise InputError(
            f"{folder}: has no experiments; run this in a clone of the project, or give --folder"
        )
    if engine not in ("spark", "simulator"):
        raise InputError(f"--engine must be spark or simulator; got {engine!r}")
    if bool(names) == everything:
        raise InputError(f"name an experiment, or give --all; known: {', '.join(known)}")
    wanted = known if everything else names or []
    for name in wanted:
        if name not in known:
            raise InputError(f"there is no experiment {name!r}; known: {', '.join(known)}")
    _check_writable(out, table)
    made = {name: out / f"{name}.json" for name in known}
    if table is not None:
        for name, path in made.items():
            if name not in wanted and path.is_file():
                _read(path)
    sys.path.insert(0, str(folder.resolve()))
    lab: Any = importlib.import_module("lab")
    watch: Any = importlib.import_module("stolen")
    bench = lab.Lab(engine, not full, out)
    results = {}
    try:
        modules = {name: importlib.import_module(name) for name in wanted}
        _check_installed(modules)
        for name in [n for n, m in modules.items() if engine not in getattr(m, "ENGINES", engine)]:
            only = modules.pop(name).ENGINES[0]
            if not everything:
                raise InputError(f"{name}: runs only with --engine {only}; got {engine}")
            typer.echo(f"{name}: skipped, because it runs only on {only}", err=True)
        for name, module in modules.items():
            typer.echo(f"{name} …", err=True)
            began = time.monotonic()
            with watch.Steal() as steal:
                finding = module.run(bench)
            about = {
                "engine": engine,
                "length": "full" if full else "quick",
                "seconds": round(time.monotonic() - began, 1),
                "stolen": steal.told(),
                "notes": module.NOTES,
            }
            lab.written(finding, name, about, out)
            results[name] = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
            _tell(name, lab.in_words(finding.holds), finding, about, as_json)
    finally:
        bench.close()
        sys.path.remove(str(folder.resolve()))
    if table is not None:
        lab.tabled({n: _read(path) for n, path in made.items() if path.is_file()}, table)
    if as_json:
        typer.echo(json.dumps(results, indent=2))


def make_directory(out: Path) -> None:
    """Make a directory for what comes out, or refuse one that cannot be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be a directory: {error.strerror}") from None
    if not os.access(out, os.W_OK):
        raise InputError(f"--out {out}: is not writable; give another directory")


def _check_writable(out: Path, table: Path | None) -> None:
    """Refuse, before the work, an output that could not be written after it."""
    make_directory(out)
    if table is None:
        return
    if not table.parent.is_dir():
        raise InputError(f"--table {table}: there is no directory {table.parent}")
    if table.is_dir() or not os.access(table if table.exists() else table.parent, os.W_OK):
        raise InputError(f"--table {table}: cannot be written; give the name of a file")


def _check_installed(modules: Mapping[str, Any]) -> None:
    for name, module in modules.items():
        lacking = [
            needed
            for needed in ("matplotlib", *getattr(module, "NEEDS", ()))
            if importlib.util.find_spec(needed) is None
        ]
        if lacking:
            raise InputError(
                f"{name}: needs {', '.join(lacking)}; pip install 'sojourn[plot,vision]'"
            )


_TOLD = ("engine", "length", "seconds", "notes", "holds", "verdict", "rows")


def _read(path: Path) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        missing = [name for name in _TOLD if name not in found]
    except (ValueError, TypeError):
        missing = ["all"]
    if missing:
        raise InputError(f"{path}: is not the result of an experiment; remove it")
    return found


def _tell(name: str, judged: str, finding: Any, about: dict[str, Any], as_json: bool) -> None:
    typer.echo(
        f"{name} ({about['engine']}, {about['length']}, {about['seconds']:.0f} s): "
        f"{judged.upper() if not finding.holds else judged}: {finding.verdict}",
        err=as_json,
    )
    typer.echo(f"    ({about['notes']})", err=as_json)
    for what, theirs, ours in finding.rows:
        beside = f"paper {theirs}, here {ours}" if theirs else ours
        typer.echo(f"    {what}: {beside}", err=as_json)
