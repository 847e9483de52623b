"""Where an executor is in Spark's batches, which matter only because rows can be sent while one
runs. Fed by the receiver; tells the driver when a batch ends, and lets its task go once all is held
and committed."""

from collections.abc import Callable
from enum import Enum, auto

from sojourn.engine.executor.commit import Commits
from sojourn.engine.executor.emitter import Emitter
from sojourn.engine.executor.on_error import Fault
from sojourn.engine.executor.receiver import Callbacks, Receiver
from sojourn.engine.executor.workers import Workers
from sojourn.engine.wire import messages as m
from sojourn.engine.wire.channel import ChannelClient
from sojourn.engine.wire.spec import END


class Phase(Enum):
    """The phase of a batch."""

    WAITING = auto()  # for a task
    RUNNING = auto()
    ENDING = auto()  # all rows of the batch have come


class Batches:
    """One batch after the other. `first_level` is that of sources, whose batch ends by the
    clock."""

    def __init__(
        self,
        first_level: bool,
        channel: ChannelClient,
        receiver: Receiver,
        workers: Workers,
        emitter: Emitter,
        commits: Commits,
        attached: Callable[[], None],
    ) -> None:
        self.first_level, self.channel, self.receiver = first_level, channel, receiver
        self.workers, self.emitter, self.commits = workers, emitter, commits
        self.attached = attached
        self.phase = Phase.WAITING
        self.number: int | None = None
        receiver.callbacks = Callbacks(self._begun, self._ended, self._taken, self._task_gone)

    def let_end(self) -> None:
        """Let the task go, if all is held and committed."""
        if self.phase is Phase.ENDING and self.workers.hold and self.commits.cut is None:
            assert self.receiver.task is not None
            self.phase = Phase.WAITING
            self.emitter.shut()
            self.receiver.task.send(END)

    def _begun(self, batch: int) -> None:
        if self.phase is not Phase.WAITING:
            raise Fault(f"a task came for batch {batch} while {self.number} was running")
        self.number = batch
        self.phase = Phase.RUNNING
        self.emitter.open()
        self.attached()

    def _ended(self) -> None:
        """Handle the end of a batch. At the source level it waits for a commit that holds
        everything, so that Spark may put a partition on another machine in the next batch."""
        if self.first_level:
            assert self.number is not None
            self.channel.send(m.BatchEnded(self.number))
        self.phase = Phase.ENDING
        self.let_end()

    def _taken(self, rows: int) -> None:
        if self.phase is not Phase.WAITING:  # nothing may be sent after the end of a batch
            self.emitter.taken(rows)

    def _task_gone(self) -> None:
        if self.phase is not Phase.WAITING and not self.workers.hold:
            raise Fault("the Spark task is gone")
        self.phase = Phase.WAITING
        self.emitter.shut()
        self.receiver.detach()
