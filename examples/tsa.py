"""Twitter sentiment analysis (Liu 2017, fig. 10): what English tweets feel, and which hashtags are
most frequent, ten operators and sinks behind the source.

    sojourn profile examples/tsa.py
    python examples/tsa.py [--tweets FILE] [--count 2000] [--out out/tsa]

    tweets ─→ archive
    tweets ─→ language ─→ sentiment ─→ average ─→ feelings
                          sentiment ─→ hashtags ─→ rolling ─→ ranking ─→ total ─→ rankings

Tweets are JSON, one a line, with `text`, `lang` if it is known, and `timestamp_ms`. Those of a file
come over and over; without one they are made up. The sentiment of a text is the sum of its words',
by AFINN-111, which comes with pyspark. Averages and rankings are by minute of the tweets' own time.
Minutes are kept in state, not in windows of the API: tweets of a file come over and over, so their
time goes back, and a window that is closed would take them for late. Rankings are passed on once a
second, so what they make does not grow with the load; `total` ranks all hashtags and so has one
task.
"""

import argparse
import json
import random
import re
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyspark

import sojourn as sj

TOP = 5
MINUTE_MS = 60_000
BUCKETS = 16
COMMON = {"the", "and", "you", "for", "not", "this", "with", "that", "have", "are"}
TAG = re.compile(r"#(\w+)")
WORD = re.compile(r"[a-z']+")
Ranking = list[tuple[str, int]]


@cache
def valences() -> dict[str, int]:
    """What words feel, from -5 to 5."""
    path = Path(pyspark.__file__).parent / "data" / "streaming" / "AFINN-111.txt"
    lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {word: int(valence) for word, valence in lines if " " not in word}


