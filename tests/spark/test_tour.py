"""The notebook runs from top to bottom, in a kernel of its own, and shows what it says it shows."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from transcripts import ROOT

from sojourn.engine.spark.java import find_java

RUN = """
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read("tour.ipynb", as_version=4)
NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
nbformat.write(notebook, "done.ipynb")
"""


def shown(notebook: Path) -> list[tuple[str, str, set[str]]]:
    """Of each cell with code: the code, what it printed, and the kinds of what it displayed."""
    found = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            outputs: list[dict[str, Any]] = cell["outputs"]
            assert all(output["output_type"] != "error" for output in outputs)
            printed = "".join("".join(output.get("text", "")) for output in outputs)
            kinds = {kind for output in outputs for kind in output.get("data", {})}
            found.append(("".join(cell["source"]), printed, kinds))
    return found


def test_the_tour_starts_watches_plans_simulates_and_plots(tmp_path: Path) -> None:
    for name in ("tour.ipynb", "orders.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    java = find_java(os.environ, Path.home() / ".cache" / "sojourn")
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(java.home), "MPLBACKEND": ""},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    for cells in (shown(tmp_path / "done.ipynb"), shown(ROOT / "examples" / "tour.ipynb")):
        picture, started, watched, stopped, plot, planned, simulated, bars = cells
        assert "image/svg+xml" in picture[2] or "text/html" in picture[2]
        assert started[1:] == ("", set()), "Spark is quiet"
        assert "price" in watched[1]
        assert " add: " in stopped[1]
        assert "image/png" in plot[2]
        assert planned[1].count("{'check': ") >= 2
        assert len(simulated[1].splitlines()) == 3
        assert "image/png" in bars[2]
