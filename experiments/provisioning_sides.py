"""Side by side on plain queries (SPARK-24815): Spark's own dynamic allocation, Cervino's algorithm
as printed, mended, mended with each of its options, and the model of batches. Not in a paper.

Four traces of 80 s, at 40 to 260 rows a second: steps, a ramp, a spike, a day. A row sleeps for 10
ms; executors have one slot each, and there are at most four. Machine-seconds count from the start
of an executor's process to its end, and lateness from when a row was to come to when its result is
there. Ours decide every 3 s, as the traces are short.

Spark's idle and backlog time-outs are swept on each trace, each once. Those with the lowest product
of machine-seconds and the 95th percentile of lateness are run again with two and three executors at
least. The three lowest products of all are run twice more, as one run says little, and the lowest
one by medians is Spark's best. Then the model's longest latency, as multiples of that percentile,
and its least executors are swept, together, each in three runs. The model's best takes the fewest
machine-seconds of those that are no later than Spark's best, by medians, or is the least late if
there is none. Both sides' least executors are swept, because nobody who starts
from one executor answers a spike in the time that another takes to come.

Rule: five runs of each, paired by their number. On each trace, the median of the model's
machine-seconds over Spark's is below 1, and that of its 95th percentile over Spark's is at most 1.
All rows of all runs are there. Where the median run used more than 60 % of the CPU, it is
undecided. The 50th and 99th percentiles and the others are told, and not judged: a promise is about
slow results, fewer machines make quick ones slower by nature, and a hundredth of these runs is a
second of one rise.

A run in which more than a tenth of the seconds had CPU stolen is made again, twice at most. How
many of those that count are such runs, and how much CPU was used, is told. In two trials beside
each other with an idle time-out of 1 s and drivers that had just started, 95 % of the CPU was used
and rows were 25 and 30 s late. So that time-out is not among those that are swept.

A first run was ended after 38 runs, which were sweeps. Where the model was no later than Spark's
best, on steps, ramp and day, it had 0.83 to 1.12 of the machine-seconds. On the spike it had 0.55
to 0.58, and was 2.6 to 3.2 times as late. It took the mean of a period for what comes, and looked
at a batch at work only where none was done in a period. Both were changed after that, and its
limits are swept in finer steps. The rule is the same. A second run was lost with its machine before
it was judged. A third one made three runs at a time and was ended after three of them, because 85 %
of the CPU was used and rows were 11 to 31 s late. A fourth made two at a time again and was ended
after seven, because other work ran beside it; `attach` was mended after a review then. The least
executors are swept since, on both sides, and finer steps of the limit are not. The fifth was ended
after 42 runs, which were sweeps: the model's best was to leave a tenth of Spark's lateness unused,
and on steps nobody did, whatever it took, as batches every two seconds have rows wait for 3.2 s. So
how the model's best is found was changed, and runs that decide on it are repeated. Its decisions
showed three more faults of `attach`, which are mended: what a batch at work shows was too much by
half where its first tasks began late, executors were given back and asked for again where rates
differ by chance, and it took one period too long to give some back. Spark's sweep of that run is
kept; the model's is in `experiments/unfinished/provisioning_sides.fifth.jsonl`. A sixth was ended
in the model's sweep, as a review had found more of that kind in what was mended, and that the best
was found otherwise where the experiment was interrupted (`provisioning_sides.sixth.jsonl`). The
seventh was ended after 20 of the runs that are compared (`provisioning_sides.seventh.jsonl`). A
review had found that what an executor processes was taken for too little after some had been given
back, which `mended` goes by, and `attach` was mended. In two runs on steps the model had 294 and
296 machine-seconds, and Spark 263 and 288. Of the settings that had been repeated, three of each
trace, none lay between the dearest and those that are a few hundredths of a second too late. So two
more limits were swept, and six settings repeated. All runs of sweeps were kept, as the model does
not go by what was wrong. The eighth was ended after 12 of the runs that are compared, all on steps,
with the same outcome: 295 and 295 machine-seconds, and Spark 282 and 282
(`provisioning_sides.eighth.jsonl`). A single run of each setting had decided which were repeated,
and one of them was late by 5.2 s, twice as much as its neighbours. So all are repeated since.

Runs are kept beside the result (`provisioning_sides.full.jsonl`), so an experiment that was
interrupted goes on. Which commits they are of is told. Those of an experiment that is not finished
are in `experiments/unfinished`: `--out experiments/unfinished` goes on with them."""

