"""A wheel made of the repository, installed into an empty environment, runs `sojourn` and the
README's program."""

import json
import os
import re
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from conftest import results

from sojourn.engine.spark.archive import spark_home
from sojourn.engine.spark.java import find_java

ROOT = Path(__file__).parents[2]
SHORT = ("--duration", "5s", "--json")
LARGE = ("pyspark", "py4j")  # too large to install again


def program() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (found,) = blocks  # another would be run by no test
    return str(found)


def lend(site: Path, others: Path) -> None:
    """Make `LARGE`, and nothing else, of this environment count as installed in another one."""
    others.mkdir()
    for name in LARGE:
        found = distribution(name)
        tops = {Path(file).parts[0] for file in found.files or ()}
        for top in tops - {".."}:
            (others / top).symlink_to(str(found.locate_file(top)))
    (site / "others.pth").write_text(f"{others}\n", encoding="utf-8")


def environment(home: Path, cache: Path) -> dict[str, str]:
    """What the programs see: no Python path of the tests', and the Java and the Spark that they
    have, so that Java's archive of Spark's classes is theirs, too."""
    path = os.pathsep.join([str(home / "bin"), os.environ["PATH"]])
    java = find_java(os.environ, cache).home
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {
        **kept,
        "PATH": path,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(spark_home()),
        "PYTHONNOUSERSITE": "1",
    }


@pytest.mark.timeout(900)  # most of it is for what pip downloads
def test_the_wheel_runs_the_readme_program(tmp_path: Path) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = (home / "lib").glob("python*/site-packages")
    env = environment(home, tmp_path / "cache")

    def run(*command: str | Path) -> str:
        ended = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
        return ended.stdout

    pip = (sys.executable, "-m", "pip")
    run(*pip, "wheel", "--no-deps", "-w", tmp_path / "wheel", ROOT)
    (wheel,) = (tmp_path / "wheel").glob("sojourn-*.whl")
    lend(site, tmp_path / "others")
    assert not list(site.glob("*.dist-info")), "it is empty"
    run(*pip, "--python", home, "install", "--no-compile", wheel)
    installed = {path.name.partition("-")[0].lower() for path in site.glob("*.dist-info")}
    assert {"sojourn", "numpy", "pyarrow", "typer"} <= installed
    assert not installed & set(LARGE)
    static = site / "sojourn" / "dashboard" / "static"
    page = {"index.html", "page.js", "page.css", "uPlot.iife.min.js", "uPlot.LICENSE"}
    assert page <= {path.name for path in static.iterdir()}
    assert "No broken requirements" in run(*pip, "--python", home, "check")

    assert run("sojourn", "--version").startswith("sojourn ")
    assert "20 tuples came through" in run("sojourn", "doctor")
    planned = run("sojourn", "plan", ROOT / "examples" / "plans" / "vld.yaml")
    assert "22 processors: mean sojourn 1.04 s" in planned

    assert "Now type:" in run("sojourn", "init", "first")
    told = run("sojourn", "run", "first/app.py", "--config", "first/sojourn.yaml", *SHORT)
    assert json.loads(told)["topology"] == "sensors"

    script = tmp_path / "app.py"
    where = "\nif __name__ == '__main__':\n    print('from', sj.__file__)\n"
    script.write_text(program() + where, encoding="utf-8")
    shown = run("python", script)
    assert f"from {site}" in shown, "not from the repository"
    assert "Summary(topology='orders'" in shown
    assert sorted(row["number"] for row in results(tmp_path / "out")) == list(range(1000))
