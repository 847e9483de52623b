"""The example does what stands beside it."""

import secrets
from pathlib import Path

import pytest
from conftest import await_exit, processes
from transcripts import KAFKA, ROOT, play, shell


@pytest.mark.parametrize("name", KAFKA)
def test_an_example_shows_what_is_expected(name: str, tmp_path: Path) -> None:
    mark = secrets.token_hex(8)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    play(name, lambda command: shell(command, tmp_path, mark))
    for pid in processes(mark):
        await_exit(pid)
