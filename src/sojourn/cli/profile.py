"""`sojourn profile`: how many processors each operator needs on a platform, found by measuring."""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.chains import contracted
from sojourn.cli.app import load_topology
from sojourn.errors import InputError
from sojourn.units import format_duration, parse_duration

if TYPE_CHECKING:
    from sojourn.ports import Parallelism, Platform
    from sojourn.profiler.capability import Limits
    from sojourn.profiler.readings import Reading
    from sojourn.profiler.rounds import Round
    from sojourn.profiler.stepwise import Shape
    from sojourn.profiler.trial import Method, Proposal
    from sojourn.topology import Topology

METHODS = ("guided", "threshold", "stela")
_KINDS = ("proportional", "workload", "logic")


def profile(
    apps: Annotated[list[str], typer.Argument(help="APP.py[:name], one or several to compare.")],
    max_latency: Annotated[str, typer.Option(help="Tuples may take so long on average.")] = "500ms",
    small: Annotated[
        float, typer.Option(help="Messages a second with which nothing waits.")
    ] = 20.0,
    slice_: Annotated[float, typer.Option("--slice", help="Finer ratios the smaller it is.")] = 0.3,
    factor: Annotated[
        float, typer.Option(help="Operators that take this times their least are ample.")
    ] = 2.0,
    alpha: Annotated[
        float, typer.Option(help="Go back if less than this share of the best is carried.")
    ] = 0.9,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="OPERATOR=proportional, workload or logic; may be repeated."),
    ] = None,
    compare: Annotated[
        str | None, typer.Option(help="Other methods to compare with: guided,threshold,stela.")
    ] = None,
    engine: Annotated[str, typer.Option(help="spark or simulator.")] = "spark",
    service: Annotated[Path | None, typer.Option(help="Service times, for the simulator.")] = None,
    machines: Annotated[int, typer.Option(help="Machines of the platform.")] = 1,
    cores: Annotated[
        int | None, typer.Option(help="Cores of each; default: those of this machine.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master; local unless given.")] = None,
    reading: Annotated[str, typer.Option(help="How long a reading lasts at least.")] = "1s",
    seed: Annotated[int, typer.Option(help="Of the simulator.")] = 0,
    out: Annotated[Path, typer.Option(help="Directory; the same command goes on there.")] = Path(
        "out/profile"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Find how many processors each operator needs to carry the most load within a limit."""
    from sojourn.profiler.capability import Limits
    from sojourn.profiler.readings import Reading
    from sojourn.profiler.stepwise import Shape

    others = _methods(compare)
    cores = cores or os.cpu_count() or 1
    if engine not in ("spark", "simulator"):
        raise InputError(f"--engine must be spark or simulator; got {engine!r}")
    if (engine == "simulator") != (service is not None):
        raise InputError("--service FILE is needed with --engine simulator, and only there")
    if machines < 1 or cores < 1:
        raise InputError(f"--machines and --cores must be at least 1; got {machines} and {cores}")
    limits = Limits(
        parse_duration(max_latency, "--max-latency"), alpha, factor, slice_, machines * cores
    )
    if not limits.latency_s > 0 or not 0 < alpha <= 1 or factor < 1 or not small > 0:
        raise InputError(
            "--max-latency and --small must be above 0, --alpha above 0 and at most 1, and "
            f"--factor at least 1; got {max_latency}, {small:g}, {alpha:g} and {factor:g}"
        )
    how = Reading(seconds=parse_duration(reading, "--reading"))
    results = {}
    for app in apps:
        topology = load_topology(app)
        topology.check()
        shape = Shape.of(contracted(topology), _kinds(kind or []))
        platform = _platform(topology, engine, service, machines, cores, master, seed)
        found = Profiling(topology, shape, platform, limits, how, out / topology.name)
        results[topology.name] = found.run(small, others)
        if not as_json:
            typer.echo(found.told())
    if len(results) > 1 and not as_json:
        typer.echo(_compared(results))
    if as_json:
        typer.echo(json.dumps(results, indent=2))


class Profiling:
    """One application: its methods, one after the other, and what they found."""

    def __init__(
        self,
        topology: "Topology",
        shape: "Shape",
        platform: "Platform",
        limits: "Limits",
        how: "Reading",
        out: Path,
    ) -> None:
        from sojourn.profiler.stepwise import Found

        self.topology, self.shape, self.platform = topology, shape, platform
        self.limits, self.how, self.out = limits, how, out
        self.found: Found = Found()
        self.rounds: dict[str, list[Round]] = {}

    def run(self, small: float, others: Sequence[str]) -> dict[str, Any]:
        """Run stepwise profiling, and others for as many rounds. Returns all that was found."""
        from sojourn.profiler.baselines import stela, threshold
        from sojourn.profiler.guided import guided
        from sojourn.profiler.stepwise import Found, stepwise

        self._run("stepwise", stepwise(self.shape, self.limits, small, self.found))
        rounds = max(1, len(self.rounds["stepwise"]) - 2)  # the first two try no parallelism
        scalable = [name for name in self.shape.operators if name not in self.shape.single]
        ones = self.shape.ones()
        for name in others:
            if name == "guided":
                self._run(name, guided(self.shape, self.limits, small, Found()))
            elif name == "threshold":
                self._run(name, threshold(ones, rounds, scalable))
            else:
                receivers, machines = self.shape.receivers, self.platform.machines
                self._run(name, stela(ones, rounds, scalable, receivers, machines))
        self._write()
        return {
            "topology": self.topology.name,
            "best": asdict(self.found.best[-1]),
            "rounds": {name: [asdict(r) for r in of] for name, of in self.rounds.items()},
        }

    def _run(self, name: str, method: "Method") -> None:
        from sojourn.cli.profilefile import kept, read_rounds
        from sojourn.profiler.rounds import run
        from sojourn.profiler.trial import Proposal

        path = self.out / f"{name}.jsonl"
        known = list(read_rounds(path))
        rounds: list[Round] = []

        def told(event: "Proposal | Round") -> None:
            if isinstance(event, Proposal):
                typer.echo(f"{name}: {_tasks(event.parallelism)}: {event.why} …", err=True)
                return
            rounds.append(event)
            if rounds != known[: len(rounds)]:
                kept(path, rounds)
            typer.echo(f"{name}: {_line(event)}", err=True)

        _, self.rounds[name] = run(
            method,
            self.platform,
            self.shape.sources,
            self.how,
            [(r.proposal, r.measured) for r in known],
            told,
        )

    def _write(self) -> None:
        from sojourn.cli.profilefile import written

        first = self.rounds["stepwise"][0].measured
        operators = {}
        for name, feature in self.found.features.items():
            seen = first.seen[name]
            operators[name] = {
                "service": f"{feature.least_s * 1e3:.6g}ms",
                "gains": {to: round(gain, 6) for to, gain in seen.emitted.items()},
            }
        best = self.found.best[-1]
        written(
            self.out / "profile.yaml",
            operators,
            {
                "topology": self.topology.name,
                "machines": self.platform.machines,
                "cores": self.platform.cores,
                "limit": format_duration(self.limits.latency_s),
                "processors": dict(best.parallelism.processors),
                "parts": dict(best.parallelism.parts),
                "in_flight": best.parallelism.in_flight,
                "throughput": round(best.measured.throughput, 3),
                "latency": format_duration(best.measured.latency_s),
            },
        )

    def told(self) -> str:
        """The recommendation in words."""
        best = self.found.best[-1]
        lines = [
            f"{self.topology.name}: {_tasks(best.parallelism)} carries "
            f"{best.measured.throughput:.4g} tuples a second, which take "
            f"{format_duration(best.measured.latency_s)} on average."
        ]
        if not best.is_met(self.limits):
            lines.append(
                f"No parallelism that was tried keeps {format_duration(self.limits.latency_s)}; "
                "this is the one that carries most."
            )
        for name, rounds in self.rounds.items():
            if name != "stepwise":
                last = rounds[-1].measured.throughput
                gain = best.measured.throughput / last - 1
                lines.append(f"That is {gain:+.1%} over {name}, which took {len(rounds)} rounds.")
        lines.append(f"The profile is in {self.out / 'profile.yaml'}.")
        return "\n".join(lines)


def _platform(
    topology: "Topology",
    engine: str,
    service: Path | None,
    machines: int,
    cores: int,
    master: str | None,
    seed: int,
) -> "Platform":
    if engine == "spark":
        from sojourn.profile import SparkPlatform

        return SparkPlatform(topology, machines, cores, master)
    from sojourn.cli.servicefile import read_service_file
    from sojourn.settings import SimulatorSettings
    from sojourn.simulator.trials import SimulatedPlatform

    assert service is not None
    workload = read_service_file(service)
    return SimulatedPlatform(topology, workload, SimulatorSettings(), machines, cores, seed=seed)


def _methods(compare: str | None) -> list[str]:
    found = [] if compare is None else [name.strip() for name in compare.split(",")]
    for name in found:
        if name not in METHODS:
            raise InputError(f"--compare must name {' or '.join(METHODS)}; got {name!r}")
    return found


def _kinds(given: Sequence[str]) -> dict[str, Any]:
    found = {}
    for one in given:
        name, equals, kind = one.partition("=")
        if not equals or kind not in _KINDS:
            raise InputError(f"--kind must be OPERATOR=KIND, of {', '.join(_KINDS)}; got {one!r}")
        found[name] = kind
    return found


def _tasks(parallelism: "Parallelism") -> str:
    counts = {**parallelism.parts, **parallelism.processors}
    words = ", ".join(f"{name} {count}" for name, count in counts.items())
    most = parallelism.in_flight
    return words if most is None else f"{words}, at most {most} under way"


def _line(of: "Round") -> str:
    readings = of.measured.readings
    spread = statistics.stdev(readings) if len(readings) > 1 else 0.0
    return (
        f"{of.number}: {of.measured.throughput:.4g} ± {spread:.2g}/s, "
        f"{format_duration(of.measured.latency_s)}: "
        f"{'kept' if of.verdict.kept else 'revoked'}, {of.verdict.why}"
    )


def _compared(results: Mapping[str, Any]) -> str:
    rates = {
        name: statistics.fmean(of["best"]["measured"]["readings"]) for name, of in results.items()
    }
    most = max(rates, key=rates.__getitem__)
    words = [
        f"{name} reaches {rate / rates[most]:.1%} of {most}"
        for name, rate in rates.items()
        if name != most
    ]
    return "; ".join(words) + "."
