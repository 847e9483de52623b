"""Cervino's algorithm 1, line by line. Where it says nothing: as many machines as before if no rate
is left over, no fewer before a first overload, one machine at least, and no decision where machines
process nothing."""

import math

from sojourn.provisioning.rates import Known, Proposal, Rates


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
        why = f"{extra:.4g}/s more come than are processed, a machine processes {average:.4g}/s"
        return Proposal(count + more, why, Known(max_rate=average))
    if extra < 0 and known.max_rate:
        need = max(1, math.ceil(rates.input / known.max_rate))
        why = f"{rates.input:.4g}/s come, a machine can process {known.max_rate:.4g}/s"
        return Proposal(need, why, known)
    return Proposal(count, "as many come as are processed", known)
