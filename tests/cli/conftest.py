"""Runs the command in this process as the installed script would."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sojourn.cli import main


@dataclass(frozen=True)
class Result:
    """What a user sees of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["sojourn", *map(str, arguments)])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        assert isinstance(code, int)
        return Result(code, *capsys.readouterr())

    return run_command
