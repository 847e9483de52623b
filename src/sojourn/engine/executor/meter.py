"""What an executor counts: arrivals, service, emissions. Sums only ever grow, and the driver takes
differences, so a late or lost report costs nothing."""

from collections import Counter
from dataclasses import dataclass, field

from sojourn.rush import Rush


@dataclass
class Meter:
    """Sums since the start. Times are of a clock that does not jump."""

    started_s: float
    arrivals: int = 0
    bytes_in: int = 0
    gaps: int = 0
    gap_s: float = 0.0
    gap_s2: float = 0.0
    served: int = 0
    timed: int = 0
    service_s: float = 0.0
    service_s2: float = 0.0
    dropped: int = 0
    shed: int = 0
    emitted: Counter[str] = field(default_factory=Counter)
    together: dict[str, Counter[str]] = field(default_factory=dict)
    stages: list[tuple[int, float, float]] = field(default_factory=list)
    processors: int = 0
    processor_s: float = 0.0
    processors_since_s: float = 0.0
    rush: Rush = field(default_factory=Rush)
    intended_s: float | None = None
    lag_s: float = 0.0

    def begin(self) -> None:
        """Note that a batch begins: what arrives next was held up between the batches."""
        self.rush.hold_up()

    def arrived(self, count: int, now_s: float) -> None:
        """Count tuples that came at once: one gap since the last arrival, and none between them."""
        self.arrivals += count
        gap_s = self.rush.gap_s(now_s)
        if gap_s is not None:
            self.gaps += count
            self.gap_s += gap_s
            self.gap_s2 += gap_s * gap_s

    def read(self, count: int, gap_s: float, gap_s2: float) -> None:
        """Count tuples that a source read, with the moments of the gaps between intended
        arrivals."""
        self.arrivals += count
        self.served += count
        self.gaps += count
        self.gap_s += gap_s
        self.gap_s2 += gap_s2

    def schedule(self, intended_s: float, now_s: float) -> None:
        """Note the intended time of what a source has just read."""
        self.intended_s, self.lag_s = intended_s, now_s - intended_s

    def behind_s(self, held: bool, now_s: float) -> float | None:
        """How far a source is behind its intended arrivals. The figure is from when it last read,
        and grows while it is held back."""
        if self.intended_s is None:
            return None
        return max(0.0, now_s - self.intended_s if held else self.lag_s)

    def served_some(self, count: int, timed: int, seconds: float, squares: float) -> None:
        """Count tuples that a worker processed, with the moments of the service times of some."""
        self.served += count
        self.timed += timed
        self.service_s += seconds
        self.service_s2 += squares

    def served_behind(self, stages: list[tuple[int, float, float]]) -> None:
        """Count what the stages of a chain behind its head have done."""
        before = self.stages or [(0, 0.0, 0.0)] * len(stages)
        self.stages = [
            (a + served, b + total, c + squares)
            for (a, b, c), (served, total, squares) in zip(before, stages, strict=True)
        ]

    def sent(self, edge: str, count: int) -> None:
        """Count tuples that went out over an edge."""
        self.emitted[edge] += count

    def made_together(self, edge: str, other: str, product: int) -> None:
        """Add to the second moment of how many tuples one makes on each edge."""
        self.together.setdefault(edge, Counter())[other] += product

    def employs(self, processors: int, now_s: float) -> None:
        """Note how many processors there are from now on."""
        self.processor_s += self.processors * (now_s - self.processors_since_s)
        self.processors, self.processors_since_s = processors, now_s
