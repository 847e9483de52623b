"""DS2 (Kalavri et al., OSDI 2018), as published: every operator gets as many processors as its
input rate needs, at the rate that one of them processes when it has work. A baseline: rates
alone, no queues and no target."""

import math

from sojourn.control.policies.baseline import changed, patient
from sojourn.control.situation import Decision, Situation


@patient
def ds2(s: Situation) -> Decision:
    """The input rates follow from the sources' by the gains, the true rate from service times."""
    loads = {name: s.network.stations[name].offered_load for name in s.wanted}
    best = {name: max(s.limits.least(name), math.ceil(load)) for name, load in loads.items()}
    told = ", ".join(f"{name!r} {load:.2f}" for name, load in loads.items())
    return changed(s, best, f"processors that the rates need: {told}")
