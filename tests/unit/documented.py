"""The table of percentile errors in docs/model.md, for the tests that hold it to be true."""

import re
from pathlib import Path

MODEL = Path(__file__).parents[2] / "docs" / "model.md"


def stated(row: str, p: int, errors: list[float]) -> None:
    """Ask that every error lies in the range that the docs give, and that the range is no wider
    than it needs to be: its worse end is within 5 points, or a third, of the worst error."""
    (line,) = [
        t for t in MODEL.read_text(encoding="utf-8").splitlines() if t.startswith(f"| {row}")
    ]
    cell = line.split("|")[{90: 2, 95: 3, 99: 4}[p]]
    low, high = (float(n.replace("−", "-")) / 100 for n in re.findall(r"[−+]?\d+", cell))
    assert low <= min(errors), (row, p, min(errors))
    assert max(errors) <= high, (row, p, max(errors))
    slack = max(0.05, max(map(abs, errors)) / 3)
    assert max(map(abs, errors)) >= max(-low, high) - slack, (row, p, min(errors), max(errors))
