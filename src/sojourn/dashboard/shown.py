"""The board as JSON, in the shapes that docs/dashboard.md promises. Fed by the board; feeds REST,
the page's stream and reports."""

import itertools
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sojourn.dashboard.board import Board, Entry, Mark
from sojourn.dashboard.history import Row
from sojourn.dashboard.layout import HIGH, WIDE
from sojourn.dashboard.tick import About, Tick, Vertex

_DIGITS = 5
MOST_NEWS = 60  # ticks; whoever is farther behind begins anew


def short(value: float | None) -> float | None:
    """A figure with as many digits as anybody needs."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def topology(board: Board) -> dict[str, Any]:
    """What does not change, and where it is drawn."""
    about, layout = board.about, board.layout
    return {
        "name": about.name,
        "source": about.source,
        "unit": about.unit,
        "across": about.across,
        "commits": about.commits,
        "began": about.began_s,
        "vertices": [
            {"name": name, "kind": kind, "x": layout.places[name][0], "y": layout.places[name][1]}
            for name, kind in about.kinds.items()
        ],
        "edges": [
            {
                "from": one.edge.sender,
                "to": one.edge.receiver,
                "name": one.edge.name,
                "feedback": one.edge.feedback,
                "path": one.path,
                "x": one.label[0],
                "y": one.label[1],
            }
            for one in layout.edges
        ],
        "box": {"width": WIDE, "height": HIGH},
        "width": layout.width,
        "height": layout.height,
    }


def allocation(board: Board) -> dict[str, Any]:
    """Processors wanted and there, and what limits them."""
    tick = board.tick
    found: dict[str, Any] = {"unit": board.about.unit, "operators": {}, "total": 0}
    if tick is None:
        return found
    found["total"] = tick.processors
    found["most"], found["capacity"] = tick.most, tick.capacity
    found["machines"] = None if tick.machines is None else dict(tick.machines)
    for name in board.names:
        vertex = tick.vertices.get(name)
        found["operators"][name] = {
            "processors": 0 if vertex is None else vertex.processors,
            "wanted": tick.wanted.get(name),
        }
    return found


def status(board: Board) -> dict[str, Any]:
    """How things stand."""
    totals, tick = board.totals, board.last
    return {
        "finished": board.finished,
        "paused": board.paused,
        "problem": board.problem,
        "intervals": totals.intervals,
        "within": totals.within if totals.targeted else None,
        "targeted": totals.targeted,
        "changes": totals.changes,
        "restarts": 0 if tick is None else tick.restarts,
        "relocations": 0 if tick is None else tick.relocations,
        "commits": 0 if tick is None else tick.commits,
        "lost": lost(board),
        "mean": short(totals.sojourn_s / totals.trees) if totals.trees else None,
    }


def lost(board: Board) -> dict[str, dict[str, int]]:
    """Tuples dropped and shed since the start, of the vertices that have lost any."""
    tuples = board.totals.tuples
    found = {
        name: {what: tuples[name, what] for what in ("dropped", "shed")}
        for name in board.about.kinds
    }
    return {name: counts for name, counts in found.items() if any(counts.values())}


def columns(rows: Iterable[Row], names: list[str]) -> dict[str, Any]:
    """Rows as columns, which charts and data frames take."""
    rows = list(rows)
    found: dict[str, Any] = {
        "time": [round(row.time_s, 3) for row in rows],
        "ticks": [row.ticks for row in rows],
    }
    for key, of in (
        ("mean", "mean_s"),
        ("p95", "p95_s"),
        ("p99", "p99_s"),
        ("estimate", "estimate_s"),
        ("target", "target_s"),
        ("load", "load"),
        ("forecast", "forecast"),
        ("due", "due_s"),
        ("busy", "busy"),
    ):
        found[key] = [short(getattr(row, of)) for row in rows]
    found["most"] = [row.most for row in rows]
    found["processors"] = {
        name: [row.processors[place] for row in rows] for place, name in enumerate(names)
    }
    return found


def vertex(of: Vertex) -> dict[str, Any]:
    """An operator, source or sink in the last interval."""
    return {
        "processors": of.processors,
        "wanted": of.wanted,
        "utilization": short(of.busy),
        "rate": short(of.rate),
        "service": short(of.service_s),
        "service_rate": None if not of.service_s else short(1 / of.service_s),
        "arrival_scv": short(of.arrival_scv),
        "service_scv": short(of.service_scv),
        "queue": of.queue,
        "dropped": of.dropped,
        "shed": of.shed,
        "lag": short(of.lag_s),
        "share": short(of.share),
        "sent": {name: short(rate) for name, rate in of.sent.items()},
        "executors": [asdict(part) for part in of.parts],
        "shards": None
        if of.shards is None
        else dict(sorted(of.shards.items(), key=lambda one: -one[1])[:32]),
    }


def latest(tick: Tick) -> dict[str, Any]:
    """Everything about a tick."""
    sojourn, forecast = tick.sojourn, tick.forecast
    return {
        "number": tick.number,
        "time": round(tick.time_s, 3),
        "interval": tick.interval_s,
        "urgent": tick.urgent,
        "count": None if sojourn is None else sojourn.count,
        "mean": None if sojourn is None else short(sojourn.mean_s),
        "p95": None if sojourn is None else short(sojourn.p95_s),
        "p99": None if sojourn is None else short(sojourn.p99_s),
        "max": None if sojourn is None else short(sojourn.max_s),
        "value": short(tick.value_s),
        "estimate": short(tick.estimate_s),
        "target": tick.target_s,
        "min": tick.least_s,
        "percentile": tick.percentile,
        "within": tick.within_target,
        "load": short(tick.load),
        "forecast": None
        if forecast is None
        else {"rate": short(forecast.rate), "horizon": forecast.horizon_s, "by": forecast.by},
        "processors": tick.processors,
        "wanted": dict(tick.wanted),
        "most": tick.most,
        "capacity": tick.capacity,
        "machines": None if tick.machines is None else dict(tick.machines),
        "note": tick.note,
        "vertices": {name: vertex(of) for name, of in tick.vertices.items()},
    }


def decision(entry: Entry) -> dict[str, Any]:
    """A decision in words and numbers. Its inputs are those of `samples?number=`."""
    tick = entry.tick
    made = tick.decision
    return {
        "number": tick.number,
        "time": round(tick.time_s, 3),
        "since": round(entry.since_s, 3),
        "times": entry.times,
        "urgent": tick.urgent,
        "action": made.action,
        "reason": made.reason,
        "acts": made.acts,
        "applied": made.applied,
        "before": dict(tick.wanted),
        "allocation": None if made.allocation is None else dict(made.allocation),
        "expected": short(made.expected_s),
        "needed": made.needed,
        "note": tick.note,
    }


def mark(of: Mark) -> dict[str, Any]:
    """A line in charts."""
    return {"time": round(of.time_s, 3), "kind": of.kind, "told": of.told, "number": of.number}


def everything(board: Board) -> dict[str, Any]:
    """What a page needs to begin with. To be called with the board's lock."""
    return {
        "topology": topology(board),
        "status": status(board),
        "history": columns(board.history.rows(), board.names),
        "marks": [mark(one) for one in board.marks],
        "decisions": [decision(one) for one in reversed(board.decisions)],
        "latest": None if board.tick is None else latest(board.tick),
    }


