"""Where a result comes from: the commit of the run, and that of the rule by which it is judged. The
latter is the last one that touched the experiment's file or another one here that it imports. Of a
folder that is in no repository, or without git, both are unknown, which is None."""

import ast
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_USED = ("src", "examples")
# What runs and Python made, which is not what they are made with.
_MADE = (
    *(":(exclude)results", ":(exclude)unfinished", ":(exclude)README.md"),
    ":(exclude,glob)**/__pycache__/**",
)


def origin(folder: Path, name: str) -> dict[str, Any]:
    """Of an experiment that is run now: commits, and the files that were changed since then."""
    used = [path.name for path in files_of(folder, name)]
    here = [".", *_beside(folder), *_MADE]
    return {
        "run": {
            "commit": commit(folder),
            "code": code(folder),
            "changed": _changed(folder, here),
        },
        "rule": {
            "commit": _git(folder, "log", "-1", "--format=%H", "--", *used),
            "changed": _changed(folder, used),
        },
    }


def commit(folder: Path) -> str | None:
    """Of the code as it is now."""
    return _git(folder, "rev-parse", "HEAD")


def code(folder: Path) -> str | None:
    """The last commit that touched what runs are made with."""
    return _git(folder, "log", "-1", "--format=%H", "--", ".", *_beside(folder), *_MADE)


def files_of(folder: Path, name: str) -> list[Path]:
    """The file of an experiment, and those of the folder that it imports, or that these do, each
    with the data that it has."""
    found: dict[Path, None] = {}
    todo = [folder / f"{name}.py"]
    while todo:
        path = todo.pop()
        if path in found or not path.is_file():
            continue
        found[path] = None
        if (data := path.with_suffix(".json")).is_file():  # what it reads, by the same name
            found[data] = None
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                todo += [folder / f"{alias.name}.py" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                todo.append(folder / f"{node.module}.py")
    return sorted(found)


def _beside(folder: Path) -> list[str]:
    """The project's own code and its applications, if they are in the same repository."""
    top, parent = _git(folder, "rev-parse", "--show-toplevel"), folder.resolve().parent
    if top is None or not parent.is_relative_to(top):
        return []
    return [f"../{name}" for name in _USED if (parent / name).is_dir()]


def _changed(folder: Path, paths: Sequence[str]) -> list[str] | None:
    """Files that are not as they were committed."""
    told = _git(folder, "status", "--porcelain", "--untracked-files=all", "--", *paths)
    return None if told is None else [line[2:].strip() for line in told.splitlines()]


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None if there is none, or no repository or commit."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    told = done.stdout.rstrip("\n")
    asked = arguments[0] == "status"  # where nothing is an answer
    return told if done.returncode == 0 and (told or asked) else None
