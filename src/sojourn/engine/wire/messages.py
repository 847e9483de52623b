# ruff: noqa: PLC0414  # names of `shards` are names of this module, too
"""The messages between an executor and its workers, and between executors and the driver.
Typed, so that a malformed one is refused where it arrives."""

import math

import msgspec

from sojourn.engine.wire.bundle import Trace
from sojourn.engine.wire.shards import Carried as Carried
from sojourn.engine.wire.shards import Carry as Carry
from sojourn.engine.wire.shards import Divided as Divided
from sojourn.engine.wire.shards import Drain as Drain
from sojourn.engine.wire.shards import Drained as Drained
from sojourn.engine.wire.shards import GiveShard as GiveShard
from sojourn.engine.wire.shards import Landed as Landed
from sojourn.engine.wire.shards import Pause as Pause
from sojourn.engine.wire.shards import Paused as Paused
from sojourn.engine.wire.shards import Release as Release
from sojourn.engine.wire.shards import Settle as Settle
from sojourn.engine.wire.shards import TakeMore as TakeMore
from sojourn.engine.wire.shards import TakeShard as TakeShard
from sojourn.engine.wire.shards import Took as Took

Change = tuple[bytes, bytes, bytes | None]
"""A key's identity; its pickle, unless the identity gives the key; and its value's pickle, or None
if the key is gone."""


class Work(msgspec.Struct, array_like=True, tag="work"):
    """Tuples to process, in order; none, to fire the timers that are due."""

    payloads: list[bytes]
    shards: list[int]
    traces: list[Trace]


class Log(msgspec.Struct, array_like=True):
    """Tuples that were under way at a commit, each with its shard as in a bundle, or -1, in this
    order: those that waited to be processed here; and, by receiving vertex, those that were sent
    and had not arrived, and those that waited to be sent."""

    own: list[tuple[bytes, int]]
    sent: dict[str, list[tuple[bytes, int]]]
    out: dict[str, list[tuple[bytes, int]]]


class Save(msgspec.Struct, array_like=True, tag="save"):
    """A commit's cut: everything given before belongs to it, everything after to the next. Answered
    with Cut at once, and with Saved when it is on disk. Changed keys go to the file `path`. With
    `hold` a source sends nothing more; with `last` a sink holds nothing back."""

    commit: int
    path: str
    hold: bool
    last: bool


class Load(msgspec.Struct, array_like=True, tag="load"):
    """Load the saved state of these shards. With `anew` all of it counts as changed, because the
    files are from executors that divided the shards differently."""

    saved: list["SavedFiles"]
    shards: list[int]
    anew: bool


class SavedFiles(msgspec.Struct, array_like=True, frozen=True):
    """Files of changed keys, oldest first, from the `executor`-th of `executors`. They count for
    the shards that it owned: those given, or every so-many-th."""

    files: list[str]
    executor: int
    executors: int
    shards: list[int] | None = None

    def count_for(self, shard: int) -> bool:
        """Whether the executor owned a shard."""
        if self.shards is None:
            return shard % self.executors == self.executor
        return shard in self.shards


class Broadcast(msgspec.Struct, array_like=True, tag="broadcast"):
    """What has changed in the table that all workers have. A new worker gets all of it."""

    changes: list[Change]


Schedule = tuple[int, float, float]
"""How far the schedule of a paced source has come: tuples, seconds, and the sum of all gaps."""


class Share(msgspec.Struct, array_like=True, frozen=True):
    """What one of `readers` processes of a source reads: splits, with their pickled positions, or
    nothing for the beginning. It takes every so-many-th time of the schedule."""

    positions: dict[str, bytes]
    number: int = 0
    readers: int = 1
    schedule: Schedule = (0, 0.0, 0.0)


class Open(msgspec.Struct, array_like=True, tag="open"):
    """The first thing a worker is told: where a source goes on, or its share if it has splits, and
    what a sink held back."""

    position: bytes
    held: list[str]
    share: Share | None = None


class Read(msgspec.Struct, array_like=True, tag="read"):
    """Read these splits from now on, and send what was held."""

    share: Share


class GoOn(msgspec.Struct, array_like=True, tag="go_on"):
    """What was held goes on."""


class More(msgspec.Struct, array_like=True, tag="more"):
    """The answer to Fed once more can be used. A source sends nothing before it."""


class Stop(msgspec.Struct, array_like=True, tag="stop"):
    """A source reads and sends no more."""


class Close(msgspec.Struct, array_like=True, tag="close"):
    """Finish."""


