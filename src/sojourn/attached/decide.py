"""How many Spark executors a query should have. Pure: from what was seen, what is remembered and
what is wished for, to a decision. The loop applies it, the journal keeps it, replay repeats it."""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sojourn.attached.seen import Seen
from sojourn.errors import InputError
from sojourn.provisioning.mended import Options, mended, predicted
from sojourn.provisioning.printed import printed
from sojourn.provisioning.rates import Known, Rates
from sojourn.queueing.batches import Steady
from sojourn.units import format_rate, parse_duration, parse_whole

POLICIES = ("model", "mended", "printed")
_HEADROOM = 0.15  # of the longest latency, which a change leaves unused
_DRAIN_PERIODS = 2  # in which what waits should be worked off
_NEAR = 1.1  # times the shortest that there is, where none is short enough
_BURSTS = 10  # quiet times for which it is remembered what rows needed that came all at once


@dataclass(frozen=True)
class Wish:
    """What a user asks for."""

    policy: str = "model"
    max_latency_s: float | None = None
    least: int = 1
    most: int | None = None
    quiet_s: float = 60.0
    options: Options = field(default_factory=Options)


def wished(
    policy: str,
    max_latency_s: float | None,
    least: int,
    most: int | None,
    period_s: float,
    options: Mapping[str, Any] | None = None,
) -> Wish:
    """What a user asks for, if it makes sense."""
    if policy not in POLICIES:
        raise InputError(f"policy: must be one of {', '.join(POLICIES)}; got {policy!r}")
    if max_latency_s is not None and policy != "model":
        raise InputError(
            f"max_latency: is kept by the policy 'model' alone; got policy {policy!r}; leave one "
            "of them out"
        )
    if max_latency_s is not None and not max_latency_s > 0:
        raise InputError(f"max_latency: must be above 0; got {max_latency_s:g} s")
    if least < 1:
        raise InputError(f"min_executors: must be at least 1; got {least}; leave it out for 1")
    if most is not None and most < least:
        raise InputError(
            f"max_executors: must be at least min_executors, which is {least}; got {most}; raise "
            "the one or lower the other"
        )
    if period_s < 1:
        raise InputError(f"period: must be a duration of at least 1 s; got {period_s:g} s")
    for name, value in (options or {}).items():
        _check_option(name, value, policy)
    return Wish(
        policy=policy,
        max_latency_s=max_latency_s,
        least=least,
        most=most,
        quiet_s=2 * period_s,
        options=Options(**{**(options or {}), "period_s": period_s}),
    )


