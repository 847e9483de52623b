"""Every knob, typed, with its unit, default and reason."""

from dataclasses import dataclass

from sojourn.errors import InputError


@dataclass(frozen=True)
class EngineSettings:
    """How the engine runs a topology."""

    batch_s: float = 60.0  # checkpoint interval; a boundary stalls tuples for about half a second
    max_bundle: int = 500  # tuples that travel together at most
    max_queue: int = 10_000  # tuples that wait at one executor before pressure builds up behind it
    tracked_per_s: float = 200.0  # trees tracked per second and source at most
    max_restarts: int = 5  # after so many failures the topology is given up
    cluster_timeout_s: float = 60.0  # how long to wait for a cluster's task slots

    def __post_init__(self) -> None:
        for name in ("batch_s", "max_bundle", "max_queue", "tracked_per_s", "cluster_timeout_s"):
            value = getattr(self, name)
            if not value > 0:
                raise InputError(f"{name} must be above zero; got {value}")
