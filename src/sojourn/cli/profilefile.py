"""The files of `sojourn profile`. The profile is YAML: what was measured of operators, as a service
file has it, and the parallelism that was found. Rounds are kept as they end, one a line, so that
profiling that was interrupted goes on."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from sojourn.cli.section import read_section
from sojourn.errors import InputError
from sojourn.ports import Parallelism
from sojourn.profiler.rounds import Round
from sojourn.profiler.trial import Measured, Proposal, Seen, Verdict
from sojourn.topology import Topology
from sojourn.units import parse_whole


def written(path: Path, operators: Mapping[str, Any], profile: Mapping[str, Any]) -> None:
    """Write a profile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(
        {"operators": dict(operators), "profile": dict(profile)}, sort_keys=False, width=100
    )
    path.write_text(text, encoding="utf-8")


def read_processors(path: Path, topology: Topology) -> dict[str, int]:
    """The processors that a profile found for the operators of a topology."""
    top = read_section(path, "a profile, as `sojourn profile` writes it")
    if "profile" not in top.value:
        top.fail("has no profile; make one with `sojourn profile`")
    found = top.section("profile").section("processors")
    processors = {name: found.number(name, parse_whole, above=0) for name in found.value}
    for name in topology.operators:
        if name not in processors:
            found.fail(f"lacks operator {name!r} of topology {topology.name!r}; profile it anew")
    return {name: int(processors[name]) for name in topology.operators}


def kept(path: Path, of: Round) -> None:
    """Keep a round."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(of)) + "\n")


def read_rounds(path: Path) -> Iterator[Round]:
    """The rounds of an earlier run, as far as they were written."""
    if not path.exists():
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield _round(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}:{number}: is not a round of profiling ({error}); remove the file to "
                "profile anew"
            ) from error


def _round(found: dict[str, Any]) -> Round:
    proposal, measured = found["proposal"], found["measured"]
    return Round(
        found["number"],
        Proposal(**{**proposal, "parallelism": Parallelism(**proposal["parallelism"])}),
        Measured(
            tuple(measured["readings"]),
            measured["latency_s"],
            {name: Seen(**of) for name, of in measured["seen"].items()},
            measured["waiting"],
        ),
        Verdict(**found["verdict"]),
    )