import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept import SHORT
from lab import Finding, Lab, Runs
from stolen import Steal, alone

from sojourn.engine.spark.standalone import StandaloneCluster

ENGINES = ("spark",)
NOTES = (
    "standalone cluster on loopback; executors of one slot, four at most, which start with an "
    "archive of their classes; rows sleep for 10 ms; a batch every two seconds at most; traces of "
    "80 s after 15 s that do not count; two runs at a time"
)
LEAD_S, SECONDS, MOST, RUNS, LANES = 15, 80, 4, 5, 2
PERIOD_S = 3
Own = tuple[int, int, int]  # Spark's idle and backlog time-outs, and its least executors
Asked = tuple[
    float, int
]  # of the model: its limit, times Spark's lateness, and its least executors
SWEEP: list[Own] = [(idle, backlog, 1) for idle in (3, 10, 30) for backlog in (1, 3)]
KEPT = (2, 3)  # executors at least, with Spark's best time-outs
LIMITS: list[Asked] = [
    *((times, least) for times in (1.0, 1.1, 1.2) for least in (1, 2, 3)),
    *((1.05, least) for least in (1, 2)),
]
AGAIN = 2  # times more that those are run that may be the best
HOPEFUL = 3  # of Spark's that may be the best
BUSY = 0.6  # of the CPU, above which runs say little
OURS: Mapping[str, Mapping[str, Any]] = {
    "model": {},
    "printed": {"policy": "printed"},
    "mended": {"policy": "mended"},
    "mended, predict": {"policy": "mended", "options": {"predict": True}},
    "mended, latency": {"policy": "mended", "options": {"latency": True}},
    "mended, idle": {"policy": "mended", "options": {"idle": True}},
    "mended, start-up": {"policy": "mended", "options": {"start_s": 5.0}},
}


def written(rates: Iterable[tuple[float, float]]) -> str:
    """A trace with its lead and its end."""
    steps = [(LEAD_S + at, rate) for at, rate in rates]
    every = [(0.0, steps[0][1]), *steps, (LEAD_S + SECONDS, 0.0)]
    return ",".join(f"{at:g}:{rate:.0f}" for at, rate in every)


def curve(of: Any, step_s: int = 4) -> str:
    """A trace that follows a function of the share of time."""
    return written((at, of(at / SECONDS)) for at in range(0, SECONDS, step_s))


TRACES = {
    "steps": written([(0, 40), (16, 130), (32, 230), (48, 100), (64, 40)]),
    "ramp": curve(lambda x: 40 + 200 * (2 * x if x < 0.5 else 2 - 2 * x)),
    "spike": written([(0, 50), (30, 260), (42, 50)]),
    "day": curve(lambda x: 125 - 85 * math.cos(2 * math.pi * x)),
}


def allocation(idle: int, backlog: int, least: int) -> dict[str, str]:
    """Spark's own, with these time-outs, and so many executors at least."""
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": str(least),
        "spark.dynamicAllocation.initialExecutors": str(least),
        "spark.dynamicAllocation.maxExecutors": str(MOST),
        "spark.dynamicAllocation.executorIdleTimeout": f"{idle}s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": f"{backlog}s",
        "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": f"{backlog}s",
    }


@dataclass(frozen=True)
class Cluster:
    """Where drivers find a master, and the classes that executors need."""

    url: str
    archive: Path


