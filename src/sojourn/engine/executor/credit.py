"""Credit of a source: it sends one message, and the next one when it is asked for more. The
executor tells it what the source sends and how things stand; it asks the source's worker.

A source is asked as soon as what it sends would go on at once. Tuples that would only wait stay
with the source, which sends them together later, or may shed them. But while the source has much, a
full bundle is always in the making.
"""

from collections.abc import Collection

from sojourn.engine.executor.emitter import Emitter
from sojourn.engine.executor.workers import Worker
from sojourn.engine.wire import messages as m


class Credit:
    """Which workers of a source wait to be asked. `unasked` says that one waits only because the
    way out is not free."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.waiting: dict[Worker, bool] = {}  # whether each has more than it could send
        self.unasked = False

    def used(self, worker: Worker, more: bool) -> None:
        """Note that a worker has sent a message, and may have more."""
        self.waiting[worker] = more

    def keep(self, workers: Collection[Worker]) -> None:
        """Forget the others: they have gone."""
        self.waiting = {w: more for w, more in self.waiting.items() if w in workers}

    def renew(self, full: bool) -> None:
        """Ask for more, unless too much waits already."""
        self.unasked = False
        if full:
            return
        for worker, more in list(self.waiting.items()):
            if self.emitter.is_free or (more and self.emitter.has_room):
                del self.waiting[worker]
                worker.link.send(m.encode(m.More()))
            else:
                self.unasked = True
