"""`sojourn experiment`: the papers' figures and tables, made again. The experiments themselves are
in the project's folder `experiments/`, one file for each."""

import fnmatch
import importlib.util
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from sojourn.cli.progress import busy
from sojourn.errors import InputError

_PAPERS = ("drs_", "elasticutor_", "icdcs_", "profiling_", "provisioning_")


def experiment(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments to run, such as drs_fig6, or patterns such as 'drs_*'."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run all of them.")] = False,
    full: Annotated[bool, typer.Option("--full/--quick", help="Long or short runs.")] = False,
    engine: Annotated[str, typer.Option(help="Where to run: spark or simulator.")] = "spark",
    seed: Annotated[int, typer.Option(help="Another seed draws everything anew.")] = 0,
    out: Annotated[Path, typer.Option(help="Directory for figures and plots.")] = Path(
        "out/experiments"
    ),
    folder: Annotated[Path, typer.Option(help="Directory of the experiments.")] = Path(
        "experiments"
    ),
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the results in the folder's results/ as well.")
    ] = False,
    table: Annotated[
        Path | None,
        typer.Option(
            help="Write a page of all results that are kept to this file; may be given alone."
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
    if seed < 0:
        raise InputError(f"--seed must be at least 0; got {seed}")
    if not (names or everything or (table and not keep)) or (names and everything):
        raise InputError(f"name an experiment, or give --all; known: {', '.join(known)}")
    wanted = known if everything else _matching(names or [], known)
    kept_in = folder / "results"
    if wanted:
        make_directory(out)
    if keep:
        make_directory(kept_in, "--keep")
    if table is not None:
        _check_table(table)
    found: dict[str, Any] = {}
    sys.path.insert(0, str(folder.resolve()))
    lab: Any = importlib.import_module("lab")
    kept: Any = importlib.import_module("kept")
    bench = lab.Lab(engine, not full, seed, out)
    failed: list[str] = []
    try:
        if table is not None:
            kept.read_all(kept_in)  # refuses before the work what cannot be on the page
        modules = _imported(wanted, names or [], engine)
        for name, about in _run_each(bench, modules, folder, failed):
            _tell(name, about, as_json)
            if keep:
                typer.echo(f"    kept as {kept.keep(out / f'{name}.json', kept_in)}", err=True)
            found[name] = about
        if table is not None:
            page: Any = importlib.import_module("page")
            table.write_text(page.page(kept.read_all(kept_in)), encoding="utf-8")
    finally:
        bench.close()
        sys.path.remove(str(folder.resolve()))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    if failed:
        typer.echo(f"failed: {', '.join(failed)}; see above, and run them again", err=True)
        raise typer.Exit(1)


def _matching(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The experiments that are meant, each once, in the order in which they are asked for."""
    found: dict[str, None] = {}
    for name in names:
        some = fnmatch.filter(known, name)
        if not some:
            what = "experiment like" if _is_pattern(name) else "experiment"
            raise InputError(f"there is no {what} {name!r}; known: {', '.join(known)}")
        found |= dict.fromkeys(some)
    return list(found)


def _is_pattern(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def _imported(wanted: Sequence[str], names: Sequence[str], engine: str) -> dict[str, Any]:
    """Those that run on the engine. One that does not is refused if it is asked for by its name."""
    modules: dict[str, Any] = {name: importlib.import_module(name) for name in wanted}
    _check_installed(modules)
    for name in [n for n, m in modules.items() if engine not in getattr(m, "ENGINES", engine)]:
        only = modules.pop(name).ENGINES[0]
        if name in names:
            raise InputError(f"{name}: runs only with --engine {only}; got {engine}")
        typer.echo(f"{name}: skipped, because it runs only on {only}", err=True)
    return modules


def _run_each(
    bench: Any, modules: Mapping[str, Any], folder: Path, failed: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run one experiment after the other, and write what it has shown. Those that fail are noted,
    and the others go on."""
    lab: Any = importlib.import_module("lab")
    watch: Any = importlib.import_module("stolen")
    origin: Any = importlib.import_module("origin")
    code = origin.code(folder)  # as loaded
    origins = {name: origin.origin(folder, name) for name in modules}
    for name, module in modules.items():
        began, date = time.monotonic(), datetime.now(UTC)
        runs = _runs_of(bench, name, origins[name], code)
        bench.begin(runs)
        try:
            with busy(name, after_s=0.0), watch.Steal() as steal:
                finding = module.run(bench)
        except Exception:  # noqa: BLE001  # told, and the exit code says so
            typer.echo(f"{name}: FAILED\n{traceback.format_exc()}", err=True)
            failed.append(name)
            bench.recover()
            continue
        about = {
            "about": " ".join(module.__doc__.split("\n\n")[0].split()),
            "engine": bench.engine,
            "length": "quick" if bench.quick else "full",
            "seed": bench.seed,
            "seconds": round(time.monotonic() - began, 1),
            "date": date.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z",
            **origins[name],
            "stolen": watch.together([steal.told(), *bench.borrowed]),
            "notes": module.NOTES,
        }
        lab.written(finding, name, about, bench.out)
        if runs is not None:  # all are there: the next time, it begins anew
            shutil.rmtree(runs, ignore_errors=True)
        yield name, json.loads((bench.out / f"{name}.json").read_text(encoding="utf-8"))


def _runs_of(
    bench: Any, name: str, origin: Mapping[str, Mapping[str, Any]], code: str | None
) -> Path | None:
    """Where the runs of an experiment are kept until all are there, so that one that was
    interrupted goes on; nowhere, if others may have had another rule or other code."""
    if code is None or any(one["commit"] is None or one["changed"] for one in origin.values()):
        return None
    length = "quick" if bench.quick else "full"
    commits = f"{origin['rule']['commit'][:7]}.{code[:7]}"
    told = f"{name}.{bench.engine}.{length}.seed{bench.seed}.{commits}"
    return Path(bench.out) / "runs" / told


def make_directory(out: Path, option: str = "--out") -> None:
    """Make a directory for what comes out, or refuse one that cannot be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{option} {out}: cannot be a directory: {error.strerror}") from None
    if not os.access(out, os.W_OK):
        raise InputError(f"{option} {out}: is not writable; give another directory")


def _check_table(table: Path) -> None:
    """Refuse, before the work, a page that could not be written after it."""
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


def _tell(name: str, found: Mapping[str, Any], as_json: bool) -> None:
    lab: Any = importlib.import_module("lab")
    judged = lab.in_words(found["holds"])
    typer.echo(
        f"{name} ({found['engine']}, {found['length']}, seed {found['seed']}, "
        f"{found['seconds']:.0f} s): {judged if found['holds'] else judged.upper()}: "
        f"{found['verdict']}",
        err=as_json,
    )
    typer.echo(f"    ({found['notes']})", err=as_json)
    for claim in found["claims"]:
        why = f" ({claim['why']})" if claim["why"] else ""
        told = f"{claim['says']}: {lab.in_words(claim['holds'])}: {claim['found']}{why}"
        typer.echo(f"    {claim['paper']}: {told}", err=as_json)
    for what, theirs, ours in found["rows"]:
        beside = f"paper {theirs}, here {ours}" if theirs else ours
        typer.echo(f"    {what}: {beside}", err=as_json)
