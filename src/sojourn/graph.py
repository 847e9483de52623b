"""Directed graphs as mappings from a vertex to its receivers: which vertices reach each other.
Used by the traffic equations and wherever a topology is checked."""

from collections.abc import Collection, Iterable, Mapping, Sequence


def groups(onward: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected components, senders before receivers (Tarjan, without recursion).
    A group of one vertex is a loop only if the vertex is its own receiver."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_path: dict[str, None] = {}
    found: list[list[str]] = []
    for root in onward:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        open_path[root] = None
        work = [(root, iter(onward[root]))]
        while work:
            vertex, receivers = work[-1]
            for receiver in receivers:
                if receiver not in order:
                    order[receiver] = low[receiver] = len(order)
                    open_path[receiver] = None
                    work.append((receiver, iter(onward[receiver])))
                    break
                if receiver in open_path:
                    low[vertex] = min(low[vertex], order[receiver])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[vertex])
                if low[vertex] == order[vertex]:
                    group: list[str] = []
                    while not group or group[-1] != vertex:
                        group.append(open_path.popitem()[0])
                    found.append(group[::-1])
    return found[::-1]


def reached(
    start: str, onward: Mapping[str, Iterable[str]], closed: Collection[str] = ()
) -> list[str]:
    """All vertices that a vertex reaches, but none that is closed or lies only behind such."""
    found: dict[str, None] = {}
    ahead = list(onward[start])
    while ahead:
        vertex = ahead.pop()
        if vertex not in found and vertex not in closed:
            found[vertex] = None
            ahead += onward[vertex]
    return list(found)


def is_loop(group: Sequence[str], onward: Mapping[str, Iterable[str]]) -> bool:
    """Whether a group from `groups` holds a cycle."""
    return len(group) > 1 or group[0] in onward[group[0]]


def cycle_in(group: Sequence[str], onward: Mapping[str, Iterable[str]]) -> list[str]:
    """A shortest cycle through the first vertex of a group that holds one, for a message."""
    start, unseen = group[0], set(group)
    paths = [[start]]
    for path in paths:
        for receiver in onward[path[-1]]:
            if receiver == start:
                return [*path, start]
            if receiver in unseen:
                unseen.discard(receiver)
                paths.append([*path, receiver])
    raise AssertionError(f"no cycle through {start!r} in {group}")
