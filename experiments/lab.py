"""What the experiments share: measuring an allocation of a shape on Spark or in the simulator, and
what comes out: figures, a plot, rows beside the paper's, a verdict.

On Spark, operators sleep, so that two cores can host the papers' 22 processors; every report says
which engine it comes from and how times are scaled."""

import itertools
import json
import math
import pickle
import random
import statistics
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import origin
from shapes import Shape
from stolen import Steal

import sojourn as sj
from sojourn.confidence import is_above, student
from sojourn.control.controller import Record
from sojourn.errors import TopologyFailed
from sojourn.ports import QUANTILES, Samples, Sojourn
from sojourn.settings import ControlSettings, EngineSettings, SimulatorSettings
from sojourn.simulate import Simulation, settings_for
from sojourn.simulator import SimulatedEngine
from sojourn.wiring import control_loop

INTERVAL_S = 2.5
AT_ONCE = 2  # topologies on the same Spark
ROUNDS = 2  # in which allocations take turns
_MOST_TO_RESIZE_S = 60.0
_LATE_S = 0.5
_PRESSED_S = 0.1  # until somebody looks whether there is pressure
_LOOK_S = 1.0
_MOST_LOOKS = 100  # in which nothing becomes less
_FEW, _GROUPS = 4, 10


@dataclass(frozen=True)
class Measured:
    """One allocation over a while: mean and deviation of the sojourn, and the standard error of the
    mean by those of so many parts."""

    allocation: Mapping[str, int]
    mean_s: float
    deviation_s: float
    error_s: float
    parts: int
    trees: int

    @property
    def label(self) -> str:
        return ":".join(map(str, self.allocation.values()))

    @property
    def half_s(self) -> float:
        """Half of the mean's interval of 95 % confidence."""
        return student(self.parts - 1) * self.error_s

    def slower_than(self, other: "Measured") -> bool:
        """With 95 % confidence."""
        squares = self.error_s**2, other.error_s**2
        return is_above(self.mean_s - other.mean_s, squares, (self.parts, other.parts))


@dataclass(frozen=True)
class Watched:
    """A run under control: a record for each tick, how many seconds each resize at the end of an
    interval took, and the share of the CPU that was used, from the first interval to the last. On
    machines, on Spark, also the longest time without a tuple that was done, between each record and
    the one before."""

    records: list[Record]
    resized_s: list[float] = field(default_factory=list)
    busy: float = 0.0
    gaps_s: list[float] = field(default_factory=list)


class Gaps:
    """The longest time without a tuple that is done, by when the last operator had it. Notes that
    in the hub's thread, without getting in its way."""

    def __init__(self, tracker: Any) -> None:
        self.lock = threading.Lock()
        self.last_s = time.monotonic()
        self.done_s: list[float] = []
        self.check, tracker._check = tracker._check, self._checked

    def _checked(self, root: int, tree: Any) -> None:
        if tree.value == 0 and tree.arrival_s is not None and tree.last_s:
            with self.lock:
                self.done_s.append(tree.last_s)
        self.check(root, tree)

    def take(self) -> float:
        """Since the last call; one that has not ended counts again in the next."""
        with self.lock:
            done_s, self.done_s = self.done_s, []
        times = [self.last_s, *sorted(at_s for at_s in done_s if at_s > self.last_s)]
        self.last_s = times[-1]
        return max(
            later - sooner for sooner, later in itertools.pairwise([*times, time.monotonic()])
        )


