"""Cervino fig. 3: round trips of the application against those of the network. Theirs were between
continents; these go through a proxy on loopback that delays both ways in a known way. ICMP does not
pass a proxy, so the network's part of a round trip is what the proxy did to it, both ways together;
ICMP on loopback stands beside it.

Claim: the application adds nothing to speak of; the network's latency is all that counts.

Rule: at every delay, mean, median and 95th percentile of the round trip as measured are within 5 %
of what the proxy did. It is undecided if the proxy itself did not do the mean that it was asked
for within 5 % or three standard errors, as on a busy machine."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from lab import Finding, Lab
from proxy import Chunk, Proxy, Weather

from sojourn.probing import probes
from sojourn.probing.echo import Echo
from sojourn.probing.figures import RoundTrips
from sojourn.probing.packets import TRIP_BYTES, new_token
from sojourn.units import format_duration

NOTES = "real TCP connections through a proxy on loopback, which delays them; no engine"
DELAYS_S = (0.010, 0.020, 0.050, 0.090, 0.150)  # each way
JITTER = 0.05  # of the delay
CLOSE = 0.05


@dataclass(frozen=True)
class Point:
    """A delay: what was asked of the proxy for a round trip on average, what it did on average, in
    the median and as the 95th percentile, and what was measured."""

    asked_s: float
    error_s: float  # the standard error that chance has in what the proxy did
    done_s: tuple[float, float, float]
    measured: RoundTrips
    network: RoundTrips | str


def done_s(chunks: list[Chunk]) -> list[float]:
    """What each round trip was delayed by, both ways together, by the proxy's own notes."""
    onward, back = (
        [c.delayed_s for c in chunks if c.onward == way and c.size == TRIP_BYTES]
        for way in (True, False)
    )
    return [there + again for there, again in zip(onward, back, strict=True)]


def well_measured(point: Point) -> bool:
    """Whether all three are what the proxy did."""
    of = point.measured
    return all(
        abs(found / known - 1) <= CLOSE
        for found, known in zip((of.mean_s, of.p50_s, of.p95_s), point.done_s, strict=True)
    )


def as_asked(point: Point) -> bool:
    """Whether the proxy did what it should, as far as chance lets it."""
    allowed_s = max(CLOSE * point.asked_s, 3 * point.error_s)
    return abs(point.done_s[0] - point.asked_s) <= allowed_s


def run(lab: Lab) -> Finding:
    """Every delay has a proxy of its own."""
    seconds = 5.0 if lab.quick else 30.0
    points = []
    for seed, delay_s in enumerate(DELAYS_S):
        token, jitter_s = new_token(), JITTER * delay_s
        weather = Weather(delay_s, jitter_s, seed=seed)
        with Echo(token) as echo, Proxy(echo.address, weather) as proxy:
            target = probes.Target(*proxy.address, token)
            network, measured = probes.round_trips(target, seconds)
        known = done_s(proxy.chunks)
        p50, p95 = np.percentile(known, (50, 95))
        points.append(
            Point(
                2 * (delay_s + jitter_s),
                math.sqrt(2 / len(known)) * jitter_s,
                (float(np.mean(known)), float(p50), float(p95)),
                measured,
                network,
            )
        )
    return judged(points)


def judged(points: list[Point]) -> Finding:
    """By the rule."""
    bad = [point for point in points if not well_measured(point)]
    odd = [point for point in points if not as_asked(point)]
    holds = None if odd else not bad
    added = [point.measured.mean_s - point.done_s[0] for point in points]
    verdict = (
        f"{len(points) - len(bad)} of {len(points)} delays are measured within 5 % of what the "
        f"proxy did; the application adds {format_duration(max(added))} at most; the proxy did "
        f"what it was asked for {len(points) - len(odd)} of them"
    )
    rows = [
        (
            f"round trip with {format_duration(point.asked_s)} asked: mean, p50, p95; in brackets "
            "what the proxy did",
            "",
            ", ".join(
                f"{format_duration(found)} ({format_duration(known)})"
                for found, known in zip(
                    (point.measured.mean_s, point.measured.p50_s, point.measured.p95_s),
                    point.done_s,
                    strict=True,
                )
            ),
        )
        for point in points
    ]
    ratios = [point.measured.mean_s / point.done_s[0] for point in points]
    rows.append(
        (
            "application over network round trip",
            "about 1",
            f"{min(ratios):.3f} to {max(ratios):.3f}",
        )
    )
    direct = points[0].network
    told = direct if isinstance(direct, str) else format_duration(direct.mean_s)
    rows.append(("ICMP round trip on loopback, past the proxy", "", told))
    figures = {"points": [asdict(point) for point in points]}
    return Finding(figures, rows, verdict, holds, lambda figure: draw(figure, points))


def draw(figure: Any, points: list[Point]) -> None:
    """Against one another."""
    axes = figure.add_subplot()
    network = [point.done_s[0] * 1e3 for point in points]
    axes.plot(network, [point.measured.mean_s * 1e3 for point in points], "o")
    axes.plot([0, max(network)], [0, max(network)], ":", color="grey")
    axes.set(xlabel="network (the proxy's delays), ms", ylabel="application round trip, ms")
