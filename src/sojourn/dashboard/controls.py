"""What the dashboard may change, if it may change anything. Made by whoever runs the topology; used
by REST, for whoever has the token."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Controls:
    """Other limits, or a pause of all changes; only with this token."""

    token: str
    change: Callable[[Mapping[str, Any]], None]
    pause: Callable[[bool], None]
