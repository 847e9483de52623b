"""Liu fig. 11 on Spark: word count and a line whose operators sleep, so that two cores can have
many tasks, profiled stepwise, led by the model, by threshold and by Stela. Two cores say nothing
about margins; this shows that the mechanics work.

Rule: every method ends; by Welch's test, stepwise and guided carry no less for sure than with one
task each, and than threshold and Stela in as many rounds; profiling's own CPU time, without that of
trials, is below 1 % of a core."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lab import Finding, Lab
from profiled import ALL, all_told, final, told_of

import sojourn as sj
from sojourn.chains import contracted
from sojourn.cli.profile_view import boxes
from sojourn.confidence import differ
from sojourn.ports import Parallelism, Samples
from sojourn.profile import Profiling, SparkPlatform, SparkTrial
from sojourn.profiler.capability import Limits
from sojourn.profiler.readings import Reading
from sojourn.profiler.stepwise import Shape

ENGINES = ("spark",)
NOTES = (
    "on Spark; operators sleep for 2 to 8 ms; readings of half a second in quick runs, 20 a trial, "
    "and of a second in full ones; readings that scatter are taken as they are; sources are paced "
    "where tuples under way are bounded"
)
SLEEPS_S = {"parse": 0.008, "split": 0.004, "count": 0.002}  # of word count
LINE_S = 0.005
WORDS = 4  # of a tweet: twelve that sleep would take too many workers
SMALL = 10.0
TASKS = 8  # that stand for cores where the paper's bound on rounds asks for them: operators sleep
MOST_CPU = 0.01


def tweet(number: int) -> str:
    """A few words."""
    return " ".join(f"word{(number * 7 + i) % 97}" for i in range(WORDS))


def passed(seconds: float, value: Any) -> Any:
    """The same, later."""
    time.sleep(seconds)
    return value


def words(text: str) -> list[str]:
    """Of a tweet, later."""
    time.sleep(SLEEPS_S["split"])
    return text.split()


def itself(word: str) -> str:
    """A key."""
    return word


class Count(sj.Operator):
    """Counts each word, and sleeps."""

    def process(self, word: str) -> tuple[str, int]:
        time.sleep(SLEEPS_S["count"])
        self.state[word] = count = self.state.get(word, 0) + 1
        return word, count


def forget(_value: Any) -> None:
    """Nobody wants it."""


def counting() -> sj.Topology:
    """tweets → parse → split → count → out."""
    t = sj.Topology("wc")
    tweets = t.source("tweets", sj.sources.iterable(lambda: map(tweet, range(10**9))))
    texts = t.map("parse", partial(passed, SLEEPS_S["parse"]), tweets)
    counts = t.map("count", Count, t.operator("split", words, texts), key=itself)
    t.sink("out", sj.sinks.call(forget), counts)
    return t


def line() -> sj.Topology:
    """numbers → op1 → op2 → op3 → out."""
    t = sj.Topology("linear")
    last: Any = t.source("numbers", sj.sources.iterable(lambda: iter(range(10**9))))
    for name in ("op1", "op2", "op3"):
        last = t.map(name, partial(passed, LINE_S), last)
    t.sink("out", sj.sinks.call(forget), last)
    return t


def profiled(lab: Lab, topology: sj.Topology) -> tuple[Profiling, float]:
    """All methods; and the share of a core that profiling itself took."""
    platform = Timed(SparkPlatform(topology, 1, 2, spark=lab.session()))
    how = Reading(seconds=0.5 if lab.quick else 1.0, doublings=0, steadies=6)
    shape = Shape.of(contracted(topology))
    found = Profiling(shape, platform, Limits(cores=TASKS), how, SMALL)
    began_s, used_s = time.monotonic(), time.thread_time()
    found.run(ALL, told=told_of(found))
    own_s = time.thread_time() - used_s - platform.used_s
    return found, own_s / (time.monotonic() - began_s)


class Timed:
    """A platform that knows how much CPU time its trials take of the thread that runs them."""

    def __init__(self, platform: SparkPlatform) -> None:
        self.of, self.machines, self.cores = platform, platform.machines, platform.cores
        self.used_s = 0.0

    @property
    def most_parts(self) -> int:
        """As many as it says."""
        return self.of.most_parts

    @contextmanager
    def trial(self, parallelism: Parallelism, rate: float | None) -> Iterator["Timed.Trial"]:
        """Run the application."""
        with contextlib.ExitStack() as running:
            with self.timed():
                trial = running.enter_context(self.of.trial(parallelism, rate))
            yield Timed.Trial(self, trial)
            with self.timed():
                running.pop_all().close()

    def close(self) -> None:
        """End it."""
        self.of.close()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """What is done here is not profiling itself."""
        began_s = time.thread_time()
        yield
        self.used_s += time.thread_time() - began_s

    class Trial:
        """One of its trials."""

        def __init__(self, platform: "Timed", trial: SparkTrial) -> None:
            self.platform, self.of = platform, trial
            self.completed, self.waiting = trial.completed, trial.waiting

        def read(self, seconds: float) -> Samples:
            """Let so much time pass."""
            with self.platform.timed():
                return self.of.read(seconds)


def run(lab: Lab) -> Finding:
    """Both applications."""
    found, shares = {}, []
    for topology in (counting(), line()):
        found[topology.name], share = profiled(lab, topology)
        shares.append(share)
    rows, worse = [], []
    for name, of in found.items():
        one = of.rounds["threshold"][0].measured
        for method in ALL:
            rounds = len(of.tried(method))
            rows.append(
                (f"{name}: {method}, tuples a second, rounds", "",
                 f"{final(of, method):.0f}, {rounds}")
            )  # fmt: skip
        for method in ("stepwise", "guided"):
            ours = of.best[method].measured.readings
            others = (one, of.best["threshold"].measured, of.best["stela"].measured)
            if any(differ(other.readings, ours) < 0 for other in others):
                worse.append(f"{method} on {name}")
    rows.append(("CPU of profiling itself, of a core", "below 1%", f"{max(shares):.3%}"))
    if max(shares) >= MOST_CPU:
        worse.append("CPU of profiling itself")
    verdict = (
        "stepwise and guided carry no less than the others"
        if not worse
        else f"missed: {', '.join(worse)}"
    )

    def draw(figure: Any) -> None:
        for axis, (name, of) in zip(figure.subplots(1, 2), found.items(), strict=True):
            boxes(axis, of)
            axis.set_title(name)

    figures = {"applications": all_told(found), "cpu": shares}
    return Finding(figures, rows, verdict, not worse, draw)