ToWorker = (
    Open
    | Read
    | Work
    | Save
    | Load
    | TakeShard
    | TakeMore
    | GiveShard
    | Settle
    | Broadcast
    | GoOn
    | More
    | Stop
    | Close
)


class Group(msgspec.Struct, array_like=True):
    """Output for one executor of one route."""

    route: int
    executor: int
    payloads: list[bytes]
    shards: list[int]
    traces: list[Trace]


class Root(msgspec.Struct, array_like=True):
    """A tracked tree begins: its id, the exclusive-or of its first tuples, its intended arrival."""

    root: int
    value: int
    arrival_s: float


SHED_S = -math.inf  # when a tuple that is shed is processed: never, and its tree is over


class Ack(msgspec.Struct, array_like=True):
    """A tracked tuple is processed: exclusive-or of its id and its children's, and when."""

    root: int
    value: int
    at_s: float


class DeadLetter(msgspec.Struct, array_like=True):
    """A tuple that could not be processed, as far as it can be shown, and why."""

    shown: str
    error: str


Moments = tuple[int, float, float]
"""Tuples served, the sum of their service times, and that of the squares of these."""

Together = tuple[int, int, int]
"""Two routes, and the sum over tuples of how many one made on the one times on the other."""


class Done(msgspec.Struct, array_like=True, tag="done"):
    """The result of the first unanswered Work, or of the one at that `place` among them. It took
    `elapsed_s` seconds; service time is that of the `timed` tuples. `stages` are the operators of a
    chain behind its head. `due_s` and `timers` are as in Timers. `together` has the second moments
    of how many tuples one made on each route."""

    groups: list[Group]
    acks: list[Ack]
    served: int
    elapsed_s: float
    timed: int
    service_s: float
    service_s2: float
    failed: list[DeadLetter]
    text: list[str]
    stages: list[Moments] = []
    due_s: float | None = None
    timers: int = 0
    place: int = 0
    together: list[Together] = []


class Timers(msgspec.Struct, array_like=True, tag="timers"):
    """How many timers a worker's keys have, and when the next is due, as `time.time` counts.
    `loaded` says that the worker has loaded state that it was given."""

    due_s: float | None
    timers: int
    loaded: bool


class Told(msgspec.Struct, array_like=True, tag="told"):
    """The first Broadcast that was not answered is taken up."""


class Fed(msgspec.Struct, array_like=True, tag="fed"):
    """What a source read: output, trees begun, when the last value was meant to arrive, the
    moments of the gaps between intended arrivals, and whether more is due than one message takes.
    Values that could not be read are in `failed`. A reader of splits also tells for how long it has
    used the processor since it last sent."""

    groups: list[Group]
    roots: list[Root]
    read: int
    shed: int
    intended_s: float
    gap_s: float
    gap_s2: float
    more: bool
    failed: list[DeadLetter] = []
    busy_s: float = 0.0


class Waits(msgspec.Struct, array_like=True, tag="waits"):
    """How many tuples wait in each split of a reader, as the source says, those included that it
    has read and not sent."""

    backlog: dict[str, int]


class Exhausted(msgspec.Struct, array_like=True, tag="exhausted"):
    """A source has no more values."""


class Cut(msgspec.Struct, array_like=True, tag="cut"):
    """Everything that came before Save is processed and answered."""

    commit: int


class Saved(msgspec.Struct, array_like=True, tag="saved"):
    """What belongs to a commit is on disk: the size of the file of changed keys (0: there is
    none), the position of a source, what a sink has staged and holds. A source with splits tells
    the positions of those that have moved on since the last commit, and of its schedule."""

    commit: int
    size: int = 0
    position: bytes = b""
    publish: list[tuple[str, str]] = []
    held: list[str] = []
    splits: dict[str, bytes] = {}
    schedule: Schedule = (0, 0.0, 0.0)


class Ready(msgspec.Struct, array_like=True, tag="ready"):
    """A worker is open and takes work."""

    pid: int


class Fatal(msgspec.Struct, array_like=True, tag="fatal"):
    """The vertex cannot go on. If that is not the fault of the user's code, a new start may
    help."""

    error: str
    user: bool = True


FromWorker = (
    Done | Fed | Waits | Exhausted | Cut | Saved | Ready | Fatal | GiveShard | Took | Timers | Told
)

encode = msgspec.msgpack.Encoder().encode
decode_change = msgspec.msgpack.Decoder(Change).decode
decode_log = msgspec.msgpack.Decoder(Log).decode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode


# Executor to driver


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """An executor joins. `boot` identifies its machine since the last boot, and so its steady
    clock, which shows `at_s`. `code` identifies the version of Sojourn there."""

    vertex: str
    executor: int
    host: str
    pid: int
    boot: str
    at_s: float
    machine: str = ""
    spark_executor: str = ""
    code: str = ""


