"""The messages by which shards move: between the workers of an executor, and between the executors
of an operator when its shards are divided anew."""

import msgspec

SLOTS = 4  # of the memory that workers of a host share, each for a shard on its way

# Executor and worker


class TakeShard(msgspec.Struct, array_like=True, tag="take"):
    """The label of a shard move: when a worker reads it, all earlier tuples of the shard are done.
    The answer is GiveShard."""

    shard: int


class TakeMore(msgspec.Struct, array_like=True, tag="take_more"):
    """The next piece of a shard's state is wanted: in this slot of shared memory, or, below 0, in
    the answer, which is GiveShard."""

    shard: int
    slot: int


class GiveShard(msgspec.Struct, array_like=True, tag="give"):
    """A shard's pickled state and timers, or a piece of that if there is `more`. It is None where
    workers share it, and empty where there is none yet. If it is in a slot of shared memory, it has
    `size` bytes there. A worker answers a piece with Took. With `anew` the shard comes from another
    executor, so all of it must be saved."""

    shard: int
    state: bytes | None
    more: bool = False
    slot: int = -1
    size: int = 0
    anew: bool = False


class Took(msgspec.Struct, array_like=True, tag="took"):
    """A piece of a shard's state is used up."""

    shard: int


class Settle(msgspec.Struct, array_like=True, tag="settle"):
    """All pieces of a shard's state have come. Its tuples follow."""

    shard: int


# Driver and executor


class Pause(msgspec.Struct, array_like=True, tag="pause"):
    """To those that send to a vertex: send it nothing until Divided. Answered with Paused. Every
    division has a number."""

    number: int
    vertex: str


class Paused(msgspec.Struct, array_like=True, tag="paused"):
    """The last row that was sent to each executor of the vertex, by the plain way or as
    feedback."""

    number: int
    rows: list[tuple[int, bool, int]]


class Drain(msgspec.Struct, array_like=True, tag="drain"):
    """To an executor: say Drained once these rows, by sender, have come and nothing waits."""

    number: int
    rows: list[tuple[int, bool, int]]


class Drained(msgspec.Struct, array_like=True, tag="drained"):
    """All that was sent is processed."""

    number: int


class Release(msgspec.Struct, array_like=True, tag="release"):
    """To an executor: give these shards to others, each to the executor of that number."""

    shards: list[tuple[int, int]]


class Carry(msgspec.Struct, array_like=True, tag="carry"):
    """A shard, or a piece of it if there is `more`, on its way to another executor."""

    vertex: str
    executor: int
    shard: int
    state: bytes
    more: bool


class Carried(msgspec.Struct, array_like=True, tag="carried"):
    """A piece is used up, and the next one can come."""

    shard: int


class Landed(msgspec.Struct, array_like=True, tag="landed"):
    """All of a shard has come to an executor, which serves it from now on."""

    shard: int


class Divided(msgspec.Struct, array_like=True, tag="divided"):
    """To those that send to a vertex, and to its executors: each shard belongs to this executor
    from now on. Go on."""

    vertex: str
    table: list[int]
