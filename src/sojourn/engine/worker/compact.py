"""Merging files of state in a process of its own, which gives way to all others:

    python -m sojourn.engine.worker.compact OUT FILE…

makes OUT from the files, oldest first, and prints its size. With --all, which means that no older
file exists, deletions are dropped. An executor starts it when `store.to_merge` says so."""

import argparse
import os
import sys
from pathlib import Path

from sojourn.engine.worker import store
from sojourn.engine.worker.parent import die_with


def main() -> None:
    """Merge as the command line says. If that fails, end with code 1 and one line."""
    parser = argparse.ArgumentParser(prog="sojourn.engine.worker.compact")
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--all", action="store_true", help="the oldest file of all is among them")
    parser.add_argument("--parent", type=int, help="the process that it ends with")
    options = parser.parse_args()
    if options.parent is not None:
        die_with(options.parent)
    os.nice(19)
    try:
        size = store.merge(options.files, options.out, drop_deleted=options.all)
    except Exception as error:  # noqa: BLE001  # whatever it is, the executor is told in one line
        sys.exit(f"compact: {type(error).__name__}: {error}".replace("\n", " "))
    sys.stdout.write(f"{size}\n")


if __name__ == "__main__":
    main()
