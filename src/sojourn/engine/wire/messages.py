"""The messages between an executor and its workers, and between executors and the driver.
Typed, so that a malformed one is refused where it arrives."""

import msgspec

from sojourn.engine.wire.bundle import Trace


class Work(msgspec.Struct, array_like=True, tag="work"):
    """Tuples to process, in order."""

    payloads: list[bytes]
    shards: list[int]
    traces: list[Trace]


class Begin(msgspec.Struct, array_like=True, tag="begin"):
    """A batch starts; all before it are committed."""

    batch: int
    epoch: int


class End(msgspec.Struct, array_like=True, tag="end"):
    """The batch is over for this worker: finish what belongs to it and answer with Ended."""


class TakeShard(msgspec.Struct, array_like=True, tag="take"):
    """The label of a shard move: all earlier tuples of the shard are done when it is read.
    The answer is GiveShard."""

    shard: int


class GiveShard(msgspec.Struct, array_like=True, tag="give"):
    """A shard's state, pickled; None where workers share it, b"" where there is none yet."""

    shard: int
    state: bytes | None


class Close(msgspec.Struct, array_like=True, tag="close"):
    """Finish; batches up to `committed` are committed. None: it is not known, so leave what is
    staged as it is."""

    committed: int | None


ToWorker = Work | Begin | End | TakeShard | GiveShard | Close


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


class Ack(msgspec.Struct, array_like=True):
    """A tracked tuple is processed: exclusive-or of its id and its children's, and when."""

    root: int
    value: int
    at_s: float


class DeadLetter(msgspec.Struct, array_like=True):
    """A tuple that could not be processed, as far as it can be shown, and why."""

    shown: str
    error: str


class Done(msgspec.Struct, array_like=True, tag="done"):
    """What became of the first unanswered Work, in `elapsed_s` seconds; service time is that of
    the `timed` ones."""

    groups: list[Group]
    acks: list[Ack]
    served: int
    elapsed_s: float
    timed: int
    service_s: float
    service_s2: float
    failed: list[DeadLetter]
    text: list[str]


class Fed(msgspec.Struct, array_like=True, tag="fed"):
    """What a source read: output, trees begun, when the last value was meant to arrive, and the
    moments of the gaps between intended arrivals."""

    groups: list[Group]
    roots: list[Root]
    read: int
    shed: int
    intended_s: float
    gap_s: float
    gap_s2: float


class Exhausted(msgspec.Struct, array_like=True, tag="exhausted"):
    """A source has no more values."""


class Ended(msgspec.Struct, array_like=True, tag="ended"):
    """All of the batch is processed; here are the shards that changed in it, pickled."""

    shards: dict[int, bytes]


class Ready(msgspec.Struct, array_like=True, tag="ready"):
    """A worker is open and takes work."""

    pid: int


class Fatal(msgspec.Struct, array_like=True, tag="fatal"):
    """The vertex cannot go on."""

    error: str


FromWorker = Done | Fed | Exhausted | Ended | Ready | Fatal | GiveShard

encode = msgspec.msgpack.Encoder().encode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode


# Executor to driver


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """An executor joins."""

    vertex: str
    executor: int
    epoch: int
    host: str
    pid: int


class Report(msgspec.Struct, array_like=True, tag="report"):
    """What an executor has counted since it started, when by its own clock, and how many tuples
    it received and sent in the running batch, by which the driver sees that none is under way."""

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
    batch: int
    batch_in: int
    batch_out: int
    idle: bool
    exhausted: bool
    number: int


class Traces(msgspec.Struct, array_like=True, tag="traces"):
    """Trees begun and tuples of them processed."""

    roots: list[Root]
    acks: list[Ack]


class Feedback(msgspec.Struct, array_like=True, tag="feedback"):
    """Feedback tuples for the source level, a row as Spark would carry it, to be sent in the
    batch `batch`; acknowledged by number."""

    number: int
    batch: int
    row: bytes
    count: int


class Text(msgspec.Struct, array_like=True, tag="text"):
    """Lines for the driver's standard output."""

    lines: list[str]


class Failed(msgspec.Struct, array_like=True, tag="failed"):
    """An executor cannot go on: why, whether it is the user's code, whether a worker died, and
    the fingerprint of the tuple that one had in hand, if it was a single one."""

    vertex: str
    error: str
    user: bool
    worker_died: bool
    suspect: int | None


class Bye(msgspec.Struct, array_like=True, tag="bye"):
    """An executor leaves."""


class Settle(msgspec.Struct, array_like=True, tag="settle"):
    """An executor asks for all acknowledgements of its feedback that are under way."""


class Acknowledge(msgspec.Struct, array_like=True, tag="acknowledge"):
    """The source level has sent on feedback of `sender`."""

    sender: bytes
    number: int


class SettledFor(msgspec.Struct, array_like=True, tag="settled_for"):
    """The source level has acknowledged all that it will in this batch."""

    sender: bytes


ToDriver = (
    Hello | Report | Traces | Feedback | Text | Failed | Bye | Settle | Acknowledge | SettledFor
)


# Driver to executor


class Resize(msgspec.Struct, array_like=True, tag="resize"):
    """Use this many processors."""

    processors: int


class Poll(msgspec.Struct, array_like=True, tag="poll"):
    """Send a report with this number."""

    number: int


class StopSource(msgspec.Struct, array_like=True, tag="stop_source"):
    """Read no more from the source."""


class Inject(msgspec.Struct, array_like=True, tag="inject"):
    """Feedback of another executor, `count` tuples, to be sent on by the source level in the
    batch `batch`; if that is over, its sender has kept it and hands it over again."""

    sender: bytes
    number: int
    batch: int
    row: bytes
    count: int


class Injected(msgspec.Struct, array_like=True, tag="injected"):
    """Feedback number `number` is on its way."""

    number: int


class Finish(msgspec.Struct, array_like=True, tag="finish"):
    """End; batches up to `committed` are committed, or it is not known which."""

    committed: int | None


class SettleFor(msgspec.Struct, array_like=True, tag="settle_for"):
    """Another executor asks for the acknowledgements under way to it."""

    sender: bytes


class Settled(msgspec.Struct, array_like=True, tag="settled"):
    """All acknowledgements have arrived."""


ToExecutor = Resize | Poll | StopSource | Inject | Injected | SettleFor | Settled | Finish

decode_to_driver = msgspec.msgpack.Decoder(ToDriver).decode
decode_to_executor = msgspec.msgpack.Decoder(ToExecutor).decode