class Driver:
    """A driver that makes one run after the other. It is warm once it is made."""

    def __init__(
        self, cluster: Cluster, settings: Mapping[str, str] | None = None, most: int = MOST
    ) -> None:
        script = Path(__file__).parent / "plain_run.py"
        more = [json.dumps(settings)] if settings else []
        self.process = subprocess.Popen(
            [sys.executable, str(script), cluster.url, str(most), str(cluster.archive), *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._told()

    def _told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a driver ended with code {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Make a run."""
        assert self.process.stdin is not None
        print(json.dumps(spec), file=self.process.stdin, flush=True)
        found = self._told()
        if found["error"]:
            raise RuntimeError(f"a query failed: {found['error']}")
        return found

    def close(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def shown(run: Mapping[str, Any]) -> None:
    """What came of a run, in a line."""
    late = run["late_s"]["95"]
    print(f"{' '.join(map(str, run['name']))}: {run['machine_s']:.0f} machine-seconds, rows "
          f"{late:.1f} s late, {run['stolen']['busy']:.0%} of the CPU used",
          file=sys.stderr, flush=True)  # fmt: skip


def is_clean(stolen: Mapping[str, Any]) -> bool:
    """Whether others have left the CPU alone in most seconds of a run."""
    return bool(stolen["clean_seconds"] >= 0.9 * stolen["seconds"])


Job = tuple[tuple[Any, ...], dict[str, Any], Mapping[str, str] | None]


def made(jobs: Sequence[Job], runs: Runs, cluster: Cluster) -> None:
    """Make the runs that are missing, two at a time. Ours share a driver in each lane; Spark's
    time-outs cannot be changed in a running one."""
    left = [job for job in jobs if job[0] not in runs.found]
    lock = threading.Lock()

    def lane(_number: int) -> None:
        ours: Driver | None = None
        theirs: Driver | None = None
        held: Mapping[str, str] | None = None
        try:
            while True:
                with lock:
                    if not left:
                        return
                    name, spec, settings = left.pop(0)
                with alone(beside_its_own=True):
                    if settings is None:
                        driver = ours = ours or Driver(cluster)
                    else:
                        if theirs is not None and held != settings:
                            theirs.close()
                            theirs = None
                        driver = theirs = theirs or Driver(cluster, settings)
                        held = settings
                for _ in range(3):
                    with alone(beside_its_own=True), Steal() as steal:
                        found = driver.run(spec)
                    stolen = steal.told()
                    if is_clean(stolen):
                        break
                shown(runs.add({"name": name, **found, "stolen": stolen}))
        except BaseException:
            left.clear()  # the other lane ends with its run
            raise
        finally:
            for driver_ in filter(None, (ours, theirs)):
                driver_.close()

    with ThreadPoolExecutor(LANES) as lanes:
        try:
            for one in [lanes.submit(lane, number) for number in range(LANES)]:
                one.result()
        finally:
            left.clear()  # of an interruption only this thread hears


def spec_of(trace: str, **attach: Any) -> dict[str, Any]:
    """A run of a trace."""
    found: dict[str, Any] = {"trace": TRACES[trace], "lead_s": LEAD_S, "seconds": SECONDS}
    return {**found, "attach": attach} if attach else found


def swept(traces: Sequence[str], sweep: Sequence[Own]) -> list[Job]:
    """Spark's own with all time-outs, which take a driver each: it makes all traces."""
    return [
        ((trace, "sweep", *one), spec_of(trace), allocation(*one))
        for one in sweep
        for trace in traces
    ]


def kept_of(best: Mapping[str, Own]) -> dict[str, list[Own]]:
    """The best time-outs of each trace, also with more executors at least."""
    return {
        trace: [(idle, backlog, least), *((idle, backlog, more) for more in KEPT)]
        for trace, (idle, backlog, least) in best.items()
    }


def middle(runs: Runs, name: tuple[Any, ...], times: int) -> tuple[float, float]:
    """Machine-seconds and the 95th percentile of lateness: the medians of a run and of so many that
    repeat it."""
    some = [runs.found[one] for one in (name, *((*name, n) for n in range(1, times + 1)))]
    seconds = statistics.median(float(run["machine_s"]) for run in some)
    return seconds, statistics.median(float(run["late_s"]["95"]) for run in some)


def ranked(runs: Runs, trace: str, sweep: Iterable[Own], times: int = 0) -> list[Own]:
    """Spark's, the lowest product of machine-seconds and lateness first."""
    return sorted(sweep, key=lambda own: math.prod(middle(runs, (trace, "sweep", *own), times)))


def again(jobs: Sequence[Job], times: int = AGAIN) -> list[Job]:
    """The same ones, so many times more. What disturbs a minute disturbs one of each."""
    return [
        ((*name, number), spec, settings)
        for number in range(1, times + 1)
        for name, spec, settings in jobs
    ]


def asked(trace: str, name: str, limit_s: float, least: int) -> dict[str, Any]:
    """A run of ours. The model alone keeps a latency, and so many executors at least."""
    arguments = {"period": PERIOD_S, "max_executors": MOST, **OURS[name]}
    if name == "model":
        arguments |= {"max_latency": limit_s, "min_executors": least}
    return spec_of(trace, **arguments)


def limits_swept(trace: str, spark_s: float, limits: Iterable[Asked]) -> list[Job]:
    """The model with these limits, times Spark's lateness, and least executors."""
    return [
        ((trace, "limit", times, least), asked(trace, "model", times * spark_s, least), None)
        for times, least in limits
    ]


def cheapest(
    runs: Runs, trace: str, most_s: float, limits: Iterable[Asked], times: int = 0
) -> list[Asked]:
    """Those that are late by no more than that, the fewest machine-seconds first, and then the
    others, the least late first."""

    def rank(one: Asked) -> tuple[bool, float]:
        seconds, late_s = middle(runs, (trace, "limit", *one), times)
        return late_s > most_s, late_s if late_s > most_s else seconds

    return sorted(limits, key=rank)


def compared(
    trace: str, best: Own, spark_s: float, own: Asked, ours: Iterable[str], count: int
) -> list[Job]:
    """All who decide, so many times each."""
    times, least = own
    limit_s = times * spark_s
    jobs: list[Job] = []
    for number in range(count):
        jobs.append(((trace, "spark", number), spec_of(trace), allocation(*best)))
        for name in ours:
            jobs.append(((trace, name, number), asked(trace, name, limit_s, least), None))
    return jobs


@contextmanager
def a_cluster() -> Iterator[Cluster]:
    """A standalone one, with an archive of classes."""
    with tempfile.TemporaryDirectory() as folder, StandaloneCluster(Path(folder)) as standalone:
        standalone.add(4 * MOST, "16g")
        cluster = Cluster(standalone.url, Path(folder) / "classes.jsa")
        with alone(beside_its_own=True):
            Driver(cluster, most=1).close()  # its executor writes the archive
        yield cluster


def run(lab: Lab) -> Finding:
    """The sweep, then all of them in turn."""
    traces = ["steps"] if lab.quick else list(TRACES)
    sweep = SWEEP[:1] if lab.quick else SWEEP
    ours = ["model", "mended"] if lab.quick else list(OURS)
    count, times = (1, 0) if lab.quick else (RUNS, AGAIN)
    limits = LIMITS[:2] if lab.quick else LIMITS
    runs = Runs(lab.out / f"provisioning_sides.{'quick' if lab.quick else 'full'}.jsonl")
    with a_cluster() as cluster:
        made(swept(traces, sweep), runs, cluster)
        kept = kept_of({trace: ranked(runs, trace, sweep)[0] for trace in traces})
        made([job for t in traces for job in swept([t], kept[t])], runs, cluster)
        some = {t: ranked(runs, t, dict.fromkeys([*sweep, *kept[t]]))[:HOPEFUL] for t in traces}
        made([job for t in traces for job in again(swept([t], some[t]), times)], runs, cluster)
        best = {trace: ranked(runs, trace, some[trace], times)[0] for trace in traces}
        late = {t: middle(runs, (t, "sweep", *best[t]), times)[1] for t in traces}
        made([job for t in traces for job in limits_swept(t, late[t], limits)], runs, cluster)
        more = [job for t in traces for job in again(limits_swept(t, late[t], limits), times)]
        made(more, runs, cluster)
        own = {t: cheapest(runs, t, late[t], limits, times)[0] for t in traces}
        jobs = [job for t in traces for job in compared(t, best[t], late[t], own[t], ours, count)]
        made(jobs, runs, cluster)
    runs.done()
    return judged(runs, best, late, own, ours, count, decided=not lab.quick)


def judged(
    runs: Runs,
    best: Mapping[str, Own],
    late: Mapping[str, float],
    own: Mapping[str, Asked],
    ours: Sequence[str],
    count: int,
    decided: bool,
    most: float = 1.0,
) -> Finding:
    """By the rule, with the most that ours may be late, times Spark's."""
    rows, wrong, figures = [], [], {}
    for trace, (idle, backlog, least) in best.items():
        ratios: dict[str, dict[str, list[float]]] = {}
        for name in ("spark", *ours):
            pairs = [(runs.found[trace, name, n], runs.found[trace, "spark", n])
                     for n in range(count)]  # fmt: skip
            if any(run["done"] != run["wanted"] for run, _ in pairs):
                wrong.append(f"{trace}: rows are missing with {name}")
            ratios[name] = {"machines": [a["machine_s"] / b["machine_s"] for a, b in pairs]}
            for q in ("50", "95", "99"):
                ratios[name][q] = [a["late_s"][q] / b["late_s"][q] for a, b in pairs]
            median = {of: statistics.median(values) for of, values in ratios[name].items()}
            seconds = statistics.median(a["machine_s"] for a, _ in pairs)
            p95_s = statistics.median(a["late_s"]["95"] for a, _ in pairs)
            told = f"{seconds:.0f} ({median['machines']:.2f}), {p95_s:.1f} s ({median['95']:.2f})"
            if name == "spark":
                told = f"{seconds:.0f}, {p95_s:.1f} s (idle {idle} s, backlog {backlog} s"
                told += f", at least {least})"
            others = ", ".join(f"{median[q]:.2f}" for q in ("50", "99"))
            told += "" if name == "spark" else f"; p50, p99 over Spark's: {others}"
            if name == "model":
                times, few = own[trace]
                told += f"; asked for {times * late[trace]:.1f} s"
                told += f" and at least {few}"
            rows.append((f"{trace}, {name}: machine-seconds, p95 lateness", "", told))
            if name == "model" and (median["machines"] >= 1 or median["95"] > most):
                wrong.append(f"{trace}: {median['machines']:.2f} of the machine-seconds at "
                             f"{median['95']:.2f} of the lateness")  # fmt: skip
        figures[trace] = {"best": best[trace], "limit": own[trace], "ratios": ratios}
    busy = [run["stolen"]["busy"] for run in runs.found.values()]
    rows.append(("CPU used by all, mean and most of a run", "below 60 %",
                 f"{statistics.fmean(busy):.0%}, {max(busy):.0%}"))  # fmt: skip
    unclean = sum(not is_clean(run["stolen"]) for run in runs.found.values())
    rows.append(("runs with CPU stolen in more than a tenth of the seconds", "0", str(unclean)))
    commits = {str(run.get("commit"))[:SHORT] for run in runs.found.values()}
    rows.append(("commits of the runs", "", ", ".join(sorted(commits))))
    verdict = "missed: " + "; ".join(wrong) if wrong else (
        "on every trace the model uses fewer machine-seconds than Spark's own at no more "
        f"{'lateness' if most == 1 else f'than {most:g} times the lateness'}"
    )  # fmt: skip
    if statistics.median(busy) > BUSY:
        decided, verdict = False, f"undecided, as too much CPU was used; else {verdict}"

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(best), sharey=True, squeeze=False)[0]
        for axis, trace in zip(axes, best, strict=True):
            for name in ("spark", *ours):
                of = [runs.found[trace, name, n] for n in range(count)]
                axis.plot([r["machine_s"] for r in of], [r["late_s"]["95"] for r in of], "o",
                          ms=4, label=name)  # fmt: skip
            axis.set(xlabel="machine-seconds", xlim=(0, None))
            axis.set_title(trace, fontsize=9)
        axes[0].set(ylabel="95th percentile of lateness, s", ylim=(0, None))
        axes[-1].legend(fontsize=6)

    everything = {" ".join(map(str, name)): run for name, run in runs.found.items()}
    held = (not wrong) if decided else None
    return Finding({**figures, "runs": everything}, rows, verdict, held, draw)