@dataclass
class Lab:
    """Where experiments are made: an engine, how long to look, and the seed of what is drawn."""

    engine: str
    quick: bool
    seed: int = 0
    out: Path = Path("out/experiments")
    made: dict[str, Any] = field(default_factory=dict)
    spark: Any = None
    ended: threading.Event = field(default_factory=threading.Event)
    together: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))
    runs: Path | None = None  # where runs of the experiment are kept until it is through
    calls: int = 0  # of `each` in it
    borrowed: list[dict[str, Any]] = field(default_factory=list)  # see `once` and `each`

    def seed_of(self, name: str) -> int:
        """Another one for each name, so that chance does not do the same to all."""
        return zlib.crc32(f"{self.seed}.{name}".encode())

    def begin(self, runs: Path | None) -> None:
        """Another experiment, whose runs are kept in a folder until it is through."""
        self.runs, self.calls, self.borrowed = runs, 0, []

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What two experiments need is made once. What became of the CPU then is told of the second
        as well."""
        if name in self.made:
            found, stolen = self.made[name]
            self.borrowed += stolen
            return found
        with Steal() as steal:
            found = make()
        self.made[name] = found, [*self.borrowed, steal.told()]
        return found

    def each(
        self, make: Callable[[Any], Any], of: Sequence[Any], at_once: int = AT_ONCE
    ) -> list[Any]:
        """Make one of each, each with one engine; on Spark several at once, as their operators
        sleep. Those start together and stop together, because both disturbs the others. What an
        experiment that was interrupted had made already is not made again."""
        self.calls += 1
        found: list[Any] = []
        at_once = at_once if self.engine == "spark" else 1
        for first in range(0, len(of), at_once):
            some = of[first : first + at_once]
            path = None if self.runs is None else self.runs / f"{self.calls}-{first}.pickle"
            if path is not None and path.is_file():
                results, stolen = pickle.loads(path.read_bytes())  # our own
                self.borrowed.append(stolen)
            else:
                with Steal() as steal:
                    results = self._beside(make, some) if at_once > 1 else [make(some[0])]
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    part = path.with_suffix(".part")
                    part.write_bytes(pickle.dumps((results, steal.told())))
                    part.replace(path)
            found += results
        return found

    def _beside(self, make: Callable[[Any], Any], some: Sequence[Any]) -> list[Any]:
        """All at once. If one fails, the others end as well."""
        self.session()
        self.together = threading.Barrier(len(some))
        with ThreadPoolExecutor(len(some)) as threads:
            running = [threads.submit(make, one) for one in some]
            try:
                for one in as_completed(running):
                    one.result()
            except BaseException:  # Ctrl-C too: no thread waits on for its time to pass
                self.ended.set()
                self.together.abort()
                raise
            finally:
                self.together = threading.Barrier(1)
        return [one.result() for one in running]

    def seconds(self, quick: float, full: float) -> float:
        """How long to look on Spark; the simulator looks twenty times as long."""
        return (quick if self.quick else full) * (1 if self.engine == "spark" else 20)

    @contextmanager
    def running(
        self, shape: Shape, allocation: Mapping[str, int]
    ) -> Iterator[tuple[Any, Callable[[float], object]]]:
        """A started engine, and how to let time pass for it."""
        shape = replace(shape, drawn=self.seed)
        if self.engine == "simulator":
            simulated = SimulatedEngine(
                shape.topology(allocation, sleep=False),
                shape.workload(),
                SimulatorSettings(),
                EngineSettings(batch_s=600.0),
                seed=shape.seed,
            )
            yield simulated, lambda seconds: simulated.advance(simulated.now_s + seconds)
            return
        topology = shape.topology(allocation, sleep=True)
        with sj.start(topology, spark=self.session(), settings={"batch": 3600.0}) as started:
            self.together.wait()
            yield started.engine, lambda seconds: self.let_pass(started, seconds)
            self.together.wait()

    def let_pass(self, started: Any, seconds: float) -> None:
        """Time passes; nobody is asked anything, as that would be measured too."""
        started.engine.hub.wait(lambda: started.error is not None or self.ended.is_set(), seconds)
        if self.ended.is_set():
            raise TopologyFailed("the experiment was ended")

    def session(self) -> Any:
        """One Spark for all experiments."""
        from sojourn.engine.spark.session import session

        if self.spark is None:
            self.spark = session(None, "local[64]", 64, "experiments", 10)
        return self.spark

    def close(self) -> None:
        """End Spark, if it was started."""
        if self.spark is not None:
            self.spark.stop()
            self.spark = None

    def recover(self) -> None:
        """After an experiment that failed, the next one begins anew."""
        self.close()
        self.ended = threading.Event()

    def controlled(
        self,
        shape: Shape,
        allocation: Mapping[str, int],
        settings: ControlSettings,
        seconds: float,
        act_from_s: float = 0.0,
    ) -> Watched:
        """Under control for a while; nothing is changed before a time."""
        resized_s: list[float] = []
        records: list[Record] = []
        with self.running(shape, allocation) as (engine, let_pass), Steal() as steal:
            passed_s, began_s = 0.0, time.monotonic()
            if self.engine == "simulator":
                engine.max_sojourn_s = settings.max_sojourn_s
            else:
                engine.aim(settings.max_sojourn_s)
            loop = control_loop(
                engine,
                shape.topology(allocation, sleep=False),
                settings,
                listeners=[records.append],
                act_after_s=act_from_s,
                clock=lambda: passed_s,
            )
            while passed_s < seconds:
                due_s = passed_s + settings.interval_s
                if self.engine == "simulator":
                    while engine.advance(due_s):
                        passed_s = engine.now_s
                        loop.tick(urgent=True)
                else:
                    while (left_s := began_s + due_s - time.monotonic()) > 0:
                        if loop.woken.is_set():  # there is pressure
                            loop.woken.clear()
                            passed_s = min(due_s, time.monotonic() - began_s)
                            loop.tick(urgent=True)
                        let_pass(min(_PRESSED_S, left_s))
                passed_s = due_s
                asked_s = time.monotonic()
                record = loop.tick()
                if record.applied and self.engine == "spark":
                    assert record.decision.allocation is not None
                    asked = record.decision.allocation
                    resized_s.append(_seconds_until(engine, asked, asked_s))
            busy = steal.told()["busy"]
        return Watched(records, resized_s, busy)

    def on_machines(
        self,
        shape: Shape,
        allocation: Mapping[str, int],
        conf: Sequence[str],
        max_sojourn: str,
        seconds: float,
        act_from_s: float,
    ) -> Watched:
        """Under control on machines that come and go, real ones on Spark; nothing is changed before
        a time."""
        records: list[Record] = []
        gaps: list[Gaps] = []
        gaps_s: list[float] = []

        def told(record: Record) -> None:
            gaps_s.append(gaps[0].take() if gaps else 0.0)
            records.append(record)

        shape = replace(shape, drawn=self.seed)
        settings = settings_for(None, [*conf, "batch=10min"], max_sojourn=max_sojourn)
        of_engine, of_control, _ = settings
        if self.engine == "spark":
            self.close()  # the cluster has a Spark of its own
            with (
                tempfile.TemporaryDirectory() as checkpoint,
                sj.Running(
                    shape.topology(allocation, sleep=True),
                    of_engine,
                    of_control,
                    checkpoint=checkpoint,
                    act_after_s=act_from_s,
                    listeners=[told],
                ) as running,
                Steal() as steal,
            ):
                gaps.append(Gaps(running.engine.hub.tracker))
                running.wait(seconds)
                busy = steal.told()["busy"]
            return Watched(records, busy=busy, gaps_s=gaps_s)
        Simulation(
            shape.topology(allocation, sleep=False),
            shape.workload(),
            settings,
            seconds,
            seed=shape.seed,
            machines=-(
                -(sum(allocation.values()) + shape.reserved) // of_control.machine_processors
            ),
            act_after_s=act_from_s,
        ).run(listeners=[records.append])
        return Watched(records)

    def measure(
        self, shape: Shape, allocations: Sequence[Mapping[str, int]], seconds: float
    ) -> list[Measured]:
        """Each allocation for so long in all, in turns in the same run, as the machine's speed
        wavers."""
        parts: list[list[Samples]] = [[] for _ in allocations]
        spell_s = seconds / ROUNDS
        order = random.Random(self.seed_of(shape.name))
        ample = {name: 2 * k for name, k in allocations[0].items()}
        with self.running(shape, ample) as (engine, let_pass):
            turns = list(zip(allocations, parts, strict=True))
            for _ in range(ROUNDS):
                order.shuffle(turns)
                for allocation, found in turns:
                    engine.resize(ample)  # nobody inherits what waits
                    work_off(engine, let_pass)
                    engine.resize(allocation)
                    let_pass(max(2.0, 0.1 * spell_s))
                    engine.samples()
                    for _ in range(max(2, round(spell_s / INTERVAL_S))):
                        let_pass(INTERVAL_S)
                        found.append(engine.samples())
                    has = {n: found[-1].vertices[n].processors for n in allocation}
                    if has != dict(allocation):
                        raise TopologyFailed(f"{dict(allocation)} did not come: it has {has}")
        return [summed(a, found) for a, found in zip(allocations, parts, strict=True)]


def _seconds_until(engine: Any, wanted: Mapping[str, int], since_s: float) -> float:
    """How long from a time on until all processors are there, or gone, as asked for."""
    while engine.allocation() != dict(wanted):
        if time.monotonic() - since_s > _MOST_TO_RESIZE_S:
            raise TopologyFailed(f"{dict(wanted)} did not come in {_MOST_TO_RESIZE_S:g} s")
        time.sleep(0.01)
    return time.monotonic() - since_s


def work_off(engine: Any, let_pass: Callable[[float], object]) -> None:
    """Until nothing is left of what waits, however long that takes, as long as it becomes less."""
    least, looks, waits = math.inf, 0, [""]
    while looks < _MOST_LOOKS:
        let_pass(_LOOK_S)
        some = [
            v
            for v in engine.samples().vertices.values()
            if v.queue > max(1, v.processors) or (v.lag_s or 0.0) > _LATE_S
        ]
        if not some:
            return
        waits = [f"{v.queue} at {v.name!r}, {v.lag_s or 0.0:.1f} s late" for v in some]
        left = sum(v.queue + (v.lag_s or 0.0) for v in some)
        least, looks = min(least, left), 0 if left < least else looks + 1
    raise TopologyFailed(f"this machine cannot keep up with the experiment: {'; '.join(waits)}")


def summed(allocation: Mapping[str, int], parts: Sequence[Samples]) -> Measured:
    """Several intervals as one."""
    found = [part.sojourn for part in parts if part.sojourn is not None]
    if not found:
        raise TopologyFailed(f"no tuple was done in {len(parts)} intervals with {dict(allocation)}")
    trees = sum(s.count for s in found)
    mean = sum(s.mean_s * s.count for s in found) / trees
    squares = sum(s.count * square_mean(s) for s in found) / trees
    # Neighbouring intervals hang together: of more than a few, three count as one.
    count = len(found) if len(found) <= _FEW else min(_GROUPS, max(_FEW, len(found) // 3))
    groups = np.array_split(np.array([s.mean_s for s in found]), count)
    means = [float(group.mean()) for group in groups]
    error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    deviation = math.sqrt(max(0.0, squares - mean * mean))
    return Measured(dict(allocation), mean, deviation, error, len(means), trees)


def passing(results: Sequence[Measured]) -> list[Measured]:
    """The best one, and those that are not told apart from it."""
    best = min(results, key=lambda m: m.mean_s)
    return [m for m in results if not m.slower_than(best)]


def square_mean(sojourn: Sojourn) -> float:
    """Of the squares, each quantile standing for what lies nearer to it than to the others."""
    places = np.array([0.0, *QUANTILES, 100.0])
    edges = (places[:-1] + places[1:]) / 2
    widths = np.diff(np.array([0.0, *edges[1:-1], 100.0])) / 100
    return float((widths * np.array(sojourn.quantiles) ** 2).sum())


class Runs:
    """The runs of a long experiment, each with a name, in a file: it goes on where it was
    interrupted. Each says which commit it is of."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.commit = origin.commit(Path(__file__).parent)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self.found: dict[Any, dict[str, Any]] = {}
        for run in map(json.loads, lines):
            self.found[_key(run["name"])] = run

    def add(self, run: dict[str, Any]) -> dict[str, Any]:
        """Keep one."""
        run = {**run, "commit": self.commit}
        with self.lock:
            self.found[_key(run["name"])] = run
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                print(json.dumps(run), file=file, flush=True)
        return run

    def done(self) -> None:
        """All are there: the next time, the experiment begins anew."""
        self.path.replace(self.path.with_suffix(".done"))


