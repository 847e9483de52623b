"""Machines from rates alone (Cervino 2012), for a topology: how many machines its load needs, by
what came, what was processed and what was shed; their processors go to operators by their load.
Decides once a period. The algorithm itself, as printed and mended, is in `provisioning`."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sojourn.confidence import half_width
from sojourn.control.policies.baseline import changed
from sojourn.control.situation import Action, Blind, Decision, Situation, Standing
from sojourn.provisioning.kinds import Kind, chosen, slots_of, together
from sojourn.provisioning.kinds import told as told_kinds
from sojourn.provisioning.mended import Options, mended
from sojourn.provisioning.printed import printed
from sojourn.provisioning.rates import Known, Rates
from sojourn.units import format_duration


def provision(s: Situation | Blind) -> Decision:
    """As many machines as the rates of a period ask for."""
    if isinstance(s, Blind):
        return _idle(s) or Decision(Action.NOT_READY, s.why.reason)
    if s.pressures:
        return Decision(Action.WAIT, f"{s.pressing}; but the policy waits for its period")
    known, settings, kinds = s.memory.known, s.settings, s.settings.provision_kinds
    if known.begun_s is None:
        known = replace(known, begun_s=s.past[0].time_s)
    last_s = known.inputs[-1][0] if known.inputs else known.begun_s or 0.0
    left_s = last_s + settings.provision_s - s.now_s
    each = 1 if kinds else settings.machine_processors  # where kinds differ, slots are counted
    machines = max(1, math.ceil(s.total(s.current) / each))
    if left_s > 0.5 * settings.interval_s:
        room = known.machines or 0
        if s.limits.capacity is not None:
            room = min(room, s.limits.capacity // each)
        asked = None if known.machines is None else _asked(s, known)
        if asked is not None and room > machines:  # one that was asked for has come
            there = f"{room} {'slots' if kinds else 'machines'} are there"
            found = changed(s, shared(room * each, s), there)
            return replace(found, needed=asked.processors, kinds=asked.kinds)
        words = f"the period ends in {left_s:.0f} s"
        needed = asked.processors if asked else None
        begun = known if s.memory.known.begun_s is None else None
        return Decision(Action.WAIT, words, known=begun, needed=needed)
    rates = rates_of(s, machines, last_s)
    if settings.provision_form == "printed":
        proposal = printed(rates, known)
        inputs = (*known.inputs, (s.now_s, rates.input))[-1:]
        proposal = replace(proposal, known=replace(proposal.known, inputs=inputs))
    else:
        extra = settings.provision_extra
        starts = extra in ("start", "all")
        options = Options(
            period_s=settings.provision_s,
            start_s=s.outlook.machines_s if starts else 0.0,
            predict=extra in ("predict", "all"),
            latency=extra in ("latency", "all"),
            idle=extra in ("idle", "all"),
            spread=extra in ("spread", "all"),
        )
        proposal = mended(rates, known, max(0, (known.machines or 0) - machines), options)
    if proposal.machines is None:
        return Decision(Action.NOT_READY, proposal.why, known=proposal.known)
    if kinds:
        now, words = _by_price(s, proposal.machines, proposal.known, kinds)
    else:
        most = settings.max_machines
        wanted = proposal.machines if most is None else min(most, proposal.machines)
        now = replace(proposal.known, machines=wanted)
        words = f"{machines} → {wanted} machines of {each} processors"
    asked = _asked(s, now)
    found = changed(
        s, shared((now.machines or 0) * each, s), f"{proposal.why}: {words}{asked.ready}"
    )
    needed = max(asked.processors, found.needed or 0)
    return replace(found, known=now, needed=needed, kinds=asked.kinds)


def _idle(s: Blind) -> Decision | None:
    """If nothing has arrived for a period, the fewest machines carry it. As printed, machines that
    process nothing tell nothing."""
    since_s, settings, known = s.idle_since_s, s.settings, s.memory.known
    if since_s is None or settings.provision_form == "printed":
        return None
    idle_s, least = s.now_s - since_s, s.least
    if idle_s < settings.provision_s:
        return None
    kinds, total = settings.provision_kinds, sum(least.values())
    known = replace(known, inputs=(*known.inputs, (s.now_s, 0.0))[-1:])
    if kinds:
        now, words = _by_price(s, total, known, kinds)
    else:
        each = settings.machine_processors
        now = replace(known, machines=max(1, math.ceil(total / each)))
        words = f"{now.machines} machines of {each} processors"
    asked, why = _asked(s, now), f"nothing has arrived for {format_duration(idle_s)}: {words}"
    if s.wanted == least:
        why = f"{why}; every operator is at its minimum{asked.ready}"
        return Decision(Action.HOLD, why, known=now, needed=asked.processors, kinds=asked.kinds)
    why = f"{why}, and every operator to its minimum{asked.ready}"
    return Decision(
        Action.REMOVE,
        why,
        least,
        known=now,
        needed=asked.processors,
        kinds=asked.kinds,
        forced=True,
    )


@dataclass(frozen=True)
class _Asked:
    """What machines are asked for: their processors, how many of each kind if there are several,
    and how many of them are to be ready, in words."""

    processors: int
    kinds: Mapping[str, int] | None
    ready: str


def _asked(s: Standing, known: Known) -> _Asked:
    """The machines that there should be, and those that are kept ready. Of several kinds, those are
    of the one with the lowest price."""
    settings, wanted = s.settings, known.machines or 0
    if settings.provision_kinds:
        kinds = settings.provision_kinds
        ready = {min(kinds, key=lambda kind: kind.price).name: settings.provision_ready}
        mix = together(known.kinds, ready)
        words = f", and {told_kinds(ready, kinds)} kept ready" if settings.provision_ready else ""
        return _Asked(slots_of(mix, kinds), mix, words)
    up = wanted + settings.provision_ready
    if settings.max_machines is not None:
        up = max(wanted, min(up, settings.max_machines))
    words = f", and {up - wanted} kept ready" if up > wanted else ""
    return _Asked(up * settings.machine_processors, None, words)


def _by_price(
    s: Standing, slots: int, learned: Known, kinds: tuple[Kind, ...]
) -> tuple[Known, str]:
    """Machines for so many slots by their price, and why. What is needed is taken to last for as
    long again as it has lasted, and for a period at least."""
    known, settings = s.memory.known, s.settings
    if settings.max_processors is not None:
        slots = min(slots, settings.max_processors)
    before = known.slots
    since_s = before[1] if before is not None and before[0] == slots else s.now_s
    first = kinds[0]
    there = known.kinds or {first.name: math.ceil((s.limits.capacity or 1) / first.slots)}
    mix = chosen(there, slots, kinds, max(settings.provision_s, s.now_s - since_s))
    now = replace(learned, machines=slots_of(mix, kinds), kinds=mix, slots=(slots, since_s))
    counted = f"for {slots} slots (each counted as a machine)"
    return now, f"{counted} {told_kinds(there, kinds)} → {told_kinds(mix, kinds)}"


def rates_of(s: Situation, machines: int, since_s: float) -> Rates:
    """The rates of the intervals since a time. The machines have equal shares. What one processes
    is by the time for which there were how many: one that came at the end did not do its part. What
    one can process shows in the intervals in which tuples were shed, if there are some: in others
    it may have had less to do."""
    past = [m for m in s.past if m.time_s > since_s] or [s.latest]
    seconds = math.fsum(m.interval_s for m in past)
    comes = math.fsum(m.external_rate * m.interval_s for m in past) / seconds
    shed = math.fsum(m.shed * m.interval_s for m in past) / seconds
    earlier = s.past[: len(s.past) - len(past)]
    first, lasts_s = (earlier[-1], seconds) if earlier else (past[0], seconds - past[0].interval_s)
    lag = past[-1].backlog_s - first.backlog_s
    growth = max(0.0, lag * comes / lasts_s) if lasts_s > 0 else 0.0
    processed = max(0.0, comes - shed - growth)
    there = [sum(m.operators[name].processors for name in s.wanted) for m in past]
    taken = math.fsum(n * m.interval_s for n, m in zip(there, past, strict=True)) / seconds
    each = processed * there[-1] / max(1.0, taken) / machines
    full = [
        (m.external_rate - m.shed) / max(1, n)
        for n, m in zip(there, past, strict=True)
        if m.shed > 0
    ]
    off = [m.external_rate - m.shed for m in past]
    spread = _deviation([m.shed for m in past])
    busy = math.fsum(o.busy * o.processors for o in s.smooth.operators.values())
    have = sum(o.processors for o in s.smooth.operators.values())
    return Rates(
        time_s=s.now_s,
        input=comes,
        processed=(each,) * machines,
        noise=min(comes, half_width(off)) if len(off) > 2 else 0.02 * comes,
        shed=shed,
        spread=spread,
        waiting=past[-1].backlog_s * comes,
        growth=growth,
        latency_s=s.metric,
        idle=max(0.0, 1 - busy / have) if have else None,
        machine=statistics.median(full) * there[-1] / machines if full else None,
    )


def _deviation(values: list[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def shared(processors: int, s: Situation) -> Mapping[str, int]:
    """Processors by load: each next one goes where most load is on each."""
    loads = {name: s.network.stations[name].offered_load for name in s.wanted}
    found = {name: s.limits.least(name) for name in s.wanted}
    for _ in range(processors - sum(found.values())):
        able = [name for name in found if found[name] < s.limits.most(name)]
        if not able:
            break
        found[max(able, key=lambda n: loads[n] / found[n])] += 1
    return found
