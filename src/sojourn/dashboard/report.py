"""A run as one file: HTML with its pictures inside, which opens offline, or a PNG. Fed by the
board; needs matplotlib."""

import base64
import io
import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from sojourn import durable
from sojourn.dashboard.board import Board, Entry
from sojourn.dashboard.history import Row
from sojourn.dashboard.layout import HIGH, WIDE
from sojourn.dashboard.shown import lost
from sojourn.errors import InputError
from sojourn.units import format_duration as told
from sojourn.units import format_rate

# Those of the page on a light ground.
_COLOURS = (
    *("#0072b2", "#b57600", "#009e73", "#c2699c", "#3390c9", "#d55e00", "#333a45"),
    "#6b7280",
)
_TARGET, _SOFT = "#d55e00", "#566273"
_DECISIONS = 200
_ALMOST_ALL = 0.99  # of the figures must fit
_NEAR = 2.0  # times as many as there were: a limit beyond is left out
_BESIDE_TITLE: dict[str, Any] = {
    **{"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "ncols": 8, "frameon": False},
    **{"columnspacing": 1.2, "handlelength": 1.4, "borderaxespad": 0.0},
}
_STYLE = """
body{font:14px/1.5 system-ui,sans-serif;color:#17212e;max-width:1000px;
margin:32px auto;padding:0 20px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:15px;margin:28px 0 8px}p{margin:4px 0}
.soft{color:#566273}img,svg{max-width:100%;height:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:4px 10px 4px 0;border-bottom:1px solid #dfe4ea;vertical-align:top}
th{color:#566273;font-weight:500}th:first-child,td:first-child,td.words,th.words{text-align:left}
"""


def check(path: Path) -> None:
    """Refuse a name that no report can have, before the run."""
    if path.suffix not in (".html", ".png"):
        raise InputError(f"--report: must end with .html or .png; got {str(path)!r}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"--report: {path.parent} must be a directory that exists")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise InputError("--report needs matplotlib; pip install 'sojourn[plot]'") from None


def write(board: Board, path: Path) -> None:
    """Write the report of what the board has."""
    picture = drawn(board, "svg" if path.suffix == ".html" else "png")
    content = page(board, picture).encode() if path.suffix == ".html" else picture
    try:
        durable.write(path, content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def drawn(board: Board, form: str) -> bytes:
    """Sojourn, processors and load over time, one below the other."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "sojourn", "svg.fonttype": "path", "font.size": 9}):
        figure = Figure(figsize=(10, 8.2), layout="constrained")
        axes = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2.4, 1.7))
        rows = board.history.rows()
        for axis in axes:
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(color="#e6eaef", linewidth=0.7)
            axis.set_axisbelow(True)
        if rows:
            _sojourn(axes[0], board, rows)
            _processors(axes[1], board, rows)
            _load(axes[2], rows)
        axes[2].set_xlabel(_across(board, rows))
        out = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(out, format=form, dpi=120, metadata=metadata)
    return out.getvalue()


def _across(board: Board, rows: list[Row]) -> str:
    if board.about.across != "time":
        return board.about.across
    return "hours" if _hours(rows) else "seconds"


def _hours(rows: list[Row]) -> bool:
    return bool(rows) and rows[-1].time_s > 3 * 3600


def _times(rows: list[Row]) -> list[float]:
    return [row.time_s / (3600 if _hours(rows) else 1) for row in rows]


def _line(axis: Any, rows: list[Row], values: list[float | None], **style: Any) -> None:
    if any(value is not None for value in values):
        known = [math.nan if value is None else value for value in values]
        axis.plot(_times(rows), known, **style)


def _sojourn(axis: Any, board: Board, rows: list[Row]) -> None:
    millis = {
        key: [None if (v := getattr(row, f"{key}_s")) is None else 1e3 * v for row in rows]
        for key in ("p99", "p95", "mean", "target")
    }
    _line(axis, rows, millis["p99"], color=_COLOURS[4], linewidth=0.5, label="p99")
    _line(axis, rows, millis["p95"], color=_COLOURS[0], linewidth=0.7, label="p95")
    _line(axis, rows, millis["mean"], color=_COLOURS[0], linewidth=1.8, label="mean")
    _line(axis, rows, millis["target"], color=_TARGET, linewidth=1.2, dashes=(6, 4), label="target")
    marks = [m for m in board.marks if m.kind in ("change", "restart", "relocation")]
    scale = 3600 if _hours(rows) else 1
    for mark in marks:
        colour = _TARGET if mark.kind == "restart" else _SOFT
        axis.axvline(mark.time_s / scale, color=colour, linewidth=0.7, linestyle=":")
    seen = sorted(v for v in (*millis["p99"], *millis["mean"]) if v is not None)
    if seen:
        most = 1.5 * max(seen[int(_ALMOST_ALL * (len(seen) - 1))], millis["target"][-1] or 0.0)
        axis.set_ylim(0, min(1.05 * seen[-1], most) if seen[-1] > most else None)
    axis.set_ylabel("sojourn, ms")
    axis.set_title("Sojourn; dotted lines are changes and restarts", loc="left", fontsize=10)
    if axis.lines:
        axis.legend(**_BESIDE_TITLE)


def _processors(axis: Any, board: Board, rows: list[Row]) -> None:
    below = [0.0] * len(rows)
    for place, name in enumerate(board.names):
        top = [b + (row.processors[place] or 0) for b, row in zip(below, rows, strict=True)]
        colour = _COLOURS[place % len(_COLOURS)]
        axis.fill_between(_times(rows), below, top, step="pre", color=colour, alpha=0.6, label=name)
        below = top
    highest, limit = max(below, default=0.0), rows[-1].most if rows else None
    if limit is not None and limit <= _NEAR * highest:  # further up, it would make them a strip
        most: list[float | None] = [row.most for row in rows]
        _line(axis, rows, most, color=_SOFT, linewidth=1, dashes=(6, 4))
    axis.set_ylim(bottom=0)
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.set_ylabel(board.about.unit)
    axis.set_title(f"{board.about.unit.capitalize()} per operator", loc="left", fontsize=10)
    axis.legend(**_BESIDE_TITLE)


def _load(axis: Any, rows: list[Row]) -> None:
    _line(axis, rows, [row.load for row in rows], color="#009e73", linewidth=1.2, label="came")
    axis.set_ylim(bottom=0)
    axis.set_ylabel("tuples per second")
    axis.set_title("Load", loc="left", fontsize=10)


def page(board: Board, picture: bytes) -> str:
    """The whole file."""
    image = base64.b64encode(picture).decode()
    name = escape(board.about.name)
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{name} – Sojourn</title><style>{_STYLE}</style>",
        f"<h1>{name}</h1>",
        *(f"<p class='soft'>{escape(line)}</p>" for line in summary(board)),
        f"<p><img alt='Sojourn, processors and load over time' "
        f"src='data:image/svg+xml;base64,{image}'></p>",
        "<h2>Topology</h2>",
        graph(board),
        "<h2>Operators in the last interval</h2>",
        _operators(board),
        "<h2>Decisions, newest first</h2>",
        _decisions(board),
        "</html>",
    ]
    return "\n".join(parts)


def summary(board: Board) -> Iterator[str]:
    """The run in a few lines."""
    totals, tick = board.totals, board.tick
    if board.problem:
        yield f"It failed: {board.problem}"
    if tick is None:
        yield "No interval was measured."
        return
    target = "" if tick.target_s is None else f", with a target of {told(tick.target_s)}"
    what = "mean" if tick.percentile is None else f"p{tick.percentile:g}"
    yield f"{totals.intervals} intervals{target} for the {what}"
    if totals.targeted:
        share = totals.within / totals.targeted
        yield f"The target was kept in {totals.within} of {totals.targeted} of them ({share:.1%})."
    if totals.trees:
        rows = "Rows" if board.about.source == "attached query" else "Tuples"
        yield f"{rows} took {told(totals.sojourn_s / totals.trees)} on average."
    for name, counts in lost(board).items():
        gone = (f"{count} {what}" for what, count in counts.items() if count)
        yield f"Tuples lost at {name!r}: {', '.join(gone)}."
    planned = f"; relocations: {tick.relocations}" if tick.relocations else ""
    commits = f"; last commit: {tick.commits or 'none'}" if board.about.commits else ""
    yield f"Changes: {totals.changes}; restarts: {tick.restarts}{planned}{commits}."


def graph(board: Board) -> str:
    """The topology as SVG."""
    layout, tick = board.layout, board.tick
    parts = [
        f"<svg viewBox='0 0 {layout.width:.0f} {layout.height:.0f}' width='{layout.width:.0f}' "
        "font-family='system-ui,sans-serif' font-size='12.5' role='img' aria-label='Topology'>"
    ]
    for one in layout.edges:
        dashes = " stroke-dasharray='6 5'" if one.edge.feedback else ""
        parts.append(
            f"<path d='{one.path}' fill='none' stroke='#8a96a5' stroke-width='1.6'{dashes}/>"
        )
    for name, (x, y) in layout.places.items():
        lines = [board.about.kinds[name]]
        vertex = None if tick is None else tick.vertices.get(name)
        if vertex is not None and name in board.names:
            lines = [f"{vertex.processors} {board.about.unit}", f"{vertex.busy:.0%} busy"]
        if vertex is not None and vertex.rate is not None:
            lines.append(f"{format_rate(vertex.rate, 3)}/s")
        parts.append(
            f"<rect x='{x:.0f}' y='{y:.0f}' width='{WIDE:.0f}' height='{HIGH:.0f}' rx='10' "
            "fill='#fff' stroke='#566273'/>"
            f"<text x='{x + 14:.0f}' y='{y + 26:.0f}' font-weight='650'>{escape(name)}</text>"
        )
        parts += [
            f"<text x='{x + 14:.0f}' y='{below:.0f}' fill='{_SOFT}'>{escape(line)}</text>"
            for below, line in zip((y + 48, y + 66, y + 84), lines, strict=False)
        ]
    return "".join([*parts, "</svg>"])


def _table(heads: list[str], rows: list[list[str]], words: int | None = None) -> str:
    def cells(tag: str, values: list[str]) -> str:
        return "".join(
            f"<{tag}{' class=words' if place == words else ''}>{escape(value)}</{tag}>"
            for place, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>"


def _operators(board: Board) -> str:
    tick = board.tick
    rows = []
    for name in board.names if tick is not None else ():
        vertex = tick.vertices.get(name) if tick is not None else None
        if vertex is None:
            continue
        rows.append(
            [
                name,
                str(vertex.processors),
                "–" if vertex.rate is None else f"{format_rate(vertex.rate)}/s",
                "–" if vertex.service_s is None else told(vertex.service_s),
                f"{vertex.busy:.0%}",
                str(vertex.queue),
                "–" if vertex.share is None else f"{vertex.share:.0%}",
            ]
        )
    heads = ["operator", board.about.unit, "came", "takes", "busy", "waiting", "of the sojourn"]
    return _table(heads, rows)


def _decisions(board: Board) -> str:
    entries = [one for one in reversed(board.decisions) if one.tick.decision.acts]
    if not entries:
        return "<p class='soft'>No changes.</p>"
    return _table(
        ["when" if board.about.across != "time" else "after", "action", "why"],
        [_decided(one, board.about.across) for one in entries[:_DECISIONS]],
        words=2,
    )


def _decided(entry: Entry, across: str) -> list[str]:
    decision = entry.tick.decision
    advice = "" if decision.applied else " (advice)"
    at = f"{entry.tick.time_s:.0f}"
    when = f"{at} s" if across == "time" else f"{across} {at}"
    return [when, f"{decision.action}{advice}", decision.reason]
