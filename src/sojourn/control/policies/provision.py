"""Machines from rates alone (Cervino 2012), for a topology: how many machines its load needs, by
what came, what was processed and what was shed; their processors go to operators by their load.
Decides once a period. The algorithm itself, as printed and mended, is in `provisioning`."""

import math
from collections.abc import Mapping
from dataclasses import replace

from sojourn.confidence import half_width
from sojourn.control.policies.baseline import changed
from sojourn.control.situation import Action, Blind, Decision, Situation
from sojourn.provisioning.mended import Options, mended
from sojourn.provisioning.printed import printed
from sojourn.provisioning.rates import Rates


def provision(s: Situation | Blind) -> Decision:
    """As many machines as the rates of a period ask for."""
    if isinstance(s, Blind):
        return Decision(Action.NOT_READY, s.why.reason)
    if s.pressures:
        return Decision(Action.WAIT, f"{s.pressing}; but the policy waits for its period")
    known, settings = s.memory.known, s.settings
    last_s = known.inputs[-1][0] if known.inputs else s.past[0].time_s
    left_s = last_s + settings.provision_s - s.now_s
    each = settings.machine_processors
    machines = max(1, math.ceil(s.total(s.current) / each))
    if left_s > 0.5 * settings.interval_s:
        room = known.machines or 0
        if s.limits.capacity is not None:
            room = min(room, s.limits.capacity // each)
        if room > machines:  # one that was asked for has come
            return changed(s, shared(room * each, s), f"{room} machines are there")
        return Decision(Action.WAIT, f"the period ends in {left_s:.0f} s")
    rates = rates_of(s, machines, last_s)
    if settings.provision_form == "printed":
        proposal = printed(rates, known)
        inputs = (*known.inputs, (s.now_s, rates.input))[-1:]
        proposal = replace(proposal, known=replace(proposal.known, inputs=inputs))
    else:
        extra = settings.provision_extra
        options = Options(
            period_s=settings.provision_s,
            predict=extra in ("predict", "all"),
            latency=extra in ("latency", "all"),
            idle=extra in ("idle", "all"),
            spread=extra in ("spread", "all"),
        )
        proposal = mended(rates, known, options=options)
    if proposal.machines is None:
        return Decision(Action.NOT_READY, proposal.why, known=proposal.known)
    most = settings.max_machines
    wanted = proposal.machines if most is None else min(most, proposal.machines)
    words = f"{proposal.why}: {machines} → {wanted} machines of {each} processors"
    found = changed(s, shared(wanted * each, s), words)
    needed = max(wanted * each, found.needed or 0)
    return replace(found, known=replace(proposal.known, machines=wanted), needed=needed)


def rates_of(s: Situation, machines: int, since_s: float) -> Rates:
    """The rates of the intervals since a time. The machines have equal shares."""
    past = [m for m in s.past if m.time_s > since_s] or [s.latest]
    seconds = math.fsum(m.interval_s for m in past)
    comes = math.fsum(m.external_rate * m.interval_s for m in past) / seconds
    shed = math.fsum(m.shed * m.interval_s for m in past) / seconds
    lag = past[-1].backlog_s - past[0].backlog_s
    growth = max(0.0, lag * comes / seconds) if len(past) > 1 else 0.0
    processed = max(0.0, comes - shed - growth)
    off = [m.external_rate - m.shed for m in past]
    spread = _deviation([m.shed for m in past])
    busy = math.fsum(o.busy * o.processors for o in s.smooth.operators.values())
    have = sum(o.processors for o in s.smooth.operators.values())
    return Rates(
        time_s=s.now_s,
        input=comes,
        processed=(processed / machines,) * machines,
        noise=min(comes, half_width(off)) if len(off) > 2 else 0.02 * comes,
        shed=shed,
        spread=spread,
        waiting=past[-1].backlog_s * comes,
        growth=growth,
        latency_s=s.metric,
        idle=max(0.0, 1 - busy / have) if have else None,
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
