"""What Sojourn imports is what its wheel asks for: nothing is found only because something else
has brought it."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = [
    wanted
    for extra in ("plot", "dashboard", "jdk", "forecast", "kafka")
    for wanted in PROJECT["optional-dependencies"][extra]
]
OTHERS_ASK = {"pandas"}  # pyspark imports it for mapInArrow, and does not ask for it by itself
DISTRIBUTIONS = packages_distributions()
# Imported only inside of functions, so what they import at their top may come from an extra.
LAZY = {"sojourn.dashboard.app", "sojourn.dashboard.guard", "sojourn.dashboard.metrics"}


def names(requirements: Iterable[str]) -> set[str]:
    """The distributions that are asked for."""
    found = {re.split(r"[^A-Za-z0-9._-]", requirement)[0] for requirement in requirements}
    return {normal(name) for name in found}


def normal(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(code: ast.AST, with_inner: bool) -> Iterator[str]:
    """The top-level modules that code imports; `with_inner`, also inside of functions, where what
    an extra brings may be imported."""
    for node in ast.iter_child_nodes(code):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue  # of type checkers, which bring their own
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]
        elif with_inner or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported(node, with_inner)


def whole(code: ast.Module) -> Iterator[str]:
    """The modules that are imported at the top, with their whole names."""
    for node in code.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{node.module}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(path: Path) -> str:
    """The name that it is imported by."""
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


def of_others(with_inner: bool) -> set[str]:
    """The distributions that Sojourn imports from."""
    modules: set[str] = set()
    for path in (ROOT / "src" / "sojourn").rglob("*.py"):
        if path.parent.name == "sample":
            continue  # what `sojourn init` writes, which is not part of Sojourn
        if not with_inner and module_of(path) in LAZY:
            continue
        modules.update(imported(ast.parse(path.read_text(encoding="utf-8")), with_inner))
    modules -= {*sys.stdlib_module_names, "sojourn"}
    assert modules <= DISTRIBUTIONS.keys(), "not installed here"
    return {normal(name) for module in modules for name in DISTRIBUTIONS[module]}


def test_what_may_import_an_extra_is_imported_late() -> None:
    for path in (ROOT / "src" / "sojourn").rglob("*.py"):
        if module_of(path) not in LAZY:
            code = ast.parse(path.read_text(encoding="utf-8"))
            assert not LAZY & set(whole(code)), path


def test_all_that_is_imported_is_asked_for() -> None:
    asked = names(PROJECT["dependencies"])
    assert of_others(with_inner=False) <= asked
    assert of_others(with_inner=True) <= asked | names(EXTRAS)


def test_nothing_is_asked_for_in_vain() -> None:
    imported_or_needed = of_others(with_inner=True) | OTHERS_ASK
    assert names([*PROJECT["dependencies"], *EXTRAS]) == imported_or_needed


def test_imports_are_found_wherever_they_stand() -> None:
    code = ast.parse(
        "import a.b, c\nfrom d.e import f\nfrom . import g\nif 1:\n    import h\n"
        "def i():\n    import j\nclass K:\n    def l(self):\n        from m import n\n"
    )
    assert list(imported(code, with_inner=False)) == ["a", "c", "d", "h"]
    assert list(imported(code, with_inner=True)) == ["a", "c", "d", "h", "j", "m"]
    assert names(["PyYAML>=6.0,<7", "ruamel.yaml==1", "sojourn[plot]"]) == {
        "pyyaml",
        "ruamel-yaml",
        "sojourn",
    }
