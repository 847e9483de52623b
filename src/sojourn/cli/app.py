"""An application as the command line names it, `APP.py[:name]`: finds its topology."""

import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sojourn.errors import InputError
from sojourn.topology import Topology


def load_topology(app: str) -> Topology:
    """The topology of a Python file: the one called `name`, the result of a function of that name,
    or the only one in the file."""
    file, _, name = app.partition(":")
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{file}: no such file; give a Python file that defines a Topology")
    module_name = path.stem
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path.insert(0, str(path.resolve().parent))
    _called(file, lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    if name:
        found = getattr(module, name, None)
        if callable(found):
            found = _called(file, found)
        if not isinstance(found, Topology):
            raise InputError(f"{file}: {name!r} must be a Topology or a function that returns one")
        return found
    made = {id(v): n for n, v in vars(module).items() if isinstance(v, Topology)}
    if len(made) == 1:
        topology: Topology = getattr(module, next(iter(made.values())))
        return topology
    build = getattr(module, "topology", None)
    if not made and callable(build):
        found = _called(file, build)
        if isinstance(found, Topology):
            return found
    if not made:
        raise InputError(
            f"{file}: has no Topology; define one, or a function topology() that returns one"
        )
    names = ", ".join(sorted(made.values()))
    raise InputError(
        f"{file}: has several topologies ({names}); name one, as in {file}:{names.split(',')[0]}"
    )


def speak_up() -> None:
    """Have Sojourn and Spark say on standard error what they usually keep to themselves."""
    log = logging.getLogger("sojourn")
    log.setLevel(logging.DEBUG)
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)


def _called(file: str, function: Callable[[], Any]) -> Any:
    """What the user's code returns. What it raises becomes one line."""
    try:
        return function()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise InputError(
            f"{file}: cannot be loaded: {type(error).__name__}: {error} "
            f"({where.filename}, line {where.lineno})"
        ) from error