def options_of(texts: Iterable[str]) -> dict[str, Any]:
    """Options as they are typed, such as predict=true. What is neither a number nor true or false
    stays text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"options: must be name=value, such as predict=true; got {text!r}")
        found[name] = {"true": True, "false": False}.get(value.lower(), value)
        with suppress(ValueError):
            found[name] = int(value) if value.isdecimal() else float(value)
    return found


def changed(wish: Wish, values: Mapping[str, Any]) -> Wish:
    """Another wish, with other arguments or options of `attach`."""
    given, usual = dict(values), Options(period_s=wish.options.period_s)
    policy = given.pop("policy", wish.policy)
    latency = given.pop("max_latency", wish.max_latency_s)
    least = given.pop("min_executors", wish.least)
    most = given.pop("max_executors", wish.most)
    options = {**asdict(wish.options), **given}
    return wished(
        str(policy),
        None if latency is None else parse_duration(latency, "max_latency"),
        parse_whole(least, "min_executors"),
        None if most is None else parse_whole(most, "max_executors"),
        wish.options.period_s,
        {name: of for name, of in options.items() if of != getattr(usual, name, None)},
    )


_OF_MODEL = ("predict", "start_s", "full")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "model": _OF_MODEL,
    "mended": (*_OF_MODEL, "latency", "idle"),
    "printed": (),
}


def _check_option(name: str, value: object, policy: str) -> None:
    known = _OPTIONS[policy]
    if name not in known:
        takes = f"takes {', '.join(known)}" if known else "takes none"
        of = [other for other, options in _OPTIONS.items() if name in options]
        if name == "spread":
            remedy = "plain queries shed nothing, so it is for topologies only"
        elif of:
            remedy = f"leave it out, or take the policy {of[-1]!r}"
        else:
            remedy = "leave it out"
        raise InputError(f"options: the policy {policy!r} {takes}; got {name!r}; {remedy}")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in ("predict", "latency", "idle"):
        good, what = isinstance(value, bool), "True or False"
    elif name == "full":
        good, what = is_number and 0 < float(str(value)) <= 1, "above 0 and at most 1"
    else:
        good = is_number and 0 <= float(str(value)) < math.inf
        what = "a number of seconds, 0 or more"
    if not good:
        raise InputError(f"options: {name} must be {what}; got {value!r}")


@dataclass(frozen=True)
class Memory:
    """What is kept from period to period of a run: what provisioning knows, since when fewer
    executors would do (later by the time in which that was not known), the most that were needed in
    that time, and when the last decision was. `bursts` are when rows came all at once, and how many
    executors these needed."""

    known: Known = field(default_factory=Known)
    low_since_s: float | None = None
    low_most: int = 0
    bursts: tuple[tuple[float, int], ...] = ()
    run: str = ""
    time_s: float | None = None

    def unseen(self, now_s: float) -> "Memory":
        """After a time in which nobody knew how many executors would do."""
        if self.low_since_s is None or self.time_s is None:
            return self
        return replace(self, low_since_s=self.low_since_s + max(0.0, now_s - self.time_s))


@dataclass(frozen=True)
class Decision:
    """So many executors, and why. No number: nothing changes. `stay` must be left if some are given
    back, as chance may have shown less than what comes."""

    executors: int | None
    why: str
    memory: Memory
    stay: int = 0


def decided(seen: Seen, memory: Memory, wish: Wish) -> Decision:
    """What to do after a period. What another run has shown is forgotten."""
    if seen.run != memory.run:
        memory = Memory(run=seen.run)
    found = _found(seen, memory, wish)
    return replace(found, memory=replace(found.memory, time_s=seen.time_s))


def _found(seen: Seen, memory: Memory, wish: Wish) -> Decision:
    rates = seen.rates
    if seen.burst and seen.batches is not None and wish.max_latency_s is not None:
        return _for_burst(seen, memory.unseen(seen.time_s), wish)
    if rates is None:
        return _bounded(seen, memory.unseen(seen.time_s), wish)
    if not rates.is_sound:
        return Decision(None, "the rates make no sense", memory.unseen(seen.time_s))
    if seen.at_least:
        return _more(seen, rates, memory.unseen(seen.time_s), wish)
    if wish.policy == "printed":
        proposal = printed(rates, memory.known)
        count = proposal.machines
        if count == seen.executors:  # which is no change: those on their way may come
            count = max(count, seen.asked)
        found = Decision(count, proposal.why, replace(memory, known=proposal.known))
    elif wish.policy == "model" and seen.batches is not None:
        found = _modelled(seen, rates, memory, wish)
    else:
        coming = max(0, seen.asked - seen.executors)
        proposal = mended(rates, memory.known, coming, wish.options)
        found = Decision(proposal.machines, proposal.why, replace(memory, known=proposal.known))
    return _settled(_within(found, seen, wish), seen, wish)


def _bounded(seen: Seen, memory: Memory, wish: Wish) -> Decision:
    """Before the first batch, the least that the user allows, once some are there. What is odd
    later is no reason to act, and who holds tasks is not known yet, so none is given back."""
    if seen.run or not seen.executors or seen.asked >= wish.least:
        return Decision(None, seen.why, memory)
    why = f"{seen.why}; at least {wish.least} are wished for"
    return _within(Decision(wish.least, why, memory), seen, wish)


def _more(seen: Seen, rates: Rates, memory: Memory, wish: Wish) -> Decision:
    """While a batch is at work: more executors, if what it shows needs more. Fewer than that
    will not do later either. Only the model can tell; rates need batches that are done."""
    if wish.policy != "model":
        return Decision(None, seen.why, memory)
    found = _within(_modelled(seen, rates, memory, wish), seen, wish)
    least = found.executors or 0
    if least < seen.asked:
        kept = replace(memory, low_most=max(memory.low_most, least))
    else:
        kept = replace(memory, low_since_s=None, low_most=0)
    if least <= max(seen.asked, seen.executors):
        return Decision(None, seen.why, kept)
    return replace(found, why=f"{seen.why}: at least {found.why}", memory=kept)


def _for_burst(seen: Seen, memory: Memory, wish: Wish) -> Decision:
    """Rows came all at once after a time without any. As many executors as have them done in time,
    at once; those that come after the next such time may need as many, so that is remembered."""
    batches, limit_s = seen.batches, wish.max_latency_s
    assert batches is not None
    assert limit_s is not None
    most = useful_executors(seen) or 1
    takes = {n: batches.work_s(seen.burst, n * seen.slots) for n in range(1, most + 1)}
    soon = [n for n, took_s in takes.items() if took_s <= (1 - _HEADROOM) * limit_s]
    count = soon[0] if soon else min(n for n in takes if takes[n] <= _NEAR * min(takes.values()))
    why = f"{format_rate(seen.burst)} rows came at once, which take {takes[count]:.3g} s"
    found = _within(Decision(count, f"{seen.why}: {why} with {count}", memory), seen, wish)
    least = found.executors or 0
    since_s = seen.time_s - _BURSTS * wish.quiet_s
    kept = [(at_s, n) for at_s, n in memory.bursts if at_s > since_s and n > least]
    low = max(memory.low_most, least) if seen.at_least else memory.low_most
    memory = replace(memory, bursts=(*kept, (seen.time_s, least)), low_most=low)
    more = least > max(seen.asked, seen.executors)
    return replace(found, executors=least if more else None, memory=memory)


def _after_bursts(count: int, why: str, seen: Seen, memory: Memory, wish: Wish) -> tuple[int, str]:
    """No fewer than what rows needed of late that came all at once: the next ones may come sooner
    than executors."""
    since_s = seen.time_s - _BURSTS * wish.quiet_s
    needed = max((n for at_s, n in memory.bursts if at_s > since_s), default=0)
    if needed <= count or wish.max_latency_s is None:
        return count, why
    return needed, f"{why}; rows that came at once of late needed {needed}"


def _within(found: Decision, seen: Seen, wish: Wish) -> Decision:
    """No more executors than there are tasks for, and as many as the user allows."""
    if found.executors is None:
        return found
    count, why = found.executors, found.why
    useful = useful_executors(seen)
    if seen.until_s is None and useful is not None and count > useful:
        count, why = useful, f"{why}; more than {useful} would have no task"
    if wish.most is not None and count > wish.most:
        count, why = wish.most, f"{why}; {wish.most} are allowed{_misses(wish.most, seen, wish)}"
    if seen.until_s is not None:
        holds = math.ceil(seen.held / max(1, seen.slots))
        if holds and holds != count:
            count, why = holds, f"{why}; {holds} hold its tasks"
        if wish.max_latency_s is not None:
            why = f"{why}; batches tell nothing of max_latency in real-time mode"
        why = (
            f"{why}; in effect with the next batch, in {max(0.0, seen.until_s - seen.time_s):.0f} s"
        )
    if count < wish.least:
        count, why = wish.least, f"{why}; at least {wish.least} are wished for"
    return replace(found, executors=count, why=why)


def _misses(count: int, seen: Seen, wish: Wish) -> str:
    """What so many executors do not keep, in words, as far as the model of batches can tell."""
    if seen.batches is None or seen.rates is None:
        return ""
    steady = seen.batches.steady(seen.rates.input, count * seen.slots)
    if steady is None:
        return ", which do not keep up"
    if wish.max_latency_s is not None and steady.worst_s > wish.max_latency_s:
        return f", with which rows take {steady.worst_s:.3g} s at most"
    return ""


def useful_executors(seen: Seen) -> int | None:
    """Executors that have a task each, of the widest stage; None if that is not known."""
    tasks = seen.batches.tasks if seen.batches is not None else seen.tasks
    return math.ceil(tasks / max(1, seen.slots)) if tasks else None


def _settled(found: Decision, seen: Seen, wish: Wish) -> Decision:
    """More at once; fewer only once they would have done for a while. As printed, there is no such
    while. At first Spark may have more come than were asked for."""
    memory, now_s = found.memory, seen.time_s
    if found.executors is None:
        return found
    if found.executors >= max(seen.asked, seen.executors) or wish.policy == "printed":
        return replace(found, memory=replace(memory, low_since_s=None, low_most=0))
    since_s = memory.low_since_s
    if since_s is None or since_s > now_s:  # what is looked at has lasted a period at most
        last_s = now_s if memory.time_s is None else memory.time_s
        since_s = min(now_s, max(last_s, now_s - wish.options.period_s))
    now = max(found.executors, found.stay)
    most = max(memory.low_most, now)
    memory = replace(memory, low_since_s=since_s, low_most=most)
    if now_s - since_s < wish.quiet_s:
        why = f"{found.why}; {most} would do for {now_s - since_s:.0f} s so far"
        return replace(found, executors=None, why=why, memory=memory)
    again_s = now_s - wish.quiet_s + wish.options.period_s  # if it cannot be done, a period later
    memory = replace(memory, low_since_s=again_s, low_most=now)
    return replace(found, executors=most, memory=memory)


def _modelled(seen: Seen, rates: Rates, memory: Memory, wish: Wish) -> Decision:
    """The fewest executors whose batches keep the latency, or keep up with something to spare."""
    batches, options = seen.batches, wish.options
    assert batches is not None
    inputs = memory.known.inputs
    if len(inputs) > 1 and rates.time_s - inputs[-2][0] < options.period_s:
        inputs = inputs[:-1]  # it decided between two periods
    inputs = (*inputs, (rates.time_s, rates.input))[-5:]
    memory = replace(memory, known=replace(memory.known, inputs=inputs))
    load, words = rates.input, f"{format_rate(rates.input)} rows/s come"
    if rates.latest is not None and rates.latest > load:
        load, words = rates.latest, f"{words}, {format_rate(rates.latest)}/s of late"
    later = predicted(inputs, options.period_s + options.start_s) if options.predict else None
    if later is not None and later > load:
        load, words = later, f"{words}, {format_rate(later)}/s soon"
    if rates.waiting > 0:
        words = f"{words}, {format_rate(rates.waiting)} wait"
        if wish.max_latency_s is None:
            load += rates.waiting / (_DRAIN_PERIODS * options.period_s)
    count, why = _fewest(seen, load, wish)
    count, why = _after_bursts(count, why, seen, memory, wish)
    most, stay = rates.input + rates.chance, 0
    if count < seen.asked and most > load:
        stay = min(seen.asked, _fewest(seen, most, wish)[0])
        if stay > count:
            why = f"{why}, with {count}; it may be {format_rate(most)}, which needs {stay}"
    return Decision(count, words + why, memory, stay)


def _fewest(seen: Seen, load: float, wish: Wish) -> tuple[int, str]:
    """The fewest executors that carry a load as is wished for, and what they do, in words."""
    batches, options, limit_s = seen.batches, wish.options, wish.max_latency_s
    assert batches is not None
    target_s = None if limit_s is None else (1 - _HEADROOM) * limit_s
    most = useful_executors(seen) or 1
    found: dict[int, float] = {}  # from executors that keep up to how long rows take
    for count in range(1, most + 1):
        steady = batches.steady(load, count * seen.slots)
        if steady is None or load > options.full * batches.capacity(count * seen.slots):
            continue
        found[count] = _longest_s(seen, steady, load, count, options)
        if target_s is None or found[count] <= target_s:
            told = f"batches of {steady.batch_s:.3g} s, rows take {steady.worst_s:.3g} s at most"
            return count, f": {told}"
    limit = "" if limit_s is None else f" within {limit_s:.3g} s"
    why = f", which no number of executors carries{limit}"
    if batches.max_rows is not None:
        why = f"{why}; batches are limited to {format_rate(batches.max_rows)} rows"
    if found:  # more would cost and help little
        least_s = min(found.values())
        count = next(n for n, longest_s in found.items() if longest_s <= _NEAR * least_s)
        return count, f"{why}; with {count} they take {found[count]:.3g} s"
    best = batches.capacity(most * seen.slots)
    count = next(n for n in range(1, most + 1) if batches.capacity(n * seen.slots) >= best)
    return count, why


def _longest_s(seen: Seen, steady: Steady, load: float, count: int, options: Options) -> float:
    """From when a row comes to when its batch is done, at the longest, with so many executors: in
    batches as they will be, or right after what waits by the time that the executors are there."""
    batches, slots = seen.batches, count * seen.slots
    assert batches is not None
    assert seen.rates is not None
    waiting = seen.rates.waiting
    if count > seen.executors:
        start_s = max(options.start_s, seen.start_s)
        waiting += start_s * max(0.0, load - batches.capacity(seen.executors * seen.slots))
    if waiting <= 0:
        return steady.worst_s
    first_s = batches.work_s(waiting + steady.rows, slots)
    return max(steady.worst_s, first_s + batches.work_s(load * first_s, slots))