def _key(name: Any) -> Any:
    return tuple(name) if isinstance(name, list) else name


@dataclass(frozen=True)
class Claim:
    """What a paper says in a place of it, in its own terms, the rule by which that is judged, and
    what was found here, with confidence. It holds, it does not, or None: that cannot be decided
    here. `why` says in a line why not, or why it cannot be decided."""

    paper: str  # "ToN fig. 6"
    says: str
    rule: str
    found: str
    holds: bool | None
    why: str = ""


@dataclass(frozen=True)
class Finding:
    """What an experiment has shown. `rows` stand beside the paper's figures: what, theirs, ours.
    Whether the paper's claim holds is None if the run was too short to tell."""

    figures: Mapping[str, Any]
    rows: Sequence[tuple[str, str, str]]
    verdict: str
    holds: bool | None
    draw: Callable[[Any], None]  # on a figure of matplotlib
    claims: Sequence[Claim] = ()


def judged(
    claims: Sequence[Claim],
    figures: Mapping[str, Any],
    rows: Sequence[tuple[str, str, str]],
    draw: Callable[[Any], None],
) -> Finding:
    """A finding of several claims: it holds if all do, and does not if one does not."""
    kinds = [claim.holds for claim in claims]
    holds = False if False in kinds else None if None in kinds else True
    counts = {of: sum(kind is of for kind in kinds) for of in (True, False, None)}
    told = ", ".join(f"{count} {in_words(of, count)}" for of, count in counts.items() if count)
    verdict = f"of {len(claims)} claim{'s' if len(claims) > 1 else ''} {told}"
    return Finding(figures, rows, verdict, holds, draw, claims)


def written(finding: Finding, name: str, about: Mapping[str, Any], directory: Path) -> None:
    """A JSON of the figures and a plot."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    told = {
        "experiment": name,
        **about,
        "holds": finding.holds,
        "verdict": finding.verdict,
        "rows": finding.rows,
        "claims": [vars(claim) for claim in finding.claims],
        "figures": finding.figures,
    }
    path = directory / f"{name}.json"
    text = json.dumps(_finite(told), indent=2, default=float, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    figure = plt.figure(figsize=(9, 5), layout="constrained")
    finding.draw(figure)
    figure.suptitle(f"{name} ({about['engine']}, {about['length']}, seed {about['seed']})")
    figure.savefig(directory / f"{name}.png", dpi=120)
    plt.close(figure)


def _finite(value: Any) -> Any:
    """JSON has no numbers that are infinite or none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def in_words(holds: bool | None, count: int = 1) -> str:
    """Whether a claim holds, or several do."""
    if holds is None:
        return "cannot be decided"
    if count == 1:
        return "holds" if holds else "does not hold"
    return "hold" if holds else "do not hold"
