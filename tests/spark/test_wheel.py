"""A wheel made of the repository, in an environment of its own, runs the README's program."""

import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from conftest import results

ROOT = Path(__file__).parents[2]


def program() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    found, _planning = blocks  # tests/cli/test_docs.py runs the other
    return str(found)


def test_the_wheel_runs_the_readme_program(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path / "wheel", ROOT], check=True)
    (wheel,) = (tmp_path / "wheel").glob("sojourn-*.whl")
    home = tmp_path / "env"
    venv.create(home, with_pip=False, symlinks=True)
    # What it depends on is there already and too large to install again; it is found last. That all
    # of it is asked for, tests/unit/test_dependencies.py proves.
    (site,) = (home / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    subprocess.run([*pip, "--python", home, "install", "--no-deps", wheel], check=True)
    script = tmp_path / "app.py"
    where = "\nif __name__ == '__main__':\n    print('from', sj.__file__)\n"
    script.write_text(program() + where, encoding="utf-8")
    shown = subprocess.run(
        [home / "bin" / "sojourn", "--version"], check=True, capture_output=True, text=True
    )
    assert shown.stdout.startswith("sojourn ")
    ended = subprocess.run(
        [home / "bin" / "python", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert f"from {site}" in ended.stdout, "not from the repository"
    assert "Summary(topology='orders'" in ended.stdout
    assert sorted(row["number"] for row in results(tmp_path / "out")) == list(range(1000))
