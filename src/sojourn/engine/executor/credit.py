"""Credit of a source: it sends one message, and the next one when it is asked for more. Fed by the
executor with what the source sends and with how things stand; asks the source's worker.

It is asked as soon as what it sends would go on at once. What would only wait stays with it: it
sends that together, and may shed it. But while it has much, a full bundle is always in the making.
"""

from sojourn.engine.executor.emitter import Emitter
from sojourn.engine.executor.workers import Worker
from sojourn.engine.wire import messages as m


class Credit:
    """Which worker of a source waits to be asked. `unasked` says that one does, and only because
    the way out is not free."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.waiting: dict[Worker, bool] = {}  # and whether it has more than it could send
        self.unasked = False

    def used(self, worker: Worker, more: bool) -> None:
        """A worker has sent a message, and may have more."""
        self.waiting[worker] = more

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
