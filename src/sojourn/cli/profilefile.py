"""The files of `sojourn profile`. The profile is YAML: what was measured of operators, as a service
file has it, and the parallelism that was found. Rounds are kept as they end, one a line, so that
profiling that was interrupted goes on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from sojourn import durable
from sojourn.errors import InputError
from sojourn.ports import Parallelism
from sojourn.profiler.rounds import Round
from sojourn.profiler.trial import Measured, Proposal, Seen, Verdict


def written(path: Path, operators: Mapping[str, Any], profile: Mapping[str, Any]) -> None:
    """Write a profile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(
        {"operators": dict(operators), "profile": dict(profile)}, sort_keys=False, width=100
    )
    path.write_text(text, encoding="utf-8")


def kept(path: Path, rounds: Sequence[Round]) -> None:
    """Keep all rounds so far; whoever ends it, the file is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(asdict(of)) + "\n" for of in rounds)
    durable.write(path, lines.encode())


def read_rounds(path: Path) -> Iterator[Round]:
    """The rounds of an earlier run."""
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
