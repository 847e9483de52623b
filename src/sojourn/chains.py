"""Chains: neighbouring operators that share their workers, so that a tuple goes from one to the
next by a call. A topology with chains equals one in which each chain is a single operator, its
head. Engines run that operator, and control allocates processors to it. Pure; fed by the topology,
used by everything that runs one."""

from dataclasses import dataclass, replace
from typing import Any

from sojourn.errors import InputError
from sojourn.operators import Emits, UserCode
from sojourn.topology import Edge, OperatorSpec, Topology


@dataclass(frozen=True)
class Stage:
    """An operator of a chain. For each of its outputs (None is the plain one) it says which stages
    of the chain get what it emits, and under which of the head's outputs that leaves the chain."""

    name: str
    code: UserCode
    emits: Emits
    onward: dict[str | None, tuple[int, ...]]
    leaves: dict[str | None, str | None]


@dataclass(frozen=True)
class Chain:
    """The code of a chain, its head first."""

    stages: tuple[Stage, ...]

    def __call__(self, value: Any) -> Any:
        raise AssertionError(f"a chain is taken apart by its worker, not called with {value!r}")


def behind(code: object) -> tuple[str, ...]:
    """The operators that share the workers of the operator with this code."""
    return tuple(stage.name for stage in code.stages[1:]) if isinstance(code, Chain) else ()


def chained_to(topology: Topology) -> dict[str, str]:
    """The head of every operator that shares another one's workers."""
    senders = {
        edge.receiver: edge.sender
        for edge in topology.edges
        if not edge.feedback and not edge.broadcast
    }
    heads: dict[str, str] = {}
    for name, spec in topology.operators.items():  # a sender is declared before its receivers
        if spec.chained:
            sender = senders[name]
            heads[name] = heads.get(sender, sender)
    return heads


def contracted(topology: Topology) -> Topology:
    """The topology with a single operator in place of each chain; itself, if it has none."""
    heads = chained_to(topology)
    if not heads:
        return topology
    made = Topology(topology.name)
    members: dict[str, list[str]] = {}
    for name, head in heads.items():
        members.setdefault(head, [head]).append(name)
    for name, spec in topology.vertices.items():
        if name in members and isinstance(spec, OperatorSpec):
            made.vertices[name] = replace(spec, code=_chain(topology, members[name]), emits="many")
        elif name not in heads:
            made.vertices[name] = spec
    for edge in topology.edges:
        sender = heads.get(edge.sender, edge.sender)
        if heads.get(edge.receiver) != sender or edge.feedback:
            made.edges.append(replace(edge, sender=sender, output=_left(sender, edge)))
    return made


def stage_of(edge: str, stages: tuple[str, ...]) -> tuple[str, str] | None:
    """The stage behind a head that an edge of the head belongs to, and the edge's name in that
    stage's samples: `out[b]` is b's `out`, `out[b.rejected]` is its `out[rejected]`."""
    receiver, _, output = edge.rstrip("]").partition("[")
    for name in stages:
        if output == name:
            return name, receiver
        if output.startswith(f"{name}."):
            return name, f"{receiver}[{output.removeprefix(f'{name}.')}]"
    return None


def _left(head: str, edge: Edge) -> str | None:
    """The output of the head under which tuples of a stage's edge leave the chain."""
    if edge.sender == head:
        return edge.output
    return edge.sender if edge.output is None else f"{edge.sender}.{edge.output}"


def _chain(topology: Topology, members: list[str]) -> Chain:
    head, *rest = members
    numbers = {name: number for number, name in enumerate(members)}
    stages = []
    for name in members:
        spec = topology.operators[name]
        onward: dict[str | None, tuple[int, ...]] = {}
        leaves: dict[str | None, str | None] = {}
        for edge in topology.edges:
            if edge.sender != name:
                continue
            if edge.receiver in rest and not edge.feedback:
                onward[edge.output] = (*onward.get(edge.output, ()), numbers[edge.receiver])
            else:
                leaves[edge.output] = _left(head, edge)
        stages.append(Stage(name, spec.code, spec.emits, onward, leaves))
    taken = {output for output in stages[0].leaves.values() if output is not None}
    for stage in stages[1:]:
        for output in stage.leaves.values():
            if output in taken:
                raise InputError(
                    f"operator {head!r}: its output {output!r} has the same name as an output that "
                    f"leaves its chain at {stage.name!r}; rename one"
                )
    return Chain(tuple(stages))