@dataclass(frozen=True)
class Seen:
    """How far a page has come."""

    about: About
    intervals: int
    number: int


@dataclass(frozen=True)
class Told:
    """What a page is told, and how far it has come then. The `last` is all that there ever is."""

    kind: str
    data: dict[str, Any]
    seen: Seen
    last: bool


def told(board: Board, seen: Seen | None) -> Told:
    """What has come since, or everything, for a page that has seen nothing. All is of one moment,
    so that nothing is told twice or left out."""
    with board.lock:
        now = Seen(
            board.about, board.totals.intervals, 0 if board.last is None else board.last.number
        )
        fresh = None if seen is None else news(board, seen)
        kind, data = ("begin", everything(board)) if fresh is None else ("news", fresh)
        return Told(kind, data, now, board.closed)


def news(board: Board, seen: Seen) -> dict[str, Any] | None:
    """What has come since, for a page that has all before. None if that is too much, or if what
    does not change from tick to tick has become known only now. To be called with the board's
    lock."""
    count = board.totals.intervals - seen.intervals
    if count > MOST_NEWS or board.about is not seen.about:
        return None
    rows = list(itertools.islice(reversed(board.history.recent), count))[::-1]
    entries = itertools.takewhile(
        lambda one: one.tick.number > seen.number, reversed(board.decisions)
    )
    return {
        "status": status(board),
        "history": columns(rows, board.names),
        "marks": [mark(one) for one in board.marks if one.number > seen.number],
        "decisions": [decision(one) for one in entries],
        "latest": None if board.tick is None else latest(board.tick),
    }
