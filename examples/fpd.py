"""Maximal frequent patterns over a sliding window of microblogs (DRS, ToN 2017, §V-A): which sets
of words occur together in many of the last messages, and are part of no larger such set.

    sojourn run examples/fpd.py --max-sojourn 200ms
    python examples/fpd.py --window 2000 --count 6000 [--file FILE]

    entering ─┐
              ├→ generate ─→ detect ─→ report ─→ patterns
    leaving ──┘      │        ↑  │
                     ↓        └──┘ a set that becomes, or is no longer, frequent tells the sets
                   capped          that it contains

A message enters the window and leaves it again as much later as `window` messages take at the rate.
`generate` makes all sets of its words; of a message with more words than `cap` only the first ones
in alphabetical order are used, and every such message is counted in `capped`. `detect` keeps for
each set how many messages in the window have it and how many frequent sets one word larger contain
it. A set is maximal if it is frequent and none of those is; what one step up does not contain,
larger sets do not either.

With `instances`, sets are divided among so many instances of the detector, as the paper has it, and
all of them are told of a set that becomes, or is no longer, frequent: each looks for the sets that
it keeps among those which that one contains.
"""

import argparse
import itertools
import json
import random
import zlib
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sojourn as sj

Words = tuple[str, ...]
Change = tuple[int, Words, int]  # by how much the count of a set, or of its larger sets, changes


@dataclass(frozen=True)
class Settings:
    """What to look for, and in what."""

    window: int = 50_000
    rate: float = 320.0
    support: float = 0.01  # share of the window that makes a set frequent
    cap: int = 4
    count: int | None = None  # messages in all; without end unless given
    seed: int = 0
    vocabulary: int = 2_000
    out: str = "out/fpd"
    file: str | None = None  # a message per line: text, or in .jsonl files a list of words
    on_error: sj.OnError = "fail"  # what becomes of a line that is neither: or skip, or dead-letter
    instances: int = 0  # of the detector, which are all told; 0: only the sets that are concerned

    def check(self) -> None:
        """Refuse what makes no sense."""
        for what, value, fine in (
            ("window", self.window, self.window >= 1),
            ("rate", self.rate, 0 < self.rate < float("inf")),
            ("support", self.support, 0 < self.support <= 1),
            ("cap", self.cap, 1 <= self.cap <= 20),
            ("vocabulary", self.vocabulary, self.vocabulary >= 1),
            ("count", self.count, self.count is None or self.count >= 1),
            ("instances", self.instances, 0 <= self.instances <= 256),
        ):
            if not fine:
                rule = {
                    "support": "above 0 and 1 at the most",
                    "cap": "from 1 to 20",
                    "instances": "from 0 to 256",
                }
                raise sj.InputError(f"{what} must be {rule.get(what, 'above 0')}; got {value}")

    @property
    def threshold(self) -> int:
        """Messages that make a set frequent."""
        return max(1, round(self.support * self.window))


@dataclass(frozen=True)
class Json:
    """A line of a .jsonl file."""

    line: str


