"""How much the number of visits to each station varies from tuple to tuple: the moments of a
branching process. Fed by how many tuples follow from one, measured or given; feeds networks.

A tuple from outside is followed by others, these by others again, independently of one another. If
X tuples go to v and Y to w from one at u, and t are the mean times that a tuple and all that follow
from it take, then each visit to u adds Cov[X, Y]·t(v)·t(w) to the variance of the whole, summed
over all v and w. Networks need a sum over stations instead, with the square of each one's own time.
So the whole is shared out, such that it is right where times have the ratios given here."""

from collections.abc import Iterable, Mapping

from sojourn.queueing.network import Network, Spread, traffic

_ONE = 1.01  # as far as measures tell
OUTSIDE = ""
"""The sender of what comes from outside."""

Together = Mapping[str, Mapping[str, float]]
"""For each two receivers, the mean of the product of how many tuples one tuple sends to each."""


def spreads(
    network: Network,
    sources: Mapping[str, float],
    gains: Mapping[str, Mapping[str, float]],
    together: Mapping[str, Together] | None = None,
    times: Mapping[str, float] | None = None,
) -> dict[str, Spread]:
    """How much the visits to each station vary. `sources` are rates, and `gains` and `together` are
    by sender. A sender that `together` lacks sends as evenly as it can. Without `times`, those of
    service stand for the times of visits."""
    known = {name: evenly(onward) for name, onward in gains.items()} | dict(together or {})
    shares = {name: rate / network.external_rate for name, rate in sources.items()}
    entering: dict[str, float] = {}
    for name, share in shares.items():
        for to, gain in gains.get(name, {}).items():
            entering[to] = entering.get(to, 0.0) + share * gain
    inner = {name: onward for name, onward in gains.items() if name not in sources}
    known[OUTSIDE] = mixed((share, known.get(name, {})) for name, share in shares.items())
    found = visit_variances(
        inner | {OUTSIDE: entering},
        known,
        times or {name: 1 / s.service_rate for name, s in network.stations.items()},
    )
    return {name: Spread(network.visits(name), found[name]) for name in network.stations}


def evenly(gains: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """What is likely if only the means are known: a receiver gets as many as one of the two whole
    numbers next to its mean. If all get at most one together, one of them gets it."""
    choice = len(gains) > 1 and sum(gains.values()) <= _ONE
    found = {}
    for to, gain in gains.items():
        part = gain % 1
        found[to] = {
            other: gain * gain + part * (1 - part)
            if to == other
            else 0.0
            if choice
            else gain * also
            for other, also in gains.items()
        }
    return found


def mixed(parts: Iterable[tuple[float, Together]]) -> dict[str, dict[str, float]]:
    """Of tuples of several kinds, by the share of each kind."""
    found: dict[str, dict[str, float]] = {}
    for share, together in parts:
        for to, others in together.items():
            row = found.setdefault(to, {})
            for other, product in others.items():
                row[other] = row.get(other, 0.0) + share * product
    return found


def along(gains: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Of a path: it goes on to one of the receivers, or ends."""
    return {to: {to: gain} for to, gain in gains.items()}


def visit_variances(
    gains: Mapping[str, Mapping[str, float]],
    together: Mapping[str, Together],
    times: Mapping[str, float],
) -> dict[str, float]:
    """For each station, the variance of the visits that counts the square of its time. `gains` and
    `together` are by sender, OUTSIDE among them, and `times` are the seconds of a visit."""
    edges = {
        (sender, to): gain
        for sender, onward in gains.items()
        for to, gain in onward.items()
        if sender != OUTSIDE and gain > 0
    }
    entering = dict.fromkeys(times, 0.0) | dict(gains.get(OUTSIDE, {}))
    visits = traffic(entering, edges) | {OUTSIDE: 1.0}
    whole = traffic(times, {(to, sender): gain for (sender, to), gain in edges.items()})
    more, less = dict.fromkeys(times, 0.0), dict.fromkeys(times, 0.0)
    for sender, onward in gains.items():
        for to, gain in onward.items():
            products = together.get(sender, {}).get(to, {})
            added = visits[sender] * sum(
                (products.get(other, 0.0) - gain * also) * whole[other]
                for other, also in onward.items()
            )
            (more if added > 0 else less)[to] += abs(added)
    # traffic takes no negative numbers
    up, down = traffic(more, edges), traffic(less, edges)
    parts = {name: (up[name] - down[name]) * time for name, time in times.items()}
    total = max(0.0, sum(parts.values()))
    positive = sum(part for part in parts.values() if part > 0)
    if not positive:
        return dict.fromkeys(times, 0.0)
    # A station whose visits make the whole more even has no part; the others have less.
    share = total / positive
    return {
        name: max(0.0, part) * share / times[name] ** 2 if times[name] > 0 else 0.0
        for name, part in parts.items()
    }
