"""What an executor counts: arrivals, service, emissions. Read and reset by every report."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Meter:
    """Sums since the last report, and tuples received and sent in the running batch."""

    since_s: float
    arrivals: int = 0
    gaps: int = 0
    gap_s: float = 0.0
    gap_s2: float = 0.0
    served: int = 0
    service_s: float = 0.0
    service_s2: float = 0.0
    dropped: int = 0
    shed: int = 0
    emitted: Counter[str] = field(default_factory=Counter)
    batch_in: int = 0
    batch_out: int = 0
    last_arrival_s: float | None = None

    def arrived(self, count: int, now_s: float) -> None:
        """That many tuples came at once: one gap since the last, and none between them."""
        if self.last_arrival_s is not None:
            gap = now_s - self.last_arrival_s
            self.gaps += count
            self.gap_s += gap
            self.gap_s2 += gap * gap
        self.last_arrival_s = now_s
        self.arrivals += count
        self.batch_in += count

    def served_some(self, count: int, seconds: float, squares: float) -> None:
        """A worker has processed that many, with these moments of service time."""
        self.served += count
        self.service_s += seconds
        self.service_s2 += squares

    def sent(self, edge: str, count: int, feedback: bool) -> None:
        """That many tuples went out over an edge. Feedback counts as sent in the batch, and by the
        executor, that hands it to Spark."""
        self.emitted[edge] += count
        if not feedback:
            self.batch_out += count

    def reset(self, now_s: float) -> None:
        """Start counting anew; the batch's counts and the last arrival stay."""
        self.since_s = now_s
        self.arrivals = self.gaps = self.served = self.dropped = self.shed = 0
        self.gap_s = self.gap_s2 = self.service_s = self.service_s2 = 0.0
        self.emitted = Counter()
