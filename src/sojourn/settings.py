"""Every knob: its key, kind, unit, default, range and reason, in one place. The reference page
(docs/settings.md) is made from here, and so is what the command line and files accept.

A knob is a field of a frozen settings class; its key is what `--conf`, files and SparkConf call
it. Fed by `configuration`; used by the engine and by control."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sojourn.errors import InputError
from sojourn.units import parse_duration, parse_number, parse_whole

PREFIX = "spark.sojourn."


@dataclass(frozen=True)
class Knob:
    """How a setting is called, read, checked and explained."""

    key: str
    kind: str  # duration, count, number, or the choices divided by |
    about: str
    least: float = 0.0
    most: float = math.inf
    live: bool = False  # may be changed while a topology runs

    @property
    def name(self) -> str:
        """The whole key."""
        return PREFIX + self.key

    @property
    def variable(self) -> str:
        """The environment variable of the same meaning."""
        words = "".join(f"_{c}" if c.isupper() else c for c in self.key).replace(".", "_")
        return f"SOJOURN_{words.upper()}"

    def parse(self, value: object, where: str) -> Any:
        """A value as files and people write it."""
        what = f"{self.name} ({where})"
        if "|" in self.kind:
            return str(value)
        return _PARSERS[self.kind](value, what)

    def check(self, value: Any) -> None:
        """Refuse what the knob cannot be set to."""
        if "|" in self.kind:
            if value not in self.kind.split("|"):
                options = ", ".join(self.kind.split("|"))
                raise InputError(f"{self.name} must be one of {options}; got {value!r}")
        elif not (self.least <= value <= self.most):
            most = "" if self.most == math.inf else f" and at most {self.most:g}"
            unit = " seconds" if self.kind == "duration" else ""
            raise InputError(
                f"{self.name} must be at least {self.least:g}{most}{unit}; got {value!r}"
            )


_PARSERS: dict[str, Callable[[object, str], Any]] = {
    "duration": parse_duration,
    "count": lambda value, what: parse_whole(value, what, least=0),
    "number": parse_number,
}


def _knob(key: str, kind: str, default: Any, about: str, **options: Any) -> Any:
    return field(default=default, metadata={"knob": Knob(key, kind, about, **options)})


class _Checked:
    """Checks every knob that is set."""

    def __post_init__(self) -> None:
        for name, knob in knobs_of(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                knob.check(value)


REST_S = 0.01  # unless set, or the target leaves less


@dataclass(frozen=True)
class EngineSettings(_Checked):
    """How the engine runs a topology."""

    commit_s: float = _knob(
        "commit",
        "duration",
        5.0,
        "Time between commits: after so long results are seen, and a failure repeats no more.",
        least=0.1,
    )
    batch_s: float = _knob(
        "batch",
        "duration",
        3600.0,
        "How long a batch of Spark's lasts. Its end stalls tuples for about half a second, and "
        "means nothing else.",
        least=1.0,
    )
    drain_s: float = _knob(
        "drain",
        "duration",
        5.0,
        "How long a stop waits for tuples in flight; what is left is kept in the checkpoint.",
    )
    max_bundle: int = _knob(
        "maxBundle", "count", 2_000, "Tuples that travel together at most.", least=1
    )
    max_rest_s: float | None = _knob(
        "maxRest",
        "duration",
        None,
        "How long tuples wait at most at each executor they pass, to travel together while many "
        "come. Unless set, 10ms, or less where all these waits together would take more than a "
        "tenth of the target.",
    )
    max_queue: int = _knob(
        "maxQueue",
        "count",
        10_000,
        "Tuples that wait at one executor before pressure builds up behind it.",
        least=1,
    )
    max_queue_bytes: int = _knob(
        "maxQueueBytes",
        "count",
        32 << 20,
        "Bytes that wait at one executor before pressure builds up behind it.",
        least=1,
    )
    tracked_per_s: float = _knob(
        "measure.tracked",
        "number",
        200.0,
        "Tuple trees tracked per second and source, from which the measured sojourn comes.",
        least=0.001,
    )
    timed_every: int = _knob(
        "measure.every",
        "count",
        1,
        "N_m: service time is taken of every so-many-th tuple of a worker, of one at most of "
        "those handed over together; 0 turns it off, and with it all control.",
    )
    max_restarts: int = _knob(
        "maxRestarts",
        "count",
        5,
        "Failures without a commit in between after which a topology is given up.",
    )
    cluster_timeout_s: float = _knob(
        "clusterTimeout",
        "duration",
        60.0,
        "How long to wait for a cluster's task slots.",
        least=0.001,
    )

    def rest_s(self, max_sojourn_s: float | None, hops: int) -> float:
        """How long tuples that pass so many executors may wait at each: as set, or as follows from
        the target."""
        if self.max_rest_s is not None:
            return self.max_rest_s
        return REST_S if max_sojourn_s is None else min(REST_S, 0.1 * max_sojourn_s / max(hops, 1))


@dataclass(frozen=True)
class ControlSettings(_Checked):
    """What to keep, and how to go about it."""

    max_processors: int | None = _knob(
        "maxProcessors",
        "count",
        None,
        "K_max: processors to use at most. Alone, they are placed for the least sojourn.",
        least=1,
        live=True,
    )
    max_sojourn_s: float | None = _knob(
        "maxSojourn",
        "duration",
        None,
        "T_max: the target. It is kept with the fewest processors.",
        least=1e-6,
        live=True,
    )
    min_sojourn_s: float | None = _knob(
        "minSojourn",
        "duration",
        None,
        "T_min: processors are given back only while the sojourn is below it; unless set, "
        "whenever fewer keep the target.",
        live=True,
    )
    percentile: float | None = _knob(
        "percentile",
        "number",
        None,
        "Which percentile of the sojourn the targets are for, such as 99; the mean unless set.",
        least=1,
        most=99.99,
    )
    model: str = _knob(
        "model",
        "auto|mmk|gigk",
        "auto",
        "Stations as M/M/k, as GI/G/k with the measured variability, or whichever of them the "
        "measured variability calls for.",
    )
    interval_s: float = _knob(
        "measure.interval",
        "duration",
        5.0,
        "T_m: how often samples are pulled and a decision is made.",
        least=0.1,
    )
    smoothing: str = _knob(
        "measure.smoothing",
        "window|alpha",
        "window",
        "Average over a window of intervals, or weigh the past by alpha.",
    )
    window: int = _knob("measure.window", "count", 3, "w: intervals in the window.", least=1)
    alpha: float = _knob(
        "measure.alpha", "number", 0.5, "Weight of the past against the new interval.", most=0.99
    )
    change_interval_s: float = _knob(
        "change.interval", "duration", 10.0, "T_ra: least time between two changes."
    )
    quiet_s: float = _knob(
        "change.quiet",
        "duration",
        30.0,
        "How long there must have been no shortage before processors are given back.",
    )
    headroom: float = _knob(
        "change.headroom",
        "number",
        0.15,
        "Share of the target that a change leaves unused, so that noise does not undo it.",
        most=0.9,
    )
    gain: float = _knob(
        "change.gain",
        "number",
        0.1,
        "Share of the sojourn that moving processors about must save to be worth it.",
        most=0.9,
    )
    doubt: float = _knob(
        "change.doubt",
        "number",
        2.0,
        "Standard errors of the measured load by which it may be wrong without a move, or giving "
        "back, being a mistake; 0 believes what was measured.",
        most=10.0,
    )
    hold_off_s: float = _knob(
        "change.holdOff",
        "duration",
        600.0,
        "How long an allocation that was rolled back is not tried again.",
    )

    pool: str = _knob(
        "machines.pool",
        "local|standalone|spark",
        "local",
        "Where machines come from: this one alone; a standalone cluster on this machine, whose "
        "workers are started and stopped; or whatever manages Spark's cluster.",
    )
    machine_processors: int = _knob(
        "machines.processors",
        "count",
        4,
        "Processors that a machine has room for, unless the pool is local.",
        least=1,
    )
    machine_cores: int = _knob(
        "machines.cores",
        "count",
        8,
        "Task slots of a machine of the standalone pool.",
        least=1,
    )
    max_machines: int | None = _knob(
        "machines.most", "count", None, "Machines to have at most.", least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_processors is None and self.max_sojourn_s is None:
            return
        low, high = self.min_sojourn_s, self.max_sojourn_s
        if low is not None and (high is None or low >= high):
            raise InputError(
                f"{PREFIX}minSojourn must be below {PREFIX}maxSojourn; got {low:g} s and "
                f"{'none' if high is None else f'{high:g} s'}"
            )


@dataclass(frozen=True)
class SimulatorSettings(_Checked):
    """What a simulation takes the engine and the machines for."""

    hop_s: float = _knob(
        "simulator.hop", "duration", 0.0015, "How long a tuple travels from operator to operator."
    )
    hand_over_s: float = _knob(
        "simulator.handOver",
        "duration",
        0.0004,
        "How long a processor waits for its next tuple after each, which is no time of service.",
    )
    sink_s: float = _knob(
        "simulator.sink",
        "duration",
        0.00005,
        "Service time of a sink, unless the service file says another.",
    )
    stall_s: float = _knob(
        "simulator.stall", "duration", 0.36, "How long the end of a batch stalls tuples."
    )
    resize_s: float = _knob(
        "simulator.resize", "duration", 0.03, "How long a new worker takes to be ready."
    )
    recover_s: float = _knob(
        "simulator.recover",
        "duration",
        4.0,
        "How long a topology takes to start again after a failure; it then does all since the "
        "last commit again.",
    )
    machine_start_s: float = _knob(
        "simulator.machines.start", "duration", 10.0, "How long a machine asked for takes to come."
    )
    machine_pause_s: float = _knob(
        "simulator.machines.pause",
        "duration",
        3.0,
        "How long tuples wait while the topology moves to other machines.",
    )
    machine_lives_s: float | None = _knob(
        "simulator.machines.lives",
        "duration",
        None,
        "Mean time after which a machine is lost; never unless set.",
        least=1.0,
    )
    worker_lives_s: float | None = _knob(
        "simulator.workerLives",
        "duration",
        None,
        "Mean time after which a worker dies; never unless set.",
        least=1.0,
    )
    network_delay_s: float = _knob(
        "simulator.network.delay", "duration", 0.0005, "Delay between two machines, one way."
    )
    network_mb_s: float = _knob(
        "simulator.network.bandwidth",
        "number",
        125.0,
        "Megabytes per second between two machines.",
        least=1e-6,
    )
    tuple_bytes: int = _knob("simulator.tupleBytes", "count", 200, "Size of a tuple.")
    shard_kb: float = _knob(
        "simulator.shardKilobytes", "number", 32.0, "Size of a shard's state, in kilobytes."
    )


def knobs_of(settings: type) -> dict[str, Knob]:
    """The knobs of a settings class by field name."""
    return {f.name: f.metadata["knob"] for f in fields(settings) if "knob" in f.metadata}


def known_keys() -> Mapping[str, Knob]:
    """All knobs by their whole key."""
    kinds = (EngineSettings, ControlSettings, SimulatorSettings)
    return {knob.name: knob for kind in kinds for knob in knobs_of(kind).values()}
