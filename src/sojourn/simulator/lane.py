"""A queue before some workers in virtual time, and where they sit."""

import heapq
from dataclasses import dataclass, field

import numpy as np

from sojourn.simulator.draws import Times, quantized, quantum


@dataclass(frozen=True)
class Seat:
    """Where a worker is: how much slower it is than alone on a core, and what the way there and
    back costs a tuple."""

    machine: int = 0
    slow: float = 1.0
    extra_s: float = 0.0


@dataclass
class Row:
    """Workers on equal seats, and the times at which they become free, as a heap."""

    slow: float
    extra_s: float
    free: list[float] = field(default_factory=list)

    def times(self, services: Times) -> Times:
        """Times of service on these seats."""
        if self.slow == 1.0 and not self.extra_s:
            return services
        return quantized(services * self.slow) + self.extra_s


class Lane:
    """A queue before some workers. Near ones come first, because they cost a tuple least."""

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.rows: list[Row] = []

    def serve(self, ready: Times, services: Times, end_s: float) -> tuple[Times, Times]:
        """When each of the first tuples starts, and its service time. The others cannot start
        before the end."""
        if len(self.rows) > 1:
            return self._serve_unlike(ready, services, end_s)
        row = self.rows[0]
        services = row.times(services)
        if len(row.free) == 1:
            # Each starts when it has come and the one before is gone (Lindley); computed at once.
            done = np.cumsum(services)
            first = np.maximum(ready, row.free[0])
            starts = np.maximum.accumulate(first - (done - services)) + (done - services)
            size = int(np.searchsorted(starts, end_s))
            if size:
                row.free[0] = float(starts[size - 1] + services[size - 1])
            return starts[:size], services[:size]
        found: list[float] = []
        free, start, replace = row.free, found.append, heapq.heapreplace
        for time_s, service_s in zip(ready.tolist(), services.tolist(), strict=True):
            first_s = free[0]
            if first_s < time_s:  # noqa: PLR1730  # max() takes longer
                first_s = time_s
            if first_s >= end_s:
                break
            replace(free, first_s + service_s)
            start(first_s)
        return np.array(found), services[: len(found)]

    def _serve_unlike(self, ready: Times, services: Times, end_s: float) -> tuple[Times, Times]:
        if len(self.rows) == 2:
            return self._serve_near_and_far(ready, services, end_s)
        starts: list[float] = []
        times: list[float] = []
        for time_s, service_s in zip(ready.tolist(), services.tolist(), strict=True):
            taken = self.take(time_s, service_s, end_s)
            if taken is None:
                break
            starts.append(taken[0])
            times.append(taken[1])
        return np.array(starts), np.array(times)

    def _serve_near_and_far(
        self, ready: Times, services: Times, end_s: float
    ) -> tuple[Times, Times]:
        """The same as `take` for each tuple, in half the time: most go far, and the code for those
        is shorter."""
        near, far = self.rows
        starts: list[float] = []
        at_near: list[int] = []
        near_times, times = near.times(services), far.times(services)
        near_free, far_free = near.free, far.free
        replace, start = heapq.heapreplace, starts.append
        rows = (ready.tolist(), near_times.tolist(), times.tolist())
        for time_s, if_near_s, if_far_s in zip(*rows, strict=True):
            first_s = near_free[0]
            if first_s > time_s and far_free[0] < first_s:
                first_s = far_free[0]
                if first_s < time_s:  # noqa: PLR1730  # as above
                    first_s = time_s
                if first_s >= end_s:
                    break
                replace(far_free, first_s + if_far_s)
            else:
                if first_s < time_s:  # noqa: PLR1730  # as above
                    first_s = time_s
                if first_s >= end_s:
                    break
                replace(near_free, first_s + if_near_s)
                at_near.append(len(starts))
            start(first_s)
        times = times[: len(starts)].copy()
        times[at_near] = near_times[at_near]
        return np.array(starts), times

    def take(self, ready_s: float, service_s: float, end_s: float) -> tuple[float, float] | None:
        """The same for one tuple; None if it has to wait."""
        row = self.rows[0]
        if len(self.rows) > 1:
            row = min(self.rows, key=lambda r: max(r.free[0], ready_s))
        start = max(row.free[0], ready_s)
        if start >= end_s:
            return None
        took = service_s
        if row.slow != 1.0 or row.extra_s:
            took = quantum(service_s * row.slow) + row.extra_s
        heapq.heapreplace(row.free, start + took)
        return start, took

    def seat(self, seats: list[Seat], ready_s: float, rng: np.random.Generator) -> None:
        """Place workers on these seats. Present workers stay, and new ones are ready at `ready_s`.
        If there are too many, chance decides which leave."""
        times = sorted(time_s for row in self.rows for time_s in row.free)
        while len(times) > len(seats):
            times.pop(int(rng.integers(len(times))))
        times += [ready_s] * (len(seats) - len(times))
        self.seats = seats
        rows: dict[tuple[float, float], Row] = {}
        for seat, time_s in zip(seats, times, strict=True):
            kind = (seat.extra_s, seat.slow)
            row = rows.setdefault(kind, Row(seat.slow, quantum(seat.extra_s)))
            heapq.heappush(row.free, time_s)
        self.rows = [rows[kind] for kind in sorted(rows)]

    def kill_one(self, now_s: float, back_s: float, rng: np.random.Generator) -> float | None:
        """Kill a worker. Returns when it would have been free, if it was busy. Its successor is
        ready at `back_s`."""
        places = [(row, i) for row in self.rows for i in range(len(row.free))]
        row, place = places[int(rng.integers(len(places)))]
        until_s, row.free[place] = row.free[place], back_s
        heapq.heapify(row.free)
        return until_s if until_s > now_s else None

    def forget(self, now_s: float) -> None:
        """Set all workers free."""
        for row in self.rows:
            row.free = [now_s] * len(row.free)
