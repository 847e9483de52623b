"""Who decides: a policy is a function from how things stand to a decision. The loop, the journal,
replay and the live view know nothing of which one it is. `spark.sojourn.policy` names it."""

from collections.abc import Callable

from sojourn.control.policies.drs import drs
from sojourn.control.policies.drs_2017 import drs_2015, drs_2017
from sojourn.control.policies.ds2 import ds2
from sojourn.control.policies.provision import provision
from sojourn.control.policies.static import static
from sojourn.control.policies.threshold import threshold
from sojourn.control.situation import Blind, Decision, Situation

Policy = Callable[[Situation | Blind], Decision]

POLICIES: dict[str, Policy] = {
    "drs": drs,
    "drs-2015": drs_2015,
    "drs-2017": drs_2017,
    "ds2": ds2,
    "provision": provision,
    "threshold": threshold,
    "static": static,
}
