"""Profiling on Spark, for figure 11: word count and a line whose operators sleep, so that two cores
can have many tasks. Two cores say nothing about margins; this shows that the mechanics work."""

import time
from functools import partial
from typing import Any

from lab import Finding, Lab
from profiled import ALL, all_told, final

import sojourn as sj
from sojourn.chains import contracted
from sojourn.cli.profile_view import boxes
from sojourn.confidence import differ
from sojourn.profile import Profiling, SparkPlatform
from sojourn.profiler.capability import Limits
from sojourn.profiler.readings import Reading
from sojourn.profiler.stepwise import Shape

SLEEPS_S = {"parse": 0.008, "split": 0.004, "count": 0.002}  # of word count
LINE_S = 0.005
WORDS = 4  # of a tweet: twelve that sleep would take too many workers
SMALL = 10.0


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
    platform = SparkPlatform(topology, 1, 2, spark=lab.session())
    how = Reading(seconds=0.5 if lab.quick else 1.0, doublings=0, steadies=6)
    shape = Shape.of(contracted(topology))
    found = Profiling(shape, platform, Limits(cores=8), how, SMALL)
    began_s, used_s = time.monotonic(), time.thread_time()
    found.run(ALL)
    return found, (time.thread_time() - used_s) / (time.monotonic() - began_s)


def on_spark(lab: Lab) -> Finding:
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
    rows.append(("CPU of profiling itself, of a core", "", f"{max(shares):.2%}"))
    verdict = (
        "stepwise and guided carry no less than the others"
        if not worse
        else f"carries less than another: {', '.join(worse)}"
    )

    def draw(figure: Any) -> None:
        for axis, (name, of) in zip(figure.subplots(1, 2), found.items(), strict=True):
            boxes(axis, of)
            axis.set_title(name)

    figures = {"applications": all_told(found), "cpu": shares}
    return Finding(figures, rows, verdict, not worse, draw)
