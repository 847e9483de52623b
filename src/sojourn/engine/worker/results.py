"""What users' operators may return."""

from collections.abc import Iterable
from typing import Any

from sojourn.topology import Output


def results_of(name: str, returned: Any) -> Iterable[Any]:
    """The values that an operator has returned for one, whatever the form."""
    if type(returned) is tuple or type(returned) is list:  # what most return
        return returned
    if returned is None:
        return ()
    if isinstance(returned, Output):
        return (returned,)
    if isinstance(returned, str | bytes) or not isinstance(returned, Iterable):
        raise TypeError(
            f"operator {name!r} returned {type(returned).__name__} {returned!r:.60}; "
            "return a list of values, yield them, or return None"
        )
    return returned
