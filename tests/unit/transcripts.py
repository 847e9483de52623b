"""The transcripts beside the examples, `examples/NAME.expected`: commands as a user types them,
each with what it prints. `…` stands for what differs from run to run: in a line for a part of it,
on a line of its own for any number of lines."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ALL = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
KAFKA = [name for name in _ALL if name.startswith("kafka_")]  # they need a broker
EXAMPLES = [name for name in _ALL if name not in KAFKA]
Run = Callable[[str], str]


def play(name: str, example: Run, other: Run | None = None) -> None:
    """Do what a transcript says, in a directory where `examples` is found, and compare. `example`
    runs the command that starts the example; the others go to a shell, or to `other`."""
    for command, expected in commands(name):
        starts = command.startswith(("python ", "sojourn "))
        shown = example(command) if starts else (other or shell)(command)
        assert matches(shown, expected), f"$ {command}\n{shown}"


def commands(name: str) -> list[tuple[str, str]]:
    """What is typed, and what it prints."""
    text = (ROOT / "examples" / f"{name}.expected").read_text(encoding="utf-8")
    pieces = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    assert not pieces[0], f"{name}.expected begins with a command"
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


def shell(command: str, folder: Path | None = None, mark: str | None = None) -> str:
    """What it prints, in a folder, with the Python of the tests in front of others. Its processes
    can be told from others by a mark."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": path,
            "LC_ALL": "C",
            **({} if mark is None else {"SOJOURN_TESTS": mark}),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, f"$ {command}\n{ended.stdout}\n{ended.stderr[-3000:]}"
    return ended.stdout


def matches(shown: str, expected: str) -> bool:
    """Whether that is what was expected."""
    pattern = ""
    for line in expected.splitlines(keepends=True):
        parts = [re.escape(part) for part in line.split("…")]
        pattern += r"(?:.*\n)*" if line == "…\n" else ".*".join(parts)
    return re.fullmatch(pattern, shown) is not None
