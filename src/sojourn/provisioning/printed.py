"""Cervino's algorithm 1, line by line. Where it says nothing: as many machines as before if no rate
is left over, no fewer before a first overload, one machine at least, and no decision where machines
process nothing."""

import math
from dataclasses import replace

from sojourn.provisioning.rates import Known, Proposal, Rates
from sojourn.units import format_rate


def printed(rates: Rates, known: Known) -> Proposal:
    """It takes any difference for overload, so noise has it grow."""
    count = len(rates.processed)
    if not rates.is_sound:
        return Proposal(None, "the rates make no sense", known)
    expected = math.floor(rates.input / count)
    extra = math.fsum(expected - rate for rate in rates.processed)
    average = math.floor(rates.total / count)
    if not average:
        return Proposal(None, "machines process nothing", known)
    if extra > 0:
        more = math.ceil(extra / average)
        why = (
            f"{format_rate(extra)}/s more come than are processed, a machine processes "
            f"{format_rate(average)}/s"
        )
        return Proposal(count + more, why, replace(known, max_rate=average))
    if extra < 0 and known.max_rate:
        need = max(1, math.ceil(rates.input / known.max_rate))
        why = (
            f"{format_rate(rates.input)}/s come, a machine can process "
            f"{format_rate(known.max_rate)}/s"
        )
        return Proposal(need, why, known)
    return Proposal(count, "as many come as are processed", known)
