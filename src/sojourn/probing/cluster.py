"""The machines of a Spark cluster, measured: each Spark executor counts as a machine. Every turn is
a job of barrier tasks, one for each slot, so that there is one on every executor. The first task of
an executor measures links; all of them work, to see how much the machine does in all."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sojourn.errors import InputError
from sojourn.probing import probes
from sojourn.probing.echo import Echo
from sojourn.probing.figures import Link, Machine, Report, turns
from sojourn.probing.packets import new_token, parse_address
from sojourn.probing.work import capacity
from sojourn.units import format_duration

_MOST_S = 60.0
_SETTLED_S = 3.0
_LOOK_S = 0.1


@dataclass(frozen=True)
class Part:
    """What a task brings: the work that its slot did each second, and its link, or the sender, the
    receiver and why there is none."""

    address: str
    capacity: tuple[float, ...]
    link: Link | None = None
    failed: tuple[str, str, str] | None = None


def measured(
    spark: Any, plan: probes.Plan, machines: int | None, tell: Callable[[str], None]
) -> Report:
    """Turn by turn, until every link has been measured. Begins when so many machines are there, or
    when no more come."""
    context = spark.sparkContext
    if context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise InputError(
            "measure: needs executors that stay; got spark.dynamicAllocation.enabled=true; set it "
            "to false"
        )
    slots = await_slots(context, machines)
    addresses = _job(context, slots, _tell_address)
    names, token = named(addresses), new_token()
    order = turns(len(names))
    least = format_duration(plan.total_s)
    tell(f"{len(names)} machines, {len(order)} turns of at least {least}")
    began_s = time.monotonic()
    parts: list[tuple[float, Part]] = []
    places = list(names)
    for number, pairs in enumerate(order, 1):
        to = {places[one]: places[other] for one, other in pairs}
        told = ", ".join(f"{names[one]} → {names[other]}" for one, other in to.items())
        tell(f"turn {number} of {len(order)}: {told} …")
        at_s = time.monotonic() - began_s
        task = TakePart(plan, token, names, to)
        parts += [(at_s, part) for part in _job(context, slots, task)]
    return reported(names, addresses, parts, plan.seconds)


def named(addresses: Iterable[str]) -> dict[str, str]:
    """A name for each machine: its host, with a number if there are several on it."""
    order = sorted(set(addresses))
    hosts = [address.rpartition(":")[0] for address in order]
    return {
        address: host if hosts.count(host) == 1 else f"{host}#{1 + hosts[:place].count(host)}"
        for place, (address, host) in enumerate(zip(order, hosts, strict=True))
    }


def reported(
    names: Mapping[str, str],
    slots: Sequence[str],
    parts: Sequence[tuple[float, Part]],
    seconds: float,
) -> Report:
    """The parts of all turns, each with when its turn began, as one report. Slots are named by the
    address of their machine, and add up."""
    worked: dict[str, dict[float, float]] = {address: {} for address in names}
    for began_s, part in parts:
        if part.address not in worked:
            raise InputError(
                f"{part.address}: must have been there from the beginning; it came while others "
                "were measured; measure again, and say with --machines how many there are"
            )
        total = worked[part.address]
        for place, rate in enumerate(part.capacity):
            at_s = began_s + place * seconds / len(part.capacity)
            total[at_s] = total.get(at_s, 0.0) + rate
    links = sorted(
        (part.link for _, part in parts if part.link is not None),
        key=lambda link: (link.sender, link.receiver),
    )
    machines = [
        Machine(name, slots.count(address), tuple(worked[address]), tuple(worked[address].values()))
        for address, name in names.items()
    ]
    failed = [part.failed for _, part in parts if part.failed is not None]
    return Report(tuple(links), tuple(machines), tuple(failed))


def await_slots(context: Any, machines: int | None) -> int:
    """The task slots of all machines, once there are so many machines, or two and no more come."""
    java = context._jsc.sc()
    began_s = changed_s = time.monotonic()
    found = 0
    while True:
        now_s = time.monotonic()
        there = len(java.statusTracker().getExecutorInfos()) - 1  # the driver is one of them
        if there != found:
            found, changed_s = there, now_s
        settled = machines is None and found > 1 and now_s - changed_s > _SETTLED_S
        if settled or (machines is not None and found >= machines):
            default = java.resourceProfileManager().defaultResourceProfile()
            return int(java.maxNumConcurrentTasks(default))
        if now_s - began_s > _MOST_S:
            raise InputError(
                f"{context.master}: must have at least {machines or 2} executors to be measured; "
                f"has {found} after {_MOST_S:.0f} s; add machines to the cluster"
            )
        time.sleep(_LOOK_S)


def _job(context: Any, slots: int, task: Callable[[Iterable[int]], Iterator[Any]]) -> list[Any]:
    """What one task in each slot brings."""
    rows = context.parallelize(range(slots), slots)
    return list(rows.barrier().mapPartitions(task).collect())


def _tell_address(_: Iterable[int]) -> Iterator[str]:
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    yield context.getTaskInfos()[context.partitionId()].address


@dataclass(frozen=True)
class TakePart:
    """A task of a turn: `to` has, by address, who measures the link to whom."""

    plan: probes.Plan
    token: bytes
    names: Mapping[str, str]
    to: Mapping[str, str]

    def __call__(self, _: Iterable[int]) -> Iterator[Part]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        slots = [info.address for info in context.getTaskInfos()]
        mine = slots[context.partitionId()]
        rates = capacity(self.plan.seconds)
        if slots.index(mine) != context.partitionId():
            context.allGather("")
            context.barrier()
            yield Part(mine, rates)
            return
        with Echo(self.token, parse_address(mine, "executor")[0]) as echo:
            told = zip(slots, context.allGather(str(echo.address[1])), strict=True)
            part = self.part(mine, rates, {slot: int(port) for slot, port in told if port})
            context.barrier()
        yield part

    def part(self, mine: str, rates: tuple[float, ...], ports: Mapping[str, int]) -> Part:
        """What the first task of a machine brings, if the others listen on these ports."""
        if mine not in self.to:
            return Part(mine, rates)
        other = self.to[mine]
        sender, receiver = self.names[mine], self.names[other]
        if other not in ports:
            return Part(mine, rates, failed=(sender, receiver, "it is gone"))
        target = probes.Target(parse_address(other, "executor")[0], ports[other], self.token)
        try:
            link = probes.link(sender, receiver, target, self.plan, lambda _: None)
        except InputError as error:
            return Part(mine, rates, failed=(sender, receiver, str(error)))
        return Part(mine, rates, link)
