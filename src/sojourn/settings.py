"""Every knob: its key, kind, unit, default, range and reason, in one place. The reference page
(docs/settings.md) is generated from it, and the command line and files accept what it lists.

A knob is a field of a frozen settings class. Its key is its name in `--conf`, files and SparkConf.
Fed by `configuration`; used by the engine and by control."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sojourn.errors import InputError
from sojourn.provisioning.kinds import Kind, parse_kinds
from sojourn.units import (
    format_duration,
    parse_address,
    parse_duration,
    parse_number,
    parse_whole,
    shown,
)

PREFIX = "spark.sojourn."


@dataclass(frozen=True)
class Knob:
    """How a setting is named, read, checked and explained."""

    key: str
    kind: str  # duration, count, number, numbers, machines, address, or choices separated by |
    about: str
    least: float = 0.0
    most: float = math.inf
    live: bool = False  # may be changed while a topology runs

    @property
    def name(self) -> str:
        """The full key, with the prefix."""
        return PREFIX + self.key

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        words = "".join(f"_{c}" if c.isupper() else c for c in self.key).replace(".", "_")
        return f"SOJOURN_{words.upper()}"

    def parse(self, value: object, where: str) -> Any:
        """A value as files and people write it, if the knob can be set to it."""
        what = f"{self.name} ({where})"
        if self.kind == "duration":
            parsed: Any = parse_duration(value, what)
        elif "|" in self.kind:
            parsed = str(value)
        else:
            try:
                parsed = _PARSERS[self.kind](value, what)
            except InputError:  # which does not know the bounds
                raise self._refused(value, where) from None
        if not self._fits(parsed):
            raise self._refused(value, where)
        return parsed

    def check(self, value: Any) -> None:
        """Refuse a value that the knob cannot have."""
        if not self._fits(value):
            raise self._refused(value)

    @property
    def rule(self) -> str:
        """What the knob can be set to, in words."""
        if "|" in self.kind:
            return f"one of {', '.join(self.kind.split('|'))}"
        if self.kind == "machines":
            return "kinds of machines such as small=1:1.0,large=4:3.5:2min (slots:price:start)"
        if self.kind == "address":
            return "HOST:PORT such as 127.0.0.1:4190, on or off"
        what = {
            "duration": "a duration",
            "count": "a whole number",
            "number": "a number",
            "numbers": "one or more numbers separated by commas, each",
        }
        told = _plain_duration if self.kind == "duration" else "{:g}".format
        most = "" if self.most == math.inf else f" and at most {told(self.most)}"
        return f"{what[self.kind]} of at least {told(self.least)}{most}"

    def _fits(self, value: Any) -> bool:
        if "|" in self.kind:
            return value in self.kind.split("|")
        if self.kind in ("machines", "address"):
            return bool(value)
        if self.kind == "numbers":
            return bool(value) and all(self.least <= number <= self.most for number in value)
        return bool(self.least <= value <= self.most)

    def _refused(self, value: object, where: str | None = None) -> InputError:
        what = self.name if where is None else f"{self.name} ({where})"
        return InputError(f"{what}: must be {self.rule}; got {shown(value)}")


_PARSERS: dict[str, Callable[[object, str], Any]] = {
    "count": lambda value, what: parse_whole(value, what, least=0),
    "number": parse_number,
    "machines": parse_kinds,
    "address": parse_address,
    "numbers": lambda value, what: tuple(
        parse_number(number, what)
        for number in (value if isinstance(value, list | tuple) else str(value).split(","))
    ),
}


def _plain_duration(seconds: float) -> str:
    """As it is typed."""
    return format_duration(seconds).replace(" ", "").replace("µ", "u")


def _knob(key: str, kind: str, default: Any, about: str, **options: Any) -> Any:
    return field(default=default, metadata={"knob": Knob(key, kind, about, **options)})


class _Checked:
    """Checks every knob that is set."""

    def __post_init__(self) -> None:
        for name, knob in knobs_of(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                knob.check(value)


_DRAIN_S = 2.0
REST_S = 0.01  # unless set, or unless the target leaves less


@dataclass(frozen=True)
class EngineSettings(_Checked):
    """How the engine runs a topology."""

    commit_s: float = _knob(
        "commit",
        "duration",
        5.0,
        "Time between commits. Each commit makes results visible, and a failure repeats only what "
        "came after the last one.",
        least=0.1,
    )
    batch_s: float = _knob(
        "batch",
        "duration",
        3600.0,
        "Length of a Spark batch. Its end commits and stalls tuples for up to half a second.",
        least=1.0,
    )
    paradigm: str = _knob(
        "paradigm",
        "elastic|naive|resource-centric|static",
        "elastic",
        "How an operator with a key uses more or fewer processors. Elastic executors share them "
        "out, where they cost least or, if naive, by chance. Or every executor has one processor: "
        "then shards are divided anew among more or fewer of them, or nothing changes.",
    )
    regroup_s: float = _knob(
        "regroup",
        "duration",
        600.0,
        "How often executors that have outgrown their machine are split, and idle ones merged. The "
        "operator's senders pause for that. Never, if 0.",
    )
    ui: str = _knob(
        "ui",
        "loopback|none",
        "loopback",
        "Where Spark's own UI listens, in a session that Sojourn makes on this machine. All users "
        "of the machine can read it, and nobody can end jobs there.",
    )
    drain_s: float = _knob(
        "drain",
        "duration",
        5.0,
        "How long a stop waits for tuples in flight. Those left over are kept in the checkpoint.",
    )
    max_bundle: int = _knob("maxBundle", "count", 2_000, "The most tuples in one bundle.", least=1)
    max_rest_s: float | None = _knob(
        "maxRest",
        "duration",
        None,
        "The longest that tuples wait at each executor to travel together when many arrive. "
        "Unless set, it is 10ms, or less where all these waits together would exceed a tenth of "
        "the target.",
    )
    max_queue: int = _knob(
        "maxQueue",
        "count",
        10_000,
        "Tuples that may wait at one executor before it slows down its senders.",
        least=1,
    )
    max_queue_bytes: int = _knob(
        "maxQueueBytes",
        "count",
        32 << 20,
        "Bytes that may wait at one executor before it slows down its senders.",
        least=1,
    )
    tracked_per_s: float = _knob(
        "measure.tracked",
        "number",
        200.0,
        "Tuple trees tracked per second and source. The measured sojourn comes from them.",
        least=0.001,
    )
    timed_every: int = _knob(
        "measure.every",
        "count",
        1,
        "N_m: each worker times every N-th tuple, but at most one of those handed to it together. "
        "0 turns timing off, and with it all control.",
    )
    max_restarts: int = _knob(
        "maxRestarts",
        "count",
        5,
        "Restarts without a commit in between, after which the next failure ends the topology.",
    )
    cluster_timeout_s: float = _knob(
        "clusterTimeout",
        "duration",
        60.0,
        "How long to wait for a cluster's task slots.",
        least=0.001,
    )
    dashboard: str = _knob(
        "dashboard",
        "address",
        "off",
        "Where the dashboard is served, as HOST:PORT; `on` for 127.0.0.1:4190, port 0 for any that "
        "is free. Whoever reaches a host other than this machine's loopback can read it. Needs "
        "`sojourn[dashboard]`.",
    )
    dashboard_changes: str = _knob(
        "dashboardChanges",
        "none|token",
        "none",
        "Whether limits may be changed, and changes paused, over the dashboard's REST: by nobody, "
        "or by whoever has the token that the console prints.",
    )

    def rest_s(self, max_sojourn_s: float | None, hops: int) -> float:
        """How long tuples that pass through that many executors may wait at each: the setting, or
        what the target leaves."""
        if self.max_rest_s is not None:
            return self.max_rest_s
        return REST_S if max_sojourn_s is None else min(REST_S, 0.1 * max_sojourn_s / max(hops, 1))


@dataclass(frozen=True)
class ControlSettings(_Checked):
    """The target, and how the control loop keeps it."""

    max_processors: int | None = _knob(
        "maxProcessors",
        "count",
        None,
        "K_max: the most processors to use. Without a target, they are placed for the lowest "
        "sojourn.",
        least=1,
        live=True,
    )
    max_sojourn_s: float | None = _knob(
        "maxSojourn",
        "duration",
        None,
        "T_max: the target, kept with the fewest processors.",
        least=1e-6,
        live=True,
    )
    min_sojourn_s: float | None = _knob(
        "minSojourn",
        "duration",
        None,
        "T_min: processors are given back only while the sojourn is below it. Unless set, they "
        "are given back whenever fewer keep the target.",
        live=True,
    )
    percentile: float | None = _knob(
        "percentile",
        "number",
        None,
        "The percentile of the sojourn that the targets apply to, such as 99. Unless set, they "
        "apply to the mean.",
        least=1,
        most=99.99,
    )
    policy: str = _knob(
        "policy",
        "drs|drs-2015|drs-2017|ds2|provision|threshold|static",
        "drs",
        "Who decides: Sojourn's own policy; that of the earlier DRS paper, or of the later "
        "one; rates alone, as DS2; machines from what comes and what is processed; utilization "
        "thresholds, as most autoscalers; or nobody.",
    )
    provision_s: float = _knob(
        "provision.period",
        "duration",
        30.0,
        "How often the policy `provision` decides.",
        least=1.0,
    )
    provision_form: str = _knob(
        "provision.form",
        "mended|printed",
        "mended",
        "Its algorithm: mended, or as Cervino printed it, which takes noise for overload.",
    )
    provision_extra: str = _knob(
        "provision.extra",
        "none|predict|latency|idle|spread|start|all",
        "none",
        "What it looks at besides: where the rate is going, long latencies as an early sign, idle "
        "time, bursts of what is shed, or how long machines take to come, as measured.",
    )
    provision_ready: int = _knob(
        "provision.ready",
        "count",
        0,
        "Machines that it keeps ready: so many more are up than are needed, and idle.",
    )
    provision_kinds: tuple[Kind, ...] | None = _knob(
        "provision.kinds",
        "machines",
        None,
        "Kinds of machines to choose from by price, each as name=slots:price or "
        "name=slots:price:start, such as small=1:1.0,large=4:3.5:2min. The first kind is there to "
        "begin with. Simulations only.",
    )
    model: str = _knob(
        "model",
        "auto|mmk|gigk",
        "auto",
        "Model of a station: M/M/k, GI/G/k with the measured variability, or whichever of the two "
        "that variability calls for.",
    )
    interval_s: float = _knob(
        "measure.interval",
        "duration",
        1.0,
        "T_m: how often samples are collected and a decision is made.",
        least=0.1,
    )
    smoothing: str = _knob(
        "measure.smoothing",
        "window|alpha",
        "window",
        "Average over a window of intervals, or weight older intervals by alpha.",
    )
    window_s: float = _knob(
        "measure.window",
        "duration",
        10.0,
        "w: how far back the window reaches, at least three intervals.",
        least=0.1,
    )
    alpha: float = _knob(
        "measure.alpha",
        "number",
        0.5,
        "Weight of each interval relative to the next newer one.",
        most=0.99,
    )
    change_interval_s: float = _knob(
        "change.interval", "duration", 10.0, "T_ra: the shortest time between two changes."
    )
    quiet_s: float = _knob(
        "change.quiet",
        "duration",
        30.0,
        "How long fewer processors must have been enough before some are given back. Machines "
        "wait at least as long.",
    )
    headroom: float = _knob(
        "change.headroom",
        "number",
        0.15,
        "Share of the target that a change leaves unused, so that noise does not undo the change.",
        most=0.9,
    )
    gain: float = _knob(
        "change.gain",
        "number",
        0.1,
        "Share of the sojourn that moving processors must save.",
        most=0.9,
    )
    doubt: float = _knob(
        "change.doubt",
        "number",
        2.0,
        "Processors are moved or given back only if that is right even when the measured load is "
        "off by this many standard errors. 0 trusts the measurement.",
        most=10.0,
    )
    hold_off_s: float = _knob(
        "change.holdOff",
        "duration",
        600.0,
        "How long an allocation that was rolled back is not tried again.",
    )
    season_s: float | None = _knob(
        "forecast.season",
        "duration",
        None,
        "After how long the load repeats itself, such as 24h. Its pattern is then learned, which "
        "takes two of them and `sojourn[forecast]`, and used once it has proved right. Unless set, "
        "none is learned.",
        least=60.0,
    )

    stale_after_s: float = _knob(
        "profile.after",
        "duration",
        60.0,
        "How long messages must wait, or tuples take too long, until a profile is said to hold no "
        "more.",
        least=1.0,
    )
    stale_waiting: int = _knob(
        "profile.maxWaiting",
        "count",
        1000,
        "Messages before the sources above which a profile may hold no more.",
    )

    pool: str = _knob(
        "machines.pool",
        "local|standalone|spark",
        "local",
        "Where machines come from: this machine alone; a standalone cluster started on this "
        "machine, whose Workers come and go; or Spark's own cluster manager.",
    )
    machine_processors: int = _knob(
        "machines.processors",
        "count",
        4,
        "Processors that a machine has room for. The local pool has no such limit.",
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
        "machines.most", "count", None, "The most machines to use.", least=1
    )

    @property
    def reach_s(self) -> float:
        """How far back the window reaches: three intervals at least."""
        return max(self.window_s, 3 * self.interval_s)

    @property
    def drain_s(self) -> float:
        """In which what waits should be worked off."""
        return max(_DRAIN_S, self.interval_s)

    def about(self, span_s: float) -> float:
        """A span of time, less what a tick may come too early: it is over at the same tick whether
        that comes a little early or late."""
        return span_s - 0.1 * min(span_s, self.interval_s)

    @property
    def memory_s(self) -> float:
        """How far back measures count at all."""
        if self.smoothing == "window":
            return self.reach_s
        return self.interval_s * math.log(0.01) / math.log(max(self.alpha, 0.01))

    def weight(self, age_s: float) -> float:
        """How much an interval of that age counts."""
        return 1.0 if self.smoothing == "window" else self.alpha ** (age_s / self.interval_s)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.provision_kinds is not None and self.max_machines is not None:
            raise InputError(
                f"{PREFIX}machines.most does not go with {PREFIX}provision.kinds, whose machines "
                f"differ; {PREFIX}maxProcessors does"
            )
        if self.provision_form == "printed" and self.provision_extra != "none":
            raise InputError(
                f"{PREFIX}provision.extra is looked at by the mended algorithm alone; got "
                f"{self.provision_extra} with {PREFIX}provision.form=printed; leave one of them out"
            )
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
    """What a simulation assumes about the engine and the machines."""

    hop_s: float = _knob(
        "simulator.hop",
        "duration",
        0.0015,
        "How long a tuple travels from one operator to the next.",
    )
    hand_over_s: float = _knob(
        "simulator.handOver",
        "duration",
        0.0004,
        "Pause of a processor between two tuples. It does not count as service time.",
    )
    sink_s: float = _knob(
        "simulator.sink",
        "duration",
        0.00005,
        "Service time of a sink, unless the service file gives one.",
    )
    hop_cpu_s: float = _knob(
        "simulator.hopCpu",
        "duration",
        0.0000016,
        "CPU time that a tuple costs from one operator to the next, where machines are full.",
    )
    hand_over_cpu_s: float = _knob(
        "simulator.handOverCpu",
        "duration",
        0.00032,
        "CPU time to hand a tuple to a worker, or short ones that take 1ms together, where "
        "machines are full.",
    )
    task_share: float = _knob(
        "simulator.taskShare",
        "number",
        0.002,
        "Share of a core that each worker takes, busy or not, where machines are full.",
        least=0.0,
        most=1.0,
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
        "How long a topology takes to restart after a failure. It then repeats all work since the "
        "last commit.",
    )
    machine_start_s: float = _knob(
        "simulator.machines.start",
        "duration",
        10.0,
        "How long a requested machine takes to come up.",
    )
    machine_pause_s: float = _knob(
        "simulator.machines.pause",
        "duration",
        0.0,
        "How long tuples wait when a machine comes into use or is given back. On Spark none does.",
    )
    machine_speeds: tuple[float, ...] | None = _knob(
        "simulator.machines.speeds",
        "numbers",
        None,
        "Speeds of the machines in the order in which they come, over and over, such as 1,1,0.5. "
        "Service times are those at speed 1. Unless set, all machines have speed 1.",
        least=0.001,
        most=1000.0,
    )
    machine_lives_s: float | None = _knob(
        "simulator.machines.lives",
        "duration",
        None,
        "Mean time until a machine is lost. Unless set, none is lost.",
        least=1.0,
    )
    worker_lives_s: float | None = _knob(
        "simulator.workerLives",
        "duration",
        None,
        "Mean time until a worker dies. Unless set, none dies.",
        least=1.0,
    )
    network_delay_s: float = _knob(
        "simulator.network.delay", "duration", 0.0005, "One-way delay between two machines."
    )
    network_mb_s: float = _knob(
        "simulator.network.bandwidth",
        "number",
        125.0,
        "Bandwidth between two machines, in megabytes per second.",
        least=1e-6,
    )
    tuple_bytes: int = _knob("simulator.tupleBytes", "count", 200, "Size of a tuple, in bytes.")
    shard_kb: float = _knob(
        "simulator.shardKilobytes", "number", 32.0, "Size of a shard's state, in kilobytes."
    )


def knobs_of(settings: type) -> dict[str, Knob]:
    """The knobs of a settings class by field name."""
    return {f.name: f.metadata["knob"] for f in fields(settings) if "knob" in f.metadata}


def known_keys() -> Mapping[str, Knob]:
    """All knobs by their full key."""
    kinds = (EngineSettings, ControlSettings, SimulatorSettings)
    return {knob.name: knob for kind in kinds for knob in knobs_of(kind).values()}
