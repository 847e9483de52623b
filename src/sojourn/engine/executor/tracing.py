"""What an executor tells the driver about tracked trees: gathered for a moment, and in the driver's
time. Fed by workers, whose times are those of this machine's steady clock; feeds the tracker.

Steady clocks do not step, but each machine has its own. An executor on the driver's machine shares
the driver's clock. All others ask for its time now and then, and measure the difference by the
answer that came quickest."""

import time

from sojourn.engine.wire import messages as m
from sojourn.engine.wire.channel import ChannelClient

_REPORT_S = 0.25
_ASK_S = 30.0


class Tracing:
    """Trees begun and tuples of them processed, until they are sent."""

    def __init__(self, channel: ChannelClient) -> None:
        self.channel = channel
        self.roots: list[m.Root] = []
        self.acks: list[m.Ack] = []
        self.due: float | None = None
        self.ahead_s: float | None = None  # how far the driver's clock is ahead of ours
        self.ask_at: float | None = None
        self.quickest_s = float("inf")

    def note(self, roots: list[m.Root], acks: list[m.Ack]) -> None:
        """Take what a worker tells."""
        if roots or acks:
            self.roots += roots
            self.acks += acks
            if self.due is None:
                self.due = time.monotonic() + _REPORT_S

    def ended(self, root: int, value: int) -> None:
        """Note that a tracked tuple will not be processed."""
        self.note([], [m.Ack(root, value, time.monotonic())])

    def shed(self, root: int, value: int) -> None:
        """Note that a tracked tuple is shed. How long that took is no sojourn."""
        self.note([], [m.Ack(root, value, m.SHED_S)])

    def learn(self, answer: m.Time) -> None:
        """Learn from an answer of the driver's clock. The first answer tells whether its clock is
        ours."""
        now = time.monotonic()
        if answer.same_clock:
            self.ahead_s, self.ask_at = 0.0, None
            return
        took_s = now - answer.asked_s
        if took_s <= self.quickest_s:
            self.quickest_s = took_s
            self.ahead_s = answer.at_s - (answer.asked_s + now) / 2
        self.quickest_s *= 1.1  # clocks drift: an old answer counts for less
        self.ask_at = now + _ASK_S

    def send(self) -> None:
        """Send what is due."""
        now = time.monotonic()
        if self.ask_at is not None and now >= self.ask_at:
            self.ask_at = now + _ASK_S
            self.channel.send(m.AskTime(now))
        if self.due is not None and now >= self.due:
            self.flush()

    def flush(self) -> None:
        """Send what there is, due or not."""
        if self.due is None or self.ahead_s is None:
            return
        ahead = self.ahead_s
        if ahead:
            for root in self.roots:
                root.arrival_s += ahead
            for ack in self.acks:
                ack.at_s += ahead
        self.channel.send(m.Traces(self.roots, self.acks))
        self.roots, self.acks, self.due = [], [], None

    @property
    def next_s(self) -> float | None:
        """When there is something to do next."""
        times = (self.due if self.ahead_s is not None else None, self.ask_at)
        return min((t for t in times if t is not None), default=None)
