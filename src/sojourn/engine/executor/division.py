"""An executor's part in dividing an operator's shards anew among its executors. Those that send to
the operator pause, its executors work off what has come, shards change hands, and the senders go on
with another table. Fed by the channel; uses the workers' own way of moving shards: another executor
is like a worker that shards come from and go to."""

from typing import Any, cast

from sojourn.engine.executor.commit import Commits
from sojourn.engine.executor.emitter import Emitter
from sojourn.engine.executor.receiver import Receiver
from sojourn.engine.executor.workers import Worker, Workers
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.bundle import Link, Way
from sojourn.engine.wire.channel import ChannelClient
from sojourn.engine.wire.spec import ExecutorSpec


class _Outgoing:
    """What a worker that stands for another executor is told."""

    def __init__(self, division: "Division", vertex: str, executor: int) -> None:
        self.division, self.vertex, self.executor = division, vertex, executor

    def send(self, frame: bytes) -> None:
        """Pass on what concerns the other executor."""
        message = m.decode_to_worker(frame)
        channel = self.division.channel
        match message:
            case m.GiveShard(shard, state, more):
                channel.send(m.Carry(self.vertex, self.executor, shard, state or b"", more))
            case m.TakeMore(shard):
                channel.send(m.Carried(shard))
            case m.Settle(shard) if self.executor < 0:
                channel.send(m.Landed(shard))
            case _:  # the other executor settles by itself
                pass


class Division:
    """What was asked for and is not done yet."""

    def __init__(
        self,
        spec: ExecutorSpec,
        channel: ChannelClient,
        receiver: Receiver,
        workers: Workers,
        emitter: Emitter,
        commits: Commits,
    ) -> None:
        self.spec, self.channel, self.commits = spec, channel, commits
        self.receiver, self.workers, self.emitter = receiver, workers, emitter
        self.awaited: list[tuple[int, bool, int]] | None = None  # rows, before it is drained
        self.number = 0  # of the division
        self.giver = self._other(-1)

    def _other(self, executor: int) -> Worker:
        link: Any = _Outgoing(self, self.spec.place.vertex, executor)
        return Worker(cast("Link", link), self.workers.queue(), away=True)

    def heard(self, message: m.Division) -> None:
        """Do what the driver says."""
        match message:
            case m.Pause(number, vertex):
                self.channel.send(m.Paused(number, self.emitter.pause(vertex)))
            case m.Drain(number, rows):
                self.number, self.awaited = number, rows
            case m.Release(shards):
                for shard, executor in shards:
                    self.workers.release(shard, self._other(executor))
            case m.Carry(_, _, shard, state, more):
                self.workers.land(m.GiveShard(shard, state, more, anew=True), self.giver)
            case m.Carried(shard):
                self.workers.took(shard)
            case m.Divided(vertex, table):
                self.emitter.divided(vertex, table)
                if vertex == self.spec.place.vertex:
                    self.commits.divided = True
                    self.awaited = None  # if it was called off

    def go_on(self) -> None:
        """Tell once all that was sent is processed."""
        if self.awaited is None or not self.receiver.open or not self.workers.idle:
            return
        got = self.receiver.got
        if all(got.get(Way(sender, back), 0) >= number for sender, back, number in self.awaited):
            number, self.awaited = self.number, None
            self.channel.send(m.Drained(number))
