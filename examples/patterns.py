"""Three patterns of topologies, to be profiled (Liu 2017, §6.1.1): a line, a diamond and a star.

    sojourn profile examples/patterns.py:linear
    python examples/patterns.py [linear | diamond | star] [--depth 3] [--selectivity 1] [--count 9]

    linear   messages ─→ op1 ─→ op2 ─→ op3 ─→ (nothing); all compute
    diamond  messages ─→ one that computes, one that parses and two that sleep ─→ join ─→ (nothing)
    star     two sources ─→ hub ─→ two ends ─→ (nothing); all parse

One that computes draws 10 000 random numbers, one that parses reads the message as JSON, and one
that sleeps does so for 5 ms, as if it asked a service. Each passes on so many messages for one as
its selectivity says. The depth is that of the line, of each way through the diamond, or of each end
of the star.
"""

import argparse
import json
import random
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import sojourn as sj

NUMBERS, SLEEP_S = 10_000, 0.005
KINDS = ("cpu", "json", "sleep")


@dataclass(frozen=True)
class Settings:
    """Operators in a row, messages that each makes of one, messages per second (None: as many as
    are taken), and how many there are if they end."""

    depth: int = 3
    selectivity: float = 1.0
    rate: float | None = None
    count: int | None = None


DEFAULTS = Settings()
ONE_DEEP = Settings(depth=1)


def message(number: int) -> str:
    """A message in the shape of a tweet."""
    draw = random.Random(number)
    words = " ".join(f"word{draw.randrange(1000)}" for _ in range(12))
    return json.dumps({"id": number, "text": words, "user": {"name": f"user{number % 97}"}})


def work(kind: str, selectivity: float, text: str) -> list[str]:
    """The message, after some work, so many times as the selectivity says."""
    if kind == "sleep":
        time.sleep(SLEEP_S)
    elif kind == "json":
        text = json.dumps(json.loads(text))
    else:
        for _ in range(NUMBERS):
            random.random()
    whole = int(selectivity)
    more = random.random() < selectivity - whole
    return [text] * (whole + more)


def _source(t: sj.Topology, name: str, settings: Settings) -> Any:
    if settings.rate is None:
        count = settings.count
        numbers = range(10**9 if count is None else count)
        return t.source(name, sj.sources.iterable(lambda: map(message, numbers)))
    return t.source(name, sj.sources.paced(message, rate=settings.rate, count=settings.count))


def _row(t: sj.Topology, names: list[str], kind: str, settings: Settings, first: Any) -> Any:
    last = first
    for name in names:
        last = t.operator(name, partial(work, kind, settings.selectivity), last)
    return last


def _numbered(name: str, settings: Settings) -> list[str]:
    """Names of operators in a row."""
    return [name + ("" if i == 0 else f".{i + 1}") for i in range(settings.depth)]


def linear(settings: Settings = DEFAULTS, kinds: tuple[str, ...] = ("cpu",)) -> sj.Topology:
    """A row of operators that compute, or of the kinds in turn."""
    t = sj.Topology("linear")
    last = _source(t, "messages", settings)
    for number in range(settings.depth):
        last = _row(t, [f"op{number + 1}"], kinds[number % len(kinds)], settings, last)
    t.sink("nothing", sj.sinks.call(lambda _: None), last)
    return t


def diamond(settings: Settings = ONE_DEEP) -> sj.Topology:
    """Four ways from the source to a join."""
    t = sj.Topology("diamond")
    first = _source(t, "messages", settings)
    ways = []
    for way, kind in enumerate(("cpu", "json", "sleep", "sleep")):
        names = _numbered(f"{kind}{way + 1}", settings)
        ways.append(_row(t, names, kind, settings, first))
    join = t.operator("join", partial(work, "json", settings.selectivity), *ways)
    t.sink("nothing", sj.sinks.call(lambda _: None), join)
    return t


def star(settings: Settings = ONE_DEEP) -> sj.Topology:
    """Two sources, a hub and two ends; all parse."""
    t = sj.Topology("star")
    sources = [_source(t, name, settings) for name in ("left", "right")]
    hub = t.operator("hub", partial(work, "json", settings.selectivity), *sources)
    ends = [_row(t, _numbered(name, settings), "json", settings, hub) for name in ("up", "down")]
    t.sink("nothing", sj.sinks.call(lambda _: None), *ends)
    return t


PATTERNS = {"linear": linear, "diamond": diamond, "star": star}


def main() -> None:
    """Run so many messages through a pattern, and say how many came out of each operator."""
    parser = argparse.ArgumentParser(description="three patterns of topologies")
    parser.add_argument("pattern", nargs="?", choices=list(PATTERNS), default="linear")
    parser.add_argument("--depth", type=int)
    parser.add_argument("--selectivity", type=float, default=DEFAULTS.selectivity)
    parser.add_argument("--count", type=int, default=9)
    options = parser.parse_args()
    depth = options.depth
    if depth is None:
        depth = DEFAULTS.depth if options.pattern == "linear" else 1
    if depth < 1 or not 0 <= options.selectivity <= 100 or options.count < 1:
        parser.error("depth and count must be at least 1, and selectivity from 0 to 100")
    made = PATTERNS[options.pattern](Settings(depth, options.selectivity, None, options.count))
    try:
        with sj.start(made) as running:
            running.await_idle()
            seen = running.samples().vertices
    except sj.TopologyFailed as error:
        parser.exit(1, f"{error}\n")
    for name in made.operators:
        print(f"{name}: {seen[name].served} messages")


if __name__ == "__main__":
    main()