def tweet(number: int) -> str:
    """A made-up tweet. Three of four are English, and half of them have a hashtag or two."""
    draw = random.Random(number)
    english = draw.random() < 0.75
    words = draw.choices(sorted(valences()), k=draw.randint(3, 7)) if english else []
    words += draw.choices(sorted(COMMON) if english else ["und", "der", "das", "nicht"], k=6)
    tags = draw.choices(range(60), [1 / rank for rank in range(1, 61)], k=draw.choice((0, 0, 1, 2)))
    text = " ".join([*words, *(f"#tag{tag}" for tag in tags)])
    return json.dumps({"id": number, "text": text, "timestamp_ms": 1000 * number // 5})


def language(line: str) -> list[tuple[int, str]]:
    """The minute and the text of a tweet, if it is English."""
    found = json.loads(line)
    text = found["text"]
    lang = found.get("lang")
    if lang is None:
        common = sum(word in COMMON for word in WORD.findall(text.lower()))
        lang = "en" if common >= 2 else "und"
    return [(int(found["timestamp_ms"]) // MINUTE_MS, text)] if lang == "en" else []


def sentiment(tweet_: tuple[int, str]) -> tuple[int, str, int]:
    """The same with what it feels."""
    minute, text = tweet_
    known = valences()
    return minute, text, sum(known.get(word, 0) for word in WORD.findall(text.lower()))


def minute_of(scored: tuple[int, str, int]) -> int:
    """A key."""
    return scored[0]


class Average(sj.Operator):
    """What tweets of a minute feel on average, so far."""

    def process(self, scored: tuple[int, str, int]) -> tuple[int, int, float]:
        minute, _, score = scored
        total, count = self.state.get(minute, (0, 0))
        self.state[minute] = total, count = total + score, count + 1
        return minute, count, total / count


def hashtags(scored: tuple[int, str, int]) -> list[tuple[int, str]]:
    """The hashtags of a tweet, with its minute."""
    return [(scored[0], tag.lower()) for tag in TAG.findall(scored[1])]


def tag_of(tagged: tuple[int, str]) -> str:
    """A key."""
    return tagged[1]


class Rolling(sj.Operator):
    """How often a hashtag came in a minute, so far."""

    def process(self, tagged: tuple[int, str]) -> tuple[int, str, int]:
        minute, tag = tagged
        count = self.state.get((minute, tag), 0) + 1
        self.state[minute, tag] = count
        return minute, tag, count


def bucket_of(counted: tuple[int, str, int]) -> int:
    """A key: hashtags are ranked in parts."""
    return zlib.crc32(counted[1].encode()) % BUCKETS


def ranked(counts: Iterable[tuple[str, int]]) -> Ranking:
    """The most frequent, and of equally frequent ones the first in the alphabet."""
    return sorted(counts, key=lambda item: (-item[1], item[0]))[:TOP]


class Ranked(sj.Operator):
    """The most frequent hashtags of a minute, among those that come here. They are passed on a
    second after one has changed."""

    def take(self, minute: int, some: Ranking) -> None:
        """Count the newest of each."""
        best = dict(self.state.get((self.key, minute), []))
        best.update(some)
        self.state[self.key, minute] = ranked(best.items())
        if (self.key, "due", minute) not in self.state:
            self.state[self.key, "due", minute] = True
            self.timers.after(1.0, minute)

    def on_timer(self, key: Any, minute: Any) -> Iterator[tuple[int, Ranking]]:
        del self.state[key, "due", minute]
        yield minute, self.state[key, minute]


class Part(Ranked):
    """Of a part of all hashtags."""

    def process(self, counted: tuple[int, str, int]) -> Iterator[tuple[int, Ranking]]:
        minute, tag, count = counted
        self.take(minute, [(tag, count)])
        return iter(())


class Total(Ranked):
    """Of all parts."""

    def process(self, part: tuple[int, Ranking]) -> Iterator[tuple[int, Ranking]]:
        self.take(*part)
        return iter(())


def everything(_part: tuple[int, Ranking]) -> int:
    """One key for all."""
    return 0


def topology(
    tweets: str | None = None,
    count: int | None = None,
    rate: float | None = None,
    out: str | None = None,
) -> sj.Topology:
    """The source and what is behind it. Without `out`, nobody keeps what comes out."""
    t = sj.Topology("tsa")

    def lines() -> Iterator[str]:
        made: Iterator[str]
        if tweets is None:
            made = (tweet(number) for number in range(10**9))
        else:
            made = cycle(Path(tweets).read_text(encoding="utf-8").splitlines())
        return made if count is None else islice(made, count)

    def kept(name: str) -> Any:
        return sj.sinks.call(lambda _: None) if out is None else sj.sinks.jsonl(f"{out}/{name}")

    stream = t.source("tweets", sj.sources.iterable(lines, rate=rate))
    t.sink("archive", kept("archive"), stream)
    scored = t.map("sentiment", sentiment, t.operator("language", language, stream))
    averages = t.map("average", Average, scored, key=minute_of)
    t.sink("feelings", kept("feelings"), averages)
    tagged = t.operator("hashtags", hashtags, scored)
    counts = t.map("rolling", Rolling, tagged, key=tag_of)
    parts = t.operator("ranking", Part, counts, key=bucket_of)
    total = t.operator("total", Total, parts, key=everything, shards=1)
    t.sink("rankings", kept("rankings"), total)
    return t


def main() -> None:
    """Analyse some tweets, and show each minute."""
    parser = argparse.ArgumentParser(description="what tweets feel, and their hashtags")
    parser.add_argument("--tweets", help="a file with a tweet a line, as JSON")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--out", default="out/tsa", help="directory for what comes out")
    options = parser.parse_args()
    if options.tweets is not None and not Path(options.tweets).is_file():
        parser.error(f"--tweets: there is no file {options.tweets!r}")
    if options.count < 1:
        parser.error(f"--count must be at least 1; got {options.count}")
    if any(Path(options.out).glob("*/*.jsonl")):
        parser.error(f"{options.out}: has results already; give another --out")
    made = topology(options.tweets, options.count, out=options.out)
    try:
        with sj.start(made) as running:
            running.await_idle()
    except sj.TopologyFailed as error:
        parser.exit(1, f"{error}\n")
    feelings: dict[int, tuple[int, float]] = {}
    for minute, tweets, mean in results(Path(options.out) / "feelings"):
        feelings[minute] = max(feelings.get(minute, (0, 0.0)), (tweets, mean))
    rankings = dict(results(Path(options.out) / "rankings"))
    for minute, (tweets, mean) in sorted(feelings.items()):
        tags = " ".join(f"#{tag} {times}" for tag, times in rankings.get(minute, []))
        print(f"minute {minute}: {tweets} tweets, {mean:+.2f} on average; {tags}")


def results(folder: Path) -> Iterator[Any]:
    """What a sink has published, in order."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


if __name__ == "__main__":
    main()
