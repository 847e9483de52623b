"""Every console block of README and docs is run, and must print what stands there."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n\$ sojourn ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(*match.groups(), id=f"{page.name}: {match[1]}")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
]


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize(("command", "expected"), BLOCKS)
def test_the_docs_show_what_the_command_prints(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, command: str, expected: str
) -> None:
    monkeypatch.chdir(ROOT)
    shown = run(*shlex.split(command))
    assert lines(shown.out + shown.err) == lines(expected)


def test_the_docs_have_blocks_to_run() -> None:
    assert len(BLOCKS) >= 6


def test_planning_in_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The README's own program is run by tests/spark/test_wheel.py."""
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^```python$", readme, re.MULTILINE)) == 1, "another is run by no test"
    exec(code, {})
    assert "{'extract': 8, 'match': 9}" in capsys.readouterr().out
