"""Where the vertices of a graph are drawn: from left to right by how far they are from a source,
with few crossings. Edges that pass a column get a place of their own in it, so that they go around
its vertices; feedback goes back below all. Fed by the board; drawn by the page and by reports."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sojourn.dashboard.tick import Edge
from sojourn.graph import groups

WIDE, HIGH = 200.0, 104.0  # a vertex
APART_X, APART_Y = 58.0, 26.0
MARGIN = 14.0
_LANE = 22.0  # how high an edge's place in a column is
_BELOW = 22.0  # between feedback edges
_ROUNDS = 6
_ASIDE, _TURN = 22.0, 12.0  # of the way back: beside a column, and how round
_LOW = 0.82  # of a vertex's height, where it comes and goes at the side

Point = tuple[float, float]


@dataclass(frozen=True)
class Drawn:
    """An edge's path as SVG writes it, and where a label goes."""

    edge: Edge
    path: str
    label: Point


@dataclass(frozen=True)
class Layout:
    """The upper left corners of vertices, and the edges."""

    width: float
    height: float
    places: Mapping[str, Point]
    edges: tuple[Drawn, ...]


def levels(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The longest forward way from a source to each vertex. An edge that closes a loop without
    being declared as feedback does not count either."""
    onward: dict[str, list[str]] = {name: [] for name in names}
    for edge in edges:
        if not edge.feedback:
            onward[edge.sender].append(edge.receiver)
    found = dict.fromkeys(names, 0)
    for group in groups(onward):
        members = set(group)
        for sender in group:
            for receiver in onward[sender]:
                if receiver not in members:
                    found[receiver] = max(found[receiver], found[sender] + 1)
    return found


def laid_out(kinds: Mapping[str, str], edges: Sequence[Edge]) -> Layout:
    """Place all vertices and edges."""
    level = levels(list(kinds), edges)
    for name, kind in kinds.items():  # sources stand right before what they feed
        after = [level[edge.receiver] for edge in edges if edge.sender == name]
        if kind == "source" and after:
            level[name] = max(0, min(after) - 1)
    forward = [edge for edge in edges if level[edge.sender] < level[edge.receiver]]
    columns: list[list[str]] = [[] for _ in range(1 + max(level.values(), default=0))]
    for name in kinds:
        columns[level[name]].append(name)
    ways: dict[Edge, list[str]] = {}
    for number, edge in enumerate(forward):
        between = range(level[edge.sender] + 1, level[edge.receiver])
        lanes = [f"\0{number}:{column}" for column in between]
        for lane, column in zip(lanes, between, strict=True):
            columns[column].append(lane)
        ways[edge] = [edge.sender, *lanes, edge.receiver]
    links = [link for way in ways.values() for link in itertools.pairwise(way)]
    _ordered(columns, links)
    places, height = _placed(columns, links)
    width = 2 * MARGIN + len(columns) * (WIDE + APART_X) - APART_X
    drawn = [_onward(edge, way, places) for edge, way in ways.items()]
    lowest = height - MARGIN
    for edge in edges:
        if edge not in ways:
            lowest += _BELOW
            drawn.append(_back(edge, places, lowest))
    lanes_gone = {name: at for name, at in places.items() if not name.startswith("\0")}
    return Layout(width, lowest + MARGIN, lanes_gone, tuple(drawn))


def _ordered(columns: list[list[str]], links: Sequence[tuple[str, str]]) -> None:
    """Put each column in the order of its neighbours' middles, to and fro."""
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for sender, receiver in links:
        after.setdefault(sender, []).append(receiver)
        before.setdefault(receiver, []).append(sender)
    best, fewest = [list(column) for column in columns], _crossings(columns, links)
    for turn in range(_ROUNDS):
        forth = turn % 2 == 0
        neighbours = before if forth else after
        for place in range(len(columns)) if forth else reversed(range(len(columns))):
            at = _ranks(columns)
            middle = {
                name: sum(at[n] for n in near) / len(near) if near else at[name]
                for name in columns[place]
                for near in [neighbours.get(name, [])]
            }
            columns[place].sort(key=middle.__getitem__)
        if (count := _crossings(columns, links)) < fewest:
            best, fewest = [list(column) for column in columns], count
    columns[:] = best


def _ranks(columns: list[list[str]]) -> dict[str, float]:
    return {
        name: (rank + 0.5) / len(column) for column in columns for rank, name in enumerate(column)
    }


def _crossings(columns: list[list[str]], links: Sequence[tuple[str, str]]) -> int:
    at = {name: (c, r) for c, column in enumerate(columns) for r, name in enumerate(column)}
    count = 0
    for number, (a, b) in enumerate(links):
        for c, d in links[:number]:
            if at[a][0] == at[c][0]:
                count += (at[a][1] - at[c][1]) * (at[b][1] - at[d][1]) < 0
    return count


def _placed(
    columns: list[list[str]], links: Sequence[tuple[str, str]]
) -> tuple[dict[str, Point], float]:
    """Coordinates: columns are centred, and each vertex is drawn towards its neighbours as far as
    the others leave room."""
    tall = {name: _LANE if name.startswith("\0") else HIGH for col in columns for name in col}
    near: dict[str, list[str]] = {name: [] for name in tall}
    for sender, receiver in links:
        near[sender].append(receiver)
        near[receiver].append(sender)
    top: dict[str, float] = {}
    heights = [sum(tall[n] for n in col) + APART_Y * (len(col) - 1) for col in columns]
    room = max(heights, default=0.0)
    for column, used in zip(columns, heights, strict=True):
        y = (room - used) / 2
        for name in column:
            top[name] = y
            y += tall[name] + APART_Y
    for _ in range(_ROUNDS):
        for column in columns:
            _drawn_near(column, near, tall, top, room)
    places = {
        name: (MARGIN + place * (WIDE + APART_X), MARGIN + top[name])
        for place, column in enumerate(columns)
        for name in column
    }
    return places, room + 2 * MARGIN


def _drawn_near(
    column: list[str],
    near: Mapping[str, list[str]],
    tall: Mapping[str, float],
    top: dict[str, float],
    room: float,
) -> None:
    """Move the vertices of a column towards the middle of their neighbours, the order kept."""
    left = sum(tall[name] + APART_Y for name in column) - APART_Y
    least = 0.0
    for name in column:
        around = [top[other] + tall[other] / 2 for other in near[name]]
        wish = sum(around) / len(around) - tall[name] / 2 if around else top[name]
        top[name] = max(least, min(wish, room - left))
        least = top[name] + tall[name] + APART_Y
        left -= tall[name] + APART_Y


def _middle(name: str, places: Mapping[str, Point]) -> float:
    return places[name][1] + (_LANE if name.startswith("\0") else HIGH) / 2


def _onward(edge: Edge, way: Sequence[str], places: Mapping[str, Point]) -> Drawn:
    """Out of the sender's right side, through its places in other columns, to the receiver."""
    x, y = places[way[0]][0] + WIDE, _middle(way[0], places)
    path, label = f"M{x:.0f} {y:.0f}", (x, y)
    for number, stop in enumerate(way[1:]):
        to_x, to_y = places[stop][0], _middle(stop, places)
        bend = (to_x - x) / 2
        path += f"C{x + bend:.0f} {y:.0f} {to_x - bend:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}"
        if number == 0:
            label = ((x + to_x) / 2, (y + to_y) / 2)
        x, y = to_x, to_y
        if stop != way[-1]:
            x += WIDE
            path += f"L{x:.0f} {y:.0f}"
    return Drawn(edge, path, label)


def _back(edge: Edge, places: Mapping[str, Point], lowest: float) -> Drawn:
    """Out of the sender, back below all vertices, and up to the receiver. Where other vertices are
    below one of these, the way goes beside that column."""
    (out_x, out_y), (into_x, into_y) = places[edge.sender], places[edge.receiver]
    if _is_lowest(edge.sender, places):
        out_x += 0.7 * WIDE
        path = f"M{out_x:.0f} {out_y + HIGH:.0f}"
    else:
        out_x, out_y = out_x + WIDE + _ASIDE, out_y + _LOW * HIGH
        path = f"M{out_x - _ASIDE:.0f} {out_y:.0f}H{out_x - _TURN:.0f}"
        path += f"Q{out_x:.0f} {out_y:.0f} {out_x:.0f} {out_y + _TURN:.0f}"
    beside = not _is_lowest(edge.receiver, places)
    into_x += -_ASIDE if beside else 0.3 * WIDE
    turn = min(_TURN, abs(out_x - into_x) / 2)
    side = -turn if into_x < out_x else turn
    path += (
        f"V{lowest - turn:.0f}Q{out_x:.0f} {lowest:.0f} {out_x + side:.0f} {lowest:.0f}"
        f"H{into_x - side:.0f}Q{into_x:.0f} {lowest:.0f} {into_x:.0f} {lowest - turn:.0f}"
    )
    if beside:
        into_y += _LOW * HIGH
        path += f"V{into_y + _TURN:.0f}Q{into_x:.0f} {into_y:.0f} {into_x + _TURN:.0f} {into_y:.0f}"
        path += f"H{into_x + _ASIDE:.0f}"
    else:
        path += f"V{into_y + HIGH:.0f}"
    return Drawn(edge, path, ((out_x + into_x) / 2, lowest))


def _is_lowest(name: str, places: Mapping[str, Point]) -> bool:
    x, y = places[name]
    return all(other_y <= y for other_x, other_y in places.values() if other_x == x)
