"""The files of `sojourn profile`. The profile is a plan in YAML, with what was measured of the
operators, and a section more: on which platform which parallelism was found, and what it carries.
Rounds are kept as they end, one a line, so that profiling that was interrupted goes on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from sojourn import durable
from sojourn.chains import contracted
from sojourn.cli.planfile import read_plan_file
from sojourn.cli.section import Section, read_section
from sojourn.errors import InputError
from sojourn.ports import Parallelism
from sojourn.profile import Profiling
from sojourn.profiler.recalibration import Known
from sojourn.profiler.rounds import Round
from sojourn.profiler.trial import Measured, Proposal, Seen, Verdict
from sojourn.topology import OperatorSpec, Topology
from sojourn.units import parse_duration, parse_rate

_LEAST_GAIN = 1e-6  # of an edge over which nothing came


@dataclass(frozen=True)
class Profile:
    """What `sojourn run` takes from a profile: the parallelism, and what it is known by."""

    path: Path
    topology: str
    edges: frozenset[str]
    processors: Mapping[str, int]
    parts: Mapping[str, int]  # of sources
    in_flight: int | None
    known: Known
    machines: int
    cores: int  # of each
    small: float
    options: Mapping[str, Any] = field(default_factory=dict)  # of sojourn profile, as it was made

    def applied(self, topology: Topology) -> Topology:
        """The topology with as many processors as were found. Operators that are new keep
        theirs."""
        if not self.processors.keys() & topology.operators.keys():
            raise InputError(
                f"{self.path}: is of {self.topology!r} and has no operator of {topology.name!r}; "
                "profile that"
            )
        found = Topology(topology.name)
        found.edges = list(topology.edges)
        for name, spec in topology.vertices.items():
            count = self.processors.get(name)
            if isinstance(spec, OperatorSpec) and count is not None:
                executors = min(spec.executors, count)
                found.vertices[name] = replace(spec, processors=count, executors=executors)
            else:
                found.vertices[name] = spec
        found.check()
        return found


def edges_of(topology: Topology) -> frozenset[str]:
    """By which a topology is known again."""
    return frozenset(f"{edge.sender} → {edge.name}" for edge in contracted(topology).edges)


def written(
    path: Path, topology: Topology, profiling: Profiling, options: Mapping[str, Any]
) -> None:
    """Write what the first method has found for a topology, with these options."""
    main = next(iter(profiling.best))
    best, features = profiling.best[main], profiling.found[main].features
    flowing = contracted(topology).without_broadcasts()
    fed = {e.sender for e in flowing.edges if e.receiver in flowing.operators}
    rate = best.measured.throughput / max(1, len(flowing.sources))
    gains: dict[tuple[str, str], float] = {}
    emitted: dict[str, dict[str, float]] = {}
    for edge in flowing.edges:
        seen = best.measured.seen.get(edge.sender)
        gain = 1.0 if seen is None else seen.emitted.get(edge.name, 0.0)
        if seen is not None:
            emitted.setdefault(edge.sender, {})[edge.name] = round(gain, 6)
        if edge.receiver in flowing.operators:
            between = edge.sender, edge.receiver
            gains[between] = gains.get(between, 0.0) + gain
    feedback = {(e.sender, e.receiver) for e in flowing.edges if e.feedback}
    plan = {
        "name": topology.name,
        "sources": {name: {"rate": f"{rate:.6g}/s"} for name in flowing.sources if name in fed},
        "operators": {
            name: {
                "service_time": f"{feature.least_s * 1e3:.6g}ms",
                "service_scv": round(best.measured.seen[name].service_scv, 4),
            }
            for name, feature in features.items()
        },
        "edges": [
            {"from": sender, "to": receiver, "gain": round(max(_LEAST_GAIN, gain), 6)}
            | ({"feedback": True} if (sender, receiver) in feedback else {})
            for (sender, receiver), gain in gains.items()
        ],
        "profile": {
            "machines": profiling.platform.machines,
            "cores": profiling.platform.cores,
            "limit": f"{profiling.limits.latency_s * 1e3:.6g}ms",
            "small": f"{profiling.small:.6g}/s",
            "throughput": f"{best.measured.throughput:.6g}/s",
            "latency": f"{best.measured.latency_s * 1e3:.6g}ms",
            "processors": dict(best.parallelism.processors),
            "parts": dict(best.parallelism.parts),
            "in_flight": best.parallelism.in_flight,
            "service": {
                name: f"{of.service_s * 1e3:.6g}ms"
                for name, of in best.measured.seen.items()
                if of.service_s is not None and name in features
            },
            "gains": emitted,
            "kinds": {name: feature.kind for name, feature in features.items()},
            "topology": sorted(edges_of(topology)),
            "options": dict(options),
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(plan, sort_keys=False, width=100, allow_unicode=True)
    durable.write(path, text.encode())


def read_profile(path: Path) -> Profile:
    """Read a profile, or say which line is wrong."""
    top = read_section(path, "a profile, as sojourn profile writes it")
    if "profile" not in top.value:
        top.fail("is no profile; make one with sojourn profile")
    of = top.section("profile")
    of.check_keys(
        *("machines", "cores", "limit", "throughput", "latency", "processors", "parts"),
        *("small", "in_flight", "service", "gains", "kinds", "topology", "options"),
    )
    for key in ("machines", "cores", "processors", "service"):
        if key not in of.value:
            of.fail(f"needs {key}; profile it anew")
    edges = of.value.get("topology", [])
    if not isinstance(edges, list) or not all(isinstance(edge, str) for edge in edges):
        of.fail("must be a list of edges, such as [a → b]", "topology")
    service = of.section("service")
    gains: dict[str, dict[str, float]] = {}
    kinds = of.section("kinds").value if "kinds" in of.value else {}
    for edge in read_plan_file(path).edges:
        # What a timer emits for each tuple depends on the load; over some edges nothing came.
        if kinds.get(edge.sender) != "logic" and edge.gain > _LEAST_GAIN:
            gains.setdefault(edge.sender, {})[edge.receiver] = edge.gain
    machines, cores = of.whole("machines"), of.whole("cores")
    assert machines is not None
    assert cores is not None
    return Profile(
        path,
        top.text("name", path.stem),
        frozenset(edges),
        _counts(of.section("processors")),
        _counts(of.section("parts")) if "parts" in of.value else {},
        None if of.value.get("in_flight") is None else of.whole("in_flight"),
        Known(
            limit_s=of.number("limit", parse_duration, above=0.0),
            throughput=of.number("throughput", parse_rate, above=0.0),
            service_s={n: service.number(n, parse_duration, above=0.0) for n in service.value},
            gains={name: of_ for name, of_ in gains.items() if name in service.value},
        ),
        machines,
        cores,
        of.number("small", parse_rate, default=20.0, above=0.0),
        _options(of.section("options")) if "options" in of.value else {},
    )


def _options(section: Section) -> dict[str, Any]:
    """Only those that say how it was profiled."""
    section.check_keys("method", "slice", "factor", "alpha", "reading", "kind")
    kinds = section.value.get("kind", [])
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        section.fail("must be a list, such as [ranking=logic]", "kind")
    return dict(section.value)


def _counts(section: Section) -> dict[str, int]:
    found = {}
    for name in section.value:
        count = section.whole(name)
        assert count is not None  # its key is there
        found[name] = count
    return found


def kept(path: Path, of: str, rounds: Sequence[Round]) -> None:
    """Keep all rounds so far, and what they are `of`; whoever ends it, the file is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"of": of}), *(json.dumps(asdict(one)) for one in rounds)]
    durable.write(path, "".join(line + "\n" for line in lines).encode())


def read_rounds(path: Path, of: str) -> Iterator[Round]:
    """The rounds of an earlier run of the same; none if it was of something else."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not a file of rounds ({error.reason}); remove it to profile anew"
        ) from error
    if not lines or lines[0] != json.dumps({"of": of}):
        return
    for number, line in enumerate(lines[1:], 2):
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
            measured["sound"],
        ),
        Verdict(**found["verdict"]),
    )
