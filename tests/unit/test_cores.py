"""The CPU that an executor may use: that of the machine, or less where a container is limited."""

import os
from pathlib import Path

import pytest

from sojourn.engine.executor.cores import cores

ALL = float(len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("50000 100000\n", 0.5),
        ("999000000 100000\n", ALL),
        ("max 100000\n", ALL),
        ("odd\n", ALL),
        (None, ALL),
    ],
)
def test_a_limit_is_kept(tmp_path: Path, limit: str | None, expected: float) -> None:
    path = tmp_path / "cpu.max"
    if limit is not None:
        path.write_text(limit, encoding="ascii")
    assert cores(path) == expected
