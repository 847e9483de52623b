"""The checkpoint as a whole: who uses it, which topology it belongs to, and how often the topology
was started. Checked before Spark starts. Spark's own part and the vertices' state lie beside it."""

import fcntl
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sojourn import durable
from sojourn.errors import InputError
from sojourn.topology import OperatorSpec, Topology, kind_of

_A = {"source": "a source", "operator": "an operator without a key", "sink": "a sink"}


@dataclass(frozen=True)
class Claim:
    """A checkpoint in use, and its name, by which sinks tell what is theirs."""

    lock: IO[bytes]
    name: str

    def close(self) -> None:
        """Let others use it. The end of the process does that too."""
        self.lock.close()


def claim(checkpoint: Path, topology: Topology) -> Claim:
    """Take a checkpoint for one run, until the returned claim is closed. Nothing in it is read
    before it is certain that nobody else can have put it there."""
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        lock = durable.private_file(durable.private_directory(checkpoint / "sojourn") / "lock")
    except OSError as error:
        raise InputError(
            f"checkpoint {checkpoint}: must be a directory that can be made and written to; "
            f"{error.filename}: {error.strerror}; give another"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _check_shape(checkpoint, topology)
    except BlockingIOError:
        lock.close()
        raise InputError(
            f"checkpoint {checkpoint}: another run uses it; stop it, or give another checkpoint"
        ) from None
    except BaseException:
        lock.close()
        raise
    return Claim(lock, _name(checkpoint))


def _name(checkpoint: Path) -> str:
    path = checkpoint / "sojourn" / "name"
    if not path.exists():
        durable.write(path, secrets.token_hex(8).encode())
    return path.read_text(encoding="utf-8")


def _check_shape(checkpoint: Path, topology: Topology) -> None:
    """Refuse a checkpoint whose state the topology cannot use. State is found by the vertex's name
    and the number of shards, feedback by its edge. All else may change."""
    path = checkpoint / "sojourn" / "topology.json"
    shape = _shape(topology)
    if not path.exists():
        durable.write(path, json.dumps(shape, indent=1).encode())
        return
    found = json.loads(path.read_bytes())
    for name in sorted({*found, *shape}):
        old, new = found.get(name, "missing"), shape.get(name, "missing")
        if old != new:
            raise InputError(
                f"checkpoint {checkpoint}: {name} is {old} there, but {new} in the topology "
                f"{topology.name!r}; start with another checkpoint, or the topology as it was"
            )


def next_epoch(checkpoint: Path) -> int:
    """The number of a new start, higher than all before it."""
    path = checkpoint / "sojourn" / "epoch"
    epoch = int(path.read_bytes()) + 1 if path.exists() else 0
    durable.write(path, str(epoch).encode())
    return epoch


def _shape(topology: Topology) -> dict[str, str]:
    """What state depends on, in words."""
    shape = {}
    for name, spec in topology.vertices.items():
        shape[f"vertex {name!r}"] = _A[kind_of(spec)]
        if isinstance(spec, OperatorSpec) and spec.key is not None:
            shape[f"vertex {name!r}"] = f"an operator with {spec.shards} shards"
    for edge in topology.edges:
        if edge.feedback:
            output = "" if edge.output is None else f"[{edge.output!r}]"
            shape[f"feedback {edge.sender!r}{output} → {edge.receiver!r}"] = "declared"
    return shape
