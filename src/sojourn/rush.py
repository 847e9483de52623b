"""The rush after tuples were held up. Used by elastic executors and by the simulator's stations."""

from dataclasses import dataclass


@dataclass
class Rush:
    """Says which gaps between arrivals tell something about a stream. Tuples that were held up come
    in a rush until they have caught up, and the gaps of a rush tell nothing."""

    last_s: float | None = None
    held_up: bool = False
    over_s: float = 0.0  # when the last rush is over

    def hold_up(self) -> None:
        """Note that tuples are held up. The next one that arrives begins a rush."""
        self.held_up = True

    def gap_s(self, now_s: float) -> float | None:
        """Note an arrival. Returns the gap before it, or None if that tells nothing about the
        stream."""
        before_s, self.last_s = self.last_s, now_s
        held_up, self.held_up = self.held_up, False
        if before_s is None:
            return None
        gap_s = now_s - before_s
        if held_up:
            # A rush is assumed to last twice as long as the time in which nothing came.
            self.over_s = now_s + 2 * gap_s
            return None
        return gap_s if now_s >= self.over_s else None