class Outpost(msgspec.Struct, array_like=True, tag="outpost"):
    """An outpost is there: its machine, the Spark executor it is on, its process, and which version
    of Sojourn it has."""

    machine: str
    spark_executor: str
    pid: int
    code: str = ""


class Hire(msgspec.Struct, array_like=True, tag="hire"):
    """An executor wants so many workers from a machine; they are to come to this address."""

    machine: str
    count: int
    host: str
    port: int


class Attached(msgspec.Struct, array_like=True, tag="attached"):
    """A Spark task has come to an executor."""


class BatchEnded(msgspec.Struct, array_like=True, tag="batch_ended"):
    """A batch of Spark's is over at the source level, which waits for a commit."""

    batch: int


class AskTime(msgspec.Struct, array_like=True, tag="ask_time"):
    """What does the driver's steady clock show? Asked by executors on other machines."""

    at_s: float


BUSIEST = 1024  # shards that a report tells of


class Report(msgspec.Struct, array_like=True, tag="report"):
    """What an executor has counted since it started, at which time by its own clock, and how many
    rows it received and sent. From these the driver sees whether a row is under way."""

    vertex: str
    executor: int
    processors: int
    wanted: int
    queue: int
    arrivals: int
    gaps: int
    gap_s: float
    gap_s2: float
    served: int
    timed: int
    service_s: float
    service_s2: float
    processor_s: float
    emitted: dict[str, int]
    dropped: int
    shed: int
    lag_s: float | None
    started_s: float
    at_s: float
    received: int
    sent: int
    idle: bool
    exhausted: bool
    number: int
    stages: dict[str, Moments] = {}
    timers: int = 0
    shards: dict[int, int] | None = None
    together: dict[str, dict[str, int]] = {}
    away: dict[str, int] = {}  # workers on other machines
    bytes_in: int = 0
    bytes_out: int = 0
    owns: int = -1  # shards; below 0 without a key
    state: int = 0  # bytes of the files that keep it
    moves: int = 0  # of shards between workers
    moved: int = 0  # bytes of their state
    sync_s: float = 0.0  # until all tuples before their labels were done
    moving_s: float = 0.0  # from then on until they were served again
    machine: str = ""  # that the executor is on
    backlog: dict[str, int] | None = None  # tuples that wait in a source's splits, if it says


class Pressed(msgspec.Struct, array_like=True, tag="pressed"):
    """What control should know at once: the rate of a source has risen, or tuples that come now
    will wait for long."""

    rate: float | None
    over_s: float
    wait_s: float


class Traces(msgspec.Struct, array_like=True, tag="traces"):
    """Trees begun and tuples of them processed."""

    roots: list[Root]
    acks: list[Ack]


class Feedback(msgspec.Struct, array_like=True, tag="feedback"):
    """Feedback tuples for the source level, a row as Spark would carry it."""

    row: bytes


class Text(msgspec.Struct, array_like=True, tag="text"):
    """Lines for the driver's standard output."""

    lines: list[str]


class Suspect(msgspec.Struct, array_like=True, frozen=True):
    """A tuple that may have killed its worker: the digest of its bytes, and its number among equal
    tuples since the last start."""

    digest: bytes
    number: int


class Failed(msgspec.Struct, array_like=True, tag="failed"):
    """An executor cannot go on: why, whether the user's code is at fault, and, if a worker died,
    which tuples it had in hand."""

    vertex: str
    error: str
    user: bool
    suspects: list[Suspect] = []


class Bye(msgspec.Struct, array_like=True, tag="bye"):
    """An executor leaves."""


class Got(msgspec.Struct, array_like=True, tag="got"):
    """How many rows have ever come over each way: its sender, whether it is for feedback, and the
    number. Sent now and then, and with HasCut, so that senders need not keep the rows."""

    rows: list[tuple[int, bool, int]]


class HasCut(msgspec.Struct, array_like=True, tag="has_cut"):
    """An executor's cut for a commit, and what had come by then, as in Got."""

    commit: int
    got: list[tuple[int, bool, int]]


