"""Cervino's controller, mended. What a machine can process is learned only while tuples are shed or
more and more wait, and a difference between what comes and what is processed counts only beyond its
noise. Fewer machines are asked for whenever fewer carry what comes, with something to spare.

What the paper leaves to others is here as options, each by itself."""

import math
import statistics
from dataclasses import dataclass, replace

from sojourn.provisioning.rates import Known, Proposal, Rates
from sojourn.units import format_duration, format_rate

_PERIODS = 5  # whose rates a prediction is based on
_SURE = 2.0  # standard errors
_SLOW = 2.0  # times as long as tuples take while nothing is short
_MEMORY = 0.2  # weight of a new period in what is usual
_BURSTS = 1.645  # standard deviations above the mean, which one second in twenty exceeds
_LEAST_BUSY = 0.05  # below, a share of busy time says little about what a machine could process


@dataclass(frozen=True)
class Options:
    """`full` is the share of what machines can carry that is used at most. `period_s` is the time
    between decisions, and `start_s` how long a machine takes to come, if that is to be allowed for.
    With `predict`, what will come counts; with `latency`, long latencies ask for a machine before
    tuples are shed; with `idle`, what a machine could process follows from its idle time; with
    `spread`, bursts of what is shed count, and not the mean alone."""

    full: float = 0.9
    period_s: float = 30.0
    start_s: float = 0.0
    predict: bool = False
    latency: bool = False
    idle: bool = False
    spread: bool = False


def mended(rates: Rates, known: Known, coming: int = 0, options: Options | None = None) -> Proposal:
    """How many machines, those that are still `coming` included."""
    options = options or Options()
    if not rates.is_sound:
        return Proposal(None, "the rates make no sense", known)
    count = len(rates.processed)
    short = is_short(rates)
    known = learned(rates, known, short, options)
    if not rates.total and short:
        return Proposal(None, "machines process nothing", known)
    load, words = _load(rates, known, short, options)
    slow = options.latency and _is_slow(rates, known)
    if known.max_rate is None:
        need = count + max(coming, int(slow))
        why = "how much a machine can process is not known yet"
    else:
        need = max(1, math.ceil(load / (options.full * known.max_rate) - 1e-9))
        why = f"{words}, a machine can process {format_rate(known.max_rate)}/s"
        if short:
            need = max(need, count + 1)
        elif need > count and (load - rates.noise) <= options.full * known.max_rate * count:
            need = min(need, count + coming)
            why = f"{why}; more would be needed by chance at most"
        elif need < count:
            sure = max(1, math.ceil((load + rates.noise) / (options.full * known.max_rate) - 1e-9))
            need = min(count, sure)
        if slow and need <= count:
            need = count + 1
    if slow:
        assert rates.latency_s is not None
        assert known.calm_s is not None
        now, usual = format_duration(rates.latency_s), format_duration(known.calm_s)
        why = f"tuples take {now}, usually {usual}; {why}"
    if short and options.start_s and count < need <= count + coming:
        return Proposal(count + coming, f"{why}; {coming} still coming", known)
    return Proposal(need, why, known)


def is_short(rates: Rates) -> bool:
    """Whether machines cannot process what comes: more came than chance explains, and what was not
    processed was shed or waits."""
    return rates.extra > rates.noise and (rates.shed > 0 or rates.growth > rates.noise)


def learned(rates: Rates, known: Known, short: bool, options: Options) -> Known:
    """What is known after a period."""
    most = known.max_rate
    busy = None if rates.idle is None else 1.0 - rates.idle
    if short and rates.each > 0:
        most = rates.each
    elif options.idle and busy is not None and busy >= _LEAST_BUSY and rates.each > 0:
        most = rates.each / busy
    elif most is not None and rates.each - rates.noise / len(rates.processed) > most:
        most = rates.each  # it did process that, and not by chance
    calm = known.calm_s
    if not short and rates.latency_s is not None and not _is_slow(rates, known):
        calm = rates.latency_s if calm is None else calm + _MEMORY * (rates.latency_s - calm)
    inputs = (*known.inputs, (rates.time_s, rates.input))[-_PERIODS:]
    return replace(known, max_rate=most, calm_s=calm, inputs=inputs)


def _is_slow(rates: Rates, known: Known) -> bool:
    """Whether tuples take much longer than usual."""
    if rates.latency_s is None or known.calm_s is None:
        return False
    return rates.latency_s > _SLOW * known.calm_s


def _load(rates: Rates, known: Known, short: bool, options: Options) -> tuple[float, str]:
    """Tuples a second that machines should carry, and how that comes about."""
    load, words = rates.input, f"{format_rate(rates.input)}/s come"
    if options.predict:
        later = predicted(known.inputs, options.period_s + options.start_s)
        if later is not None and later > load:
            load, words = later, f"{words}, {format_rate(later)}/s soon"
    if not short:
        return load, words
    left = rates.waiting + rates.extra * options.start_s * (rates.growth > 0)
    if left > 0:
        load += left / options.period_s
        words = f"{words}, {format_rate(left)} wait"
    if options.spread and rates.spread > 0:
        load += _BURSTS * rates.spread
        words = f"{words}, in bursts"
    return load, words


def predicted(inputs: tuple[tuple[float, float], ...], ahead_s: float) -> float | None:
    """The rate to come, on a line through those of the last periods, if its slope is sure."""
    if len(inputs) < 3:
        return None
    times, rates = zip(*inputs, strict=True)
    middle = statistics.fmean(times)
    square = math.fsum((t - middle) ** 2 for t in times)
    if not square:
        return None
    mean = statistics.fmean(rates)
    slope = math.fsum((t - middle) * (r - mean) for t, r in inputs) / square
    off = math.fsum((r - mean - slope * (t - middle)) ** 2 for t, r in inputs)
    error = math.sqrt(off / (len(inputs) - 2) / square)
    if abs(slope) <= _SURE * error:
        return None
    return max(0.0, float(mean + slope * (times[-1] + ahead_s - middle)))
