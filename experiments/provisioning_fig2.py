"""Cervino fig. 2: jitter of packets from senders around the world, at 10 kbps, 100 kbps and 1 Mbps.
Theirs went from PlanetLab to Amazon; these go through a proxy on loopback that delays and loses
them in a known way, so that what `sojourn measure` finds can be held against what was done.

Claims: jitter is small on average (they print less than 2.5 µs), single packets are late by up to
4 s, the rate does not matter, and about 3 % would be lost if late ones were discarded. A proxy has
the jitter that it is told to have, so of these only the third can be looked at.

Rule: of every sender and rate, the mean jitter, the buffer, the late share and the lost share as
measured are within 5 % of those that the proxy did. It is undecided if the proxy itself did not do
what it was asked, in mean jitter or loss, within 5 % or three standard errors, as on a busy
machine."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from lab import Finding, Lab
from proxy import Packet, Proxy, Weather

from sojourn.probing import probes
from sojourn.probing.echo import Echo
from sojourn.probing.figures import Stream, interval_s
from sojourn.probing.packets import new_token
from sojourn.units import format_duration

NOTES = "real packets through a proxy on loopback, which delays and loses them; no engine"
SENDERS = {
    "near": Weather(0.010, 0.002, 0.0, 1),
    "far": Weather(0.040, 0.008, 0.05, 2),
    "rough": Weather(0.120, 0.020, 0.10, 3),
}
CLOSE = 0.05
PATIENCE_S = 1.0
SPREAD = math.sqrt(5 / 3)  # of the mean jitter of n packets, times jitter over √n


@dataclass(frozen=True)
class Done:
    """What the proxy did to the packets of a stream."""

    mean_s: float
    buffer_s: float
    late: float
    lost: float
    packets: int


@dataclass(frozen=True)
class Point:
    """A sender at a rate: what was asked of the proxy, what it did, what was measured."""

    sender: str
    asked: Weather
    done: Done
    measured: Stream


def done(packets: list[Packet], rate_bps: int) -> Done:
    """By its own notes."""
    order = sorted(packets, key=lambda packet: packet.number)
    delays = np.array([p.delayed_s for p in order if p.delayed_s is not None])
    late = delays > delays.min() + interval_s(rate_bps)
    return Done(
        float(np.mean(np.abs(delays[1:] - delays[:-1]))),
        float(delays.max() - delays.min()),
        float(np.mean(late)),
        1 - len(delays) / len(order),
        len(order),
    )


def close(found: float, known: float, also: float = 0.0) -> bool:
    """Whether a figure is what it should be, within 5 %, or within something else."""
    return abs(found - known) <= max(CLOSE * known, also) + 1e-12


def well_measured(point: Point) -> bool:
    """Whether all four are what the proxy did. One packet that is late by a hair more or less than
    an interval decides nothing."""
    found, known = point.measured.jitter, point.done
    return found is not None and all(
        (
            close(found.mean_s, known.mean_s),
            close(found.buffer_s, known.buffer_s),
            close(found.late, known.late, 1 / known.packets),
            close(point.measured.lost, known.lost),
        )
    )


def as_asked(point: Point) -> bool:
    """Whether the proxy did what it should, as far as chance lets it."""
    asked, known = point.asked, point.done
    root = math.sqrt(known.packets)
    of_loss = math.sqrt(asked.loss * (1 - asked.loss)) / root
    return close(known.mean_s, asked.jitter_s, 3 * SPREAD * asked.jitter_s / root) and close(
        known.lost, asked.loss, 3 * of_loss
    )


def run(lab: Lab) -> Finding:
    """Every sender has a proxy of its own."""
    plan = probes.Plan(5.0 if lab.quick else 20.0, PATIENCE_S)
    points = []
    for sender, weather in SENDERS.items():
        token = new_token()
        with Echo(token) as echo, Proxy(echo.address, weather) as proxy:
            target = probes.Target(*proxy.address, token)
            for rate_bps in probes.RATES_BPS:
                first = len(proxy.packets)
                measured = probes.stream(target, rate_bps, plan)
                known = done(proxy.packets[first:], rate_bps)
                points.append(Point(sender, weather, known, measured))
    return judged(points)


def judged(points: list[Point]) -> Finding:
    """By the rule."""
    bad = [point for point in points if not well_measured(point)]
    odd = [point for point in points if not as_asked(point)]
    holds = None if odd else not bad
    off = max(abs(_mean_s(point) / point.done.mean_s - 1) for point in points)
    verdict = (
        f"{len(points) - len(bad)} of {len(points)} streams are measured within 5 % of what the "
        f"proxy did; mean jitter is off by {off:.2%} at most; the proxy did what it was asked for "
        f"{len(points) - len(odd)} of them"
    )
    rows = [
        (
            f"{point.sender}, {point.measured.rate_bps // 1000} kbps: mean jitter, buffer, late, "
            "lost; in brackets what the proxy did",
            "",
            _told(point),
        )
        for point in points
    ]
    jitters = [point.measured.jitter for point in points if point.measured.jitter is not None]
    lates = [of.late for of in jitters]
    rows += [
        ("mean jitter", "below 2.5 µs", _range([of.mean_s for of in jitters])),
        ("buffer needed", "almost 4 s", _range([of.buffer_s for of in jitters])),
        (
            "late without a buffer",
            "about 3 %",
            f"{min(lates):.1%} to {max(lates):.1%}, which the proxy made",
        ),
    ]
    ratios = [
        _mean_s(slow) / _mean_s(fast) for slow, fast in zip(points[::3], points[2::3], strict=True)
    ]
    rows.append(
        (
            "mean jitter at 10 kbps over that at 1 Mbps",
            "no difference",
            ", ".join(f"{ratio:.2f}" for ratio in ratios),
        )
    )
    figures = {"points": [asdict(point) for point in points]}
    return Finding(figures, rows, verdict, holds, lambda figure: draw(figure, points))


def _range(values_s: list[float]) -> str:
    low, high = (format_duration(of(values_s)) for of in (min, max))
    return f"{low} to {high}, which the proxy made"


def _mean_s(point: Point) -> float:
    return math.nan if point.measured.jitter is None else point.measured.jitter.mean_s


def _told(point: Point) -> str:
    found, known = point.measured.jitter, point.done
    if found is None:
        return "nothing came"
    return (
        f"{format_duration(found.mean_s)} ({format_duration(known.mean_s)}), "
        f"{format_duration(found.buffer_s)} ({format_duration(known.buffer_s)}), "
        f"{found.late:.1%} ({known.late:.1%}), {point.measured.lost:.1%} ({known.lost:.1%})"
    )


def draw(figure: Any, points: list[Point]) -> None:
    """Mean jitter per sender and rate, as bars; what the proxy did, as lines."""
    axes = figure.add_subplot()
    senders = list(SENDERS)
    for number, rate_bps in enumerate(probes.RATES_BPS):
        some = [point for point in points if point.measured.rate_bps == rate_bps]
        at = [senders.index(point.sender) + (number - 1) * 0.27 for point in some]
        label = f"{rate_bps // 1000} kbps"
        axes.bar(at, [_mean_s(point) * 1e3 for point in some], 0.24, label=label)
        axes.plot(at, [point.done.mean_s * 1e3 for point in some], "k_", markersize=20)
    axes.set_xticks(range(len(senders)), senders)
    axes.set(ylabel="mean jitter, ms; what the proxy did (—)", ylim=(0, None))
    axes.legend()
