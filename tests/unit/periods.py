"""A journal of an attached query, for tests."""

from pathlib import Path

from sojourn.attached.decide import Memory, decided, wished
from sojourn.attached.journal import Journal, Period
from sojourn.attached.seen import Seen
from sojourn.provisioning.rates import Rates
from sojourn.queueing.batches import Batches, Stage

QUERY = Batches(0.1, (Stage(8, 0.01, 0.004),))


def journalled(path: Path, max_latency_s: float | None, policy: str = "model") -> Path:
    """Periods of a query under a load that rises, on one executor that nobody adds to."""
    wish = wished(policy, max_latency_s, 1, None, 30)
    lines, memory = Journal(path, "prices", wish), Memory()
    for number, rate in enumerate((100.0, 200.0, 500.0), 1):
        time_s = 1000.0 + 30 * number
        seen = Seen(time_s, 1, 1, 1, Rates(time_s, rate, (rate,)), batches=QUERY)
        decision = decided(seen, memory, wish)
        lines(Period(number, seen, memory, decision, applied=False))
        memory = decision.memory
    lines.close()
    return path
