"""The source level's part in feedback: sends on, down from the top, what later levels hand over.
Fed by the channel; feeds the emitter. Every executor has one; only the first source's is used."""

from sojourn.engine import messages as m
from sojourn.engine.channel import ChannelClient
from sojourn.engine.emitter import Emitter


class Injector:
    """What was handed over, waiting for a batch to go into."""

    def __init__(self, channel: ChannelClient, emitter: Emitter) -> None:
        self.channel, self.emitter = channel, emitter
        self.open = False
        self.waiting: dict[tuple[bytes, int], m.Inject] = {}
        self.sent: set[tuple[bytes, int]] = set()

    def begin(self) -> None:
        """A batch runs: what waited goes into it."""
        self.open = True
        for inject in list(self.waiting.values()):
            self.take(inject)

    def close(self) -> None:
        """All input of the batch has come: what follows waits for the next."""
        self.open = False

    def saved(self) -> None:
        """The batch is over, and who handed over what it held knows."""
        self.sent.clear()

    def take(self, inject: m.Inject) -> None:
        """Send feedback on its way, once per batch however often it is handed over."""
        key = inject.sender, inject.number
        if not self.open:
            self.waiting[key] = inject
            return
        self.waiting.pop(key, None)
        if key not in self.sent:
            self.sent.add(key)
            self.emitter.meter.batch_out += inject.count
            self.emitter.pass_on(inject.row)
        self.channel.send(m.Acknowledge(*key))
