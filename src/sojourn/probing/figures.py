"""From stamps to figures: round trips, jitter, and how fast a machine works. Pure; fed by `probes`,
`work` and `cluster`.

A packet's *transit* is the time from its sender's stamp to its receiver's. The two clocks need not
agree: they differ by the same amount for every packet, so only differences of transits are used."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PACKET_BYTES = 125  # a thousand bits, so that a rate in kbps is packets a second


@dataclass(frozen=True)
class RoundTrips:
    """Times from a request to its answer, and the share of requests that had none."""

    count: int
    lost: float
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True)
class Jitter:
    """How much the transits of a stream's packets differ.

    Jitter is the absolute difference between the transits of two packets that come after one
    another in the order of sending: the mean of all, and the largest. `buffer_s` is the largest
    transit less the smallest: a receiver that holds back the fastest packet for so long gets all of
    them in time. `late` is the share that comes too late for a receiver without a buffer. It
    expects every packet as long after it was sent as the fastest one took, and waits for it until
    the next one is expected."""

    mean_s: float
    largest_s: float
    buffer_s: float
    late: float


@dataclass(frozen=True)
class Stream:
    """Packets sent at a rate: how many, the share that did not come, and the jitter of those that
    came; None if fewer than two did."""

    rate_bps: int
    sent: int
    lost: float
    jitter: Jitter | None


@dataclass(frozen=True)
class Link:
    """From one machine to another. `network` has the round trips of ICMP, or says why there are
    none."""

    sender: str
    receiver: str
    network: RoundTrips | str
    application: RoundTrips
    streams: tuple[Stream, ...]
    throughput_bps: float


@dataclass(frozen=True)
class Machine:
    """How many task slots a machine has, and how many pieces of work they did in all, each second:
    the moments since measuring began, and the pieces a second from then on."""

    name: str
    slots: int
    times_s: tuple[float, ...]
    capacity: tuple[float, ...]


@dataclass(frozen=True)
class Report:
    """All that was measured. `failed` has the sender, the receiver and the cause for links that
    could not be measured."""

    links: tuple[Link, ...]
    machines: tuple[Machine, ...]
    failed: tuple[tuple[str, str, str], ...] = ()


def round_trips(times_s: Sequence[float], sent: int) -> RoundTrips:
    """Of those that were answered; there must be one."""
    p50, p95, p99 = np.percentile(times_s, (50, 95, 99))
    return RoundTrips(
        len(times_s),
        1 - len(times_s) / sent,
        float(np.mean(times_s)),
        float(p50),
        float(p95),
        float(p99),
        max(times_s),
    )


def packets(rate_bps: int, seconds: float) -> int:
    """How many make up so many seconds of a rate; at least two, for one has no jitter."""
    return max(2, round(seconds / interval_s(rate_bps)))


def interval_s(rate_bps: int) -> float:
    """Between two packets."""
    return PACKET_BYTES * 8 / rate_bps


def stream(rate_bps: int, sent_ns: Sequence[int], came_ns: Sequence[int]) -> Stream:
    """From the stamps of every packet, in the order of sending; 0 for those that did not come."""
    sent, came = np.array(sent_ns, dtype=np.int64), np.array(came_ns, dtype=np.int64)
    there = came != 0
    lost = 1 - int(there.sum()) / len(sent)
    return Stream(
        rate_bps, len(sent), lost, jitter((came - sent)[there] / 1e9, interval_s(rate_bps))
    )


def jitter(
    transits_s: "np.ndarray[tuple[int], np.dtype[np.float64]]", each_s: float
) -> Jitter | None:
    """Of packets that came, in the order of sending, an interval apart."""
    if len(transits_s) < 2:
        return None
    steps = np.abs(np.diff(transits_s))
    behind = transits_s - transits_s.min()
    return Jitter(
        float(steps.mean()),
        float(steps.max()),
        float(behind.max()),
        float((behind > each_s).mean()),
    )


def each_second(done_s: Sequence[float], seconds: float) -> tuple[float, ...]:
    """Pieces of work a second, in each second or what there is of one, from when each piece was
    done. A piece counts where the time went that it took."""
    edges = np.linspace(0.0, seconds, max(1, round(seconds)) + 1)
    done = np.interp(edges, [0.0, *done_s], range(len(done_s) + 1))
    return tuple(float(rate) for rate in np.diff(done) / np.diff(edges))


def turns(machines: int) -> list[list[tuple[int, int]]]:
    """Who measures the link to whom, at the same time as others: no machine is in two links of a
    turn, and after all turns every machine has measured its link to every other. As in a tournament
    in which one stays and the others go round, each meeting played both ways."""
    seats: list[int | None] = [*range(machines)]
    if machines % 2:
        seats.append(None)
    found = []
    for _ in range(len(seats) - 1):
        meetings = [
            (one, other)
            for one, other in zip(seats[: len(seats) // 2], reversed(seats), strict=False)
            if one is not None and other is not None
        ]
        found += [meetings, [(other, one) for one, other in meetings]]
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return found
