"""The micro-benchmark of Elasticutor (SIGMOD 2019, §5.1): a generator and a calculator with keyed
state, while the popularity of keys is shuffled.

    python examples/micro.py [--rate 1000 --seconds 20 --shuffles 2 --cost_ms 1 --wait]
    sojourn run examples/micro.py --max-sojourn 50ms

    generator ─→ calculator ─→ counts

There are 10 000 keys. The second most popular gets 1/2^0.5 of what the most popular one gets, the
third 1/3^0.5, and so on. So many times a minute, it is drawn anew which key is how popular. The
calculator spends `--cost_ms` on a tuple, as CPU time or, with `--wait`, as a pause, and counts the
tuples of each key beside `--state` bytes a shard that it only keeps.
"""

import argparse
import itertools
import math
import random
import time
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import sojourn as sj

Tuple = tuple[int, bytes]


@dataclass(frozen=True)
class Settings:
    """What the paper varies, with its defaults; the rate is ours."""

    rate: float = 500.0  # tuples per second
    seconds: float = 20.0
    keys: int = 10_000
    zipf: float = 0.5
    shuffles: float = 2.0  # ω, per minute
    size: int = 128  # bytes of a tuple
    cost_ms: float = 1.0  # of a tuple
    wait: bool = False
    state: int = 32 * 1024  # bytes of a shard
    executors: int = 1
    shards: int = 8192
    processors: int = 2
    seed: int = 0
    out: str | None = None

    def check(self) -> None:
        """Refuse what makes no sense."""
        least = {"cost_ms": 0.0, "zipf": 0.0, "shuffles": 0.0, "state": 0, "size": 0, "seed": 0}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in ("wait", "out"):
                continue
            if one.name in least and not least[one.name] <= value < math.inf:
                raise sj.InputError(f"{one.name} must be at least {least[one.name]}; got {value}")
            if one.name not in least and not 0 < value < math.inf:
                raise sj.InputError(f"{one.name} must be above 0; got {value}")


class Generator:
    """Tuples of keys that are popular in turn."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        shares = (rank**-settings.zipf for rank in range(1, settings.keys + 1))
        self.cumulative = list(itertools.accumulate(shares))
        self.payload = bytes(settings.size)
        self.turn, self.keys = -1, list(range(settings.keys))

    def tuple(self, number: int) -> Tuple:
        """The tuple of that number, always the same."""
        settings = self.settings
        draw = random.Random(settings.seed * 1_000_003 + number)
        rank = bisect(self.cumulative, draw.random() * self.cumulative[-1])
        turn = math.floor(self.passed_s(number) / 60 * settings.shuffles)
        if turn != self.turn:
            self.turn, self.keys = turn, list(range(settings.keys))
            random.Random(f"{settings.seed}/{turn}").shuffle(self.keys)
        return self.keys[rank], self.payload

    def passed_s(self, number: int) -> float:
        """The time of that tuple."""
        return number / self.settings.rate


def spend(cost_s: float) -> None:
    """So much CPU time."""
    end_s = time.thread_time() + cost_s
    while time.thread_time() < end_s:
        continue


class Calculator(sj.Operator):
    """Counts the tuples of each key, and keeps bytes that nobody looks at."""

    def __init__(self, work: Callable[[float], None], cost_s: float, state: int) -> None:
        self.work, self.cost_s, self.bytes = work, cost_s, state

    def process(self, value: Tuple) -> tuple[int, int]:
        self.work(self.cost_s)
        key, _ = value
        count = self.state.get(key, 0) + 1
        self.state[key] = count
        if count == 1 and self.bytes:
            self.state["kept", key] = bytes(self.bytes)
        return key, count


DEFAULTS = Settings()


def key_of(value: Tuple) -> int:
    """The key of a tuple."""
    return value[0]


def forget(_value: Any) -> None:
    """Nobody wants the counts."""


def topology(
    settings: Settings = DEFAULTS, generator: Callable[[Settings], Generator] = Generator
) -> sj.Topology:
    """generator → calculator → counts."""
    settings.check()
    t = sj.Topology("micro")
    count = max(1, round(settings.rate * settings.seconds))
    made = generator(settings)
    tuples = t.source(
        "generator",
        sj.sources.paced(made.tuple, rate=settings.rate, count=count, seed=settings.seed),
    )
    each = settings.state * settings.shards // settings.keys
    work = time.sleep if settings.wait else spend
    counts = t.map(
        "calculator",
        Calculator(work, settings.cost_ms / 1e3, each),
        tuples,
        key=key_of,
        executors=settings.executors,
        shards=settings.shards,
        processors=settings.processors,
    )
    out = settings.out
    t.sink("counts", sj.sinks.call(forget) if out is None else sj.sinks.jsonl(out), counts)
    return t


def main() -> None:
    """Run it, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for one in fields(Settings):
        default, name = getattr(DEFAULTS, one.name), f"--{one.name}"
        if one.name == "wait":
            parser.add_argument(name, action="store_true", help="pause instead of using a core")
        else:
            kind = str if default is None else type(default)
            parser.add_argument(name, type=kind, default=default)
    settings = Settings(**vars(parser.parse_args()))
    try:
        made = topology(settings)
    except sj.InputError as error:
        parser.error(str(error))
    with sj.start(made) as running:
        running.await_idle()
        found = running.samples()
    print(f"{found.vertices['calculator'].served} tuples")


if __name__ == "__main__":
    main()
