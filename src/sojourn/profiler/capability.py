"""The second step of profiling (Liu 2017, §4.2): how much a platform carries. Sources and the
operators behind them are strengthened in turn until neither helps (algorithm 2). Pure.

As printed, the algorithm goes on until much less is carried. Where tasks cost little, that never
comes, so it ends where its text says: once neither has helped, one after the other.

The paper leaves open how many tasks operators get at a time. Here it is as many as the ratios say,
and twice as many as the last time they got some, if that helped. So the tasks grow by at least the
sum of the ratios in three rounds, as the paper's bound on rounds asks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sojourn.ports import Parallelism
from sojourn.profiler.trial import Measured, Method, Proposal, Verdict, enhanced, measured

STEP = "platform"
_STRONGER = 0.7  # of what may be under way, if a throttle must be stronger
_SAFE = 0.9  # of what the limit would allow by Little's law
_THROTTLES = 4
_FRUITLESS = 2  # attempts in a row: one with the sources, one with the operators behind them


@dataclass(frozen=True)
class Limits:
    """The limit on latency (Y_con), α, k and slice of the paper, the platform's cores, the most
    tasks that some operators can use, and the most parts of a source that there is room for."""

    latency_s: float = 0.5
    alpha: float = 0.9
    factor: float = 2.0
    slice: float = 0.3
    cores: int = 1
    most: Mapping[str, int] = field(default_factory=dict)
    most_parts: int | None = None

    def parts(self, wanted: int) -> int:
        """So many parts of a source, or as many as there is room for."""
        return wanted if self.most_parts is None else min(wanted, max(1, self.most_parts))


@dataclass(frozen=True)
class Best:
    """The best parallelism so far, and what was measured with it."""

    parallelism: Parallelism
    measured: Measured

    def is_met(self, limits: Limits) -> bool:
        """Whether it keeps the limit on latency."""
        return self.measured.latency_s <= limits.latency_s


def most_rounds(operators: int, limits: Limits, ratios: Mapping[str, int]) -> int:
    """The paper's bound: 3·n·Max_p / ‖R‖₁."""
    return max(3, math.ceil(3 * operators * limits.cores / max(1, sum(ratios.values()))))


def capability(
    start: Parallelism, ratios: Mapping[str, int], limits: Limits, found: list[Best]
) -> Method:
    """From a parallelism on. `found` gets the best that keeps the limit, or else the best."""
    now = start
    seen = measured((yield Proposal(STEP, now, "the ratios of the application's features")))
    best, last, step, helped = Best(now, seen), "", 1, False
    met = best if best.is_met(limits) else None
    yield Verdict(True, "a start")
    before, throttles, fruitless = seen, 0, 0
    change = 1
    for _ in range(most_rounds(len(start.processors), limits, ratios) - 1):
        in_time = seen.latency_s <= limits.latency_s
        if last == "throttle" and in_time and change >= 0:
            break
        much_less = seen.throughput < limits.alpha * best.measured.throughput
        if last == "throttle" or much_less or fruitless == _FRUITLESS:
            if throttles == _THROTTLES or (last != "throttle" and best.is_met(limits)):
                break
            then, why = throttled(best, now, last, in_time, limits)
            last, throttles = "throttle", throttles + 1
        elif (change > 0 and not in_time) or (change <= 0 and last == "source"):
            step = 2 * step if helped else 1
            more = {name: step * ratio for name, ratio in ratios.items()}
            last, why = "sinks", f"{_told(step)} of the ratios more behind the sources"
            then = enhanced(now, more, limits.most)
        else:
            last, why = "source", "a task more for each source"
            then = replace(now, parts={name: limits.parts(n + 1) for name, n in now.parts.items()})
        if last != "throttle" and then == now:  # there is no room for more
            change, helped, fruitless = 0, helped and last != "sinks", fruitless + 1
            continue
        now = then
        before, seen = seen, measured((yield Proposal(STEP, now, why)))
        change = seen.change(before)
        helped = change > 0 if last == "sinks" else helped
        fruitless = 0 if change > 0 else fruitless + 1
        this = Best(now, seen)
        if seen.change(best.measured) > 0:
            best = this
        if this.is_met(limits) and (met is None or seen.change(met.measured) > 0):
            met = this
        words = {1: "more is carried", 0: "no change for sure", -1: "less is carried"}[change]
        late = "" if this.is_met(limits) else f", and tuples take {seen.latency_s * 1e3:.0f} ms"
        yield Verdict(best is this or met is this, words + late)
    found.append(met or best)
    return found[-1].parallelism


def throttled(
    best: Best, now: Parallelism, last: str, in_time: bool, limits: Limits
) -> tuple[Parallelism, str]:
    """What keeps the latency of the best parallelism within the limit: fewer tuples under way, by
    Little's law; fewer still if that was not enough, and more again if it was too strong."""
    if last != "throttle" or now.in_flight is None:
        under_way = max(1, math.floor(_SAFE * best.measured.throughput * limits.latency_s))
        why = f"the best so far, with at most {under_way} tuples under way"
        return replace(best.parallelism, in_flight=under_way), why
    factor = 1 / math.sqrt(_STRONGER) if in_time else _STRONGER
    under_way = max(1, math.floor(now.in_flight * factor))
    return replace(now, in_flight=under_way), f"at most {under_way} tuples under way"


def _told(step: int) -> str:
    return "one time" if step == 1 else f"{step} times"