class Zipf:
    """Messages of two to eight words, some of which are far more usual than others."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        shares = [1 / rank for rank in range(1, vocabulary + 1)]
        self.cumulative = list(itertools.accumulate(shares))
        self.seed = seed

    def message(self, number: int) -> Words:
        """The message of that number, always the same."""
        draw = random.Random(self.seed * 1_000_003 + number)
        ranks = {
            bisect(self.cumulative, draw.random() * self.cumulative[-1])
            for _ in range(draw.randint(2, 8))
        }
        return tuple(sorted(f"w{rank}" for rank in ranks))


def words_of(message: Any) -> Words:
    """The words of a message: of a line of text, or of a list of them, also one still in JSON."""
    if isinstance(message, Json):
        message = json.loads(message.line)
    elif isinstance(message, str):
        message = message.lower().split()
    if not isinstance(message, list | tuple) or not all(isinstance(w, str) for w in message):
        raise ValueError(f"a message must be text, or a list of words; got {message!r:.60}")
    for word in message:
        word.encode()  # one that is no UTF-8 is refused here
    return tuple(sorted(set(message)))


def messages(settings: Settings) -> tuple[Callable[[], Iterable[Any]], int | None]:
    """A function that begins with the first message, and how many there are."""
    if settings.file is None:
        zipf = Zipf(settings.vocabulary, settings.seed)
        return lambda: map(zipf.message, itertools.count()), settings.count
    path = Path(settings.file).resolve()

    def lines() -> Iterator[Any]:
        with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
            yield from map(Json, file) if path.suffix in (".jsonl", ".json") else file

    try:
        with path.open("rb") as file:
            is_text = b"\0" not in file.read(1 << 16)
        count = sum(1 for _ in lines())
    except OSError as error:
        raise sj.InputError(f"{path}: cannot be read: {error.strerror}") from None
    if not is_text:
        raise sj.InputError(f"{path}: is not text; give a file with a message per line")
    if not count:
        raise sj.InputError(f"{path}: is empty; give a message per line")
    return lines, count if settings.count is None else min(count, settings.count)


class Generate(sj.Operator):
    """All sets of the words of a message, of which `cap` are used at the most."""

    def __init__(self, cap: int) -> None:
        self.cap = cap

    def process(self, message: tuple[int, Any]) -> Iterator[Any]:
        sign, line = message
        words = words_of(line)
        if len(words) > self.cap:
            if sign > 0:
                yield sj.Output("capped", {"words": len(words), "used": self.cap})
            words = words[: self.cap]
        for size in range(1, len(words) + 1):
            for found in itertools.combinations(words, size):
                yield sign, found, 0


class Detect(sj.Operator):
    """Per set: how many messages have it, how many frequent sets one larger contain it. With
    `threshold` messages a set is frequent."""

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold

    def process(self, change: Change) -> Iterator[Any]:
        by, words, by_larger = change
        count, larger = self.state.get(words, (0, 0))
        was_frequent, was_maximal = self._kind(count, larger)
        count, larger = count + by, larger + by_larger
        frequent, maximal = self._kind(count, larger)
        if count or larger:
            self.state[words] = (count, larger)
        else:
            self.state.pop(words, None)
        if frequent != was_frequent and len(words) > 1:
            for notice in self.notices(words, 1 if frequent else -1):
                yield sj.Output("changed", notice)
        if maximal != was_maximal:
            yield {"words": list(words), "maximal": maximal, "count": count}

    def notices(self, words: Words, step: int) -> Iterable[Any]:
        """Who is told of a set that becomes, or is no longer, frequent."""
        return ((0, smaller, step) for smaller in contained(words))

    def _kind(self, count: int, larger: int) -> tuple[bool, bool]:
        """Whether a set is frequent, and whether it is maximal."""
        frequent = count >= self.threshold
        return frequent, frequent and larger == 0


def contained(words: Words) -> Iterator[Words]:
    """The sets one word smaller."""
    return (words[:without] + words[without + 1 :] for without in range(len(words)))


def instance_of(instances: int, change: Any) -> int:
    """The instance that a change or a notice is for."""
    if isinstance(change, Notice):
        return change.instance
    return zlib.crc32(" ".join(change[1]).encode()) % instances


@dataclass(frozen=True)
class Notice:
    """What an instance is told: this set became, or is no longer, frequent."""

    instance: int
    words: Words
    step: int


class DetectForAll(Detect):
    """The same with instances that keep a part of the sets each and are all told."""

    def __init__(self, threshold: int, instances: int) -> None:
        super().__init__(threshold)
        self.instances = instances

    def process(self, change: Any) -> Iterator[Any]:
        if not isinstance(change, Notice):
            yield from super().process(change)
            return
        for smaller in contained(change.words):
            own = (0, smaller, change.step)
            if instance_of(self.instances, own) == change.instance:
                yield from super().process(own)

    def notices(self, words: Words, step: int) -> Iterable[Any]:
        return (Notice(instance, words, step) for instance in range(self.instances))


def report(update: dict[str, Any]) -> dict[str, Any]:
    """One line of the report."""
    return update


DEFAULTS = Settings()


def topology(settings: Settings = DEFAULTS) -> sj.Topology:
    """Two sources, the loop, and the report."""
    settings.check()
    t = sj.Topology("fpd")
    made, count = messages(settings)
    window = settings.window

    def first(many: int | None, sign: int) -> Callable[[], Iterable[Any]]:
        return lambda: ((sign, line) for line in itertools.islice(made(), many))

    entering = t.source(
        "entering",
        sj.sources.iterable(
            first(count, 1), rate=settings.rate, arrivals="poisson", seed=settings.seed
        ),
    )
    leaving = t.source(
        "leaving",
        sj.sources.iterable(
            first(None if count is None else max(0, count - window), -1),
            rate=((window / settings.rate, 0.0), (1.0, settings.rate)),
            arrivals="poisson",
            seed=settings.seed,  # the same gaps, a window later
        ),
    )
    sets = t.operator(
        "generate", Generate(settings.cap), entering, leaving, on_error=settings.on_error
    )
    if settings.instances:
        found = t.operator(
            "detect",
            DetectForAll(settings.threshold, settings.instances),
            sets,
            key=partial(instance_of, settings.instances),
        )
    else:
        found = t.operator("detect", Detect(settings.threshold), sets, key=lambda change: change[1])
    t.feedback(found["changed"], found)
    told = t.map("report", report, found, key=lambda update: tuple(update["words"]))
    t.sink("patterns", sj.sinks.jsonl(f"{settings.out}/patterns"), told)
    t.sink("capped", sj.sinks.jsonl(f"{settings.out}/capped"), sets["capped"])
    return t


def lines_of(directory: str) -> Iterator[dict[str, Any]]:
    """Everything that a sink has written, in order."""
    for path in sorted(Path(directory).glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            yield from map(json.loads, file)


def maximal_patterns(settings: Settings) -> set[Words]:
    """What the report says in the end."""
    last = {tuple(u["words"]): u["maximal"] for u in lines_of(f"{settings.out}/patterns")}
    return {words for words, maximal in last.items() if maximal}


def main() -> None:
    """Run over a finite stream and print the patterns of its last window."""
    parser = argparse.ArgumentParser(description="maximal frequent patterns over a window")
    for name, kind in (("window", int), ("rate", float), ("support", float), ("cap", int),
                       ("count", int), ("seed", int), ("file", str), ("out", str),
                       ("instances", int)):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--on-error", choices=("fail", "skip", "dead-letter"))
    given = {k: v for k, v in vars(parser.parse_args()).items() if v is not None}
    if "file" not in given:
        given = {"count": 2_000, "window": 1_000, **given}
    settings = Settings(**given)
    try:
        made = topology(settings)
        checkpoint = Path(settings.out) / "checkpoint"
        if checkpoint.exists() or any(Path(settings.out).glob("*/*.jsonl")):
            raise sj.InputError(f"{settings.out}: has results already; give another --out")
    except sj.InputError as error:
        parser.error(str(error))
    try:
        with sj.start(made, checkpoint=checkpoint) as running:
            running.await_idle()
            dropped = running.samples().vertices["generate"].dropped
    except sj.TopologyFailed as error:
        parser.exit(1, f"{error}\n")
    for words in sorted(maximal_patterns(settings), key=lambda found: (-len(found), found)):
        print(" ".join(words))
    capped = sum(1 for _ in lines_of(f"{settings.out}/capped"))
    print(f"{capped} messages had more than {settings.cap} words; only the first {settings.cap} "
          f"in the alphabet were used")  # fmt: skip
    print(f"{settings.threshold} messages of a window of {settings.window} make a set frequent")
    print(f"{dropped} lines, entering or leaving, could not be read")
    if dropped and settings.on_error == "dead-letter":
        print(f"they are in {checkpoint}/sojourn/dead-letters/generate")


if __name__ == "__main__":
    main()
