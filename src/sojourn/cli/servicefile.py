"""What `sojourn simulate` is told about operators and arrivals: a file of service times, a plan, a
journal, or a trace. Checked line by line; feeds the simulator a workload."""

import csv
import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from sojourn.cli.planfile import read_plan_file
from sojourn.cli.section import Section, read_section
from sojourn.errors import InputError
from sojourn.simulate import workload_of
from sojourn.simulator import Distribution, OperatorLoad, SourceLoad, Workload
from sojourn.simulator.draws import KINDS
from sojourn.topology import Topology
from sojourn.units import parse_duration, parse_number, parse_rate

_ARRIVALS = {"constant": 0.0, "poisson": 1.0}


def read_service_file(path: Path) -> Workload:
    """A journal (.jsonl), a plan (with edges), or a file of service times."""
    if ".jsonl" in path.suffixes[-2:]:  # also a part of one that was rotated
        return workload_of(path)
    top = read_section(path, "operators, with their service times")
    if "edges" in top.value:
        return _of_plan(path, top)
    top.check_keys("operators", "sources")
    operators = {
        name: _operator(entry)
        for name, entry in top.entries("operators", "service", "gains", "keys", "cpu", "every")
    }
    sources = {}
    if "sources" in top.value:
        for name, entry in top.entries("sources", "rate", "arrivals", "scv", "count"):
            sources[name] = _source(entry)
    return Workload(operators, sources)


def _of_plan(path: Path, top: Section) -> Workload:
    """Of a plan; of a profile, with what goes to sinks too."""
    plan = read_plan_file(path)
    gains: dict[str, dict[str, float]] = {}
    if "profile" in top.value and "gains" in top.section("profile").value:
        for name in top.section("profile", "gains").value:
            found = top.section("profile", "gains", name)
            gains[name] = {to: found.number(to, parse_number) for to in found.value}
    else:
        for edge in plan.edges:
            if edge.sender in plan.operators:
                gains.setdefault(edge.sender, {})[edge.receiver] = edge.gain
    return Workload(
        {
            name: OperatorLoad(
                Distribution.of_moments(1 / entry.service_rate, entry.service_scv),
                gains.get(name, {}),
                cpu=entry.cpu,
            )
            for name, entry in plan.operators.items()
        },
        {name: SourceLoad(((1.0, rate),)) for name, rate in plan.sources.items()},
    )


def _operator(entry: Section) -> OperatorLoad:
    if "service" not in entry.value:
        entry.fail("needs service, such as 25ms")
    gains = {}
    if "gains" in entry.value:
        found = entry.section("gains")
        gains = {to: found.number(to, parse_number) for to in found.value}
    zipf, shift_s = 0.0, None
    if "keys" in entry.value:
        keys = entry.section("keys")
        keys.check_keys("zipf", "shift")
        zipf = keys.number("zipf", parse_number, default=0.0)
        shift_s = keys.optional("shift", parse_duration, above=0.0)
    try:
        cpu = entry.number("cpu", parse_number, default=1.0)
        every_s = entry.optional("every", parse_duration, above=0.0)
        return OperatorLoad(_distribution(entry), gains, zipf, shift_s, cpu, every_s)
    except InputError as error:
        _told(entry, error)


def _distribution(entry: Section) -> Distribution:
    """The distribution of service times. `service: 25ms` is exponential; a mapping can give any
    other."""
    if not isinstance(entry.value["service"], dict):
        return Distribution("exponential", entry.number("service", parse_duration, above=0.0))
    told = entry.section("service")
    told.check_keys("distribution", "mean", "scv", "shape", "samples")
    if "samples" in told.value:
        told.check_keys("samples")
        return _samples(told)
    kind: Any = told.name("distribution", KINDS, "distribution")
    try:
        return Distribution(
            kind,
            told.number("mean", parse_duration, above=0.0),
            told.number("scv", parse_number) if "scv" in told.value else None,
            told.number("shape", parse_number) if "shape" in told.value else None,
        )
    except InputError as error:
        _told(told, error)


def _told(entry: Section, error: InputError) -> NoReturn:
    """Raise the error with its place, unless it names one."""
    if str(error).startswith(entry.path):
        raise error
    entry.fail(str(error))


