"""How benchmarks with several parts are asked for them, and how they end."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def asked(doc: str | None, known: Sequence[str]) -> argparse.Namespace:
    """The options, with the parts that were asked for in their usual order; all if none was."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"{' '.join(known)}; all if none")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--quick", action="store_true", help="shorter runs, which do not count")
    options = parser.parse_args()
    for name in options.parts:
        if name not in known:
            parser.error(f"unknown part {name!r}; known: {', '.join(known)}")
    options.parts = sorted(options.parts or known, key=list(known).index)
    return options


def each(
    options: argparse.Namespace, run: Callable[[str], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The results of all parts that were asked for, each told as it ends."""
    results = {}
    for name in options.parts:
        print(f"{name} …", file=sys.stderr, flush=True)
        results[name] = run(name)
        if not options.json:
            print(f"{name}: {json.dumps(results[name], indent=2)}", flush=True)
    return results


def ended(results: Mapping[str, Mapping[str, Any]], as_json: bool) -> None:
    """Print all results as JSON if wanted, and end with code 1 where a bound is missed."""
    if as_json:
        print(json.dumps(results, indent=2))
    missed = [f"{name}: {wrong}" for name in results for wrong in results[name]["missed"]]
    if missed:
        sys.exit("missed: " + "; ".join(missed))
