"""The source level's part in feedback: sends on, down from the top, what later levels hand over.
Fed by the channel; feeds the emitter. Every executor has one; only the first source's is used.

A sender that has no acknowledgement when its batch ends keeps the tuples and hands them over again
in the next. So each hand-over is good for one batch only, and is sent on once or not at all."""

from sojourn.engine.executor.emitter import Emitter
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.channel import ChannelClient


class Injector:
    """What was handed over, waiting for the batch it is meant for."""

    def __init__(self, channel: ChannelClient, emitter: Emitter) -> None:
        self.channel, self.emitter = channel, emitter
        self.batch: int | None = None
        self.waiting: list[m.Inject] = []

    def begin(self, batch: int) -> None:
        """A batch runs: what waited for it goes into it."""
        self.batch = batch
        waiting, self.waiting = self.waiting, []
        for inject in waiting:
            self.take(inject)

    def end(self) -> None:
        """All input of the batch has come: nothing more goes into it."""
        self.batch = None

    def take(self, inject: m.Inject) -> None:
        """Send feedback on its way, or keep it until its batch begins."""
        if self.batch is None:
            self.waiting.append(inject)
        elif inject.batch == self.batch:
            self.emitter.meter.batch_out += inject.count
            self.emitter.pass_on(inject.row)
            self.channel.send(m.Acknowledge(inject.sender, inject.number))
