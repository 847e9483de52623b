"""When the tuples of a source are meant to arrive, in blocks."""

import numpy as np

from sojourn.simulator.draws import Times, quantized
from sojourn.simulator.workload import SourceLoad


class Arrivals:
    """Gaps of mean one are drawn in expected tuples and mapped to time through the schedule, so a
    change of rate takes effect at its very instant."""

    def __init__(self, load: SourceLoad, rng: np.random.Generator) -> None:
        seconds = np.array([s for s, _ in load.steps])
        self.rates = np.array([r for _, r in load.steps])
        self.starts = np.concatenate(([0.0], np.cumsum(seconds)[:-1]))
        self.counts = np.concatenate(([0.0], np.cumsum(seconds * self.rates)[:-1]))
        self.end_s = float(np.sum(seconds)) if load.ends else np.inf
        self.gap, self.rng = load.gap, rng
        self.left = load.count
        self.drawn: Times = np.empty(0)  # arrivals in expected tuples, not given out yet
        self.reached = 0.0
        self.ahead: Times = np.empty(0)  # arrivals that were looked at and not given out yet

    def until(self, end_s: float) -> Times:
        """The arrivals before that time which no earlier call has returned."""
        found = self.peek(end_s)
        self.ahead = self.ahead[len(found) :]
        return found

    def peek(self, end_s: float) -> Times:
        """The same, which the next call returns again."""
        self.ahead = np.concatenate((self.ahead, self._drawn(end_s)))
        return self.ahead[: int(np.searchsorted(self.ahead, end_s))]

    def _drawn(self, end_s: float) -> Times:
        expected = self._expected(min(end_s, self.end_s))
        while self.reached < expected:
            block = self.gap.draw(self.rng, int((expected - self.reached) * 1.05) + 64)
            drawn = self.reached + np.cumsum(block)
            self.reached = float(drawn[-1])
            self.drawn = np.concatenate((self.drawn, drawn))
        size = int(np.searchsorted(self.drawn, expected))
        if self.left is not None:
            size = min(size, self.left)
            self.left -= size
        found, self.drawn = self.drawn[:size], self.drawn[size:]
        if self.left == 0:
            self.drawn, self.end_s = self.drawn[:0], 0.0
        step = np.searchsorted(self.counts, found) - 1
        # An arrival at the very start comes when the rate is first above zero.
        step[step < 0] = int(np.searchsorted(self.counts, 0.0, side="right")) - 1
        return quantized(self.starts[step] + (found - self.counts[step]) / self.rates[step])

    def _expected(self, time_s: float) -> float:
        step = int(np.searchsorted(self.starts, time_s, side="right")) - 1
        return float(self.counts[step] + (time_s - self.starts[step]) * self.rates[step])

    def is_over(self, time_s: float) -> bool:
        """Whether nothing comes any more."""
        return time_s >= self.end_s and not len(self.ahead)