class Part(msgspec.Struct, array_like=True):
    """One executor's part in a commit: files of changed keys with their sizes, oldest first, named
    below the state's folder; the position of a source; the file of tuples that were under way, and
    the vertices they go to; what sinks have staged and hold. `shards` are the executor's own, if
    they were divided while the topology ran. `splits` and `schedule` are as in Saved; in a record,
    the splits of all parts are in one place instead."""

    vertex: str
    executor: int
    state: list[tuple[str, int]] = []
    position: bytes = b""
    log: str = ""
    log_to: list[str] = []
    publish: list[tuple[str, str]] = []
    held: list[str] = []
    guilty: list[bytes] = []
    shards: list[int] | None = None
    splits: dict[str, bytes] = {}
    schedule: Schedule = (0, 0.0, 0.0)

    def saved(self, executors: int) -> SavedFiles:
        """Its files, of one of so many executors."""
        return SavedFiles([name for name, _ in self.state], self.executor, executors, self.shards)


class HasSaved(msgspec.Struct, array_like=True, tag="has_saved"):
    """All of an executor's part in a commit is on disk."""

    commit: int
    part: Part


ToDriver = (
    Hello
    | Outpost
    | Hire
    | Attached
    | BatchEnded
    | AskTime
    | Report
    | Pressed
    | Traces
    | Feedback
    | Text
    | Failed
    | Bye
    | Got
    | HasCut
    | HasSaved
    | Paused
    | Drained
    | Carry
    | Carried
    | Landed
)


# Driver to executor


class Aim(msgspec.Struct, array_like=True, tag="aim"):
    """How long tuples may wait for others at an executor from now on, and the target."""

    max_rest_s: float
    max_sojourn_s: float | None


class Resize(msgspec.Struct, array_like=True, tag="resize"):
    """Use this many processors, of which so many are on other machines."""

    processors: int
    away: dict[str, int] = {}


class Employ(msgspec.Struct, array_like=True, tag="employ"):
    """To an outpost: send so many workers to the executor at this address."""

    host: str
    port: int
    count: int


class Poll(msgspec.Struct, array_like=True, tag="poll"):
    """Send a report with this number."""

    number: int


class StopSource(msgspec.Struct, array_like=True, tag="stop_source"):
    """Read no more from the source."""


class Inject(msgspec.Struct, array_like=True, tag="inject"):
    """Feedback of some executor, to be sent on by the source level."""

    row: bytes


class Welcome(msgspec.Struct, array_like=True, tag="welcome"):
    """Where an executor goes on: the last commit, and its part that concerns the executor. With
    `anew`, executors that divided the shards differently saved the state; otherwise `sizes` are the
    sizes of the files. `table` are the files of what was broadcast. `shares` are for the readers of
    a source with splits."""

    commit: int
    state: list[SavedFiles] = []
    sizes: list[int] = []
    anew: bool = False
    logs: list[str] = []
    position: bytes = b""
    held: list[str] = []
    table: list[str] = []
    shares: list[Share] | None = None


class Commit(msgspec.Struct, array_like=True, tag="commit"):
    """Make the cut of this commit. With `hold` nothing is done after it; with `last` it is the
    last one before the topology ends. The splits of the sources in `anew` will be shared out anew:
    they send nothing after it until they are told to read them."""

    number: int
    hold: bool
    last: bool
    anew: list[str] = []


class Reading(msgspec.Struct, array_like=True, tag="reading"):
    """Have so many processes read a source's splits from now on, each its share."""

    shares: list[Share]


class Confirm(msgspec.Struct, array_like=True, tag="confirm"):
    """How many of this executor's rows have ever come to each executor of a vertex, by the plain
    way or as feedback. They are counted at the receivers' cuts for a commit; if the commit is 0, at
    any time."""

    commit: int
    rows: list[tuple[str, int, bool, int]]


class Committed(msgspec.Struct, array_like=True, tag="committed"):
    """A commit is durable."""

    number: int


class Time(msgspec.Struct, array_like=True, tag="time"):
    """The driver's steady clock, asked for at `asked_s` by the executor's clock, and whether the
    two clocks are the same."""

    asked_s: float
    at_s: float
    same_clock: bool


class Finish(msgspec.Struct, array_like=True, tag="finish"):
    """End."""


ToExecutor = (
    Welcome
    | Aim
    | Resize
    | Employ
    | Poll
    | StopSource
    | Inject
    | Commit
    | Reading
    | Confirm
    | Committed
    | GoOn
    | Time
    | Finish
    | Pause
    | Drain
    | Release
    | Carry
    | Carried
    | Divided
)

Division = Pause | Drain | Release | Carry | Carried | Divided
"""What the driver says while shards are divided anew."""

HandedOver = Paused | Drained | Carry | Carried | Landed
"""What executors say meanwhile."""

decode_to_driver = msgspec.msgpack.Decoder(ToDriver).decode
decode_to_executor = msgspec.msgpack.Decoder(ToExecutor).decode