def _samples(told: Section) -> Distribution:
    """A list, or the name of a file with one duration per line."""
    given = told.value["samples"]
    if isinstance(given, str):
        file = Path(told.path).parent / given
        try:
            given = file.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            told.fail(f"{file}: cannot be read: {error}", "samples")
    if not isinstance(given, list) or not given:
        told.fail("must be a list of durations, or a file with one per line", "samples")
    try:
        values = tuple(parse_duration(value, "sample") for value in given)
        return Distribution("samples", values=values)
    except InputError as error:
        told.fail(str(error), "samples")


def _source(entry: Section) -> SourceLoad:
    rate = entry.value.get("rate")
    steps: tuple[tuple[float, float], ...]
    if isinstance(rate, list):
        try:
            steps = tuple(
                (parse_duration(seconds, "step"), parse_rate(of, "step")) for seconds, of in rate
            )
        except (TypeError, ValueError):
            entry.fail("must be a rate, or steps such as [[40s, 20/s], [60s, 80/s]]", "rate")
        except InputError as error:
            entry.fail(str(error), "rate")
        if not steps or any(s <= 0 or r < 0 for s, r in steps) or steps[-1][1] <= 0:
            entry.fail("durations and the last rate must be above zero, no rate negative", "rate")
    else:
        steps = ((1.0, entry.number("rate", parse_rate, above=0.0)),)
    scv = 1.0
    if "arrivals" in entry.value:
        scv = _ARRIVALS[entry.name("arrivals", _ARRIVALS, "kind of arrivals")]
    if "scv" in entry.value:
        if "arrivals" in entry.value:
            entry.fail("give arrivals or scv, not both", "scv")
        scv = entry.number("scv", parse_number)
    try:
        return SourceLoad(steps, Distribution.of_moments(1.0, scv), entry.whole("count"))
    except InputError as error:
        _told(entry, error)


def read_trace(path: Path, topology: Topology, workload: Workload) -> Workload:
    """A table of comma-separated values: evenly spaced times in seconds, and the rate from each
    time on, one column per source. It ends one step after its last row."""
    rows = _rows(path)
    line, header = rows[0][0], [cell.strip() for cell in rows[0][1]]
    names = list(topology.sources)
    if header[0] != "time" or len(header) < 2:
        raise InputError(f"{path}:{line}: the header must be time,rate or time,SOURCE,…")
    columns = names if header[1:] == ["rate"] and len(names) == 1 else header[1:]
    for name in columns:
        if name not in topology.sources:
            raise InputError(f"{path}:{line}: {name!r} is not a source; known: {', '.join(names)}")
        if columns.count(name) > 1:
            raise InputError(f"{path}:{line}: the source {name!r} has two columns; leave one out")
    if len(rows) < 3:
        raise InputError(f"{path}: needs at least two rows, because their times give the step")
    table = [_numbers(path, line, row, len(header)) for line, row in rows[1:]]
    step_s = table[1][0] - table[0][0]
    for (line, _), (before, now) in zip(rows[2:], itertools.pairwise(table), strict=True):
        if not math.isclose(now[0] - before[0], step_s, rel_tol=1e-6) or step_s <= 0:
            raise InputError(
                f"{path}:{line}: times must be evenly spaced, every {step_s:g} s as at the "
                f"start; {before[0]:g} is followed by {now[0]:g}; fill the gap"
            )
    if not any(rate for row in table for rate in row[1:]):
        raise InputError(f"{path}: all rates are zero; nothing would arrive")
    sources: dict[str, SourceLoad] = dict(workload.sources)
    for column, name in enumerate(columns, 1):
        known = workload.sources.get(name) or SourceLoad.of(topology.sources[name].source)
        steps = tuple((step_s, row[column]) for row in table)
        base = known or SourceLoad(steps)
        sources[name] = replace(base, steps=steps, ends=True)
    return Workload(workload.operators, sources)


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """The rows that are not empty, with their lines."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if not rows:
        raise InputError(f"{path}: is empty; give a table with the header time,rate")
    return rows


def _numbers(path: Path, line: int, row: list[str], width: int) -> list[float]:
    if len(row) != width:
        raise InputError(f"{path}:{line}: has {len(row)} values; the header has {width}")
    found = []
    for cell in row:
        try:
            number = float(cell)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise InputError(
                f"{path}:{line}: times and rates must be finite and at least zero; got {cell!r}"
            )
        found.append(number)
    return found


def at_rate(workload: Workload, topology: Topology, factor: float) -> Workload:
    """The same with every source's rate multiplied by a factor."""
    whole: Mapping[str, SourceLoad] = workload.checked(topology).sources
    return Workload(
        workload.operators, {name: load.at_rate(factor) for name, load in whole.items()}
    )
