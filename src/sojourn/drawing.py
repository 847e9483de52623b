"""A topology as text and as a picture, without a library. Fed by the topology; `print(t)` shows the
text, a notebook the picture."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

_WIDE, _HIGH = 180, 44  # a box
_APART_X, _APART_Y = 70, 26
_MARGIN = 20
_FILLS = {"source": "#dbeafe", "operator": "#f1f5f9", "sink": "#dcfce7"}
_INK, _LINE = "#0f172a", "#64748b"


class Box(NamedTuple):
    """A vertex: its kind, what is said about it, and how far it is from a source."""

    kind: str
    told: str
    level: int


class Arrow(NamedTuple):
    """An edge; with `output` if it comes from a named output."""

    sender: str
    receiver: str
    output: str | None
    feedback: bool
    broadcast: bool = False

    @property
    def label(self) -> str:
        """What is written beside it."""
        told = [] if self.output is None else [_short(self.output)]
        return ", ".join([*told, "broadcast"] if self.broadcast else told)


def as_text(title: str, boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> str:
    """A line for each vertex: its name, what it is, and where its tuples go."""
    names = max(map(len, boxes), default=0)
    kinds = max((len(box.told) for box in boxes.values()), default=0)
    lines = [f"topology {title}"]
    for name, box in boxes.items():
        onward = "".join(_onward(arrow) for arrow in arrows if arrow.sender == name)
        lines.append(f"  {name:<{names}}  {box.told:<{kinds}}{onward}".rstrip())
    return "\n".join(lines)


def as_svg(title: str, boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> str:
    """Boxes from left to right by how far they are from a source; loops are dashed."""
    columns: dict[int, list[str]] = {}
    for name, box in boxes.items():
        columns.setdefault(box.level, []).append(name)
    tallest = max(map(len, columns.values()), default=1)
    places: dict[str, tuple[float, float]] = {}
    for level, names in columns.items():
        top = _MARGIN + (tallest - len(names)) * (_HIGH + _APART_Y) / 2
        for row, name in enumerate(names):
            x = _MARGIN + level * (_WIDE + _APART_X)
            places[name] = (x, top + row * (_HIGH + _APART_Y))
    loops = any(arrow.feedback for arrow in arrows)
    width = 2 * _MARGIN + max(1, len(columns)) * (_WIDE + _APART_X) - _APART_X
    high = 2 * _MARGIN + tallest * (_HIGH + _APART_Y) - _APART_Y + (2 * _APART_Y if loops else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{high}" '
        f'viewBox="0 0 {width} {high}" font-family="system-ui, sans-serif" font-size="13" '
        f'role="img" aria-label="{escape(as_text(title, boxes, arrows))}">',
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{_LINE}"/></marker></defs>',
    ]
    lowest = max((y for _, y in places.values()), default=0) + _HIGH + _APART_Y
    parts += [
        _line(arrow, places[arrow.sender], places[arrow.receiver], lowest) for arrow in arrows
    ]
    parts += [_box(name, box, *places[name]) for name, box in boxes.items()]
    return "".join([*parts, "</svg>"])


def _box(name: str, box: Box, x: float, y: float) -> str:
    middle = x + _WIDE / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" rx="8" '
        f'fill="{_FILLS[box.kind]}" stroke="{_LINE}"/>'
        f'<text x="{middle:g}" y="{y + 19:g}" text-anchor="middle" fill="{_INK}" '
        f'font-weight="600">{escape(_short(name))}</text>'
        f'<text x="{middle:g}" y="{y + 35:g}" text-anchor="middle" fill="{_LINE}" '
        f'font-size="11">{escape(box.told)}</text>'
    )


def _line(
    arrow: Arrow, sender: tuple[float, float], receiver: tuple[float, float], lowest: float
) -> str:
    if arrow.feedback and sender == receiver:
        x1, x2, y = sender[0] + 0.6 * _WIDE, sender[0] + 0.4 * _WIDE, sender[1] + _HIGH
        path = f"M{x1:g} {y:g}C{x1:g} {y + 30:g} {x2:g} {y + 30:g} {x2:g} {y:g}"
        dashed, at = ' stroke-dasharray="5 4"', (sender[0] + _WIDE / 2, y + 36)
    elif arrow.feedback:  # back between the columns, and below all boxes if it is farther
        x1, y1 = sender[0], sender[1] + 0.8 * _HIGH
        x2, y2 = receiver[0] + _WIDE, receiver[1] + 0.8 * _HIGH
        near = x1 - x2 <= _APART_X
        low1, low2 = (y1, y2) if near else (lowest, lowest)
        path = f"M{x1:g} {y1:g}C{x1 - 45:g} {low1:g} {x2 + 45:g} {low2:g} {x2:g} {y2:g}"
        dashed, at = ' stroke-dasharray="5 4"', ((x1 + x2) / 2, (low1 + low2) / 2 - 5)
    else:
        x1, y1 = sender[0] + _WIDE, sender[1] + _HIGH / 2
        x2, y2 = receiver[0], receiver[1] + _HIGH / 2
        bend = (x2 - x1) / 2
        path = f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
        dashed, at = "", ((x1 + x2) / 2, (y1 + y2) / 2 - 5)
    told = ""
    if arrow.label:
        told = (
            f'<text x="{at[0]:g}" y="{at[1]:g}" text-anchor="middle" fill="{_LINE}" '
            f'font-size="11">{escape(arrow.label)}</text>'
        )
    drawn = f'<path d="{path}" fill="none" stroke="{_LINE}"{dashed} marker-end="url(#tip)"/>'
    return drawn + told


def _onward(arrow: Arrow) -> str:
    output = "" if arrow.output is None else f" [{arrow.output}]"
    told = " (broadcast)" if arrow.broadcast else ""
    return f" {output} {'↺' if arrow.feedback else '→'} {arrow.receiver}{told}"


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:19]}…"
