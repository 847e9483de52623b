"""Results that are kept, in the project's `experiments/results/`: a JSON and a plot of each, named
for its engine, length, seed and rule. So runs with another seed or another rule stand beside each
other. Of the same, one with other code does as well, with the commit of its code in its name, and
only the same run made again replaces one. The page is made of them and of nothing else.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sojourn.errors import InputError

FOLDER = "results"
SHORT = 7  # letters of a commit that are shown
_MOST = 100  # of a list's items that are kept
_TOLD = ("experiment", "engine", "length", "seconds", "notes", "holds", "verdict", "rows")

Result = Mapping[str, Any]


def read(path: Path) -> dict[str, Any]:
    """A result, if the file has one. Those of before seeds and claims have none of either."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        lacks = [name for name in _TOLD if name not in found]
    except (ValueError, TypeError):
        lacks = ["all"]
    if lacks:
        raise InputError(f"{path}: is not the result of an experiment; remove it")
    return {"seed": 0, "claims": [], **found}


def read_all(results: Path) -> dict[str, dict[str, Any]]:
    """Those that are kept, by the names of their files without the ending; each says whether it has
    a plot."""
    return {
        path.stem: read(path) | {"plot": path.with_suffix(".png").is_file()}
        for path in sorted(results.glob("*.json"))
    }


def name_of(result: Result) -> str:
    """Without a commit of the rule, or with one that was changed, nobody knows whether another run
    had the same rule, so the time tells them apart."""
    rule = result.get("rule") or {"commit": None, "changed": None}
    told = "unknown" if rule["commit"] is None else rule["commit"][:SHORT]
    if (rule["commit"] is None or rule["changed"]) and "date" in result:
        told += "-" + "".join(c for c in result["date"] if c.isalnum())
    parts = (result["experiment"], result["engine"], result["length"], f"seed{result['seed']}")
    return ".".join((*parts, told))


def keep(path: Path, results: Path) -> Path:
    """Keep the result in a file, and the plot beside it, if there is one. Returns where it is."""
    result = read(path)
    results.mkdir(exist_ok=True)
    to = results / f"{name_of(result)}.json"
    if to.is_file() and (of := _code(result)) != _code(read(to)):
        to = results / f"{name_of(result)}.{of}.json"
    text = json.dumps(result | {"figures": _thinned(result.get("figures", {}))}, indent=1)
    to.write_text(text + "\n", encoding="utf-8")
    plot = path.with_suffix(".png")
    if plot.is_file():
        shutil.copyfile(plot, to.with_suffix(".png"))
    return to


def _code(result: Result) -> str:
    """The commit of the code that made it, or its time if that was changed."""
    run = result.get("run") or {}
    if run.get("changed"):
        return "".join(c for c in result["date"] if c.isalnum())
    return str(run.get("code") or run.get("commit") or "unknown")[:SHORT]


def _thinned(value: Any) -> Any:
    """Of long lists, some items at even distances."""
    if isinstance(value, Mapping):
        return {name: _thinned(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    step = -(-len(value) // _MOST)
    some = [_thinned(one) for one in value[:: max(1, step)]]
    return {"items": len(value), "every": step, "kept": some} if step > 1 else some
